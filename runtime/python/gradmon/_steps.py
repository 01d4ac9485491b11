# SPDX-License-Identifier: Apache-2.0
"""The step that training is in."""
import atexit
import sys
import time
import weakref
from typing import Any, Iterator, Optional

from gradmon import _gradmon
from gradmon._idle_optimizers import IdleOptimizers
from gradmon._launch_nonce import LaunchNonce
from gradmon._model_parts import ModelParts
from gradmon._module_hooks import ModuleHooks
from gradmon._optimizer_rounds import OptimizerRounds, has, parameters_of
from gradmon._optimizer_steps import OptimizerSteps
from gradmon._scaler_updates import ScalerUpdates, left_to

_COLLECTS = _gradmon.COLLECTS
_LOOK_EVERY_S = 5.0
_AFTER_SIGNAL_S = 2.0  # whoever has pressed Ctrl-C waits


class Steps:
    """What the monitor and the hooks at its optimizers share: it lives, and watches, as
    long as either does, until stop(). Training thread."""

    __slots__ = (
        "core",
        "begun",
        "_output_dir",
        "explicit",
        "ended_by_itself",
        "_modules",
        "_models",
        "_optimizers",
        "_rounds",
        "_scaler",
        "_calls_before",
        "_look_at",
        "_looks_for_unheld",
        "_unheld",
        "_idle",
        "_warned",
        "_nonce",
        "__weakref__",
    )

    def __init__(self, core: _gradmon.Core, output_dir: str, nonce: Optional[LaunchNonce] = None) -> None:
        self.core = core
        self._output_dir = output_dir
        self.begun = 0  # COLLECTS, WATCHES_FORWARDS, MAY_END
        self.explicit = False  # the program ends the steps
        self.ended_by_itself = False
        self._modules = ModuleHooks()
        self._models: list[ModelParts] = []
        self._optimizers: list[OptimizerSteps] = []
        self._rounds = OptimizerRounds()
        self._scaler: Optional[ScalerUpdates] = None
        self._calls_before = 0  # of the first optimizer's step, in what end_by_program() has ended
        self._look_at = 0.0  # while nothing is collected
        self._looks_for_unheld = False  # whether the optimizers hold all that is watched
        self._unheld: list[str] = []  # a sentence for each model of which they do not hold all
        self._idle = IdleOptimizers()
        self._warned: list[str] = []  # what status says of this program
        self._nonce = nonce  # None: the launch has its name
        _alive.add(self)

    def watch(self, model: Any, optimizer: Any, scaler: Any) -> None:
        """A chunk, unless the model is one already, and its optimizer, unless another chunk has
        it. The boundaries are the updates of the first call's scaler or, where it has none,
        the optimizers' steps."""
        if self not in _alive:
            return _gradmon.warn_once("watch() after stop() does nothing")
        if not self._models:
            self._take_the_place_of_an_earlier_one(model, optimizer)
        if not has([known.model for known in self._models], model):
            self._models.append(ModelParts(model))
            self._watch_modules()
            self.core.watch(model)
        self._take(scaler)
        if not has([known.optimizer for known in self._optimizers], optimizer):
            self._make_room_for(optimizer)
            self._optimizers.append(self._around(optimizer))
        self._looks_for_unheld = False  # More may be watched.
        self._take_up(self._prepared(self.core.begun()))
        self._looks_for_unheld = True

    def end(self) -> None:
        """Ends the step and begins the next; after stop() it does nothing."""
        begun = self.core.step()
        if begun != 0 or self.begun != 0:
            self._take_up(self._prepared(begun))

    def end_by_program(self) -> None:
        """As end(), which the program does from the first call on; that one ends nothing
        where a step has ended by itself before."""
        counted = not self.explicit and self.ended_by_itself
        self.explicit = True
        calls = self._optimizers[0].calls if self._optimizers else 0
        if not counted:
            if self._scaler is None and calls == self._calls_before:
                self.core.skipped()  # by a scaler that watch() was not given
            self.end()
        self._calls_before = calls

    def stop(self, timeout: Optional[float] = None) -> None:
        """Lets go of models and optimizers, too. timeout: as Monitor.stop()'s."""
        _alive.discard(self)
        self._modules.set(False)
        self._modules.watch(())
        self._models.clear()
        for optimizer in self._optimizers:
            optimizer.remove()
        self._optimizers.clear()
        self._rounds.clear()
        self._idle = IdleOptimizers()
        if self._scaler is not None:
            self._scaler.remove()
            self._scaler = None
        self.core.stop(timeout)
        self.begun &= _gradmon.MAY_END

    def __del__(self) -> None:
        self._modules.set(False)

    def _take_the_place_of_an_earlier_one(self, model: Any, optimizer: Any) -> None:
        """As in a notebook whose cell is run again: of the same rank (a process may play several),
        in the same output directory or with something of the same training."""
        for other in list(_alive):
            if other is self or other.core.rank != self.core.rank:
                continue
            watched = [parts.model for parts in other._models] + [one.optimizer for one in other._optimizers]
            if other._output_dir == self._output_dir or has(watched, model) or has(watched, optimizer):
                _gradmon.warn_once("a second Monitor in this process replaces the first, which stops")
                other.stop()

    def _around(self, optimizer: Any) -> OptimizerSteps:
        # Each of these runs every step, on or off.
        core_step = self.core.step
        rounds = self._rounds
        rounds.add(optimizer)

        def before(scaler: Any) -> None:
            if rounds.stepped and self._ends_with_optimizers() and rounds.comes_again(optimizer):
                self.ended_by_itself = True
                self.end()
            if self.begun & _COLLECTS:
                self.core.before_update(optimizer, left_to(optimizer, scaler))

        def after() -> None:
            if self.begun & _COLLECTS:
                self.core.after_update(optimizer)
            if self.explicit or self._scaler is not None:
                return
            if rounds.single or rounds.ends_with(optimizer):  # end(), without two calls more
                self.ended_by_itself = True
                begun = core_step()
                if begun != 0 or self.begun != 0:
                    self._take_up(self._prepared(begun))

        return OptimizerSteps(optimizer, before, after)

    def _ends_with_optimizers(self) -> bool:
        return not self.explicit and self._scaler is None

    def _make_room_for(self, optimizer: Any) -> None:
        """Lets go of optimizers whose parameters the new one has: it was made in their place."""
        taken = parameters_of(optimizer)
        for known in list(self._optimizers):
            if taken & parameters_of(known.optimizer):
                known.remove()
                self._optimizers.remove(known)
                self._rounds.remove(known.optimizer)
                self._calls_before = 0

    def _take(self, scaler: Any) -> None:
        if scaler is None or not getattr(scaler, "is_enabled", lambda: True)():
            return
        if not self._optimizers:
            self._scaler = ScalerUpdates(scaler, self._updated, self._left_out, self._calls_of)
        elif self._scaler is None or scaler is not self._scaler.scaler:
            _gradmon.warn_once("ignored a scaler that the first watch() did not have")

    def _updated(self) -> None:
        """The scaler is, and its scale may be another one."""
        if not self.explicit:
            self.ended_by_itself = True
            self.end()
        elif self._scaler is not None and self.begun & _COLLECTS:
            self._tell_scale(self._scaler)

    def _calls_of(self, optimizer: Any) -> int:
        return sum(known.calls for known in self._optimizers if known.optimizer is optimizer)

    def _left_out(self, optimizer: Any) -> None:
        """The scaler has: its gradients are there, an update is not."""
        if not has([known.optimizer for known in self._optimizers], optimizer):
            return
        self.core.skipped()
        if self.begun & _COLLECTS:
            self.core.before_update(optimizer)

    def _watch_modules(self) -> None:
        self._modules.watch(parts.model for parts in self._models)

    def _prepared(self, begun: int) -> int:
        """Makes a step that has begun, and is collected, see what there is now."""
        if begun & _gradmon.LOOK and self._nonce is not None:
            self._look_for_nonce(self._nonce)
        if not begun & _COLLECTS:
            return begun
        self._look_at_models()
        if self._scaler is not None:
            self._tell_scale(self._scaler)
        return self.core.begun() | begun & _gradmon.MAY_END

    def _look_at_models(self) -> None:
        self._look_at = time.monotonic() + _LOOK_EVERY_S
        for number, parts in enumerate(self._models):
            if parts.changed():
                self._watch_modules()
                self.core.watch_again(number, parts.model)
                self._looks_for_unheld = True
        if self._looks_for_unheld:
            self._looks_for_unheld = False
            self._unheld = list(self._sentences_of_unheld())
        self._warn(self._unheld + self._idle.look(self._optimizers))

    def _warn(self, warnings: list[str]) -> None:
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
            unheld = [n for n, p in parts.model.named_parameters() if p.requires_grad and id(p) not in held]
            if unheld:
                more = f" and {len(unheld) - 3} more" if len(unheld) > 3 else ""
                yield (
                    f"{', '.join(unheld[:3])}{more} of {type(parts.model).__name__}: in no optimizer that is "
                    "watched, so without rows in grad_reduced, param_*, exp_avg* and mg_direction; "
                    "watch() theirs, too"
                )

    def _look_for_nonce(self, nonce: LaunchNonce) -> None:
        found = nonce.again()
        if found is not None:
            self._nonce = None
            self.core.know_launch(found)

    def _tell_scale(self, scaler: ScalerUpdates) -> None:
        try:
            self.core.gradient_scale(scaler.scale())
        except (AttributeError, TypeError, ValueError, RuntimeError) as error:  # the program's own
            _gradmon.warn_once(f"the scale of the gradients is unknown: {error!r}")

    def _take_up(self, begun: int) -> None:
        if begun & _gradmon.LOOK and time.monotonic() >= self._look_at:
            self._look_at_models()  # so that what is new may be asked for
        self.begun = begun = begun & ~_gradmon.LOOK
        self._modules.set(bool(begun & _gradmon.WATCHES_FORWARDS))


_alive: "weakref.WeakSet[Steps]" = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """While Python still can: the writer has rows to write."""
    timeout = after_signal(getattr(sys, "last_type", None))
    for steps in list(_alive):
        steps.stop(timeout)


def after_signal(kind: Optional[type]) -> Optional[float]:
    """The timeout of a stop() for which an exception of that type is the reason."""
    return _AFTER_SIGNAL_S if kind is not None and issubclass(kind, KeyboardInterrupt) else None
