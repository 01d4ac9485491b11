# SPDX-License-Identifier: Apache-2.0
"""Finds the end of an iteration in which several optimizers step."""
from typing import Any

from gradmon import _gradmon


def parameters_of(optimizer: Any) -> "set[int]":
    """Ids of the optimizer's parameters; empty if they cannot be read."""
    try:
        return {id(parameter) for parameter in _gradmon.parameters_of(optimizer)}
    except (AttributeError, KeyError, TypeError, RuntimeError):
        return set()


def has(some: "list[Any]", one: Any) -> bool:
    """Whether the list contains the object, by identity."""
    return any(one is known for known in some)


class OptimizerRounds:
    """An iteration ends when all awaited optimizers have stepped, in any order. At first all
    optimizers are awaited. If one steps twice before the others have stepped, the others are no
    longer awaited. Training thread."""

    __slots__ = ("single", "stepped", "_all", "_awaited")

    def __init__(self) -> None:
        self.single = True  # at most one optimizer: each of its steps ends an iteration
        self.stepped: "list[Any]" = []  # in this iteration
        self._all: "list[Any]" = []
        self._awaited: "list[Any]" = []  # optimizers that an iteration waits for

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

    def steps_twice(self, optimizer: Any) -> bool:
        """Call it before the optimizer steps. True if it has already stepped in this iteration: the
        iteration is then over."""
        if not has(self.stepped, optimizer) or not has(self._awaited, optimizer):
            return False
        absent = [one for one in self._awaited if not has(self.stepped, one)]
        names = ", ".join(type(one).__name__ for one in absent)
        _gradmon.warn_once(
            f"{type(optimizer).__name__} stepped several times while {names} did not; if optimizers step at "
            "different rates, call step() at the end of the iteration"
        )
        self._awaited = [one for one in self._awaited if has(self.stepped, one)]
        self.stepped = []
        return True

    def completes_iteration(self, optimizer: Any) -> bool:
        """Call it after the optimizer, one of several, has stepped. True if the iteration is over."""
        self.stepped.append(optimizer)
        if not all(has(self.stepped, one) for one in self._awaited):
            return False
        self.stepped = []
        return True
