# SPDX-License-Identifier: Apache-2.0
"""gradmon.megatron.watch."""
import os
from typing import Any, Iterable, Optional, Sequence, Union

from gradmon import _gradmon
from gradmon._attributes import OBJECT_ERRORS, replaced_around
from gradmon.engines.collecting_hooks import Attachment, CollectingHooks
from gradmon.engines.engine_monitor import EngineMonitor
from gradmon.engines.labels import KINDS_OF_UPDATE, Labels
from gradmon.engines.pieces import inner_optimizers
from gradmon.megatron.chunks import bucket_groups, inner_model, wrapper_with_buckets
from gradmon.megatron.scopes import description_of
from gradmon.megatron.shards import all_pieces, pieces_of, rows_of, without_master
from gradmon.monitor import Monitor

_UPDATES = ", ".join(KINDS_OF_UPDATE)


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

    A step ends with each call of `optimizer.step()`, also where an inf or NaN leaves out the update.

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
    gradient of all micro batches of this rank, without the loss scale. The other kinds are of the tensors
    that the innermost optimizer updates, at its step: the float32 copy where there is one, and with the
    distributed optimizer the piece that this rank has; scopes() says which run. With `fp16` the loss scale is
    read from its device in each collected step.

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
            if without_master(one):
                _gradmon.warn_once(
                    f"no rows in {_UPDATES}: {type(one).__name__} keeps no master copy that gradmon can read "
                    "(use_precision_aware_optimizer)"
                )

    monitor.watch_engine(
        [inner_model(chunk) for chunk in chunks],
        CollectingHooks([Attachment("grad_unreduced", gradients), Attachment(_UPDATES, updates)]),
        optimizer,
        "delivered accumulated",
        grad_acc_steps=grad_acc_steps,
        start_iteration=start_iteration,
        described=lambda model: description_of(model, all_pieces(optimizer)),
        scale=lambda: _loss_scale(optimizer),
    )
    monitor.remove_at_stop(replaced_around(optimizer, "step", _stepping(monitor)))
    return monitor


def scopes(model_chunks: Any, optimizer: Any) -> "list[dict[str, Labels]]":
    """What the rows of this rank are of.

    Parameters
    ----------
    model_chunks, optimizer
        As for watch().

    Returns
    -------
    list of dict
        One for each chunk: by kind and name, the scope that scopes.json has. `scope` is "whole", "replica",
        "shard", "piece", "partial" or "local"; `shape` is that of the whole parameter. Of a parameter that
        tensor parallelism splits, `offset` and `size` are the box that this rank's group of data parallelism
        has. `begin` and `count` are the first element and the number of elements of a piece in the flattened
        parameter, or in that box. `global_name` has the number of the layer, and of the expert, in the whole
        model.

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


def _stepping(monitor: EngineMonitor) -> Any:
    """Around the optimizer's step(): ends a step of training."""

    def step(original: Any, *arguments: Any, **keywords: Any) -> Any:
        result = original(*arguments, **keywords)
        monitor.end_step()
        return result

    return step


def _loss_scale(optimizer: Any) -> float:
    """Reads from a device only with a scaler, as fp16 has."""
    for one in inner_optimizers(optimizer):
        if getattr(one, "grad_scaler", None) is not None:
            return float(one.get_loss_scale())
    return 1.0


def _refusal(chunks: "Sequence[Any]", optimizer: Any) -> Optional[str]:
    for chunk in chunks:
        if any(hasattr(one, "__fsdp_param__") for one in chunk.parameters()):
            return "Megatron-FSDP holds the gradients in buffers that gradmon does not know"
        if wrapper_with_buckets(chunk) is None:
            return (
                f"{type(chunk).__name__} has no bucket_groups: pass the chunks that Megatron's "
                "DistributedDataParallel wraps (Megatron core 0.9 or later)"
            )
    return None if hasattr(optimizer, "step") else "there is no optimizer"
