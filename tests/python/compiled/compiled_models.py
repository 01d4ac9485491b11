# SPDX-License-Identifier: Apache-2.0
"""Models of which torch.compile compiles parts, each with what is special about it; and their rows."""
import csv
from pathlib import Path
from typing import Any, Callable

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.inner(x)
        return y


class Block(nn.Module):
    """A residual block whose activation is in place."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.norm, self.up, self.down = (nn.LayerNorm(width), nn.Linear(width, 16), nn.Linear(16, width))
        self.act = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = x + self.down(self.act(self.up(self.norm(x))))
        return y


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unflatten(-1, (2, 4)).transpose(-3, -2) for part in self.qkv(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        shown: torch.Tensor = self.out(y.transpose(-3, -2).flatten(-2))
        return shown


class Tied(nn.Module):
    """A module that is called twice, and one that shares its weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.second.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.second(self.first(self.first(x).tanh()))
        return y


class Pair(nn.Module):
    """A tuple, a dict by keyword, a named tuple's kind of nesting, and a number beside tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, *, side: "dict[str, Any]") -> Any:
        y = self.a(x) + side["bias"]
        return {"hidden": y, "both": (self.b(y), side["scale"])}


class Containers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pair, self.end = Pair(), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = self.pair(x, side={"bias": x.sin(), "scale": 2.0})
        both, scale = found["both"]
        y: torch.Tensor = self.end(found["hidden"] + scale * both)
        return y


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.end = nn.LSTM(8, 8, batch_first=True), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found, (hidden, _) = self.lstm(x)
        y: torch.Tensor = self.end(found) + hidden.mean()
        return y


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.end = nn.Embedding(16, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.end(self.embedding((x.abs().sum(-1) * 7).long() % 16)) + x
        return y


class Conv(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv1d(6, 6, 3, padding=1), nn.GroupNorm(2, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.norm(self.conv(x)).relu()
        return y


class Experts(nn.Module):
    """The routing depends on the data, without a change of shapes."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(8, 3)
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        chosen = F.one_hot(self.router(x).argmax(-1), 3).to(x.dtype)
        y: torch.Tensor = torch.stack([e(x) for e in self.experts], -1) @ chosen.unsqueeze(-1)
        return y.squeeze(-1)


class Checkpointed(nn.Module):
    def __init__(self, use_reentrant: bool) -> None:
        super().__init__()
        self.inner = Block()
        self._use_reentrant = use_reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = checkpoint(self.inner, x, use_reentrant=self._use_reentrant)
        return y


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Block()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            y: torch.Tensor = self.inner(x)
        return y.float()


ACTIVATIONS = {"xy_distribution": True, "all_xy": True, "digits": 17, "step_interval": 2}
# In eager mode a tensor that is written to in place has no gradient of its own any more. Compiled code keeps
# both values.
WRITTEN_IN_PLACE = {"up.output", "act.input", "inner.up.output", "inner.act.input"}


def rows(directory: Path, kind: str, rank: int = 0) -> "dict[Any, dict[str, float]]":
    """In their order in the files: the statistics by name, step, micro step and shape."""
    found: "dict[Any, dict[str, float]]" = {}
    for path in sorted((directory / "out").glob(f"*rank{rank}-*/{kind}_[0-9]*.csv")):
        for row in csv.DictReader(path.read_text().splitlines()):
            key = (row["name"], row["step"], row.get("micro_step"), row.get("shape"))
            assert key not in found, f"{key} twice in {path}"
            found[key] = {op: float(row[op]) for op in ("min", "max", "mean", "norm") if row.get(op)}
    assert len(found) >= 8
    return found


MODELS: "dict[str, Callable[[], nn.Module]]" = {
    "plain": Plain,
    "residual": Block,
    "attention": Attention,
    "tied": Tied,
    "containers": Containers,
    "lstm": Recurrent,
    "embedding": Words,
    "conv": Conv,
    "experts": Experts,
    "checkpointed": lambda: Checkpointed(False),
    "reentrant": lambda: Checkpointed(True),
    "autocast": Mixed,
}


class Model(nn.Module):
    """Blocks in a row between two linear layers."""

    def __init__(self, blocks: "list[nn.Module]") -> None:
        super().__init__()
        self.begin, self.blocks, self.end = nn.Linear(8, 8), nn.ModuleList(blocks), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.begin(x)
        for block in self.blocks:
            x = block(x)
        y: torch.Tensor = self.end(x)
        return y


def made(name: str, blocks: int = 2) -> Model:
    torch.manual_seed(11)
    return Model([MODELS[name]() for _ in range(blocks)])


def batch(step: int) -> torch.Tensor:
    return torch.randn(4, 6, 8, generator=torch.Generator().manual_seed(step))
