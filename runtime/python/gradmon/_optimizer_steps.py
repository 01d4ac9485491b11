# SPDX-License-Identifier: Apache-2.0
"""Callbacks around an optimizer's step, for any torch version and any optimizer class."""
import functools
import inspect
import types
from typing import Any, Callable, Optional

import torch

from gradmon._attributes import ReplacedMethod, nothing

Before = Callable[[Any], None]  # argument: the scaler that step() was given (torch 1.13), or None
After = Callable[..., None]  # argument: whether the step has left out the update; False by default
_FUNCTIONS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, functools.partial)
Arguments = tuple[tuple[Any, ...], dict[str, Any]]  # of a call: positional, keyword


class OptimizerSteps:
    """Calls `before` and `after` around each step of one optimizer, until remove().

    Replaces `step` of the instance. This works for any class. If an optimizer's step calls another
    optimizer's step, only the outer one is seen. (torch 2.x's step hooks see both, and do not see an
    optimizer that only wraps another.) If the optimizer calls a closure (LBFGS), `before` is called
    after each call of the closure: the update uses the gradients of the last call.
    """

    def __init__(self, optimizer: Any, before: Before, after: After) -> None:
        self.optimizer = optimizer
        self._before = before
        self._after = after
        self.calls = 0
        self._takes_closure = _first_parameter(optimizer.step) in (None, "closure")
        self._replaced = self._replace()

    def remove(self) -> None:
        """Restores the optimizer's own step. If a scheduler has wrapped our step, ours stays in place
        and only passes calls through."""
        self._before = self._after = nothing
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

        # GradScaler reads the signature to decide which arguments to pass.
        step.__signature__ = _with_self(original)  # type: ignore[attr-defined]
        # Schedulers look for these attributes at the method, and wrap bound methods only.
        for mark in ("_with_counter", "_wrapped_by_lr_sched"):
            if hasattr(original, mark):
                setattr(step, mark, getattr(original, mark))
        return ReplacedMethod(self.optimizer, "step", step)

    def _with_closure(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Optional[Arguments]:
        """The arguments, with a closure that also calls `before`; None if there is no closure."""
        closure = arguments[0] if arguments else keywords.get("closure")
        named = self._takes_closure or not arguments
        if not isinstance(closure, _FUNCTIONS) and not (named and _may_be_closure(closure)):
            return None

        told = _Told(closure, lambda: self._before(None))
        if arguments:
            return (told, *arguments[1:]), keywords
        return arguments, {**keywords, "closure": told}


class _Told:
    """A closure that also calls `then`. It has the attributes of the program's own."""

    def __init__(self, closure: Any, then: Callable[[], None]) -> None:
        self.__closure = closure
        self.__then = then

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        result = self.__closure(*arguments, **keywords)
        self.__then()
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__closure, name)


def _may_be_closure(given: Any) -> bool:
    """Whether an object that is no function may be a closure."""
    return callable(given) and not isinstance(given, (type, torch.nn.Module))


def _first_parameter(bound: Callable[..., Any]) -> Optional[str]:
    """The name of a function's first parameter; None if it is unknown."""
    try:
        parameters = list(inspect.signature(bound).parameters.values())
    except (TypeError, ValueError):
        return None
    if parameters and parameters[0].name in ("self", "_self"):  # a scheduler's function around step()
        del parameters[0]
    unknown = not parameters or parameters[0].kind is inspect.Parameter.VAR_POSITIONAL
    return None if unknown else parameters[0].name


def _with_self(bound: Callable[..., Any]) -> Optional[inspect.Signature]:
    """The signature of `bound` with `_self` in front, for a function that will be bound."""
    try:
        signature = inspect.signature(bound)
    except (TypeError, ValueError):
        return None
    own = inspect.Parameter("_self", inspect.Parameter.POSITIONAL_ONLY)
    try:
        return signature.replace(parameters=[own, *signature.parameters.values()])
    except ValueError:  # it already has a `_self`
        return None
