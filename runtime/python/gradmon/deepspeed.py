# SPDX-License-Identifier: Apache-2.0
"""gradmon for DeepSpeed."""
from typing import Any, Iterable, Iterator, Optional

from gradmon import _gradmon
from gradmon._attributes import replaced_around
from gradmon._framework_monitor import UPDATES, Early, Engine, EngineMonitor, Labels, Piece
from gradmon._framework_monitor import innermost, is_expert, labels_of, whole
from gradmon.monitor import Monitor, PathLike

__all__ = ["scopes", "watch"]

_ANY_NUMBER = 1 << 16
# Also in the doctor's list of modes.
OF_MUON = "grad_reduced and exp_avg of parameters that Muon updates"
REFUSED = {
    "the optimizer's state on NVMe": "reading the optimizer's state on NVMe would page it in",
    "SuperOffload": "SuperOffload updates in another process",
    "ZenFlow": "ZenFlow updates outside the optimizer's step",
}
RUNS_A_PIPELINE = "runs a pipeline, which gradmon does not follow"


def watch(engine: Any, config: PathLike, *, start_iteration: Optional[int] = None, **options: Any) -> Monitor:
    """Begins to watch the model and the optimizer of a DeepSpeed engine, after deepspeed.initialize().

    A job that resumes calls it after engine.load_checkpoint(), which sets the number of the first step. A
    step ends when `engine.global_steps` grows: micro batches that only accumulate gradients do not end a
    step, and an update skipped by an overflow ends a step.

    Parameters
    ----------
    config, **options
        As for Monitor.
    engine : deepspeed.DeepSpeedEngine
        The engine, with ZeRO stage 0, 1, 2 or 3. Rows have the names that the parameters have in the model
        that was given to deepspeed.initialize().
    start_iteration : int, optional
        Number of the first step. Default: `engine.global_steps`.

    Returns
    -------
    Monitor

    Notes
    -----
    No communication is added, and nothing is gathered. With ZeRO, a rank's rows in grad_reduced, param_* and
    exp_avg* cover the piece of a parameter that this rank updates: a run of its flattened elements, in
    float32 if DeepSpeed keeps such a copy; scopes() names the run. The rows in grad_unreduced cover the whole
    gradient of this rank, divided by `gradient_accumulation_steps` as DeepSpeed does, without the loss scale.
    With stages 2 and 3, and with a BF16_Optimizer, they cover the last micro batch alone; with 0 and 1, and
    within coalesce_grad_reduction(), all micro batches so far. If DeepSpeed's Muon replaces reduced gradients
    by its update, grad_reduced and exp_avg are read before that.

    Examples
    --------
    >>> engine, _, _, _ = deepspeed.initialize(model=model, config=config)
    >>> with gradmon.deepspeed.watch(engine, "monitor_config.json"):
    ...     for batch in loader:
    ...         engine.backward(engine(batch))
    ...         engine.step()
    """
    monitor = EngineMonitor(config, "deepspeed", **options)
    if monitor.refuses(_refusal(engine)):
        return monitor
    optimizer = engine.optimizer

    def gradients() -> "Iterable[Any]":
        def deliver(parameter: Any) -> None:
            coalesces = getattr(optimizer, "_coalesce_grad_reduction", False)
            monitor.deliver(parameter, parameter.grad, coalesces and not _parks_each(optimizer))

        return (_gradmon.FirstHook(one, deliver) for one in engine.module.parameters() if one.requires_grad)

    def updates() -> "Iterable[Any]":
        backup = getattr(optimizer, "backup_optimizer", None)  # for the part that is not offloaded
        updating = [innermost(optimizer)] + ([] if backup is None else [backup])
        pieces = pieces_of(optimizer)
        early = replaced_by_muon(optimizer, pieces)
        return [monitor.around(one, pieces, early) for one in updating]

    def replacements() -> "Iterable[Any]":
        pieces = replaced_by_muon(optimizer, pieces_of(optimizer))

        def around(original: Any, *arguments: Any, **keywords: Any) -> Any:
            monitor.pass_early(lambda: before_muon(optimizer, pieces, arguments, keywords))
            return original(*arguments, **keywords)

        return [replaced_around(optimizer, muon_method(optimizer), around)] if pieces else []

    attachments = {"grad_unreduced": gradients, UPDATES: updates, OF_MUON: replacements}
    watched = Engine(
        [engine.module],
        optimizer,
        "delivered" if _reduces_each(engine) else "delivered accumulated",
        attachments,
        described=lambda _: (scopes(engine), None),
        scale=lambda: _loss_scale(engine),
    )
    first = int(engine.global_steps) if start_iteration is None else start_iteration
    monitor.watch_engine(watched, _most_micro_batches(engine), first)
    monitor.replace_until_stop(engine, "step", _stepping(monitor, engine))
    return monitor


