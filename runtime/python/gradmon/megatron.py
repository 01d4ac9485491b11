# SPDX-License-Identifier: Apache-2.0
"""gradmon for Megatron core."""
import math
import re
import sys
import types
import weakref
from typing import Any, Callable, Iterable, Iterator, NamedTuple, Optional, Sequence

import torch
import torch.distributed as dist

from gradmon import _gradmon
from gradmon._attributes import OBJECT_ERRORS, attribute_of, class_names, is_kind, replaced_around
from gradmon._framework_monitor import UPDATES, Description, Engine, EngineMonitor, Labels, Piece, Scope
from gradmon._framework_monitor import is_expert, labels_of, whole
from gradmon._scopes import LOCAL, ranks_in
from gradmon.monitor import Monitor, PathLike

__all__ = ["captured_by", "scopes", "watch"]

# Also in the doctor's list of modes.
IS_FSDP = "Megatron-FSDP holds the gradients in buffers that gradmon does not know"
NO_MASTER = (
    f"no rows in {UPDATES}: {{}} keeps no master copy that gradmon can read (use_precision_aware_optimizer)"
)
_GRAPH_OF_STEP = "OptimizerCudaGraphWrapper"
_GRAPH_OF_PASSES = "FullCudaGraphWrapper"
STEP_IS_CAPTURED = (
    f"no rows in grad_reduced and mg_direction: {_GRAPH_OF_STEP} replays optimizer.step() and calls no hook; "
    "train without --optimizer-cuda-graph"
)
PASSES_ARE_CAPTURED = (
    f"no rows in grad_unreduced, actv and actv_grad: {_GRAPH_OF_PASSES} replays both passes and calls no "
    "hook; train without --cuda-graph-impl full_iteration"
)
LAYERS_ARE_CAPTURED = (
    "no rows in actv and actv_grad within the layers that Megatron captures into CUDA graphs; train without "
    "--cuda-graph-impl"
)


def watch(
    model_chunks: Any,
    optimizer: Any,
    config: PathLike,
    *,
    start_iteration: int = 0,
    grad_acc_steps: int = 1,
    **options: Any,
) -> Monitor:
    """Begins to watch a Megatron model and its optimizer, after setup_model_and_optimizer().

    A step ends with each call of `optimizer.step()`, even if an inf or NaN skips the update.

    Parameters
    ----------
    config, start_iteration, **options
        As for Monitor and Monitor.watch().
    model_chunks : megatron.core.distributed.DistributedDataParallel or sequence
        The wrapped model, or the chunks of an interleaved pipeline (vpp_stage 0, 1, ...). Rows have the names
        that the parameters have in the model itself.
    optimizer : megatron.core.optimizer.MegatronOptimizer
        The optimizer, or the chain of them, of get_megatron_optimizer().
    grad_acc_steps : int
        Micro batches of a step, of each chunk.

    Returns
    -------
    Monitor

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
    monitor = EngineMonitor(config, "megatron-core", **options)
    chunks = _chunks(model_chunks)
    if monitor.refuses(_refusal(chunks, optimizer)):
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

    engine = Engine(
        [inner_model(chunk) for chunk in chunks],
        optimizer,
        "delivered accumulated",
        {"grad_unreduced": gradients, UPDATES: updates},
        described=lambda model: description_of(model, all_pieces(optimizer)),
        scale=lambda: _loss_scale(optimizer),
        warnings=warnings,
        unseen=_passes_are_replayed,
    )
    monitor.watch_engine(engine, grad_acc_steps, start_iteration)
    monitor.remove_at_stop(_Stepping(monitor, optimizer))
    return monitor


def captured_by(optimizer: Any, model_chunks: Any) -> Optional[str]:
    """Returns the kinds of rows that Megatron's CUDA graphs prevent.

    Parameters
    ----------
    optimizer, model_chunks
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
    return [description_of(inner_model(chunk), pieces)[0] for chunk in _chunks(model_chunks)]


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
    """Ends a step of training after optimizer.step(), until remove(). If Megatron wraps our step() in its
    CUDA graph, whose replays call nothing, we wrap the graph."""

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
        if monitor is None or self._entered:  # a graph that we have wrapped calls it
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


