# SPDX-License-Identifier: Apache-2.0
"""Callbacks around an optimizer's step, by torch's own hooks or for torchft."""
from typing import Any, Callable, Optional

from gradmon._attributes import nothing
from gradmon._optimizer_steps import After, Before, OptimizerSteps, has_step_hooks


def hooked_or_replaced(
    optimizer: Any, before: Before, after: After, before_closure: Callable[[], None] = nothing
) -> OptimizerSteps:
    """Uses hooks alone if the optimizer has them, else its replaced step."""
    around = OptimizerStepHooks if has_step_hooks(optimizer) else OptimizerSteps
    return around(optimizer, before, after, before_closure)


class OptimizerStepHooks(OptimizerSteps):
    """OptimizerSteps for an optimizer within a framework's. The hooks stay if other code replaces the
    instance's `step`, as Accelerate does around each step with a GradScaler."""

    def _attach(self) -> "list[Any]":
        return self._hook()


class CommittedSteps(OptimizerSteps):
    """OptimizerSteps for torchft's OptimizerWrapper. `before` is called as the inner optimizer steps: until
    then torchft may load the weights of another replica group. A step that is not committed has no update:
    `before` is called at its end, and `after` with True."""

    def __init__(self, optimizer: Any, before: Before, after: After, _: Any = nothing) -> None:
        self._read, self._end = before, after
        self._calls_before: "Optional[int]" = None  # of the inner optimizer; None: no step is running
        self._inner = OptimizerSteps(optimizer.optim, self._update, nothing)
        super().__init__(optimizer, self._begin, self._finish)

    def remove(self) -> None:
        super().remove()
        self._inner.remove()

    def _begin(self, _scaler: Any) -> None:
        self._calls_before = self._inner.calls

    def _update(self, scaler: Any) -> None:
        if self._calls_before is not None:
            self._read(scaler)

    def _finish(self) -> None:
        left_out = self._inner.calls == self._calls_before
        self._calls_before = None
        if left_out:
            self._read(None)
        self._end(left_out)
