# SPDX-License-Identifier: Apache-2.0
"""The model and the data that every framework of tools/demo --frameworks trains with."""
import torch

LAYERS, WIDTH, HEADS = 2, 16, 4
VOCABULARY, CONTEXT = 32, 12
ROWS = 2  # of a batch
PLACES = 2  # data-parallel ranks; each has its own batches
LR = 1e-4  # small: in each step, Adam amplifies the differences of sums in another order
SEED = 7


class Attention(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        # Separate, so that tensor parallelism can split them by heads. Without bias: the gradient of a key's
        # bias is zero except for rounding errors, which Adam would amplify to a whole step.
        self.query, self.key, self.value = (torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))
        self.out = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length = x.shape[:2]
        heads = (
            part(x).view(rows, length, -1, WIDTH // HEADS).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        mixed = torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        found: torch.Tensor = self.out(mixed.transpose(1, 2).reshape(rows, length, -1))
        return found


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.up, self.down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        found: torch.Tensor = x + self.down(torch.nn.functional.gelu(self.up(self.norm2(x))))
        return found


class GPT(torch.nn.Module):
    """Returns the loss of a batch of tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.position = torch.nn.Embedding(CONTEXT, WIDTH)
        self.blocks = torch.nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.head = torch.nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        given, wanted = tokens[:, :-1], tokens[:, 1:]
        x = self.embedding(given) + self.position(torch.arange(CONTEXT))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten())


def seeded(kind: type = GPT) -> torch.nn.Module:
    """The model with the same weights everywhere."""
    torch.manual_seed(SEED)
    model: torch.nn.Module = kind()
    return model


def adam(model: torch.nn.Module) -> torch.optim.Optimizer:
    # Without weight decay: Megatron leaves out the decay of some parameters.
    return torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.0)


class Tokens(torch.utils.data.Dataset[torch.Tensor]):
    """The rows of all batches, in the order in which a loader gives them to the ranks: batch after batch, the
    ranks in turn."""

    def __init__(self, steps: int) -> None:
        self._steps = steps

    def __len__(self) -> int:
        return self._steps * PLACES * ROWS

    def __getitem__(self, row: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(row)
        return torch.randint(0, VOCABULARY, (CONTEXT + 1,), generator=generator)


def batch(step: int, place: int) -> torch.Tensor:
    """The batch of the data-parallel rank `place`."""
    first = (step * PLACES + place) * ROWS
    rows = Tokens(step + 1)
    return torch.stack([rows[first + i] for i in range(ROWS)])


class Batches(torch.utils.data.Dataset[torch.Tensor]):
    """One rank's batches."""

    def __init__(self, steps: int, place: int) -> None:
        self._steps, self._place = steps, place

    def __len__(self) -> int:
        return self._steps

    def __getitem__(self, step: int) -> torch.Tensor:
        if step >= self._steps:
            raise IndexError(step)
        return batch(step, self._place)