# The parts of a Megatron model: its wrappers, its bucket groups, the global numbers of its layers.


_WRAPPERS = {"DistributedDataParallel", "Float16Module"}


def inner_model(chunk: Any) -> Any:
    """The chunk without Megatron's wrappers: its parameters have the names of the model itself."""
    while _WRAPPERS & class_names(chunk) and hasattr(chunk, "module"):
        chunk = chunk.module
    return chunk


def wrapper_with_buckets(chunk: Any) -> "Optional[Any]":
    """Megatron's DistributedDataParallel around the chunk."""
    while chunk is not None and not hasattr(chunk, "bucket_groups"):
        chunk = getattr(chunk, "module", None)
    return chunk


def bucket_groups(wrapper: Any) -> "Iterator[Any]":
    yield from wrapper.bucket_groups
    yield from wrapper.expert_parallel_bucket_groups


def global_names(model: Any, expert_rank: int = 0) -> "dict[str, str]":
    """Names of parameters with the layers' numbers in the whole model, from 0, by the parameter's own name.

    A pipeline's rank counts its layers from 0; a layer's `layer_number` counts from 1 over all ranks. Experts
    are counted over all ranks of their group; expert_rank: this rank's place in it."""
    numbers: "dict[str, int]" = {}
    experts: "dict[str, int]" = {}
    for name, module in model.named_modules():
        layer = getattr(module, "layer_number", None)
        if isinstance(layer, int) and re.search(r"(^|\.)\d+$", name):
            numbers[name] = layer - 1
        if name.endswith("local_experts"):
            experts[name] = expert_rank * len(module)
    return {name: _global_name(name, numbers, experts) for name, _ in model.named_parameters()}


def _global_name(name: str, numbers: "dict[str, int]", experts: "dict[str, int]") -> str:
    parts = name.split(".")
    found = list(parts)
    for i, part in enumerate(parts):
        prefix, place = ".".join(parts[:i]), ".".join(parts[: i + 1])
        if place in numbers:
            found[i] = str(numbers[place])
        elif part.isdecimal() and prefix in experts:
            found[i] = str(int(part) + experts[prefix])
    return ".".join(found)


# The tensors that Megatron's optimizers update for the parameters. Runs no collective.


# Lists of parameters, and of the tensors that replace them in updates, of a DistributedOptimizer.
_SHARDED = (
    ("model_float16_groups", "shard_fp32_from_float16_groups"),
    ("model_fp32_groups", "shard_fp32_groups"),
)
# The same of a Float16OptimizerWithFloat16Params.
_COPIED = (("float16_groups", "fp32_from_float16_groups"), ("fp32_from_fp32_groups", "fp32_from_fp32_groups"))


def inner_optimizers(optimizer: Any) -> "Iterator[Any]":
    """Megatron's optimizers, each around one of torch's: those of a chain, or the optimizer itself."""
    chained = getattr(optimizer, "chained_optimizers", None)
    for one in [optimizer] if chained is None else chained:
        if one is optimizer:
            yield one
        else:
            yield from inner_optimizers(one)


def all_pieces(optimizer: Any) -> "list[Piece]":
    """The tensors that an optimizer, or a chain of optimizers, updates on this rank."""
    chained = getattr(optimizer, "chained_optimizers", None)
    pieces = [] if chained is None else [piece for one in chained for piece in all_pieces(one)]
    if is_kind(optimizer, "LayerWiseDistributedOptimizer"):  # other ranks update other parameters
        return [piece._replace(owned=True) for piece in pieces]
    return pieces if chained is not None else pieces_of(optimizer)


