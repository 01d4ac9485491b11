# SPDX-License-Identifier: Apache-2.0
"""Ends the steps of training, and keeps the hooks up to date."""
import atexit
import math
import multiprocessing.util
import os
import sys
import threading
import time
import weakref
from typing import Any, Callable, Iterator, Optional, Sequence

import torch

from gradmon import _gradmon
from gradmon._attributes import OBJECT_ERRORS, attribute_of
from gradmon._launch_nonce import LaunchNonce
from gradmon._module_hooks import ModelParts, ModuleHooks, UnitHooks
from gradmon._optimizer_rounds import IdleOptimizers, OptimizerRounds
from gradmon._optimizer_rounds import has, parameters_of, with_parameter_groups
from gradmon._communication import Waits, commits_steps
from gradmon._compiled import sentences_of_unseen
from gradmon._optimizer_steps import CommittedSteps, OptimizerSteps, ScalerUpdates
from gradmon._optimizer_steps import hooked_or_replaced, left_out_by_scaler, remaining_scale
from gradmon._sharded import Listing, listing_of
from gradmon._sharded import parameters_of as parameters_in

_COLLECTS = _gradmon.COLLECTS
_COMPILES_AHEAD = 1 << 30  # beside those of the extension: until the first step ends
_LOOK_EVERY_S = 5.0
_NO_OPTIMIZER = (
    "watch() got no optimizer: call monitor.step() at the end of each iteration, or pass the optimizer "
    "to watch()"
)
_AFTER_SIGNAL_S = 2.0  # a user who has pressed Ctrl-C waits


