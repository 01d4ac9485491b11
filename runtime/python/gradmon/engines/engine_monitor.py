# SPDX-License-Identifier: Apache-2.0
"""The Monitor of an engine that reduces gradients and updates weights in tensors of its own."""
import contextlib
from typing import Any, Callable, Iterator, Optional, Sequence

import torch

from gradmon import _gradmon
from gradmon.engines.collecting_hooks import CollectingHooks
from gradmon.engines.labels import Description, listing_with
from gradmon.engines.pieces import Carried, Early, Piece
from gradmon.loops.loop_monitor import LoopMonitor
from gradmon.loops.optimizer_step_hooks import hooked_or_replaced
from gradmon.sharded.listing import listing_of

_COLLECTS = _gradmon.COLLECTS
_UNSEEN = torch.empty(0)  # as Core.deliver_gradient() takes it: there is a gradient, but it was not seen


class EngineMonitor(LoopMonitor):
    """A Monitor whose gradients and updates an adapter passes, by hooks that exist only while steps are
    collected. Training thread."""

    _replicas: "Optional[list[int]]" = []  # ranks hold different pieces
    _hooks: "Optional[CollectingHooks]" = None
    _updates_pieces = False  # this rank may have none, as a stage of a pipeline whose parameters are frozen

    def __getstate__(self) -> "dict[str, Any]":
        of_engine = {"_hooks", "_scale", "_listing_of", "_warnings", "_unseen", "_carriers"}
        return {name: value for name, value in super().__getstate__().items() if name not in of_engine}

    def watch_engine(
        self,
        models: Sequence[Any],
        hooks: CollectingHooks,
        optimizer: Any,
        source: str,
        *,
        grad_acc_steps: int,
        start_iteration: int,
        described: "Callable[[Any], Description]",
        scale: "Callable[[], float]" = lambda: 1.0,
        warnings: "Callable[[], list[str]]" = list,
        unseen: "Callable[[], bool]" = bool,
    ) -> None:
        """Watches the chunks. optimizer: the engine's. source: see Core.gradient_source(). described: the
        scopes of a chunk's rows. scale: the factor in the gradients of the step that begins. warnings:
        sentences for status() about missing rows, called at once and while steps are collected. unseen:
        returns True if deliver() is not called now, though parameters have gradients."""
        self._gradient_source = source
        self._listing_of = listing_with(described)
        self._hooks = hooks
        self._scale = scale
        self._warnings = warnings
        self._unseen = unseen
        self._last_warnings: "list[str]" = []
        self._carriers: "list[tuple[Any, list[Carried]]]" = []  # by optimizer, while steps are collected
        self._updated = False
        self._ended = False  # by end_step(), since the program called step()
        self._begun = False  # by the program's step(), which has read what the update will change
        for model in models:
            self.watch(model, None, grad_acc_steps=grad_acc_steps, start_iteration=start_iteration)
        if self._steps is not None:
            self._steps.note_attached([optimizer])
        self.remove_at_stop(hooks)
        self._prepare()

    def deliver(self, parameter: Any, gradient: Any, accumulates: bool = False) -> None:
        """Passes a gradient before its reduction. accumulates: it also has the earlier micro batches."""
        if self._steps is not None:
            self._steps.core.deliver_gradient(parameter, gradient)
            if accumulates:
                self._steps.core.note_accumulated(parameter)

    def pass_early(self, find: "Callable[[], list[Early]]") -> None:
        """Passes reduced gradients and first moments before the engine overwrites them with its update."""
        if self._steps is None or self._hooks is None:
            return
        try:
            found = find()
        except Exception as error:  # the framework has renamed a part
            reason = f"the engine replaces gradients before they are read: {type(error).__name__}: {error}"
            if reason not in self._hooks.reasons:
                _gradmon.warn_once(reason)
                self._hooks.reasons.append(reason)
                self._steps.note_warnings(self._hooks.reasons)
            return
        if found:
            self._steps.core.before_replacement(found, self._scale_now())

    def around(self, optimizer: Any, pieces: "list[Piece]", early: "Sequence[Piece]" = ()) -> Any:
        """Reads the pieces around each step of the optimizer that updates their carriers; until remove().
        early: pieces whose gradients and moments pass_early() passes."""
        assert self._steps is not None
        core = self._steps.core
        carried = [piece.carried() for piece in pieces if piece.numel]
        passed = {id(piece.parameter) for piece in early}
        values = [one for one in carried if id(one[0]) in passed]
        others = [one for one in carried if id(one[0]) not in passed]
        self._updates_pieces = self._updates_pieces or bool(carried)
        self._carriers.append((optimizer, carried))

        def before(_scaler: Any) -> None:
            self._updated = True
            if self._unseen():
                self._note_unseen(carried)
            core.before_update_of_pieces(optimizer, others)
            if values:
                core.before_update_of_values(optimizer, values)

        def after() -> None:
            core.after_update_of_pieces(optimizer, carried)

        return hooked_or_replaced(optimizer, before, after)

    def before_replay(self) -> None:
        """Reads weights and moments if the next update may call no hook, because a CUDA graph makes it. The
        carriers' gradients until then are not the update's."""
        self._before_replay(self._unseen())

    def after_replay(self) -> None:
        """Reads the weights after such an update."""
        if self._steps is None or not self._steps.step_flags & _COLLECTS:
            return
        for optimizer, carried in self._carriers:
            self._updated = True
            self._steps.core.after_update_of_pieces(optimizer, carried)

    def end_step(self) -> None:
        """The engine has made an update, or skipped one."""
        self._end()
        self._ended = True
        self._begun = False

    def step(self) -> bool:
        """As Monitor.step(). Ends a step that the engine has not ended: its update may be a CUDA graph's."""
        if self._steps is not None and not self._ended:
            if self._begun and not self._updated:
                self._before_replay(unseen=True)  # moments are read once, when the step begins
                self.after_replay()
            self._end()
            self._before_replay(unseen=True)
            self._begun = True
        self._ended = False
        return self.may_end

    def _before_replay(self, unseen: bool) -> None:
        if self._steps is None or not self._steps.step_flags & _COLLECTS:
            return
        for optimizer, carried in self._carriers:
            if unseen:
                self._note_unseen(carried)
            with _without_gradients(carried):
                self._steps.core.before_update_of_pieces(optimizer, carried)

    def _note_unseen(self, pieces: "list[Carried]") -> None:
        for parameter, _, _, _ in pieces:
            self.deliver(parameter, _UNSEEN)

    def _end(self) -> None:
        steps = self._steps
        if steps is None:
            return
        collected = steps.step_flags & _COLLECTS
        if collected and self._updates_pieces and not self._updated:
            steps.core.skipped()
        self._updated = False
        super().step()
        if collected or steps.step_flags & _COLLECTS:
            self._prepare()

    def stop(self, timeout: "Optional[float]" = None) -> None:
        super().stop(timeout)
        if self._hooks is not None:  # they know the engine
            self._hooks.forget()
            self._scale = lambda: 1.0
            self._warnings = list
            self._unseen = bool
            self._carriers = []
            self._listing_of = listing_of

    def _prepare(self) -> None:
        if self._steps is None or self._hooks is None:
            return
        collects = bool(self._steps.step_flags & _COLLECTS)
        if not collects:
            self._carriers = []
        self._hooks.set(collects)
        warnings = self._hooks.reasons + self._warnings()
        if warnings != self._last_warnings:
            self._last_warnings = warnings
            self._steps.note_warnings(warnings)
        if collects:
            self._steps.core.gradient_scale(self._scale_now())

    def _scale_now(self) -> float:
        try:
            return self._scale()
        except Exception as error:  # the framework has renamed a part
            _gradmon.warn_once(f"gradients have the loss scale: {type(error).__name__}: {error}")
            return 1.0


@contextlib.contextmanager
def _without_gradients(pieces: "list[Carried]") -> "Iterator[None]":
    kept = [(carrier, carrier.grad) for _, carrier, _, _ in pieces if carrier.grad is not None]
    for carrier, _ in kept:
        carrier.grad = None
    try:
        yield
    finally:
        for carrier, gradient in kept:
            carrier.grad = gradient
