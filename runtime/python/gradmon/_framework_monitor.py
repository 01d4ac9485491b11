# SPDX-License-Identifier: Apache-2.0
"""The Monitor and the callback that the adapters of frameworks are made of. Imports no framework."""
import contextlib
import importlib.metadata
import json
from typing import Any, Callable, Iterable, Iterator, NamedTuple, Optional, Sequence

import torch

from gradmon import _gradmon
from gradmon._attributes import replaced_around
from gradmon._communication import replica_ranks
from gradmon._optimizer_steps import hooked_or_replaced
from gradmon._sharded import Listed, Listing, Sharding
from gradmon._wrappers import inner_model, inner_optimizer, refusal, replicating
from gradmon.monitor import Monitor, PathLike


class FrameworkMonitor(Monitor):
    """A Monitor whose steps end when the framework has made an update, or skipped one: the adapter calls
    step() there, from the first step on. Training thread."""

    _ended_by_loop = True

    def __init__(self, config: PathLike, framework: str, **options: Any) -> None:
        """framework: the name of its distribution, such as "megatron-core". options: as for Monitor."""
        super().__init__(config, **options)
        module = {"megatron-core": "megatron", "transformers": "hf"}.get(framework, framework)
        try:
            version = importlib.metadata.version(framework)
        except importlib.metadata.PackageNotFoundError:
            version = "of unknown version"
        self._attached_by = f"gradmon.{module}, {framework} {version}"

    def watch_loop(
        self,
        models: Sequence[Any],
        optimizers: Sequence[Any],
        grad_acc_steps: int = 1,
        start_iteration: int = 0,
        scaler: Any = None,
        replicas: Optional["list[int]"] = None,
    ) -> bool:
        """Watches the framework's wrapped objects. Warns and returns False if they cannot be watched.

        optimizers: may be empty if add_optimizer() adds them. grad_acc_steps: most micro batches of a step.
        replicas: as Monitor._replicas."""
        if self.refuses(next(filter(None, map(refusal, [*optimizers, *models])), None)):
            return False
        if replicas is None:
            replicas = replica_ranks(replicating(models[0]), None, optimizers)
        self._replicas = replicas
        for model in models:
            for optimizer in optimizers or [None]:
                self.watch(
                    inner_model(model),
                    inner_optimizer(optimizer),
                    grad_acc_steps=grad_acc_steps,
                    scaler=scaler,
                    start_iteration=start_iteration,
                )
        return True

    def add_optimizer(self, model: Any, optimizer: Any) -> None:
        """Watches one more optimizer, after watch_loop()."""
        self.watch(inner_model(model), inner_optimizer(optimizer))

    def refuses(self, why: Optional[str]) -> bool:
        """Returns True if there is a reason, and warns that nothing is watched."""
        if why is not None:
            _gradmon.warn_once(f"nothing is watched: {why}")
        return why is not None

    def remove_at_stop(self, attached: Any) -> None:
        """stop() calls attached.remove()."""
        if self._steps is not None:
            self._steps.remove_at_stop(attached)

    def replace_until_stop(self, owner: Any, name: str, around: Callable[..., Any]) -> None:
        """As replaced_around()."""
        self.remove_at_stop(replaced_around(owner, name, around))

    @property
    def takes_scalars(self) -> bool:
        """Returns True if scalar() records values in this step."""
        return self._has_flag(_gradmon.TAKES_SCALARS)

    def report_numbers(self, values: Any) -> None:
        """Calls scalar() for the numbers and one-element tensors among the framework's logged values."""
        for name, value in values.items() if isinstance(values, dict) else ():
            alone = isinstance(value, torch.Tensor) and value.numel() == 1
            if alone or (isinstance(value, (int, float)) and not isinstance(value, bool)):
                self.scalar(str(name), value)


class FrameworkCallback:
    """Base of a trainer's callbacks: makes a monitor for each training."""

    _framework = ""  # as for FrameworkMonitor

    def __init__(self, config: PathLike, **options: Any) -> None:
        self._config = config
        self._options = options
        self._monitor: Optional[FrameworkMonitor] = None

    @property
    def monitor(self) -> Optional[FrameworkMonitor]:
        """The monitor of the current or last training.

        Returns
        -------
        Monitor or None
            None before the first training.
        """
        return self._monitor

    def _begin(self) -> FrameworkMonitor:
        self._stop()
        self._monitor = FrameworkMonitor(self._config, self._framework, **self._options)
        return self._monitor

    def _stop(self, timeout: Optional[float] = None) -> None:
        if self._monitor is not None:
            self._monitor.stop(timeout)


