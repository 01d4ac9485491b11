# SPDX-License-Identifier: Apache-2.0
"""Ranks and groups from torch.distributed, and the program's waits for communication."""
import os
import re
import sys
import weakref
from typing import Any, Callable, Sequence

import torch
import torch.distributed as dist

from gradmon import _gradmon
from gradmon._attributes import OBJECT_ERRORS, ReplacedAttribute, SharedReplacements
from gradmon._attributes import attribute_of, class_names, is_kind


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
    return list(dist.get_process_group_ranks(group))


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


def _qualified_kinds(some: Any) -> "set[tuple[str, str]]":
    """Package and name of the object's class, and of all that it is derived from."""
    return {(kind.__module__.split(".")[0], kind.__name__) for kind in type(some).__mro__}


def reduces_to_parts(optimizer: Any) -> bool:
    """Returns True if a rank has the reduced gradients of its own part of the parameters only."""
    chained = attribute_of(optimizer, "chained_optimizers") or ()
    kinds = _qualified_kinds(optimizer) | _qualified_kinds(attribute_of(optimizer, "optimizer"))
    return bool(kinds & _REDUCES_TO_PARTS) or any(map(reduces_to_parts, chained))


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
    return ("torchft", "OptimizerWrapper") in _qualified_kinds(optimizer)


def replica_group_of(optimizer: Any) -> str:
    """The replica group of torchft of this rank, named by its Manager: "0" for the replica_id "train_ddp_0".
    "": unknown, or none."""
    manager = attribute_of(optimizer, "manager") if commits_steps(optimizer) else None
    # "ID:TEXT", with another text after each start of the group; the text alone if there is no id.
    made = attribute_of(attribute_of(manager, "_logger"), "_replica_id")
    name, _, new = str(made or attribute_of(manager, "_replica_id") or "").partition(":")
    number = re.search(r"[0-9]+$", name) if new else None
    return number[0] if number else re.sub(r"[^A-Za-z0-9_.-]", "_", name)


NO_GROUP = (
    "torchft's replica group is unknown: several groups may share one output directory and one job. "
    "Set REPLICA_GROUP_ID, or pass OptimizerWrapper to watch()"
)


def is_group_unknown(group: str) -> bool:
    """Returns True if torchft is used, but this rank's replica group has no name."""
    return not group and "torchft.manager" in sys.modules and not os.environ.get("REPLICA_GROUP_ID")


# Waits for communication. Outputs of an asynchronous call are read at the wait, before the program changes
# them. NCCL sends the calls within torch.distributed.batch_isend_irecv() and
# _coalescing_manager(device=...) at the end. These calls share one work, for which the program waits;
# since torch 2.8 they have none if all are synchronous.


# weakref.finalize by id() of the work, which may be unhashable, until the program has waited for it or
# dropped it.
_unwaited: "dict[int, Any]" = {}

# Libraries that communicate without c10d in this process, and the sentences of status() about them.
_UNREAD = {
    "torchcomms": "cc_distribution: calls of torchcomms' own communicators are not read; torchcomms is "
    "imported. Calls through torch.distributed are read",
    "torchft": "cc_distribution: calls of torchft's process groups in processes of their own "
    "(ProcessGroupBaby) are not read; torchft is imported",
}


def _nothing() -> int:
    return 0


def _started(_group: Any, _result: Any, _number: int) -> None:
    _gradmon.begin_coalescing()


def _ended(_group: Any, work: Any, number: int) -> None:
    if number == 0:
        return
    if work is None:
        return _gradmon.coalesced_calls_are_over(number)
    dropped = weakref.finalize(work, _dropped, id(work), number)
    dropped.atexit = False
    _unwaited[id(work)] = dropped


def _waited(work: Any, _result: Any, _number: int) -> None:
    dropped = _unwaited.pop(id(work), None)
    detached = dropped.detach() if dropped is not None else None
    if detached is not None:
        _, _, (_, number), _ = detached
        _gradmon.coalesced_calls_are_waited_for(number)
    if not _gradmon.calls_are_unwaited():
        return
    try:
        future = Waits.get_future(work)
    except OBJECT_ERRORS:  # not every type of work has one
        return
    if isinstance(future, torch._C.Future):
        _gradmon.call_is_waited_for(future)


def _took_future(_work: Any, future: Any, _number: int) -> None:
    if _gradmon.calls_are_unwaited() and isinstance(future, torch._C.Future):
        _gradmon.future_is_taken(future)


def _dropped(work_id: int, number: int) -> None:
    _unwaited.pop(work_id, None)
    _gradmon.coalesced_calls_are_dropped(number)


class Waits(SharedReplacements):
    """While set, methods of torch.distributed's classes are replaced."""

    get_future: Any = None  # the original method of Work

    def set(self, wanted: bool) -> None:
        """Call it before each collected step, and after the last."""
        if wanted:
            for module in _UNREAD.keys() & sys.modules.keys():
                _gradmon.communication_is_unread(_UNREAD[module])
        if wanted != self._wanted and dist.is_available():
            super().set(wanted)

    @classmethod
    def _replace_all(cls) -> "list[ReplacedAttribute]":
        group, work = dist.distributed_c10d.ProcessGroup, dist.distributed_c10d.Work
        if cls.get_future is None:  # Later, it may be one of ours that other code has wrapped.
            cls.get_future = staticmethod(work.get_future)
        waits = [(work, name, _nothing, _waited) for name in ("wait", "synchronize", "block_current_stream")]
        replaced = [
            (group, "_start_coalescing", _nothing, _started),
            (group, "_end_coalescing", _gradmon.end_coalescing, _ended),
            *waits,
            (work, "get_future", _nothing, _took_future),
        ]
        return [cls._replace(*one) for one in replaced if one[1] in vars(one[0])]  # else another torch

    @classmethod
    def _replace(
        cls, owner: Any, name: str, before: "Callable[[], int]", after: "Callable[[Any, Any, int], None]"
    ) -> ReplacedAttribute:
        """The method then calls after(self, its result, the result of before())."""
        original = vars(owner)[name]

        def method(self: Any, *arguments: Any, **keywords: Any) -> Any:
            if not cls._users:
                return original(self, *arguments, **keywords)
            number = before()
            result = original(self, *arguments, **keywords)
            after(self, result, number)
            return result

        # pybind11 knows by this name that a method of a class in Python calls the one of its base.
        method.__code__ = method.__code__.replace(co_name=name)
        return ReplacedAttribute(owner, name, method)
