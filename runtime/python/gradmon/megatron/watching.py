# SPDX-License-Identifier: Apache-2.0
"""gradmon.megatron.watch."""
import os
import sys
import types
import weakref
from typing import Any, Callable, Iterable, Optional, Sequence, Union

from gradmon import _gradmon
from gradmon._attributes import OBJECT_ERRORS, attribute_of, replaced_around
from gradmon.engines.collecting_hooks import Attachment, CollectingHooks
from gradmon.engines.engine_monitor import EngineMonitor
from gradmon.engines.labels import KINDS_OF_UPDATE, Labels
from gradmon.engines.pieces import inner_optimizers
from gradmon.megatron.chunks import bucket_groups, inner_model, wrapper_with_buckets
from gradmon.megatron.scopes import description_of
from gradmon.megatron.shards import all_pieces, pieces_of, rows_of, without_master
from gradmon.monitor import Monitor
from gradmon.sharded.sharding import is_kind

_UPDATES = ", ".join(KINDS_OF_UPDATE)
# Also in the doctor's list of modes.
IS_FSDP = "Megatron-FSDP holds the gradients in buffers that gradmon does not know"
NO_MASTER = (
    f"no rows in {_UPDATES}: {{}} keeps no master copy that gradmon can read (use_precision_aware_optimizer)"
)
_GRAPH_OF_STEP = "OptimizerCudaGraphWrapper"
_GRAPH_OF_PASSES = "FullCudaGraphWrapper"
STEP_IS_CAPTURED = (
    f"no rows in grad_reduced and mg_direction: Megatron's {_GRAPH_OF_STEP} replays optimizer.step(), which "
    "calls no hook; train without --optimizer-cuda-graph"
)
PASSES_ARE_CAPTURED = (
    f"no rows in grad_unreduced, actv and actv_grad: Megatron's {_GRAPH_OF_PASSES} replays forward and "
    "backward, which call no hooks; train without --cuda-graph-impl full_iteration"
)
LAYERS_ARE_CAPTURED = (
    "no rows in actv and actv_grad within the layers that Megatron captures into CUDA graphs; train without "
    "--cuda-graph-impl"
)


def watch(
    model_chunks: Any,
    optimizer: Any,
    config: Union[str, "os.PathLike[str]"],
    *,
    start_iteration: int = 0,
    grad_acc_steps: int = 1,
    **options: Any,
) -> Monitor:
    """Begins to watch a Megatron model and its optimizer, after setup_model_and_optimizer().

    A step ends with each call of `optimizer.step()`, even if an inf or NaN skips the update.

    Parameters
    ----------
    model_chunks : megatron.core.distributed.DistributedDataParallel or sequence
        The wrapped model, or the chunks of an interleaved pipeline (vpp_stage 0, 1, ...). Rows have the names
        that the parameters have in the model itself.
    optimizer : megatron.core.optimizer.MegatronOptimizer
        The optimizer, or the chain of them, of get_megatron_optimizer().
    config : str or path-like
        As for Monitor.
    start_iteration : int
        Number of the first step, for a job that resumes from a checkpoint.
    grad_acc_steps : int
        Micro batches of a step, of each chunk.
    **options
        Further arguments of Monitor: rank, world_size, endpoint, output_dir, dynamic.

    Returns
    -------
    Monitor
        The monitor. Its stop() ends the watching; it can be used in a `with` statement.

    Raises
    ------
    ValueError
        As Monitor.watch().

    Notes
    -----
    No communication is added. grad_unreduced is `main_grad` as its bucket group begins to reduce it: the
    gradient of all micro batches of this rank, without the loss scale. The other kinds read the tensors that
    the innermost optimizer updates, at its step: the float32 copy if it exists, and with the distributed
    optimizer the piece of this rank; scopes() names the run. With `fp16` the loss scale is read from its
    device in each collected step. Steps also end when Megatron replays optimizer.step() as a CUDA graph;
    captured_by() names the kinds that then have no rows. If a CUDA graph of the program replays it, call
    monitor.step() in each iteration: weights and moments keep their rows.

    Examples
    --------
    >>> with gradmon.megatron.watch(model, optimizer, "monitor_config.json", start_iteration=iteration):
    ...     train(model, optimizer)
    """
    monitor = EngineMonitor(config, framework="megatron-core", **options)
    chunks = _chunks(model_chunks)
    why = _refusal(chunks, optimizer)
    if why is not None:
        _gradmon.warn_once(f"nothing is watched: {why}")
        return monitor

    def gradients() -> "Iterable[Any]":
        for chunk in chunks:
            for group in bucket_groups(wrapper_with_buckets(chunk)):
                yield replaced_around(group, "start_grad_sync", _starting(monitor, group))

    def updates() -> "Iterable[Any]":
        for one in inner_optimizers(optimizer):
            pieces = pieces_of(one)
            if pieces:
                yield monitor.around(one.optimizer, pieces)

    def warnings() -> "list[str]":
        captured = captured_by(optimizer, chunks)
        unread = [
            NO_MASTER.format(type(one).__name__) for one in inner_optimizers(optimizer) if without_master(one)
        ]
        return unread + ([] if captured is None else [captured])

    monitor.watch_engine(
        [inner_model(chunk) for chunk in chunks],
        CollectingHooks([Attachment("grad_unreduced", gradients), Attachment(_UPDATES, updates)]),
        optimizer,
        "delivered accumulated",
        grad_acc_steps=grad_acc_steps,
        start_iteration=start_iteration,
        described=lambda model: description_of(model, all_pieces(optimizer)),
        scale=lambda: _loss_scale(optimizer),
        warnings=warnings,
        unseen=_passes_are_replayed,
    )
    monitor.remove_at_stop(_Stepping(monitor, optimizer))
    return monitor


