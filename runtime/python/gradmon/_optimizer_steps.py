# SPDX-License-Identifier: Apache-2.0
"""Calls us around an optimizer's step, whatever torch and class it is of."""
import types
from typing import Any, Callable, Optional

import torch

Around = Callable[[], None]
Arguments = tuple[tuple[Any, ...], dict[str, Any]]  # of a call: by place, by name


class OptimizerSteps:
    """Tells `before` and `after` of each step of one optimizer, until remove().

    torch 2.x has step hooks for that. Where there are none (1.13, optimizers that
    are no torch.optim.Optimizer) the instance's `step` is replaced. Of an optimizer
    that calls a closure (LBFGS), `before` comes after each call of it: what the
    update uses is what stands after the last one.
    """

    def __init__(self, optimizer: Any, before: Around, after: Around) -> None:
        self.optimizer = optimizer
        self._before = before
        self._after = after
        self._handles: list[Any] = []
        self._replaced: Optional[types.MethodType] = None
        if hasattr(optimizer, "register_step_pre_hook") and hasattr(optimizer, "register_step_post_hook"):
            self._handles = [
                optimizer.register_step_pre_hook(self._pre_hook),
                optimizer.register_step_post_hook(lambda *_: self._after()),
            ]
        else:
            self._replace_step()

    def remove(self) -> None:
        """Leaves the optimizer as it was; where a scheduler has wrapped what we put
        there, that passes calls through and does nothing else."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._before = self._after = _nothing
        replaced, self._replaced = self._replaced, None
        if replaced is None or self.optimizer.__dict__.get("step") is not replaced:
            return
        if self._was_own is None:
            del self.optimizer.step
        else:
            self.optimizer.step = self._was_own

    def _with_closure(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Optional[Arguments]:
        """The arguments with a closure that tells `before`; None without a closure."""
        closure = arguments[0] if arguments else keywords.get("closure")
        if not callable(closure):
            return None

        def told() -> Any:
            with torch.enable_grad():
                loss = closure()
            self._before()
            return loss

        if arguments:
            return (told, *arguments[1:]), keywords
        return arguments, {**keywords, "closure": told}

    def _pre_hook(
        self, _optimizer: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Optional[Arguments]:
        # torch hands a hook the arguments of the unbound method: the optimizer first.
        of_method = bool(arguments) and arguments[0] is self.optimizer
        changed = self._with_closure(arguments[1:] if of_method else arguments, keywords)
        if changed is None:
            self._before()
            return None
        return ((self.optimizer, *changed[0]) if of_method else changed[0]), changed[1]

    def _replace_step(self) -> None:
        original = self.optimizer.step
        self._was_own = self.optimizer.__dict__.get("step")

        def step(_self: Any, *arguments: Any, **keywords: Any) -> Any:
            changed = self._with_closure(arguments, keywords) if arguments or keywords else None
            if changed is None:
                self._before()
                result = original(*arguments, **keywords)
            else:
                result = original(*changed[0], **changed[1])
            self._after()
            return result

        # Schedulers look for these at the method, and wrap a bound method only.
        for mark in ("_with_counter", "_wrapped_by_lr_sched"):
            if hasattr(original, mark):
                setattr(step, mark, getattr(original, mark))
        self._replaced = types.MethodType(step, self.optimizer)
        self.optimizer.step = self._replaced


def _nothing() -> None:
    pass