def pieces_of(optimizer: Any) -> "list[Piece]":
    """The tensors that one of Megatron's optimizers (no chain) updates on this rank. Skips parameters without
    a master copy, as with the precision-aware optimizer."""
    if getattr(optimizer, "optimizer", None) is None:  # it has no parameters
        return []
    if hasattr(optimizer, "_get_model_param_range_map"):
        return list(_sharded(optimizer))
    if hasattr(optimizer, "fp32_from_float16_groups"):
        return [_unpadded(parameter, copy) for parameter, copy in _pairs(optimizer, _COPIED)]
    groups = optimizer.optimizer.param_groups
    return [_unpadded(parameter, parameter) for group in groups for parameter in group["params"]]


def without_master(optimizer: Any) -> "list[Any]":
    """Parameters that only a fused optimizer has a master copy of."""
    if not hasattr(optimizer, "_get_model_param_range_map"):
        return []
    return [parameter for parameter, shard in _pairs(optimizer, _SHARDED) if shard is None]


def _sharded(optimizer: Any) -> "Iterator[Piece]":
    for parameter, shard in _pairs(optimizer, _SHARDED):
        if shard is None:
            continue
        run = optimizer._get_model_param_range_map(parameter)["param"]
        end = max(run.start, min(run.end, unpadded_numel(parameter)))
        yield Piece(parameter, shard, 0, end - run.start, run.start, tuple(parameter.shape))


def _unpadded(parameter: Any, carrier: Any) -> Piece:
    return whole(parameter, carrier)._replace(numel=unpadded_numel(parameter))


class Rows(NamedTuple):
    """This rank's rows of a weight that Megatron's GTP splits once more (num_weight_shards)."""

    ranks: "list[int]"  # ranks that share the weight
    place: int  # of this rank among them
    first: int
    held: int  # without the rows at the end that only pad the last shards
    whole: int  # rows of the weight before this split


def rows_of(parameter: Any) -> "Optional[Rows]":
    """None if Megatron's GTP does not split the parameter."""
    if not getattr(parameter, "is_gtp_weight_remat", False):
        return None
    ranks, place = dist.get_process_group_ranks(parameter.group), dist.get_rank(parameter.group)
    rows = parameter.shape[0]
    whole_rows = rows * len(ranks) - parameter.pad_length
    first = min(rows * place, whole_rows)
    return Rows(ranks, place, first, min(rows, whole_rows - first), whole_rows)


def unpadded_numel(parameter: Any) -> int:
    rows = rows_of(parameter)
    return int(parameter.numel() if rows is None else math.prod(parameter.shape[1:]) * rows.held)


def _pairs(optimizer: Any, lists: "tuple[tuple[str, str], ...]") -> "Iterator[tuple[Any, Any]]":
    for parameters, carriers in lists:
        for group, carried in zip(getattr(optimizer, parameters), getattr(optimizer, carriers)):
            yield from zip(group, carried)


# The scopes of the rows of a Megatron model's parameters. Runs no collective.


# Parameters whose gradient is summed over the ranks of tensor parallelism.
_SUMMED = ("sequence_parallel", "average_gradients_across_tp_domain")
_SUMMED_PARTS = {"q_layernorm", "k_layernorm"}


class Group(NamedTuple):
    """The ranks of a process group, and this rank's place in it."""

    ranks: "list[int]"
    place: int


_ALONE = Group([0], 0)


class Groups(NamedTuple):
    """How this rank's parameters are split."""

    tensor: Group
    expert_tensor: Group
    expert: Group
    rows: Group  # of GTP, which splits weights by their rows once more
    expert_rows: Group


def description_of(model: Any, pieces: "list[Piece]") -> Description:
    """The scopes of a chunk's parameters and activations. The groups are those that
    megatron.core.parallel_state has."""
    groups = _groups()
    named = dict(model.named_parameters())
    labels = labels_of([(name, one, tuple(one.shape)) for name, one in named.items()], pieces)
    names = global_names(model, groups.expert.place)
    of_kinds = {
        kind: {
            name: _with_groups(scope, kind, name, named[name], names[name], groups)
            for name, scope in of_kind.items()
            if not _is_padding(named[name])
        }
        for kind, of_kind in labels.items()
    }
    split = max(len(groups.tensor.ranks), len(groups.expert_tensor.ranks)) > 1
    return of_kinds, LOCAL if split else None