def captured_by(optimizer: Any, model_chunks: Any) -> Optional[str]:
    """Returns the kinds of rows that Megatron's CUDA graphs prevent.

    Parameters
    ----------
    model_chunks, optimizer
        As for watch().

    Returns
    -------
    str or None
        The kinds, the name of the capture, and the remedy. None: no capture, now or later.
    """
    configs = [attribute_of(chunk, "config") for chunk in _chunks(model_chunks)]
    ways = {attribute_of(config, "cuda_graph_impl", "none") for config in configs if config is not None}
    found = []
    if _is_captured(attribute_of(optimizer, "step")):
        found.append(STEP_IS_CAPTURED)
    if "full_iteration" in ways or _passes_are_replayed():
        found.append(PASSES_ARE_CAPTURED)
    if ways & {"local", "transformer_engine"}:
        found.append(LAYERS_ARE_CAPTURED)
    return "; ".join(found) or None


def scopes(model_chunks: Any, optimizer: Any) -> "list[dict[str, Labels]]":
    """Returns the scopes of the rows of this rank.

    Parameters
    ----------
    model_chunks, optimizer
        As for watch().

    Returns
    -------
    list of dict
        One for each chunk: by kind and name, the scope that scopes.json has. `scope` is "whole", "replica",
        "shard", "piece", "partial" or "local"; `shape` is the whole parameter's. If tensor parallelism splits
        a parameter, `offset` and `size` are the box of this rank's group of data parallelism. `begin` and
        `count` are the first element and the number of elements of a piece in the flattened parameter, or in
        that box. `global_name` has the number of the layer, and of the expert, in the whole model.

    Notes
    -----
    The groups are those of megatron.core.parallel_state. "local" are tensors with several experts, with
    expert parallelism: their names do not say which experts this rank has.
    """
    pieces = all_pieces(optimizer)
    return [description_of(inner_model(chunk), pieces).labels for chunk in _chunks(model_chunks)]


def _chunks(model_chunks: Any) -> "Sequence[Any]":
    return list(model_chunks) if isinstance(model_chunks, (list, tuple)) else [model_chunks]


def _starting(monitor: EngineMonitor, group: Any) -> Any:
    """Around the bucket group's start_grad_sync(): first passes the gradients that it will reduce."""

    def deliver() -> None:
        for bucket in group.buckets:
            for parameter in bucket.params_list:
                event = getattr(parameter, "_cudagraph_wgrad_ready_event", None)
                if event is not None:
                    event.wait()
                rows = rows_of(parameter)
                gradient = parameter.main_grad
                if rows is None:
                    monitor.deliver(parameter, gradient)
                elif rows.held:
                    monitor.deliver(parameter, gradient.narrow(0, 0, rows.held))

    def start_grad_sync(original: Any, *arguments: Any, **keywords: Any) -> Any:
        try:
            if group.grad_reduce_handle is None:  # else it has begun already, in the first batch
                deliver()
        except OBJECT_ERRORS as error:  # Megatron has renamed what this relies on, for one
            _gradmon.warn_once(f"gradients without rows in grad_unreduced: {type(error).__name__}: {error}")
        return original(*arguments, **keywords)

    return start_grad_sync