# Engines: their optimizers update tensors of their own in place of the user's parameters.


# As Core takes it: parameter, carrier, start, number of elements.
Carried = tuple[Any, Any, int, int]
# As Core takes it: parameter, its reduced gradient, its first moment or None.
Early = tuple[Any, Any, Any]
Scope = dict[str, Any]  # as in scopes.json (writers/FORMAT.md)
Labels = dict[str, Scope]  # by the parameter's name


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

    def scope(self) -> Scope:
        shape = list(self.shape)
        if self.whole:
            return {"scope": "whole" if self.owned else "replica", "shape": shape}
        return {"scope": "piece", "shape": shape, "begin": self.first, "count": self.numel}


def whole(parameter: Any, carrier: Any) -> Piece:
    """For a carrier that has all elements of the parameter, in the same shape."""
    return Piece(parameter, carrier, 0, carrier.numel(), 0, tuple(parameter.shape), True)


def innermost(optimizer: Any, wrapped: str = "optimizer") -> Any:
    """The last of the optimizers that wrap each other; it updates the carriers. wrapped: their attribute."""
    inner = getattr(optimizer, wrapped, None)
    return optimizer if inner is None else innermost(inner, wrapped)


# The kinds that are read at the optimizer's step, of the tensors that it updates.
_KINDS_OF_UPDATE = ("grad_reduced", "param_origin", "param_updated", "exp_avg", "exp_avg_sq")
UPDATES = "grad_reduced, param_*, exp_avg*"  # the same, in messages


# An engine's description of a model: the labels by kind, and a plain_scope as in Listing.
Description = tuple[dict[str, Labels], Optional[str]]


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
            after[name] = local or piece.scope()
    return {"grad_unreduced": before, **{kind: after for kind in _KINDS_OF_UPDATE}}


def is_expert(parameter: Any) -> bool:
    """Returns True if data-parallel ranks have different experts in parameters of this name."""
    return getattr(parameter, "allreduce", True) is False


def listing_with(described: "Callable[[Any], Description]") -> "Callable[[torch.nn.Module], Listing]":
    """For TrainingSteps: the model's parameters under their own names, with the engine's scopes.

    If the engine has renamed its parts, the rows keep the scopes of plain parameters."""

    def listing_of(model: torch.nn.Module) -> Listing:
        try:
            labels, plain_scope = described(model)
        except Exception as error:
            _gradmon.warn_once(f"scopes.json lacks the parts of this rank: {type(error).__name__}: {error}")
            return Listing(None, None)

        def scope_text(kind: str, name: str) -> "str | None":
            scope = labels[kind].get(name)
            return None if scope is None else json.dumps(scope)

        def own_sharding(name: str) -> Sharding:
            before, after = scope_text("grad_unreduced", name), scope_text("grad_reduced", name)
            return Sharding(0, unreduced_scope=before, scope=after)

        return Listing([Listed(n, p, own_sharding(n)) for n, p in model.named_parameters()], plain_scope)

    return listing_of


# By kinds of rows, for the warning: puts their hooks on, and yields objects with remove().
Attachments = dict[str, Callable[[], Iterable[Any]]]


class CollectingHooks:
    """Puts hooks on an engine's objects before a collected step, and removes them before other steps.
    Training thread.

    If attach() fails (the framework has renamed its parts), these kinds have no rows from then on, `reasons`
    has the reason, and training is untouched.
    """

    def __init__(self, attachments: Attachments) -> None:
        self._attachments = dict(attachments)
        self._attached: "list[Any]" = []
        self.reasons: "list[str]" = []

    def set(self, wanted: bool) -> None:
        if wanted and not self._attached:
            self._attached = [hook for kinds in list(self._attachments) for hook in self._try(kinds)]
        elif not wanted:
            self.remove()

    def remove(self) -> None:
        attached, self._attached = self._attached, []
        for hook in reversed(attached):
            hook.remove()

    def forget(self) -> None:
        """Removes the hooks for good, and releases the engine."""
        self.remove()
        self._attachments = {}

    def _try(self, kinds: str) -> "list[Any]":
        hooks: "list[Any]" = []
        try:
            for hook in self._attachments[kinds]():
                hooks.append(hook)
        except Exception as error:
            for hook in hooks:
                hook.remove()
            del self._attachments[kinds]
            self.reasons.append(f"no rows in {kinds}: {type(error).__name__}: {error}")
            _gradmon.warn_once(self.reasons[-1])
            return []
        return hooks