def _is_padding(parameter: Any) -> bool:
    rows = rows_of(parameter)
    return rows is not None and rows.held == 0


def _with_groups(
    scope: Scope, kind: str, name: str, parameter: Any, global_name: str, groups: Groups
) -> Scope:
    found: Scope = {**scope, "global_name": global_name}
    expert = is_expert(parameter)
    if expert and len(groups.expert.ranks) > 1 and "local_experts" not in name:
        return {"scope": "local", "global_name": global_name}  # several experts in one tensor
    group = groups.expert_tensor if expert else groups.tensor
    of_rows = groups.expert_rows if expert else groups.rows
    before = kind == "grad_unreduced"
    split = bool(getattr(parameter, "tensor_model_parallel", False))
    rows = rows_of(parameter)
    owned = not before and found["scope"] == "whole"
    if split or rows is not None:
        found.update(_box(parameter, group if split else _ALONE))
        if found["scope"] != "piece" and not (owned and found["size"] == found["shape"]):
            found["scope"] = "shard"
    if owned and found["scope"] == "whole" and max(len(of_rows.ranks), split or len(group.ranks)) > 1:
        found["scope"] = "replica"  # the owner's, on each rank of these groups
    if before and len(group.ranks) > 1 and not split:
        summed = any(getattr(parameter, one, False) for one in _SUMMED) or _SUMMED_PARTS & set(
            name.split(".")
        )
        if summed or rows is None:
            found["scope"] = "partial" if summed else "replica"
    if before:  # each group has the gradient of its own batch
        split_by = {"tp": group} if len(group.ranks) > 1 else {}
        if rows is not None:
            split_by["gtp_remat"] = Group(rows.ranks, rows.place)
        if split_by:
            found["mesh"] = _mesh(split_by)
    return found


def _mesh(groups: "dict[str, Group]") -> "dict[str, Any]":
    """As scopes.json has it. No rank but this one is in two of the groups."""
    ranks = [next(group.ranks[group.place] for group in groups.values())]
    for group in groups.values():
        own = group.ranks[group.place]
        ranks = [rank + other - own for rank in ranks for other in group.ranks]
    shape = [len(group.ranks) for group in groups.values()]
    return {
        "dims": list(groups),
        "shape": shape,
        "coordinate": [group.place for group in groups.values()],
        "ranks": ranks_in(torch.tensor(ranks).view(shape)),
    }


def _box(parameter: Any, group: Group) -> Scope:
    """The box of the whole parameter that this rank has. group: splits it by tensor parallelism."""
    size = list(parameter.shape)
    shape, offset = list(size), [0] * len(size)
    rows = rows_of(parameter)
    if rows is not None:
        size[0], shape[0], offset[0] = rows.held, rows.whole, rows.first
    dim = int(parameter.partition_dim) if len(group.ranks) > 1 else 0
    offset[dim] += shape[dim] * group.place
    shape[dim] *= len(group.ranks)
    stride = int(getattr(parameter, "partition_stride", 1)) if len(group.ranks) > 1 else 1
    return {"shape": shape, "offset": offset, "size": size, **({"stride": stride} if stride > 1 else {})}


def _groups() -> Groups:
    state = sys.modules.get("megatron.core.parallel_state")
    splits = ("tensor_model_parallel", "expert_tensor_parallel", "expert_model_parallel")
    of_rows = ("gtp_weight_remat", "expert_gtp_weight_remat")
    return Groups(*(_group(state, f"get_{name}_group") for name in (*splits, *of_rows)))


def _group(state: Any, getter: str) -> Group:
    get: "Optional[Any]" = getattr(state, getter, None)
    group = None if get is None else get(check_initialized=False)
    return _ALONE if group is None else Group(dist.get_process_group_ranks(group), dist.get_rank(group))
