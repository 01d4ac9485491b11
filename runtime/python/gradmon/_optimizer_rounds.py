# SPDX-License-Identifier: Apache-2.0
"""Where an iteration ends in which several optimizers step."""
from typing import Any

from gradmon import _gradmon


def parameters_of(optimizer: Any) -> "set[int]":
    """By identity; none where it does not show them."""
    try:
        return {id(parameter) for parameter in _gradmon.updated_by(optimizer)}
    except (AttributeError, KeyError, TypeError, RuntimeError):
        return set()


def has(some: "list[Any]", one: Any) -> bool:
    """By identity."""
    return any(one is known for known in some)


class OptimizerRounds:
    """An iteration ends when every optimizer has stepped that keeps pace, in whatever order;
    all do until one has come round twice without them. Training thread."""

    __slots__ = ("single", "stepped", "_all", "_awaited")

    def __init__(self) -> None:
        self.single = True  # no more than one optimizer: each step of it ends an iteration
        self.stepped: "list[Any]" = []  # in this iteration
        self._all: "list[Any]" = []
        self._awaited: "list[Any]" = []  # those that keep pace

    def add(self, optimizer: Any) -> None:
        self._set(self._all + [optimizer], self._awaited + [optimizer], self.stepped)

    def remove(self, optimizer: Any) -> None:
        self._set(
            *(
                [one for one in some if one is not optimizer]
                for some in (self._all, self._awaited, self.stepped)
            )
        )

    def clear(self) -> None:
        self._set([], [], [])

    def _set(self, every: "list[Any]", awaited: "list[Any]", stepped: "list[Any]") -> None:
        self._all, self._awaited = every, awaited
        self.single = len(every) < 2
        self.stepped = [] if self.single else stepped

    def comes_again(self, optimizer: Any) -> bool:
        """Before it steps: whether it has in this iteration, which then is over."""
        if not has(self.stepped, optimizer) or not has(self._awaited, optimizer):
            return False
        absent = [one for one in self._awaited if not has(self.stepped, one)]
        names = ", ".join(type(one).__name__ for one in absent)
        _gradmon.warn_once(
            f"{names}: no step in an iteration in which {type(optimizer).__name__} made several; where "
            "optimizers step unequally often, call step() at the end of the iteration"
        )
        self._awaited = [one for one in self._awaited if has(self.stepped, one)]
        self.stepped = []
        return True

    def ends_with(self, optimizer: Any) -> bool:
        """After it has stepped, one of several: whether the iteration is over."""
        self.stepped.append(optimizer)
        if not all(has(self.stepped, one) for one in self._awaited):
            return False
        self.stepped = []
        return True
