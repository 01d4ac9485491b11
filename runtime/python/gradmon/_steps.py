# SPDX-License-Identifier: Apache-2.0
"""The step that training is in."""
import atexit
import weakref
from typing import Any

from gradmon import _gradmon
from gradmon._module_hooks import ModuleHooks
from gradmon._optimizer_steps import OptimizerSteps

_COLLECTS = _gradmon.COLLECTS


class Steps:
    """What the monitor and the hooks at its optimizers share: it lives, and watches, as
    long as either does, until stop(). Training thread."""

    __slots__ = ("core", "begun", "explicit", "ended_by_optimizer", "_modules", "_optimizers", "__weakref__")

    def __init__(self, core: _gradmon.Core) -> None:
        self.core = core
        self.begun = 0  # COLLECTS, WATCHES_FORWARDS, MAY_END
        self.explicit = False  # the program ends the steps
        self.ended_by_optimizer = False
        self._modules = ModuleHooks()
        self._optimizers: list[OptimizerSteps] = []
        _alive.add(self)

    def watch(self, model: Any, optimizer: Any) -> None:
        """A chunk and, unless another chunk has it, its optimizer; the first one's steps
        are the boundaries."""
        self._modules.watch(model)
        self.core.watch(model)
        if all(optimizer is not known.optimizer for known in self._optimizers):
            self._optimizers.append(self._around(optimizer, is_boundary=not self._optimizers))
        self._take_up(self.core.begun())

    def end(self) -> None:
        """Ends the step and begins the next; after stop() it does nothing."""
        begun = self.core.step()
        if begun != self.begun:
            self._take_up(begun)

    def stop(self) -> None:
        _alive.discard(self)
        self._modules.set(False)
        for optimizer in self._optimizers:
            optimizer.remove()
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
            if is_boundary and not self.explicit:
                self.ended_by_optimizer = True
                self.end()

        return OptimizerSteps(optimizer, before, after)

    def _take_up(self, begun: int) -> None:
        self.begun = begun
        self._modules.set(bool(begun & _gradmon.WATCHES_FORWARDS))


_alive: "weakref.WeakSet[Steps]" = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """While Python still can: the writer has rows to write."""
    for steps in list(_alive):
        steps.stop()
