# SPDX-License-Identifier: Apache-2.0
"""Finds the tensors that Megatron's optimizers update for the parameters. Runs no collective."""
import math
from typing import Any, Iterator, NamedTuple, Optional

import torch.distributed as dist

from gradmon.engines.pieces import Piece, whole
from gradmon.sharded.sharding import is_kind

# Lists of parameters, and of the tensors that replace them in updates, of a DistributedOptimizer.
_SHARDED = (
    ("model_float16_groups", "shard_fp32_from_float16_groups"),
    ("model_fp32_groups", "shard_fp32_groups"),
)
# The same of a Float16OptimizerWithFloat16Params.
_COPIED = (("float16_groups", "fp32_from_float16_groups"), ("fp32_from_fp32_groups", "fp32_from_fp32_groups"))


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
