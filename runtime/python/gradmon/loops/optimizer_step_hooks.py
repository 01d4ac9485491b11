# SPDX-License-Identifier: Apache-2.0
"""Callbacks around an optimizer's step, by torch's own hooks."""
from typing import Any

from gradmon._optimizer_steps import After, Before, OptimizerSteps


def hooked_or_replaced(optimizer: Any, before: Before, after: After) -> OptimizerSteps:
    """By hooks if the optimizer has them (torch.optim.Optimizer in torch 2.x), else by its replaced step."""
    hooked = hasattr(optimizer, "_optimizer_step_pre_hooks") and hasattr(optimizer, "register_step_post_hook")
    return (OptimizerStepHooks if hooked else OptimizerSteps)(optimizer, before, after)


class OptimizerStepHooks(OptimizerSteps):
    """As OptimizerSteps, for an optimizer that lies within a framework's. The hooks stay where another
    replaces the instance's `step`, as Accelerate's does around each step with a GradScaler.

    If a class calls its parent's step, torch may call the hooks for both: `before` and `after` then run
    twice, and the second reading replaces the first.
    """

    def _replace(self) -> Any:
        return _Handles(
            self.optimizer.register_step_pre_hook(self._entered),
            self.optimizer.register_step_post_hook(self._left),
        )

    # `arguments` begins with the optimizer.
    def _entered(self, _optimizer: Any, arguments: "tuple[Any, ...]", keywords: "dict[str, Any]") -> Any:
        changed = self._with_closure(arguments[1:], keywords)
        if changed is None:
            self._before(keywords.get("grad_scaler"))
            return None
        return (arguments[0], *changed[0]), changed[1]

    def _left(self, *_: Any) -> None:
        self.calls += 1
        self._after()


class _Handles:
    def __init__(self, *handles: Any) -> None:
        self._handles = handles

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
