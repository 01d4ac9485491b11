# SPDX-License-Identifier: Apache-2.0
"""Callbacks around an optimizer's step, by torch's own hooks."""
from typing import Any, Callable

from gradmon._attributes import nothing
from gradmon._optimizer_steps import After, Before, OptimizerSteps, has_step_hooks


def hooked_or_replaced(
    optimizer: Any, before: Before, after: After, before_closure: Callable[[], None] = nothing
) -> OptimizerSteps:
    """By hooks alone if the optimizer has them, else by its replaced step."""
    around = OptimizerStepHooks if has_step_hooks(optimizer) else OptimizerSteps
    return around(optimizer, before, after, before_closure)


class OptimizerStepHooks(OptimizerSteps):
    """As OptimizerSteps, for an optimizer that lies within a framework's. The hooks stay where another
    replaces the instance's `step`, as Accelerate's does around each step with a GradScaler."""

    def _attach(self) -> "list[Any]":
        return self._hook()
