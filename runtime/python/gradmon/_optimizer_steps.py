# SPDX-License-Identifier: Apache-2.0
"""Callbacks around an optimizer's step, for any optimizer class, and around a GradScaler's."""
import functools
import inspect
import sys
import types
from typing import Any, Callable, Optional

import torch

from gradmon import _gradmon
from gradmon._attributes import ReplacedMethod, attribute_of, nothing, replaced_around

Before = Callable[[Any], None]  # argument: the scaler that step() was given, or None
After = Callable[..., None]  # argument: True if the step has skipped the update; False by default
_FUNCTIONS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, functools.partial)
# Functions of torch.distributed, and their distance from the step that they call (wrappers lie between).
_STATE_INITIALIZERS = ("_init_optim_state", "init_state")
_MOST_FRAMES = 12
Arguments = tuple[tuple[Any, ...], dict[str, Any]]  # of a call: positional, keyword


class OptimizerSteps:
    """Calls `before` and `after` around each step of one optimizer, until remove().

    Replaces `step` of the instance, which works for any class, and registers torch's own step hooks where the
    optimizer has them: they also run for a `step` that the program bound or compiled before. A step that
    another optimizer's step calls is not seen.

    If the optimizer calls a closure (LBFGS), `before_closure` is called first, and `before` after each
    call of the closure: the update uses the gradients of the last call.

    A step by which torch initializes the state of a fresh optimizer, for a checkpoint, does not count.
    """

    def __init__(
        self, optimizer: Any, before: Before, after: After, before_closure: Callable[[], None] = nothing
    ) -> None:
        self.optimizer = optimizer
        self._before = before
        self._after = after
        self._before_closure = before_closure
        self.calls = 0
        self._takes_closure = _first_parameter(optimizer.step) in (None, "closure")
        self._replaced_runs = False  # the hooks leave the step to the replaced method
        self._depth = 0  # of the hooks: torch calls them for a class and for the parent whose step it calls
        self._hooked_classes = sum(
            hasattr(vars(one).get("step"), "hooked") for one in type(optimizer).__mro__
        )
        self._attached = self._attach()

    def remove(self) -> None:
        """Restores the optimizer's own step. If a scheduler has wrapped our step, ours stays in place
        and only passes calls through."""
        self._before = self._after = self._before_closure = nothing
        for attached in self._attached:
            attached.remove()

    def _attach(self) -> "list[Any]":
        return [self._replace(), *self._hook()]

    def _hook(self) -> "list[Any]":
        if not has_step_hooks(self.optimizer):
            return []
        return [
            self.optimizer.register_step_pre_hook(self._entered),
            self.optimizer.register_step_post_hook(self._left),
        ]

    # `arguments` begins with the optimizer.
    def _entered(self, _optimizer: Any, arguments: "tuple[Any, ...]", keywords: "dict[str, Any]") -> Any:
        if self._replaced_runs or _initializes_state(keywords):
            return None
        self._depth = self._depth + 1 if self._hooked_classes > 1 else 1
        if self._depth > 1:
            return None
        changed = self._with_closure(arguments[1:], keywords)
        if changed is None:
            self._before(keywords.get("grad_scaler"))
            return None
        self._before_closure()
        return (arguments[0], *changed[0]), changed[1]

    def _left(self, _optimizer: Any, _arguments: "tuple[Any, ...]", keywords: "dict[str, Any]") -> None:
        if self._replaced_runs or _initializes_state(keywords):
            return
        self._depth -= 1
        if self._depth <= 0:
            self.calls += 1
            self._after()

    def _replace(self) -> ReplacedMethod:
        original = self.optimizer.step

        def step(_self: Any, *arguments: Any, **keywords: Any) -> Any:
            if _self is not self.optimizer:  # a copy
                return type(_self).step(_self, *arguments, **keywords)
            if self._replaced_runs or _initializes_state(keywords):
                return original(*arguments, **keywords)
            self._replaced_runs = True
            try:
                result = self._step(original, arguments, keywords)
            finally:
                self._replaced_runs = False
            self.calls += 1
            self._after()
            return result

        # GradScaler reads the signature to decide which arguments to pass.
        step.__signature__ = _with_self(original)  # type: ignore[attr-defined]
        # Schedulers look for this attribute at the method, and wrap bound methods only.
        if hasattr(original, "_wrapped_by_lr_sched"):
            step._wrapped_by_lr_sched = original._wrapped_by_lr_sched  # type: ignore[attr-defined]
        return ReplacedMethod(self.optimizer, "step", step)

    def _step(
        self, original: Callable[..., Any], arguments: "tuple[Any, ...]", keywords: "dict[str, Any]"
    ) -> Any:
        if not arguments and not keywords:
            self._before(None)
            return original()
        changed = self._with_closure(arguments, keywords)
        if changed is None:
            self._before(keywords.get("grad_scaler"))
            return original(*arguments, **keywords)
        self._before_closure()
        return original(*changed[0], **changed[1])

    def _with_closure(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Optional[Arguments]:
        """The arguments, with a closure that also calls `before`; None if there is no closure."""
        closure = arguments[0] if arguments else keywords.get("closure")
        named = self._takes_closure or not arguments
        if not isinstance(closure, _FUNCTIONS) and not (named and _may_be_closure(closure)):
            return None
        observed = _ObservedClosure(closure, lambda: self._before(None))
        if arguments:
            return (observed, *arguments[1:]), keywords
        return arguments, {**keywords, "closure": observed}


class _ObservedClosure:
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


def has_step_hooks(optimizer: Any) -> bool:
    """Returns True for a torch.optim.Optimizer, whose step calls hooks."""
    names = ("_optimizer_step_pre_hooks", "register_step_pre_hook", "register_step_post_hook")
    return all(attribute_of(optimizer, name) is not None for name in names)


def _initializes_state(keywords: "dict[str, Any]") -> bool:
    """Returns True if torch calls step(closure=None) with zero gradients only to make the state."""
    if "closure" not in keywords or keywords["closure"] is not None:
        return False
    frame = sys._getframe(2)
    for _ in range(_MOST_FRAMES):
        module = str(frame.f_globals.get("__name__"))
        if frame.f_code.co_name in _STATE_INITIALIZERS and module.startswith("torch.distributed."):
            return True
        if frame.f_back is None:
            return False
        frame = frame.f_back
    return False


def _may_be_closure(given: Any) -> bool:
    """Returns True if an object that is no function may be a closure."""
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


# A GradScaler's part in an optimizer's step.


class ScalerUpdates:
    """Until remove(): calls `updated(scaler)` after each of its update() calls (one an iteration), and
    `step_skipped` after each step(optimizer) that has not called the optimizer's own step."""

    def __init__(
        self,
        scaler: Any,
        updated: Callable[[Any], None],
        step_skipped: Callable[[Any], None],
        calls: Callable[[Any], int],
    ) -> None:
        """calls: returns the number of calls of an optimizer's own step so far."""
        self.scaler = scaler
        self.chunks: "list[int]" = []  # the models whose losses it scales, by vpp_stage
        self._last = 1.0  # scale
        self._updated = updated
        self._step_skipped = step_skipped
        self._calls = calls
        self._replaced = [
            replaced_around(scaler, "step", self._around_step),
            replaced_around(scaler, "update", self._around_update),
        ]

    def scale(self) -> float:
        """The current scale of the loss. Waits for the device if the scale is on one. While a graph is
        captured: the last one, because waiting is forbidden."""
        if not is_captured(getattr(self.scaler, "_scale", None)):
            self._last = float(self.scaler.get_scale())
        return self._last

    def remove(self) -> None:
        self._updated = nothing
        self._step_skipped = nothing
        for replaced in self._replaced:
            replaced.remove()

    def _around_step(
        self, original: Callable[..., Any], optimizer: Any, *arguments: Any, **keywords: Any
    ) -> Any:
        before = self._calls(optimizer)
        result = original(optimizer, *arguments, **keywords)
        if self._calls(optimizer) == before:
            self._step_skipped(optimizer)
        return result

    def _around_update(self, original: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        result = original(*arguments, **keywords)
        self._updated(self.scaler)
        return result


def remaining_scale(optimizer: Any, scaler: Any) -> float:
    """The factor that an optimizer must divide its gradients by itself, because step() was given the
    scaler (an optimizer's step(grad_scaler)). 1 without a scaler, or after unscale_()."""
    if scaler is None:
        return 1.0
    try:
        states = getattr(scaler, "_per_optimizer_states", {})
        stage = states[id(optimizer)]["stage"] if id(optimizer) in states else None
        return 1.0 if getattr(stage, "name", "READY") != "READY" else float(scaler.get_scale())
    except (AttributeError, TypeError, ValueError, RuntimeError, KeyError) as error:
        _gradmon.warn_once(f"the scale of the gradients is unknown: {error!r}")
        return 1.0


def left_out_by_scaler(optimizer: Any) -> bool:
    """Returns True if the fused optimizer's last step has changed no parameter because a scaler has found an
    infinity or a NaN. Waits for the device if the scaler's answer is on one."""
    found = attribute_of(optimizer, "found_inf")  # the scaler sets and removes it around the step
    if type(found) is not torch.Tensor or found.numel() != 1:
        return False
    try:
        return not is_captured(found) and bool(found)
    except RuntimeError as error:  # where the program forbids to wait: torch.cuda.set_sync_debug_mode()
        _gradmon.warn_once(f"cannot read if the scaler has skipped the step: {error!r}")
        return False


def is_captured(value: Any) -> bool:
    """Returns True while a graph of the device captures the value, which must not be awaited then."""
    return isinstance(value, torch.Tensor) and value.is_cuda and torch.cuda.is_current_stream_capturing()
