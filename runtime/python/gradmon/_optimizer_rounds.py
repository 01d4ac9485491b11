# SPDX-License-Identifier: Apache-2.0
"""Finds the end of an iteration of several optimizers, and optimizers that have stopped stepping."""
import math
import time
from typing import Any, NamedTuple, Optional, Sequence

from gradmon import _gradmon
from gradmon._attributes import OBJECT_ERRORS, attribute_of
from gradmon._optimizer_steps import OptimizerSteps

_MOST_WRAPPERS = 8  # around one another


def parameters_of(optimizer: Any) -> "set[int]":
    """Ids of the optimizer's parameters; empty if they cannot be read."""
    try:
        return {id(parameter) for parameter in _gradmon.parameters_of(optimizer)}
    except OBJECT_ERRORS:
        return set()


def with_parameter_groups(optimizer: Any) -> Any:
    """The optimizer. If it has no `param_groups` but wraps an optimizer that has them, the wrapped one."""
    found = optimizer
    for _ in range(_MOST_WRAPPERS):
        if found is None or attribute_of(found, "param_groups") is not None:
            return found
        inner = attribute_of(found, "optimizer")
        found = attribute_of(found, "optim") if inner is None else inner
    return optimizer


def optimizers_in(given: Any) -> "list[Any]":
    """The optimizers in the argument of watch(): an optimizer, or a list, a tuple or a dict of optimizers.
    [None] for none. Raises TypeError for anything else."""
    some = (
        given.values() if isinstance(given, dict) else given if isinstance(given, (list, tuple)) else [given]
    )
    for one in some:
        if one is not None and not callable(attribute_of(one, "step")):
            raise TypeError(
                "optimizer: expected an optimizer, with step() and param_groups, or a list, tuple or dict of "
                f"optimizers; got {type(one).__name__}"
            )
    return list(some) or [None]


def has(some: "Sequence[Any]", one: Any) -> bool:
    """Returns True if the list contains the object, by identity."""
    return any(one is known for known in some)


class OptimizerRounds:
    """An iteration ends when all awaited optimizers have stepped, in any order. At first all optimizers are
    awaited. If one steps twice before the others have stepped, the others are no longer awaited. If an
    optimizer was added after the first step of others and shares parameters with them, it may replace them:
    they are not awaited until they step again. Training thread."""

    def __init__(self) -> None:
        self.single = True  # at most one optimizer: each of its steps ends an iteration
        self.stepped: "list[Any]" = []  # in this iteration
        self._all: "list[Any]" = []
        self._awaited: "list[Any]" = []  # optimizers that an iteration waits for
        self._perhaps_replaced: "list[Any]" = []
        self._has_ended = False  # an iteration, since the last add()

    def add(self, optimizer: Any, sharing: "Sequence[Any]" = ()) -> None:
        """sharing: optimizers that share parameters with it, and have stepped."""
        awaited = [one for one in self._awaited if not has(sharing, one)]
        self._set(self._all + [optimizer], awaited + [optimizer], self.stepped)
        self._perhaps_replaced = [*self._perhaps_replaced, *sharing]
        self._has_ended = False

    def remove(self, optimizer: Any) -> None:
        self._set(
            *(
                [one for one in some if one is not optimizer]
                for some in (self._all, self._awaited, self.stepped)
            )
        )
        self._perhaps_replaced = [one for one in self._perhaps_replaced if one is not optimizer]

    def clear(self) -> None:
        self._set([], [], [])
        self._perhaps_replaced = []

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
        self._has_ended = True
        return True

    def is_late(self, optimizer: Any) -> bool:
        """Call it before completes_iteration(). True if the optimizer's step belongs to the iteration
        that has ended already, because the optimizer could have been replaced."""
        return self._has_ended and not self.stepped and has(self._perhaps_replaced, optimizer)

    def completes_iteration(self, optimizer: Any) -> bool:
        """Call it after the optimizer, one of several, has stepped. True if the iteration is over."""
        if has(self._perhaps_replaced, optimizer) and self._awaits_again(optimizer):
            return False
        self.stepped.append(optimizer)
        if not all(has(self.stepped, one) for one in self._awaited):
            return False
        self.stepped = []
        self._has_ended = True
        return True

    def _awaits_again(self, optimizer: Any) -> bool:
        """The optimizer was not replaced. True if its step belongs to the iteration that has just ended."""
        is_late = self.is_late(optimizer)
        self._perhaps_replaced = [one for one in self._perhaps_replaced if one is not optimizer]
        self._awaited = self._awaited + [optimizer]
        return is_late


