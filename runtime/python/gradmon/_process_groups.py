# SPDX-License-Identifier: Apache-2.0
"""Ranks and groups from torch.distributed."""
from typing import Any

import torch.distributed as dist


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
    return any(kind.__name__ == "ZeroRedundancyOptimizer" for kind in type(optimizer).__mro__)


def replica_ranks(model: Any, dp_group: Any) -> list[int]:
    """The ranks that hold the same reduced gradients and weights; empty if they are unknown.

    This rank alone if the model is sharded."""
    kinds = {kind.__name__ for module in model.modules() for kind in type(module).__mro__}
    if kinds & {"FullyShardedDataParallel", "FSDPModule"}:
        return [dist.get_rank()]
    replicated = any(kind.__name__ == "DistributedDataParallel" for kind in type(model).__mro__)
    if replicated and hasattr(model, "process_group"):
        return ranks_of(model.process_group)
    return ranks_of(dp_group)