def scopes(engine: Any) -> "dict[str, Labels]":
    """Returns the scopes of the rows of this rank.

    Parameters
    ----------
    engine : deepspeed.DeepSpeedEngine
        As for watch().

    Returns
    -------
    dict
        By kind and name, the scope that scopes.json has: `scope` ("whole", "replica", "piece" or "local"),
        `shape` (of the whole parameter) and, of a piece, `begin` and `count` (first element and number of
        elements of the flattened parameter).

    Notes
    -----
    "local" are experts, and parameters that tensor parallelism splits: DeepSpeed does not say which part of
    the whole this rank has.
    """
    named = [(name, one, shape_of(one)) for name, one in engine.module.named_parameters()]
    return labels_of(
        named,
        pieces_of(engine.optimizer),
        lambda one: is_expert(one) or getattr(one, "tensor_model_parallel", False),
    )


def _stepping(monitor: EngineMonitor, engine: Any) -> Any:
    """Around the engine's step(): ends a step of training if it makes an update or skips one."""

    known = engine.global_steps

    def step(original: Any, *arguments: Any, **keywords: Any) -> Any:
        nonlocal known
        before = engine.global_steps
        if before != known:
            _gradmon.warn_once(
                f"engine.global_steps went from {known} to {before} while the engine is watched: the rows go "
                "on counting; call gradmon.deepspeed.watch() after engine.load_checkpoint()"
            )
        result = original(*arguments, **keywords)
        known = engine.global_steps
        if known != before:
            monitor.end_step()
        return result

    return step


def _loss_scale(engine: Any) -> float:
    """With torch_autocast, a torch scaler has it; with ZeRO stage 0, the engine has it."""
    scaler = getattr(engine.optimizer, "torch_autocast_gradscaler", None)
    scaler = scaler or getattr(engine, "torch_autocast_z0_gradscaler", None)
    if scaler is not None:
        return float(scaler.get_scale())
    return float(getattr(engine.optimizer, "loss_scale", 1.0) or 1.0)


def _reduces_each(engine: Any) -> bool:
    """Returns True if the gradient of each micro batch is reduced, or moved, by itself."""
    optimizer = engine.optimizer
    if engine.zero_optimization_stage() >= 2 or hasattr(optimizer, "fp32_groups_flat_partition"):
        return True
    return _parks_each(optimizer)


def _parks_each(optimizer: Any) -> bool:
    """Returns True if the gradient of each micro batch is added to a tensor beside `grad`."""
    return bool(getattr(optimizer, "use_grad_accum_attribute", False))


def _most_micro_batches(engine: Any) -> int:
    """Micro batches per step; unlimited if the program ends the steps itself by engine.step()."""
    managed = getattr(engine, "managed_gradient_accumulation", None)
    return int(engine.gradient_accumulation_steps()) if managed is None or managed() else _ANY_NUMBER


def _refusal(engine: Any) -> Optional[str]:
    optimizer = getattr(engine, "optimizer", None)
    if optimizer is None or innermost(optimizer) is None or not hasattr(optimizer, "step"):
        return "the DeepSpeed engine has no optimizer"
    if hasattr(engine, "train_batch") and hasattr(engine, "micro_batches"):
        return f"{type(engine).__name__} {RUNS_A_PIPELINE}"
    if getattr(optimizer, "swap_optimizer", False):
        return REFUSED["the optimizer's state on NVMe"]
    if hasattr(optimizer, "superoffload_cpu_optimizer"):
        return REFUSED["SuperOffload"]
    if getattr(optimizer, "zenflow", False):
        return REFUSED["ZenFlow"]
    return None


# The pieces of parameters in the tensors that DeepSpeed's optimizers update. Runs no collective.


def shape_of(parameter: Any) -> "tuple[int, ...]":
    """The shape of the whole parameter: at rest, ZeRO 3 keeps none of its elements in it."""
    return tuple(getattr(parameter, "ds_shape", parameter.shape))


def pieces_of(optimizer: Any) -> "list[Piece]":
    """The pieces that this rank updates."""
    if hasattr(optimizer, "fp32_partitioned_groups_flat"):
        return list(_of_stage_3(optimizer))
    if hasattr(optimizer, "single_partition_of_fp32_groups"):
        return list(_of_fragments(optimizer.bit16_groups, optimizer.single_partition_of_fp32_groups))
    if hasattr(optimizer, "fp32_groups_flat_partition"):  # BF16_Optimizer
        return list(_of_fragments(optimizer.bf16_groups, optimizer.fp32_groups_flat_partition))
    if hasattr(optimizer, "fp32_groups_flat"):  # FP16_Optimizer
        return list(_of_flat_groups(optimizer.fp16_groups, optimizer.fp32_groups_flat))
    if hasattr(optimizer, "fp32_groups"):  # FP16_UnfusedOptimizer
        pairs = zip(optimizer.fp16_groups, optimizer.fp32_groups)
        return [whole(parameter, copy) for group, copies in pairs for parameter, copy in zip(group, copies)]
    groups = innermost(optimizer).param_groups
    return [whole(parameter, parameter) for group in groups for parameter in group["params"]]


