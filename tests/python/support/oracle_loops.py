# SPDX-License-Identifier: Apache-2.0
"""The oracle's models and loops: each is a function that trains a few iterations with `run`."""
from typing import Any, Callable

import torch
from jobs import nothing
from torch import nn

STEPS = 3
LOOPS: "dict[str, Callable[[Run], None]]" = {}  # by name


class Run:
    """One training: with a recorder, with gradmon, or with neither."""

    def __init__(self, watcher: Any, ends_iterations: bool) -> None:
        self.watcher = watcher
        self.models: "list[nn.Module]" = []
        self._ends_iterations = ends_iterations  # False: the watcher must find their ends

    def watch(self, model: nn.Module, optimizer: Any, **keywords: Any) -> None:
        self.models.append(model)
        self.watcher.watch(model, optimizer, **keywords)

    def backward(self, loss: torch.Tensor) -> None:
        self.watcher.in_backward = True
        loss.backward()
        self.watcher.in_backward = False

    def end(self, explicit: bool = False) -> None:
        if explicit and hasattr(self.watcher, "step"):
            self.watcher.step()
        elif self._ends_iterations:
            self.watcher.end_iteration()


def data(*sizes: int, step: int = 0, micro: int = 0) -> torch.Tensor:
    count = int(torch.tensor(sizes).prod())
    return torch.sin(torch.arange(float(count)) * 0.7 + step + 0.3 * micro).reshape(sizes)


def tokens(step: int, size: int = 7, rows: int = 2, length: int = 3) -> torch.Tensor:
    return (torch.arange(rows * length).reshape(rows, length) * 5 + step) % size


def adam(model: nn.Module, **options: Any) -> Any:
    return torch.optim.Adam(model.parameters(), lr=0.01, **options)


def one_model(
    run: Run,
    model: nn.Module,
    inputs: Callable[..., Any] = lambda step, micro=0: data(3, 4, step=step, micro=micro),
    optimizer: Any = None,
    loss: Callable[[Any], torch.Tensor] = lambda out: out.pow(2).mean(),
    micro: int = 1,
    to_none: bool = True,
    begin: Callable[[int], Any] = nothing,
    reduced: Callable[[int], Any] = nothing,
    updated: Callable[[int], Any] = nothing,
) -> None:
    """The simplest loop: `micro` times forward and backward, then one step. begin, reduced, updated: called
    before the step's first forward, after its last backward, and after its update."""
    optimizer = adam(model) if optimizer is None else optimizer
    run.watch(model, optimizer, **({"grad_acc_steps": micro} if micro > 1 else {}))
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none=to_none)
        begin(step)
        for number in range(micro):
            given = inputs(step, number) if number else inputs(step)
            run.backward(loss(model(*given) if isinstance(given, tuple) else model(given)) / micro)
        reduced(step)
        optimizer.step()
        updated(step)
        run.end()


def mlp(inputs: int = 4, outputs: int = 2, inplace: bool = False) -> nn.Module:
    act = nn.ReLU(inplace=True) if inplace else nn.Tanh()
    return nn.Sequential(nn.Linear(inputs, 6), act, nn.Linear(6, outputs))
