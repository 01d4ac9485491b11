# SPDX-License-Identifier: Apache-2.0
"""Calls us around an optimizer's step, whatever torch and class it is of."""
import inspect
from typing import Any, Callable, Optional

from gradmon._replaced_method import ReplacedMethod

Before = Callable[[Any], None]  # with the scaler that the step is given (torch 1.13), or None
After = Callable[[], None]
Arguments = tuple[tuple[Any, ...], dict[str, Any]]  # of a call: by place, by name


class OptimizerSteps:
    """Tells `before` and `after` of each step of one optimizer, until remove().

    The instance's `step` is replaced, which meets any class, and of a step that
    calls another class's the outer one alone (torch 2.x's step hooks meet both, and
    none of an optimizer that wraps another). Of an optimizer that calls a closure
    (LBFGS), `before` comes after each call of it: what the update uses is what stands
    after the last one.
    """

    def __init__(self, optimizer: Any, before: Before, after: After) -> None:
        self.optimizer = optimizer
        self._before = before
        self._after = after
        self.calls = 0
        self._replaced = self._replace()

    def remove(self) -> None:
        """Leaves the optimizer as it was; where a scheduler has wrapped what we put
        there, that passes calls through and does nothing else."""
        self._before = self._after = _nothing
        self._replaced.remove()

    def _replace(self) -> ReplacedMethod:
        original = self.optimizer.step

        def step(_self: Any, *arguments: Any, **keywords: Any) -> Any:
            if _self is not self.optimizer:  # a copy
                return type(_self).step(_self, *arguments, **keywords)
            if not arguments and not keywords:
                self._before(None)
                result = original()
            elif (changed := self._with_closure(arguments, keywords)) is None:
                self._before(keywords.get("grad_scaler"))
                result = original(*arguments, **keywords)
            else:
                result = original(*changed[0], **changed[1])
            self.calls += 1
            self._after()
            return result

        # GradScaler looks at what it may be called with.
        step.__signature__ = _with_self(original)  # type: ignore[attr-defined]
        # Schedulers look for these at the method, and wrap a bound method only.
        for mark in ("_with_counter", "_wrapped_by_lr_sched"):
            if hasattr(original, mark):
                setattr(step, mark, getattr(original, mark))
        return ReplacedMethod(self.optimizer, "step", step)

    def _with_closure(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Optional[Arguments]:
        """The arguments with a closure that tells `before`; None without a closure."""
        closure = arguments[0] if arguments else keywords.get("closure")
        if not callable(closure):
            return None

        def told(*of_closure: Any, **by_name: Any) -> Any:
            loss = closure(*of_closure, **by_name)
            self._before(None)
            return loss

        if arguments:
            return (told, *arguments[1:]), keywords
        return arguments, {**keywords, "closure": told}


def _with_self(bound: Callable[..., Any]) -> Optional[inspect.Signature]:
    """The signature of a method that is called as `bound` once it is bound."""
    try:
        signature = inspect.signature(bound)
    except (TypeError, ValueError):
        return None
    own = inspect.Parameter("_self", inspect.Parameter.POSITIONAL_ONLY)
    try:
        return signature.replace(parameters=[own, *signature.parameters.values()])
    except ValueError:  # it has a `_self` of its own
        return None


def _nothing(*_: Any) -> None:
    pass