class Engine(NamedTuple):
    """The parts of an engine that an adapter has found, and the functions that read them."""

    models: Sequence[Any] = ()  # chunks
    optimizer: Any = None
    source: str = ""  # see Core.gradient_source()
    attachments: Attachments = {}
    described: "Callable[[Any], Description]" = lambda _: ({}, None)  # the scopes of a chunk's rows
    scale: "Callable[[], float]" = lambda: 1.0  # the factor in the gradients of the step that begins
    warnings: "Callable[[], list[str]]" = list  # about missing rows, now and while steps are collected
    unseen: "Callable[[], bool]" = bool  # True: deliver() is not called now, though there are gradients


_COLLECTS = _gradmon.COLLECTS
_UNSEEN = torch.empty(0)  # as Core.deliver_gradient() takes it: there is a gradient, but it was not seen


class EngineMonitor(FrameworkMonitor):
    """A FrameworkMonitor whose gradients and updates an adapter passes, by hooks that exist only while steps
    are collected. Training thread."""

    _replicas: "Optional[list[int]]" = []  # ranks hold different pieces
    _hooks: "Optional[CollectingHooks]" = None
    _engine = Engine()
    _updates_pieces = False  # this rank may have none, as a stage of a pipeline whose parameters are frozen

    def __getstate__(self) -> "dict[str, Any]":
        of_engine = {"_hooks", "_engine", "_carriers"}
        return {name: value for name, value in super().__getstate__().items() if name not in of_engine}

    def watch_engine(self, engine: Engine, grad_acc_steps: int, start_iteration: int) -> None:
        """Watches the engine's chunks."""
        self._gradient_source = engine.source
        self._engine = engine
        self._hooks = CollectingHooks(engine.attachments)
        self._last_warnings: "list[str]" = []
        self._carriers: "list[tuple[Any, list[Carried]]]" = []  # by optimizer, while steps are collected
        self._updated = False
        self._ended = False  # by end_step(), since the program called step()
        self._begun = False  # the program's step() has read weights and moments before the update
        self._listing_of = listing_with(engine.described)
        for model in engine.models:
            self.watch(model, None, grad_acc_steps=grad_acc_steps, start_iteration=start_iteration)
        del self._listing_of  # it knows the engine
        if self._steps is not None:
            self._steps.note_attached([engine.optimizer])
        self.remove_at_stop(self._hooks)
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
            if self._engine.unseen():
                self._note_unseen(carried)
            core.before_update_of_pieces(optimizer, others)
            if values:
                core.before_update_of_values(optimizer, values)

        def after() -> None:
            core.after_update_of_pieces(optimizer, carried)

        return hooked_or_replaced(optimizer, before, after)

    def before_replay(self, unseen: "Optional[bool]" = None) -> None:
        """Reads weights and moments if the next update may call no hook, because a CUDA graph makes it. The
        carriers' present gradients do not belong to that update. unseen: None: as Engine.unseen() answers."""
        if self._steps is None or not self._steps.step_flags & _COLLECTS:
            return
        unseen = self._engine.unseen() if unseen is None else unseen
        for optimizer, carried in self._carriers:
            if unseen:
                self._note_unseen(carried)
            with _without_gradients(carried):
                self._steps.core.before_update_of_pieces(optimizer, carried)

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
                self.before_replay(unseen=True)  # moments are read once, when the step begins
                self.after_replay()
            self._end()
            self.before_replay(unseen=True)
            self._begun = True
        self._ended = False
        return self.may_end

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
            self._engine = Engine()
            self._carriers = []

    def _prepare(self) -> None:
        if self._steps is None or self._hooks is None:
            return
        collects = bool(self._steps.step_flags & _COLLECTS)
        if not collects:
            self._carriers = []
        self._hooks.set(collects)
        warnings = self._hooks.reasons + self._engine.warnings()
        if warnings != self._last_warnings:
            self._last_warnings = warnings
            self._steps.note_warnings(warnings)
        if collects:
            self._steps.core.gradient_scale(self._scale_now())

    def _scale_now(self) -> float:
        try:
            return self._engine.scale()
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
