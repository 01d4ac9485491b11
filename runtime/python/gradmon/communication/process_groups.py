# SPDX-License-Identifier: Apache-2.0
"""Ranks and groups from torch.distributed."""
import os
import re
import sys
from typing import Any, Sequence

import torch.distributed as dist

from gradmon._attributes import OBJECT_ERRORS, attribute_of
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
    """Returns True if each rank keeps the moments of its own part of the parameters only."""
    return is_kind(optimizer, "ZeroRedundancyOptimizer")


# Optimizers whose reduction leaves each rank only a part of the reduced gradients (ZeRO stages 1 to 3), by
# package and class.
_REDUCES_TO_PARTS = {
    ("deepspeed", "DeepSpeedZeroOptimizer"),
    ("deepspeed", "DeepSpeedZeroOptimizer_Stage3"),
    ("megatron", "DistributedOptimizer"),
    ("megatron", "LayerWiseDistributedOptimizer"),
    ("colossalai", "LowLevelZeroOptimizer"),
}


def reduces_to_parts(optimizer: Any) -> bool:
    """Returns True if a rank has the reduced gradients of its own part of the parameters only."""
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
        try:
            return ranks_of(model.process_group)
        except OBJECT_ERRORS:  # torchft's, which torch.distributed does not know
            return ranks_of(dp_group)
    return ranks_of(dp_group)


def commits_steps(optimizer: Any) -> bool:
    """Returns True for torchft's OptimizerWrapper: its step() skips the update if the replica groups do not
    commit the step."""
    return any(
        (kind.__module__.split(".")[0], kind.__name__) == ("torchft", "OptimizerWrapper")
        for kind in type(optimizer).__mro__
    )


def replica_group_of(optimizer: Any) -> str:
    """The replica group of torchft of this rank, named by its Manager: "0" for the replica_id "train_ddp_0".
    "": unknown, or none."""
    manager = attribute_of(optimizer, "manager") if commits_steps(optimizer) else None
    # The id with a text behind it that each start of the group makes; that text alone if there is no id.
    made = attribute_of(attribute_of(manager, "_logger"), "_replica_id")
    name, _, new = str(made or attribute_of(manager, "_replica_id") or "").partition(":")
    number = re.search(r"[0-9]+$", name) if new else None
    return number[0] if number else re.sub(r"[^A-Za-z0-9_.-]", "_", name)


NO_GROUP = (
    "torchft is imported, but the replica group is unknown: ranks of several groups share the output "
    "directory and may join one job. Set REPLICA_GROUP_ID, or pass torchft's OptimizerWrapper to watch()"
)


def is_group_unknown(group: str) -> bool:
    """Returns True if torchft is used, but this rank's replica group has no name."""
    return not group and "torchft.manager" in sys.modules and not os.environ.get("REPLICA_GROUP_ID")
