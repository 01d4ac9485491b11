# SPDX-License-Identifier: Apache-2.0
"""Finds the pieces of parameters in the tensors that DeepSpeed's optimizers update. Runs no collective."""
from typing import Any, Iterator

from gradmon.engines.pieces import Piece, innermost, whole


def shape_of(parameter: Any) -> "tuple[int, ...]":
    """Of the whole parameter: at rest, ZeRO 3 keeps none of its elements in it."""
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