def _of_fragments(groups: Any, carriers: Any) -> "Iterator[Piece]":
    """ZeRO 1 and 2: each parameter knows where its fragment lies."""
    for group, carrier in zip(groups, carriers):
        for parameter in group:
            mapping = parameter._hp_mapping
            if mapping is None:  # no element of it on this rank
                continue
            there, own = mapping.hp_fragment_address, mapping.lp_fragment_address
            yield Piece(parameter, carrier, there.start, there.numel, own.start, shape_of(parameter))


def _of_stage_3(optimizer: Any) -> "Iterator[Piece]":
    """ZeRO 3: each rank has a partition of each parameter, padded to the same size."""
    for group in optimizer.fp16_groups:
        for parameter in group:
            place, start, padded = optimizer.grad_position[optimizer.get_param_id(parameter)]
            first = min(_partition_rank(optimizer, parameter) * padded, parameter.ds_numel)
            numel = min(padded, parameter.ds_numel - first)
            carrier = optimizer.fp32_partitioned_groups_flat[place]
            yield Piece(parameter, carrier, start, numel, first, shape_of(parameter))


def _partition_rank(optimizer: Any, parameter: Any) -> int:
    of_optimizer = getattr(optimizer, "_get_param_partition_rank", None)
    return int(of_optimizer(parameter) if of_optimizer else parameter.ds_process_group.rank())


def _of_flat_groups(groups: Any, carriers: Any) -> "Iterator[Piece]":
    for group, carrier in zip(groups, carriers):
        start = 0
        for parameter in group:
            numel = parameter.numel()
            yield Piece(parameter, carrier, start, numel, 0, shape_of(parameter))
            start += numel


def replaced_by_muon(optimizer: Any, pieces: "list[Piece]") -> "list[Piece]":
    """The pieces over whose reduced gradients DeepSpeed's own optimizer writes Muon's update, before the base
    optimizer's step. Without such an optimizer Muon's step makes the update itself."""
    if not muon_method(optimizer) or "muon" not in type(innermost(optimizer)).__name__.lower():
        return []
    return [piece for piece in pieces if piece.numel and getattr(piece.parameter, "use_muon", False)]


def muon_method(optimizer: Any) -> str:
    """The method of DeepSpeed's optimizer that writes Muon's update over the reduced gradients."""
    if hasattr(optimizer, "fp32_partitioned_groups_flat"):
        return "_apply_muon_to_accumulated_grads"
    if hasattr(optimizer, "single_partition_of_fp32_groups"):
        return "_apply_muon_updates_cpu_offload" if optimizer.cpu_offload else "get_flat_partition"
    return "_prepare_muon_updates" if hasattr(optimizer, "fp32_groups_flat_partition") else ""


def before_muon(optimizer: Any, pieces: "list[Piece]", arguments: Any, keywords: Any) -> "list[Early]":
    """The content of the pieces when muon_method() is called with these arguments. Copies nothing."""
    if muon_method(optimizer) == "get_flat_partition":
        group = keywords["param_group_idx"] if "param_group_idx" in keywords else arguments[5]
        return list(_of_whole_gradients(optimizer, pieces, arguments[0], group))
    base = innermost(optimizer)
    averaged: "dict[int, Any]" = {}
    if muon_method(optimizer) == "_apply_muon_to_accumulated_grads" and not optimizer.offload_optimizer:
        for number, group in enumerate(optimizer.fp16_groups):
            averaged.update(zip(map(id, group), optimizer.averaged_gradients.get(number) or ()))
    found: "list[Early]" = []
    for piece in pieces:
        own, reduced = averaged.get(id(piece.parameter)), piece.carrier.grad
        gradient = _run(reduced, piece.start, piece) if own is None else _run(own, 0, piece)
        momentum = base.state.get(piece.carrier, {}).get("momentum_buffer")
        if momentum is not None and momentum.numel() != piece.carrier.numel():  # DeepSpeed makes it anew
            momentum = None
        if gradient is not None:
            found.append((piece.parameter, gradient, _run(momentum, piece.start, piece)))
    return found


def _of_whole_gradients(
    optimizer: Any, pieces: "list[Piece]", parameters: Any, group: int
) -> "Iterator[Early]":
    """ZeRO 1 and 2: a rank that updates a piece of a matrix has its whole gradient and momentum."""
    by_parameter = {id(piece.parameter): piece for piece in pieces}
    base = innermost(optimizer)
    momentum = base.state.get(base.param_groups[group]["params"][0], {}).get("momentum_buffer")
    start = 0  # of the matrix, in the momentum
    for parameter, gradient in zip(parameters, optimizer.all_grad_tensors[group]):
        piece = by_parameter.get(id(parameter))
        if piece is not None:
            moment = _run(momentum, start + piece.first, piece)
            yield parameter, _run(gradient, piece.first, piece), moment
        start += parameter.numel()


def _run(tensor: Any, start: int, piece: Piece) -> Any:
    return None if tensor is None else tensor.detach().reshape(-1).narrow(0, start, piece.numel)