class TrainingSteps:
    """Shared by the monitor and the hooks at its optimizers. Watches until stop(), or until both are
    gone. Training thread."""

    def __init__(
        self,
        core: _gradmon.Core,
        output_dir: str,
        nonce: Optional[LaunchNonce] = None,
        ended_by_loop: bool = False,
        attached_by: str = "gradmon.Monitor",
        listing_of: "Callable[[torch.nn.Module], Listing]" = listing_of,
    ) -> None:
        """ended_by_loop: the loop of a framework calls end_by_program() from the first step on. attached_by:
        name of the watcher, for `gradmonctl targets`. listing_of: lists a model's parameters."""
        self.core = core
        self._output_dir = output_dir
        self.step_flags = 0  # flags of the current step: COLLECTS, WATCHES_FORWARDS, MAY_END
        self.ended_by_program = ended_by_loop  # the program calls step()
        self.ended_by_optimizer = False  # an optimizer or the scaler has ended a step
        self._modules = ModuleHooks()
        self._modules.in_graphs.on_compiling = self._warn
        self._units = UnitHooks(core)
        self._waits = Waits()
        self._models: list[ModelParts] = []
        self._optimizers: list[OptimizerSteps] = []
        self._rounds = OptimizerRounds()
        self._scalers: list[ScalerUpdates] = []
        self._scaler_rounds = OptimizerRounds()  # of their updates
        self._calls_before = 0  # of the optimizers' steps, at the last end_by_program()
        self._versions_before: "list[int]" = []  # of the optimizers' parameters, as the collected step began
        self._look_at = 0.0  # monotonic time of the next look at the models, while nothing is collected
        self._looks_for_unheld = False  # the next look searches for parameters in no watched optimizer
        self._unheld: list[str] = []  # a warning for each model with such parameters
        self._idle = IdleOptimizers()
        self._looks_for_compiled = False  # the next look searches for modules within compiled code
        self._uncalled: list[str] = []  # a warning for each model that no forward was seen of
        self._compiled: list[str] = []  # a warning for each model with modules within compiled code
        self._found: list[str] = []  # the warnings of the last look
        self._of_engine: list[str] = []  # set by note_warnings()
        self._no_optimizer: list[str] = []  # a warning until a step has ended or an optimizer is watched
        self._warned: list[str] = []  # the current warnings in status()
        self._nonce = nonce  # None: the launch is identified
        self._attached_by = attached_by
        self._listing_of = listing_of
        self._timeout_of_stop: Optional[float] = None  # for a stop() postponed to the next step
        self._of_loop: "Optional[list[Any]]" = [] if ended_by_loop else None  # removed by stop()
        _alive.add(self)
        _stop_at_the_end_of_this_process()

    def watch(
        self, model: Any, optimizer: Any, scaler: Any, compiled: bool = False, compile_ahead: bool = False
    ) -> None:
        """Adds the model as a chunk, and the optimizer, each unless it is watched already. Steps end at
        the updates of the first call's scaler or, without one, at the optimizers' steps. model: None for the
        first one. optimizer: None if a later call adds it. compiled: the model will be compiled.
        compile_ahead: the first step compiles the code for collecting."""
        if self not in _alive:
            return _gradmon.warn_once("watch() after stop() does nothing")
        if not self._models:
            self._stop_replaced(model, optimizer)
        elif model is None:
            model = self._models[0].model
        if not has([known.model for known in self._models], model):
            self._models.append(ModelParts(model, compiled))
            self._watch_modules()
            self.core.watch(model, *self._listing_of(model))
            self._looks_for_compiled = True
        self._add_scaler(scaler, [known.model is model for known in self._models].index(True))
        optimizer = with_parameter_groups(optimizer)
        if optimizer is not None and not has([known.optimizer for known in self._optimizers], optimizer):
            sharing = self._remove_replaced(optimizer)
            self._optimizers.append(self._around(optimizer, sharing))
        self.note_attached([known.optimizer for known in self._optimizers])
        self._looks_for_unheld = False  # The next call may add an optimizer.
        self._apply_flags(self._prepare_step(self.core.step_flags()))
        if compile_ahead:
            self._modules.in_graphs.compile_ahead(True)
            self.step_flags |= _COMPILES_AHEAD
        self._looks_for_unheld = optimizer is not None
        without = not self._optimizers and not self.ended_by_program
        if without or self._no_optimizer:
            given = type(self._models[0].model) is not torch.nn.Module  # else all values come by tap()
            self._no_optimizer = [_NO_OPTIMIZER] if without and given else []
            self._warn()

    def end(self) -> None:
        """Ends the step and begins the next. Does nothing after stop()."""
        flags = self.core.step()
        if flags != 0 or self.step_flags != 0:
            self._apply_flags(self._prepare_step(flags))

    def end_by_program(self) -> None:
        """For Monitor.step(). Calls end(); from the first call on, nothing else ends a step. The first
        call ends no step if a step has ended by itself before."""
        counted = not self.ended_by_program and self.ended_by_optimizer
        self.ended_by_program = True
        if counted and max((known.calls for known in self._optimizers), default=0) > 1:
            _gradmon.warn_once(
                "the first iteration counts as several steps: optimizers had stepped more than once before "
                "the first call of step(). Pass explicit_steps=True to watch()"
            )
        if self._no_optimizer:
            self._no_optimizer = []
            self._warn()
        calls = sum(known.calls for known in self._optimizers)
        if counted:
            self._versions_before = self._versions()
        else:
            if not self._scalers and calls == self._calls_before and self._optimizers:
                self._end_without_step()
            self.end()
        self._calls_before = calls

    def _end_without_step(self) -> None:
        """In this iteration no watched optimizer has stepped: the program or a scaler unknown to watch() has
        skipped the update, or gradmon cannot see it (captured, or in two halves)."""
        if not self.step_flags & _COLLECTS or self._of_loop is not None:
            return self.core.skipped()
        unseen = self._versions() != self._versions_before
        for known in self._optimizers:
            if unseen or _is_captured(known.optimizer):
                self.core.before_update(known.optimizer, reads=_gradmon.READS_GRADIENTS)
                self.core.after_update(known.optimizer)
                _gradmon.warn_once(
                    f"{type(known.optimizer).__name__} updates the weights without a step() that gradmon "
                    "sees: no rows in param_origin, exp_avg* and mg_direction"
                )
            else:
                self.core.skipped()
                self.core.before_update(known.optimizer, reads=_gradmon.READS_ALL_LEFT_OUT)

    def _versions(self) -> "list[int]":
        try:
            return [_gradmon.versions_of(known.optimizer) for known in self._optimizers]
        except OBJECT_ERRORS:  # of the program's optimizers
            return []

    def remove_at_stop(self, attached: Any) -> None:
        """For a loop: stop() calls attached.remove()."""
        if self._of_loop is not None:
            self._of_loop.append(attached)

    def stop(self, timeout: Optional[float] = None) -> None:
        """Stops, and releases models and optimizers. timeout: see Monitor.stop(). If a signal handler calls
        it within the hooks, postpones the stop to the next step."""
        if self.core.must_stop_later():
            self._timeout_of_stop = timeout
            return
        _alive.discard(self)
        for hooks in (self._modules, self._units):
            hooks.set(False)
            hooks.watch([])
        self._waits.set(False)
        self._models.clear()
        for optimizer in self._optimizers:
            optimizer.remove()
        self._optimizers.clear()
        for attached in self._of_loop or ():
            attached.remove()
        self._of_loop = None if self._of_loop is None else []
        self._listing_of = listing_of
        self._rounds.clear()
        self._idle = IdleOptimizers()
        for scaler in self._scalers:
            scaler.remove()
        self._scalers.clear()
        self._scaler_rounds.clear()
        self.core.stop(timeout)
        self.step_flags &= _gradmon.MAY_END

    def __del__(self) -> None:
        for name in ("_modules", "_units", "_waits"):
            attached = getattr(self, name, None)  # None: the constructor has raised
            if attached is not None:
                attached.set(False)

    def _stop_replaced(self, model: Any, optimizer: Any) -> None:
        """Stops an earlier TrainingSteps of the same rank that has the same output directory, model or
        optimizer, as when a notebook cell is run again. (A process may have several ranks.)"""
        for other in list(_alive):
            if other is self or other.core.rank != self.core.rank:
                continue
            watched = [parts.model for parts in other._models] + [one.optimizer for one in other._optimizers]
            if other._output_dir == self._output_dir or has(watched, model) or has(watched, optimizer):
                _gradmon.warn_once(
                    "a second Monitor in this process replaces the first, which stops: it has the same rank, "
                    "and the same output directory, model or optimizer"
                )
                other.stop()

    def _around(self, optimizer: Any, sharing: "list[Any]") -> OptimizerSteps:
        # Both functions run in every step, on or off.
        core_step = self.core.step
        rounds = self._rounds
        rounds.add(optimizer, sharing)

        def before(scaler: Any) -> None:
            if rounds.stepped and self._ends_with_optimizers() and rounds.steps_twice(optimizer):
                self.ended_by_optimizer = True
                self.end()
            if self.step_flags & _COLLECTS and not self._is_late(optimizer):
                self.core.before_update(optimizer, remaining_scale(optimizer, scaler))

        def before_closure() -> None:
            if self.step_flags & _COLLECTS and not self._is_late(optimizer):
                self.core.before_update(optimizer, reads=_gradmon.READS_WEIGHTS)

        def after(left_out: bool = False) -> None:
            if self.step_flags & _COLLECTS and not self._is_late(optimizer):
                left_out = left_out or left_out_by_scaler(optimizer)
                self.core.skipped() if left_out else self.core.after_update(optimizer)
            if self.ended_by_program or self._scalers:
                return
            if rounds.single or rounds.completes_iteration(optimizer):  # the same as end(), inlined for speed
                self.ended_by_optimizer = True
                flags = core_step()
                if flags != 0 or self.step_flags != 0:
                    self._apply_flags(self._prepare_step(flags))

        around: "Callable[..., OptimizerSteps]" = (
            OptimizerSteps if self._of_loop is None else hooked_or_replaced
        )
        if commits_steps(optimizer):
            around = CommittedSteps
        return around(optimizer, before, after, before_closure)

    def _is_late(self, optimizer: Any) -> bool:
        """Returns True if the optimizer's update belongs to the step that has already ended."""
        return self._ends_with_optimizers() and self._rounds.is_late(optimizer)

    def _ends_with_optimizers(self) -> bool:
        return not self.ended_by_program and not self._scalers

    def _remove_replaced(self, optimizer: Any) -> "list[Any]":
        """Removes optimizers of the same parameters as the new one, which replaces them. Returns those that
        share some with it and have stepped: either they are replaced as well, or all of them step."""
        taken = parameters_of(optimizer)
        sharing = []
        for known in list(self._optimizers):
            held = parameters_of(known.optimizer)
            if taken and taken == held:
                known.remove()
                self._optimizers.remove(known)
                self._rounds.remove(known.optimizer)
                self._calls_before -= known.calls
            elif taken & held and known.calls > 0:
                sharing.append(known.optimizer)
        return sharing

    def _add_scaler(self, scaler: Any, chunk: int) -> None:
        """The scaler multiplies the loss of that chunk. The first one also holds for chunks without any."""
        if scaler is None or not getattr(scaler, "is_enabled", lambda: True)():
            return
        known = next((one for one in self._scalers if one.scaler is scaler), None)
        if known is None and self._optimizers and not self._scalers:
            return _gradmon.warn_once("ignored scaler: pass it to the first watch()")
        if known is None:
            known = ScalerUpdates(scaler, self._updated, self._step_skipped, self._calls_of)
            self._scalers.append(known)
            self._scaler_rounds.add(scaler)
        known.chunks.append(chunk)

    def _updated(self, scaler: Any) -> None:
        """The scaler has been updated; its scale may have changed."""
        if not self.ended_by_program:
            if self._scaler_rounds.stepped and self._scaler_rounds.steps_twice(scaler):
                self._end_by_scaler()
            if self._scaler_rounds.single or self._scaler_rounds.completes_iteration(scaler):
                return self._end_by_scaler()
        if self.step_flags & _COLLECTS:
            self._set_scales()

    def _end_by_scaler(self) -> None:
        self.ended_by_optimizer = True
        self.end()

    def _calls_of(self, optimizer: Any) -> int:
        return sum(known.calls for known in self._optimizers if known.optimizer is optimizer)

    def _step_skipped(self, optimizer: Any) -> None:
        """The scaler has skipped the optimizer's step: there are gradients, but no update."""
        if not has([known.optimizer for known in self._optimizers], optimizer):
            return
        self.core.skipped()
        if self.step_flags & _COLLECTS:
            self.core.before_update(optimizer)

    def _watch_modules(self) -> None:
        self._modules.watch(
            [parts.model for parts in self._models], [parts.model for parts in self._models if parts.compiled]
        )
        self._units.watch(parts.model for parts in self._models)

    def _prepare_step(self, flags: int) -> int:
        """Prepares the step that has begun: if it is collected, reads changed models and the scale.
        Returns the step's flags."""
        if flags & _gradmon.STOP_WANTED:
            self.stop(self._timeout_of_stop)
            return flags & _gradmon.MAY_END
        if flags & _gradmon.CHECK_MODELS and self._nonce is not None:
            self._look_for_nonce(self._nonce)
        if self.step_flags & _gradmon.WATCHES_FORWARDS:
            self._end_step_in_graphs()
        if not flags & _COLLECTS:
            return flags
        self._look_at_models()
        self._set_scales()
        if self._of_loop is None and (self.ended_by_program or not self.ended_by_optimizer):
            self._versions_before = self._versions()
        return self.core.step_flags() | flags & _gradmon.MAY_END

    def _end_step_in_graphs(self) -> None:
        if self._modules.in_graphs.end_step():
            compiled = self._sentences_of_unseen()
            self._found = [one for one in self._found if one not in self._compiled] + compiled
            self._compiled = compiled
            self._warn()
        unseen = list(self._sentences_of_uncalled())
        if unseen != self._uncalled:
            self._uncalled = unseen
            self._warn()

    def _sentences_of_uncalled(self) -> Iterator[str]:
        """A model that was not used in the step has no gradients."""
        for model in self._modules.uncalled(parts.model for parts in self._models):
            if any(getattr(parameter, "grad", None) is not None for _, parameter in parameters_in(model)):
                yield (
                    f"no call of the modules within {type(model).__name__} was seen: no rows of actv and "
                    "actv_grad. If the program compiles it after watch(), pass compiled=True to watch()"
                )

    def _sentences_of_unseen(self) -> "list[str]":
        models = [parts.model for parts in self._models]
        return sentences_of_unseen(models, self._modules.in_graphs.reason)

    def _look_at_models(self) -> None:
        self._look_at = time.monotonic() + _LOOK_EVERY_S
        try:
            self._look()
        except OBJECT_ERRORS as error:  # of the program's modules, parameters or optimizers
            _gradmon.warn_once(f"changes of the model are not seen: {type(error).__name__}: {error}")

    def _look(self) -> None:
        for number, parts in enumerate(self._models):
            if parts.changed():
                self._watch_modules()
                self.core.watch_again(number, parts.model, *self._listing_of(parts.model))
                self._looks_for_unheld = self._looks_for_compiled = True
        if self._looks_for_unheld and self._optimizers:
            self._looks_for_unheld = False
            self._unheld = list(self._sentences_of_unheld())
        unseen: "list[str]" = []
        if self.core.step_flags() & _gradmon.WATCHES_FORWARDS:
            if self._looks_for_compiled:
                self._looks_for_compiled = False
                self._compiled = self._sentences_of_unseen()
            unseen = self._compiled
        self._found = self._unheld + self._idle.look(self._optimizers) + unseen
        self._warn()

    def note_warnings(self, warnings: "list[str]") -> None:
        """Replaces the sentences of status() about missing attachments."""
        self._of_engine = list(warnings)
        self._warn()

    def note_attached(self, optimizers: Sequence[Any]) -> None:
        """For `gradmonctl targets`: the models, these optimizers, and what watches them."""
        models = [
            known.model for known in self._models if type(known.model) is not torch.nn.Module
        ]  # none given
        watched = models + list(optimizers)
        self.core.note_attached([f"{type(one).__name__}: {self._attached_by}" for one in watched])

    def _warn(self) -> None:
        warnings = self._found + self._uncalled + self._of_engine + self._no_optimizer
        warnings = warnings + self._modules.in_graphs.compiling()
        if warnings == self._warned:
            return
        self._warned = warnings
        self.core.note_warnings(warnings)
        for warning in warnings:
            _gradmon.warn_once(warning)

    def _sentences_of_unheld(self) -> Iterator[str]:
        held: "set[int]" = set()
        for known in self._optimizers:
            held |= parameters_of(known.optimizer)
        for parts in self._models:
            trained = [(n, p) for n, p in parameters_in(parts.model) if getattr(p, "requires_grad", False)]
            unheld = [name for name, parameter in trained if id(parameter) not in held]
            if unheld:
                more = f" and {len(unheld) - 3} more" if len(unheld) > 3 else ""
                yield (
                    f"{', '.join(unheld[:3])}{more} of {type(parts.model).__name__} are in no watched "
                    "optimizer: no rows in grad_reduced, param_*, exp_avg* and mg_direction; "
                    "watch() their optimizer too"
                )

    def _look_for_nonce(self, nonce: LaunchNonce) -> None:
        found = nonce.poll()
        if found is not None:
            self._nonce = None
            self.core.set_launch_nonce(found)

    def _set_scales(self) -> None:
        """Sets the scales of the step that begins, or those after an update within it."""
        for number, scaler in enumerate(self._scalers):
            try:
                scale = scaler.scale()
            except OBJECT_ERRORS as error:  # the program's own scaler
                _gradmon.warn_once(f"the scale of the gradients is unknown: {error!r}")
                continue
            if number == 0:  # also of chunks that have no scaler
                self.core.gradient_scale(scale)
            for chunk in scaler.chunks:
                self.core.gradient_scale(scale, chunk)

    def _apply_flags(self, flags: int) -> None:
        if flags & _gradmon.CHECK_MODELS and time.monotonic() >= self._look_at:
            self._look_at_models()  # so that a config can name new parts
        if self.step_flags & _COMPILES_AHEAD:
            self._modules.in_graphs.compile_ahead(False)
        self.step_flags = flags = flags & ~_gradmon.CHECK_MODELS
        self._modules.set(bool(flags & _gradmon.WATCHES_FORWARDS))
        self._units.set(bool(flags & _COLLECTS))
        self._waits.set(bool(flags & _COLLECTS) and _gradmon.collectives_are_observed())


