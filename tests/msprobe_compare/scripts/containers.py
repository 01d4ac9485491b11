# SPDX-License-Identifier: Apache-2.0
"""Modules with tuples, keywords, None and dictionaries, one called twice, and one used now and then."""
from typing import Any, Optional

import torch
from msprobe.pytorch import TrainerMon
from torch import nn

import training

WIDTH = 8


class Pair(nn.Module):
    """Tuple in, tuple out."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> "tuple[torch.Tensor, torch.Tensor]":
        return self.left(x), self.right(y)


class Gate(nn.Module):
    """A place that is None, a number, and a keyword."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(
        self, x: torch.Tensor, mask: Optional[torch.Tensor], scale: float, *, other: torch.Tensor
    ) -> torch.Tensor:
        return x * self.weight * scale + torch.sigmoid(other)


class Named(nn.Module):
    """A dictionary out."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> "dict[str, torch.Tensor]":
        y = self.fc(x)
        return {"sum": y + x, "product": y * x}


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pair, self.gate, self.named = Pair(), Gate(), Named()
        self.twice = nn.Linear(WIDTH, WIDTH)
        self.rare = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, *, with_rare: bool) -> torch.Tensor:
        left, right = self.pair(x, x * 2)
        gated = self.gate(left, None, 0.5, other=right)
        parts: "dict[str, Any]" = self.named(self.twice(torch.tanh(self.twice(gated))))
        out = parts["sum"] + parts["product"]
        return out + self.rare(out) if with_rare else out


def main() -> None:
    options = training.begin()
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    monitor = TrainerMon(options.config, params_have_main_grad=False)
    monitor.set_monitor(model, optimizer=optimizer, grad_acc_steps=1)
    for step in range(options.steps):
        x = torch.randn(5, WIDTH)
        optimizer.zero_grad()
        model(x, with_rare=step % 2 == 0).square().mean().backward()
        optimizer.step()
    training.end(options, model)


if __name__ == "__main__":
    main()
