# SPDX-License-Identifier: Apache-2.0
"""The Monitor of an engine that reduces gradients and updates weights in tensors of its own. The base of
gradmon.colossalai, gradmon.deepspeed and gradmon.megatron; imports no framework."""
import contextlib
import json
from typing import Any, Callable, Iterable, Iterator, NamedTuple, Optional, Sequence

import torch

from gradmon import _gradmon
from gradmon._loop_monitor import LoopMonitor
from gradmon._optimizer_steps import hooked_or_replaced
from gradmon._sharded import Listed, Listing, Sharding, listing_of

# The tensors that an engine's optimizer updates in place of the user's parameters.


# As Core takes it: parameter, carrier, start, number of elements.
Carried = tuple[Any, Any, int, int]
# As Core takes it: parameter, its reduced gradient, its first moment or None.
Early = tuple[Any, Any, Any]


class Piece(NamedTuple):
    """A run of one parameter's flattened elements, in a tensor that the optimizer updates (its carrier)."""

    parameter: Any
    carrier: Any
    start: int  # of the piece, in the flattened carrier
    numel: int
    first: int  # of the piece's elements, in the flattened parameter
    shape: tuple[int, ...]  # shape of the parameter
    whole: bool = False  # the carrier is the parameter itself, or a copy; numel leaves out padding at its end
    owned: bool = False  # by this rank of data parallelism: the others do not update the parameter

    def carried(self) -> Carried:
        everything = self.whole and self.numel == self.carrier.numel()
        return (self.parameter, self.carrier, self.start, -1 if everything else self.numel)


def whole(parameter: Any, carrier: Any) -> Piece:
    """For a carrier that has all elements of the parameter, in the same shape."""
    return Piece(parameter, carrier, 0, carrier.numel(), 0, tuple(parameter.shape), True)


def inner_optimizers(optimizer: Any) -> "Iterator[Any]":
    """The engine's own optimizers behind one, the last before torch's: each of a chain."""
    chained = getattr(optimizer, "chained_optimizers", None)
    for one in [optimizer] if chained is None else chained:
        if one is optimizer:
            yield one
        else:
            yield from inner_optimizers(one)


def innermost(optimizer: Any) -> "Optional[Any]":
    """The optimizer that updates the carriers."""
    inner = getattr(optimizer, "optimizer", None)
    while inner is not None:
        optimizer, inner = inner, getattr(inner, "optimizer", None)
    return optimizer


# The scopes of the rows of an engine's parameters, for scopes.json.


# The kinds that are read at the optimizer's step, of the tensors that it updates.
KINDS_OF_UPDATE = ("grad_reduced", "param_origin", "param_updated", "exp_avg", "exp_avg_sq")

Scope = dict[str, Any]  # as in scopes.json (writers/FORMAT.md)
Labels = dict[str, Scope]  # by the parameter's name


class Description(NamedTuple):
    """An engine's description of a model. labels: by kind. plain_scope: see Listing."""

    labels: "dict[str, Labels]"
    plain_scope: "str | None" = None


def labels_of(
    named: "Iterable[tuple[str, Any, tuple[int, ...]]]",
    pieces: "Iterable[Piece]",
    is_local: "Callable[[Any], bool]" = lambda _: False,
) -> "dict[str, Labels]":
    """The scope of the rows of this rank, by kind and by the parameter's name.

    named: each parameter's name, the parameter, and its shape. is_local: True if the parameter's place in a
    whole is unknown. A kind has no label for a parameter without elements on this rank."""
    by_parameter = {id(piece.parameter): piece for piece in pieces}
    before: Labels = {}
    after: Labels = {}
    for name, parameter, shape in named:
        if not parameter.requires_grad:
            continue
        local: "Scope | None" = {"scope": "local"} if is_local(parameter) else None
        before[name] = local or {"scope": "whole", "shape": list(shape)}
        piece = by_parameter.get(id(parameter))
        if piece is not None and piece.numel:
            after[name] = local or _scope_of(piece)
    return {"grad_unreduced": before, **{kind: after for kind in KINDS_OF_UPDATE}}


def is_expert(parameter: Any) -> bool:
    """Returns True if data-parallel ranks have different experts in parameters of this name."""
    return getattr(parameter, "allreduce", True) is False


def listing_with(
    described: "Callable[[torch.nn.Module], Description]",
) -> "Callable[[torch.nn.Module], Listing]":
    """For TrainingSteps: the model's parameters under their own names, with what the engine says of them.

    If the engine has renamed its parts, the rows keep the scopes of plain parameters."""

    def listing_of(model: torch.nn.Module) -> Listing:
        try:
            labels, plain_scope = described(model)
        except Exception as error:
            _gradmon.warn_once(
                f"scopes.json does not say what this rank has: {type(error).__name__}: {error}"
            )
            return Listing(None, None)
        before, after = labels["grad_unreduced"], labels["grad_reduced"]
        listed = [
            Listed(
                name, one, Sharding(0, unreduced_scope=_text(before.get(name)), scope=_text(after.get(name)))
            )
            for name, one in model.named_parameters()
        ]
        return Listing(listed, plain_scope)

    return listing_of


def _scope_of(piece: Piece) -> Scope:
    shape = list(piece.shape)
    if piece.whole:
        return {"scope": "whole" if piece.owned else "replica", "shape": shape}
    return {"scope": "piece", "shape": shape, "begin": piece.first, "count": piece.numel}


def _text(scope: "Scope | None") -> "str | None":
    return None if scope is None else json.dumps(scope)


# Hooks that exist only while steps are collected.


class Attachment(NamedTuple):
    """One way to read some kinds of rows."""

    kinds: str  # for the warning: "grad_unreduced"
    attach: Callable[[], Iterable[Any]]  # puts the hooks on; yields objects with remove()


class CollectingHooks:
    """Puts hooks on an engine's objects before a collected step, and removes them before other steps.
    Training thread.

    If attach() fails (the framework has renamed its parts), these kinds have no rows from then on, `reasons`
    has the reason, and training is untouched.
    """

    def __init__(self, attachments: "list[Attachment]") -> None:
        self._attachments = attachments
        self._attached: "list[Any]" = []
        self.reasons: "list[str]" = []

    def set(self, wanted: bool) -> None:
        if wanted and not self._attached:
            self._attached = [hook for one in list(self._attachments) for hook in self._try(one)]
        elif not wanted:
            self.remove()

    def remove(self) -> None:
        attached, self._attached = self._attached, []
        for hook in reversed(attached):
            hook.remove()

    def forget(self) -> None:
        """Removes the hooks for good, and releases the engine."""
        self.remove()
        self._attachments = []

    def _try(self, one: Attachment) -> "list[Any]":
        hooks: "list[Any]" = []
        try:
            for hook in one.attach():
                hooks.append(hook)
        except Exception as error:
            for hook in hooks:
                hook.remove()
            self._attachments.remove(one)
            self.reasons.append(f"no rows in {one.kinds}: {type(error).__name__}: {error}")
            _gradmon.warn_once(self.reasons[-1])
            return []
        return hooks


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