# Optimizers that have stopped stepping while training goes on.


_IDLE_AFTER_S = 60.0
_IDLE_AFTER_ITERATIONS = 2  # of all other optimizers
_IDLE_AFTER_GAPS = 2  # times the most iterations that one of its steps took so far


class _Seen(NamedTuple):
    optimizer: OptimizerSteps
    calls: int  # calls of its step, when look() last saw the number change
    calls_of_others: "dict[OptimizerSteps, int]"  # of the other optimizers, at that time
    at: float  # that time, in seconds of the monotonic clock
    looks: int  # number of look() calls since then
    gap: int  # the most iterations of the others to one of its steps so far

    def iterations_since(self) -> Optional[int]:
        """Iterations of all other optimizers since its last step. None: no other optimizers exist."""
        return min((other.calls - then for other, then in self.calls_of_others.items()), default=None)


class IdleOptimizers:
    """Compares each optimizer's steps with the others' and with the clock. Training thread."""

    def __init__(self) -> None:
        self._seen: "list[_Seen]" = []

    def look(self, optimizers: "list[OptimizerSteps]") -> "list[str]":
        """Returns a sentence for each idle optimizer. Call it between steps only, so that an
        evaluation, in which nothing steps, makes no optimizer idle."""
        before = {id(seen.optimizer): seen for seen in self._seen}
        self._seen = [self._see(one, optimizers, before.get(id(one))) for one in optimizers]
        return [self._sentence(seen) for seen in self._seen if self._is_idle(seen) and not _superseded(seen)]

    @staticmethod
    def _see(one: OptimizerSteps, all_of_them: "list[OptimizerSteps]", seen: "Optional[_Seen]") -> _Seen:
        others = {other: other.calls for other in all_of_them if other is not one}
        now = time.monotonic()
        if seen is None or seen.calls_of_others.keys() != others.keys():
            return _Seen(one, one.calls, others, now, 0, 0)
        if seen.calls == one.calls:
            return seen._replace(looks=seen.looks + 1)
        gap = math.ceil((seen.iterations_since() or 0) / (one.calls - seen.calls))
        return _Seen(one, one.calls, others, now, 0, max(seen.gap, gap))

    @staticmethod
    def _is_idle(seen: _Seen) -> bool:
        iterations = seen.iterations_since()
        # It may be one that steps less often than the others.
        most = max(_IDLE_AFTER_ITERATIONS, _IDLE_AFTER_GAPS * seen.gap)
        if iterations is not None and iterations >= most:
            return True
        return not iterations and seen.looks >= 2 and time.monotonic() - seen.at >= _IDLE_AFTER_S

    @staticmethod
    def _sentence(seen: _Seen) -> str:
        name = type(seen.optimizer.optimizer).__name__
        how = "no longer steps" if seen.calls else "has not stepped yet"
        return (
            f"the watched optimizer {name} {how}: its parameters have no rows in "
            "grad_reduced, param_*, exp_avg* and mg_direction; watch() its replacement"
        )


def _superseded(seen: _Seen) -> bool:
    """Returns True if other watched optimizers hold all of its parameters."""
    others = [parameters_of(other.optimizer) for other in seen.calls_of_others]
    return parameters_of(seen.optimizer.optimizer) <= set().union(*others)