class _Stepping:
    """Ends a step of training after optimizer.step(), until remove(). If Megatron puts its CUDA graph of the
    step around ours, ours is put around the graph: its replays call nothing."""

    def __init__(self, monitor: EngineMonitor, optimizer: Any) -> None:
        self._monitor: "Optional[EngineMonitor]" = monitor
        self._optimizer = optimizer
        self._entered = False
        self._attach(_is_captured(optimizer.step))

    def remove(self) -> None:
        self._monitor = None
        ours = self._ours()
        if ours is None or not self._is_outermost():
            return
        if ours.was_own is None:
            del self._optimizer.step
        else:
            self._optimizer.step = ours.was_own

    def _attach(self, captured: bool) -> None:
        optimizer = self._optimizer
        original = optimizer.step

        def step(own: Any, *arguments: Any, **keywords: Any) -> Any:
            if own is not optimizer:  # a copy
                return type(own).step(own, *arguments, **keywords)
            return self._step(captured, original, *arguments, **keywords)

        ours: Any = step
        ours.original, ours.was_own = original, vars(optimizer).get("step")
        optimizer.step = types.MethodType(step, optimizer)
        # Megatron's `del optimizer.step` is to free its graph: nothing else holds the function.
        self._ours: "Callable[[], Any]" = weakref.ref(step)

    def _step(self, captured: bool, original: Any, *arguments: Any, **keywords: Any) -> Any:
        monitor = self._monitor
        if monitor is None or self._entered:  # called by a graph that ours is around
            return original(*arguments, **keywords)
        self._entered = True
        try:
            if captured:
                monitor.before_replay()
            result = original(*arguments, **keywords)
            if captured:
                monitor.after_replay()
        finally:
            self._entered = False
        if not self._is_outermost():
            self._attach_outside()
        monitor.end_step()
        return result

    def _attach_outside(self) -> None:
        outer = vars(self._optimizer).get("step")
        if outer is not None and _is_captured(outer):
            self._attach(captured=True)

    def _is_outermost(self) -> bool:
        own = vars(self._optimizer).get("step")
        return own is not None and getattr(own, "__func__", None) is self._ours()


def _is_captured(step: Any) -> bool:
    """Returns True if Megatron captures optimizer.step() into a CUDA graph, or has captured it."""
    while step is not None:
        if is_kind(step, _GRAPH_OF_STEP):
            return True
        step = getattr(getattr(step, "__func__", step), "original", None)
    kind = attribute_of(sys.modules.get("megatron.core.optimizer.optimizer_cuda_graph"), _GRAPH_OF_STEP)
    return attribute_of(kind, "cuda_graph") is not None


def _passes_are_replayed() -> bool:
    """Returns True if Megatron has captured forward and backward of training into one CUDA graph."""
    kind = attribute_of(sys.modules.get("megatron.core.full_cuda_graph"), _GRAPH_OF_PASSES)
    return (attribute_of(kind, "cuda_graph") or {}).get("training") is not None


def _loss_scale(optimizer: Any) -> float:
    """Reads from a device only with a scaler (fp16)."""
    for one in inner_optimizers(optimizer):
        if getattr(one, "grad_scaler", None) is not None:
            return float(one.get_loss_scale())
    return 1.0


def _refusal(chunks: "Sequence[Any]", optimizer: Any) -> Optional[str]:
    for chunk in chunks:
        if any(hasattr(one, "__fsdp_param__") for one in chunk.parameters()):
            return IS_FSDP
        if wrapper_with_buckets(chunk) is None:
            return (
                f"{type(chunk).__name__} has no bucket_groups: pass the chunks that Megatron's "
                "DistributedDataParallel wraps (Megatron core 0.9 or later)"
            )
    return None if hasattr(optimizer, "step") else "there is no optimizer"
