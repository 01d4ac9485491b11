# SPDX-License-Identifier: Apache-2.0
"""Finds optimizers that have stopped stepping while training goes on."""
import math
import time
from typing import NamedTuple, Optional

from gradmon._optimizer_rounds import parameters_of
from gradmon._optimizer_steps import OptimizerSteps

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
