# SPDX-License-Identifier: Apache-2.0
"""Records the series that the tests of the alert rules replay: real training runs with one planted fault.

    python3 record.py FOLDER [--healthy RUNS]

Each file has a header `step,loss,PARAMETER...` and one line for each step: the loss, and the Euclidean
norm of each parameter's gradient. `--healthy` records that many runs without a fault instead, with
different seeds, optimizers and learning rates.
"""
import math
import sys
from pathlib import Path
from typing import Callable

import torch
from torch import nn

TOKENS, WIDTH, BATCH, LENGTH, STEPS = 48, 32, 16, 32, 300


class Reader(nn.Module):
    """A small language model: one attention block and one ReLU block."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.fc1 = nn.Linear(WIDTH, 4 * WIDTH)
        self.fc2 = nn.Linear(4 * WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, TOKENS)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
        x = self.embedding(tokens)
        x = x + self.attention(x, x, x, attn_mask=mask, need_weights=False)[0]
        x = x + self.fc2(torch.relu(self.fc1(x)))
        head: torch.Tensor = self.head(x)
        return head


def text(chain: torch.Tensor) -> torch.Tensor:
    """A batch of sequences from a Markov chain."""
    tokens = torch.randint(TOKENS, (BATCH, 1))
    while tokens.shape[1] <= LENGTH:
        tokens = torch.cat([tokens, torch.multinomial(chain[tokens[:, -1]], 1)], dim=1)
    return tokens


# Gets the step, the model and the batch. Returns the batch to train with, and a factor of the loss.
Fault = Callable[[int, Reader, torch.Tensor], tuple[torch.Tensor, float]]


def train(
    seed: int, fault: Fault, optimizer_class: type = torch.optim.AdamW, rate: float = 3e-3
) -> list[str]:
    torch.manual_seed(seed)
    model = Reader()
    chain = torch.softmax(3 * torch.randn(TOKENS, TOKENS), dim=1)
    optimizer = optimizer_class(model.parameters(), lr=rate)
    names = [name for name, _ in model.named_parameters()]
    lines = [",".join(["step", "loss", *names])]
    for step in range(STEPS):
        batch, factor = fault(step, model, text(chain))
        optimizer.zero_grad()
        logits = model(batch[:, :-1])
        loss = factor * nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        norms = [parameter.grad.double().norm().item() for parameter in model.parameters()]
        lines.append(",".join([str(step), *(f"{value:.6g}" for value in [loss.item(), *norms])]))
        optimizer.step()
    return lines


def none(_step: int, _model: Reader, batch: torch.Tensor) -> tuple[torch.Tensor, float]:
    return batch, 1.0


def poisoned_batch(step: int, _model: Reader, batch: torch.Tensor) -> tuple[torch.Tensor, float]:
    """Step 200 gets random tokens instead of text."""
    return (torch.randint(TOKENS, batch.shape) if step == 200 else batch), 1.0


def dying_layer(step: int, model: Reader, batch: torch.Tensor) -> tuple[torch.Tensor, float]:
    """Before step 150 the biases of fc1 become so negative that no ReLU is ever active again."""
    if step == 150:
        with torch.no_grad():
            model.fc1.bias -= 100
    return batch, 1.0


def overflow(step: int, _model: Reader, batch: torch.Tensor) -> tuple[torch.Tensor, float]:
    """From step 120 on the loss is infinite, and gradients are NaN."""
    return batch, math.inf if step >= 120 else 1.0


def main(folder: Path, healthy: int) -> None:
    torch.set_num_threads(1)
    runs = {"loss_spike": poisoned_batch, "dying_layer": dying_layer, "nan": overflow}
    if healthy == 0:
        for name, fault in runs.items():
            (folder / f"{name}.csv").write_text("\n".join(train(1, fault)) + "\n")
    for run in range(healthy):
        kind = [torch.optim.AdamW, torch.optim.SGD][run % 2]
        rate = [3e-4, 3e-2, 3e-3, 0.3, 1e-2, 0.1][run % 6]
        (folder / f"healthy_{run}.csv").write_text("\n".join(train(100 + run, none, kind, rate)) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[3]) if len(sys.argv) > 3 else 0)
