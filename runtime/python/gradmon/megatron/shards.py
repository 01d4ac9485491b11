# SPDX-License-Identifier: Apache-2.0
"""Finds the tensors that Megatron's optimizers update for the parameters. Runs no collective."""
from typing import Any, Iterator

from gradmon.engines.pieces import Piece, whole

# Lists of parameters, and of the tensors that are updated in their place, of a DistributedOptimizer.
_SHARDED = (
    ("model_float16_groups", "shard_fp32_from_float16_groups"),
    ("model_fp32_groups", "shard_fp32_groups"),
)
# The same of a Float16OptimizerWithFloat16Params.
_COPIED = (("float16_groups", "fp32_from_float16_groups"), ("fp32_from_fp32_groups", "fp32_from_fp32_groups"))


def pieces_of(optimizer: Any) -> "list[Piece]":
    """What one of Megatron's optimizers (none of a chain) updates on this rank. A parameter without a master
    copy, as with the precision-aware optimizer, is left out."""
    if getattr(optimizer, "optimizer", None) is None:  # it has no parameters
        return []
    if hasattr(optimizer, "_get_model_param_range_map"):
        return list(_sharded(optimizer))
    if hasattr(optimizer, "fp32_from_float16_groups"):
        return [whole(parameter, copy) for parameter, copy in _pairs(optimizer, _COPIED)]
    groups = optimizer.optimizer.param_groups
    return [whole(parameter, parameter) for group in groups for parameter in group["params"]]


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
        yield Piece(parameter, shard, 0, run.end - run.start, run.start, tuple(parameter.shape))


def _pairs(optimizer: Any, lists: "tuple[tuple[str, str], ...]") -> "Iterator[tuple[Any, Any]]":
    for parameters, carriers in lists:
        for group, carried in zip(getattr(optimizer, parameters), getattr(optimizer, carriers)):
            yield from zip(group, carried)
