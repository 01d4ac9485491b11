# SPDX-License-Identifier: Apache-2.0
"""Finds the pieces of parameters in the tensors that DeepSpeed's optimizers update. Runs no collective."""
from typing import Any, Iterator

from gradmon.engines.pieces import Early, Piece, innermost, whole


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
    groups = innermost(optimizer).param_groups  # type: ignore[union-attr]
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
    base: Any = innermost(optimizer)
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
    base: Any = innermost(optimizer)
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
