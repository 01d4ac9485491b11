# SPDX-License-Identifier: Apache-2.0
"""Finds optimizers that have stopped stepping while training goes on."""
import time
from typing import NamedTuple, Optional

from gradmon._optimizer_rounds import parameters_of
from gradmon._optimizer_steps import OptimizerSteps

_IDLE_AFTER_S = 60.0
_IDLE_AFTER_ITERATIONS = 2  # of all other optimizers


class _Seen(NamedTuple):
    optimizer: OptimizerSteps
    calls: int  # calls of its step, when look() last saw the number change
    calls_of_others: "dict[OptimizerSteps, int]"  # of the other optimizers, at that time
    at: float  # that time, in seconds of the monotonic clock
    looks: int  # number of look() calls since then


class IdleOptimizers:
    """Compares each optimizer's steps with the others' and with the clock. Training thread."""

    __slots__ = ("_seen",)

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
        if seen is None or seen.calls != one.calls or seen.calls_of_others.keys() != others.keys():
            return _Seen(one, one.calls, others, time.monotonic(), 0)
        return seen._replace(looks=seen.looks + 1)

    @staticmethod
    def _is_idle(seen: _Seen) -> bool:
        made = [other.calls - then for other, then in seen.calls_of_others.items()]
        if made and min(made) >= _IDLE_AFTER_ITERATIONS:
            return True
        return seen.looks >= 2 and time.monotonic() - seen.at >= _IDLE_AFTER_S

    @staticmethod
    def _sentence(seen: _Seen) -> str:
        name = type(seen.optimizer.optimizer).__name__
        since = f"since its step {seen.calls}" if seen.calls else "yet"
        return (
            f"the watched optimizer {name} has not stepped {since}: its parameters have no rows in "
            "grad_reduced, param_*, exp_avg* and mg_direction; watch() its replacement"
        )


def _superseded(seen: _Seen) -> bool:
    """Whether other watched optimizers hold all of its parameters."""
    others = [parameters_of(other.optimizer) for other in seen.calls_of_others]
    return parameters_of(seen.optimizer.optimizer) <= set().union(*others)
