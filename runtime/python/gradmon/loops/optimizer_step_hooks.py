# SPDX-License-Identifier: Apache-2.0
"""Callbacks around an optimizer's step, by torch's own hooks or for torchft."""
from typing import Any, Optional

from gradmon._attributes import nothing
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


class CommittedSteps(OptimizerSteps):
    """As OptimizerSteps, for torchft's OptimizerWrapper. `before` is called as the optimizer within it steps:
    until then torchft may load the weights of another replica group. A step that is not committed has no
    update: `before` is called at its end, and `after` with True."""

    def __init__(self, optimizer: Any, before: Before, after: After) -> None:
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


class _Handles:
    def __init__(self, *handles: Any) -> None:
        self._handles = handles

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