def _is_captured(optimizer: Any) -> bool:
    """Returns True if the optimizer is made for capture into a graph, whose replays count no versions."""
    groups = attribute_of(optimizer, "param_groups") or []
    return any(isinstance(group, dict) and group.get("capturable") is True for group in groups)


_alive: "weakref.WeakSet[TrainingSteps]" = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """Before the process ends: the writer may have rows to write."""
    timeout = after_signal(getattr(sys, "last_type", None) or sys.exc_info()[0])
    for steps in list(_alive):
        steps.stop(timeout)


def _stop_at_the_end_of_this_process() -> None:
    """A process that multiprocessing has forked does not run the functions of atexit."""
    global _ends_in
    if _ends_in != os.getpid():
        _ends_in = os.getpid()
        multiprocessing.util.Finalize(None, _stop_after_threads, exitpriority=100)


def _stop_after_threads() -> None:
    """The interpreter joins these threads next; they may train."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    _stop_all()


_ends_in = 0  # a process


def after_signal(kind: Optional[type]) -> Optional[float]:
    """The timeout for a stop() that an exception of this type causes."""
    return _AFTER_SIGNAL_S if kind is not None and issubclass(kind, KeyboardInterrupt) else None


def seconds_of(timeout: Optional[float]) -> Optional[float]:
    """The timeout in seconds. A value that is not a number is logged and becomes None."""
    try:
        seconds = None if timeout is None else float(timeout)
        if seconds is None or not math.isnan(seconds):
            return seconds
        why: Any = "not a number"
    except OBJECT_ERRORS as error:
        why = error
    _gradmon.warn_once(f"stop(timeout={timeout!r}): {why}")
    return None


def whole_steps(grad_acc_steps: Optional[float]) -> int:
    whole = 1 if grad_acc_steps is None else int(grad_acc_steps)
    if grad_acc_steps is not None and whole != grad_acc_steps:
        raise ValueError(f"grad_acc_steps: {grad_acc_steps} must be a whole number")
    return whole
