# SPDX-License-Identifier: Apache-2.0
"""Ranks and groups from torch.distributed."""
from typing import Any, Sequence

import torch.distributed as dist

from gradmon._attributes import attribute_of
from gradmon.sharded.sharding import class_names, is_kind


def with_process_group(options: dict[str, Any]) -> dict[str, Any]:
    """The options, with rank and world_size from torch.distributed if they are None."""
    if not (dist.is_available() and dist.is_initialized()):
        return options
    known = {"rank": dist.get_rank(), "world_size": dist.get_world_size()}
    return {**options, **{key: value for key, value in known.items() if options[key] is None}}


def ranks_of(group: Any) -> list[int]:
    """The group's members as ranks of the job, in the group's order; empty for None."""
    if group is None:
        return []
    if hasattr(dist, "get_process_group_ranks"):
        return list(dist.get_process_group_ranks(group))
    numbers: dict[int, int] = dist.distributed_c10d._pg_group_ranks[group]  # 1.13: {job rank: group rank}
    return sorted(numbers, key=lambda rank: numbers[rank])


def shards_its_state(optimizer: Any) -> bool:
    """Whether each rank keeps the moments of its own part of the parameters only."""
    return is_kind(optimizer, "ZeroRedundancyOptimizer")


# Optimizers after whose reduction each rank holds a part of the reduced gradients only (ZeRO stages 1 to 3),
# by package and class.
_REDUCES_TO_PARTS = {
    ("deepspeed", "DeepSpeedZeroOptimizer"),
    ("deepspeed", "DeepSpeedZeroOptimizer_Stage3"),
    ("megatron", "DistributedOptimizer"),
    ("megatron", "LayerWiseDistributedOptimizer"),
    ("colossalai", "LowLevelZeroOptimizer"),
}


def reduces_to_parts(optimizer: Any) -> bool:
    """Whether a rank has the reduced gradients of its own part of the parameters only."""
    chained = attribute_of(optimizer, "chained_optimizers")
    return any(
        (kind.__module__.split(".")[0], kind.__name__) in _REDUCES_TO_PARTS
        for each in [optimizer, attribute_of(optimizer, "optimizer")]
        for kind in type(each).__mro__
    ) or any(reduces_to_parts(one) for one in chained or ())


def replica_ranks(model: Any, dp_group: Any, optimizers: "Sequence[Any]" = ()) -> list[int]:
    """The ranks that hold the same reduced gradients and weights; empty if they are unknown.

    This rank alone if the model is sharded, or if the reduction leaves each rank a part."""
    kinds = {"FullyShardedDataParallel", "FSDPModule", "ShardedDataParallel"}
    sharded = any(kinds & class_names(module) for module in model.modules())
    if sharded or any(map(reduces_to_parts, optimizers)):
        return [dist.get_rank()] if dist.is_available() and dist.is_initialized() else []
    if is_kind(model, "DistributedDataParallel") and hasattr(model, "process_group"):
        return ranks_of(model.process_group)
    return ranks_of(dp_group)
