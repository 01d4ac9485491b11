# SPDX-License-Identifier: Apache-2.0
"""The step that training is in."""
import atexit
import weakref
from typing import Any, Optional

from gradmon import _gradmon
from gradmon._model_parts import ModelParts
from gradmon._module_hooks import ModuleHooks
from gradmon._optimizer_steps import OptimizerSteps
from gradmon._scaler_updates import ScalerUpdates

_COLLECTS = _gradmon.COLLECTS


class Steps:
    """What the monitor and the hooks at its optimizers share: it lives, and watches, as
    long as either does, until stop(). Training thread."""

    __slots__ = (
        "core",
        "begun",
        "explicit",
        "ended_by_itself",
        "_modules",
        "_models",
        "_optimizers",
        "_scaler",
        "__weakref__",
    )

    def __init__(self, core: _gradmon.Core) -> None:
        self.core = core
        self.begun = 0  # COLLECTS, WATCHES_FORWARDS, MAY_END
        self.explicit = False  # the program ends the steps
        self.ended_by_itself = False
        self._modules = ModuleHooks()
        self._models: list[ModelParts] = []
        self._optimizers: list[OptimizerSteps] = []
        self._scaler: Optional[ScalerUpdates] = None
        _alive.add(self)

    def watch(self, model: Any, optimizer: Any, scaler: Any) -> None:
        """A chunk and, unless another chunk has it, its optimizer. The boundaries are the
        scaler's updates or, where the first call has none, the first optimizer's steps."""
        self._models.append(ModelParts(model))
        self._watch_modules()
        self.core.watch(model)
        if scaler is not None and self._scaler is None:
            self._scaler = ScalerUpdates(scaler, self._end_by_itself, self._left_out, self._calls_of)
        if all(optimizer is not known.optimizer for known in self._optimizers):
            is_boundary = not self._optimizers and scaler is None
            self._optimizers.append(self._around(optimizer, is_boundary))
        self._take_up(self._prepared(self.core.begun()))

    def end(self) -> None:
        """Ends the step and begins the next; after stop() it does nothing."""
        begun = self.core.step()
        if begun & _COLLECTS:
            begun = self._prepared(begun)
        if begun != self.begun:
            self._take_up(begun)

    def stop(self) -> None:
        _alive.discard(self)
        self._modules.set(False)
        for optimizer in self._optimizers:
            optimizer.remove()
        if self._scaler is not None:
            self._scaler.remove()
        self.core.stop()
        self.begun &= _gradmon.MAY_END

    def __del__(self) -> None:
        self._modules.set(False)

    def _around(self, optimizer: Any, is_boundary: bool) -> OptimizerSteps:
        # Each of these runs every step, on or off.
        def before() -> None:
            if self.begun & _COLLECTS:
                self.core.before_update(optimizer)

        def after() -> None:
            if self.begun & _COLLECTS:
                self.core.after_update(optimizer)
            if is_boundary:
                self._end_by_itself()

        return OptimizerSteps(optimizer, before, after)

    def _end_by_itself(self) -> None:
        if not self.explicit:
            self.ended_by_itself = True
            self.end()

    def _calls_of(self, optimizer: Any) -> int:
        return sum(known.calls for known in self._optimizers if known.optimizer is optimizer)

    def _left_out(self, optimizer: Any) -> None:
        """The scaler has: its gradients are there, an update is not."""
        if all(optimizer is not known.optimizer for known in self._optimizers):
            return
        self.core.skipped()
        if self.begun & _COLLECTS:
            self.core.before_update(optimizer)

    def _watch_modules(self) -> None:
        self._modules.watch(parts.model for parts in self._models)

    def _prepared(self, begun: int) -> int:
        """Makes a step that has begun, and is collected, see what there is now."""
        if not begun & _COLLECTS:
            return begun
        try:
            for number, parts in enumerate(self._models):
                if parts.changed():
                    self._watch_modules()
                    self.core.watch_again(number, parts.model)
            if self._scaler is not None:
                self.core.gradient_scale(self._scaler.scale())
        except Exception as error:  # of the program's own model or scaler
            _gradmon.warn_once(f"the model or its scaler cannot be looked at: {error!r}")
        return self.core.begun() | begun & _gradmon.MAY_END

    def _take_up(self, begun: int) -> None:
        self.begun = begun
        self._modules.set(bool(begun & _gradmon.WATCHES_FORWARDS))


_alive: "weakref.WeakSet[Steps]" = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """While Python still can: the writer has rows to write."""
    for steps in list(_alive):
        steps.stop()
