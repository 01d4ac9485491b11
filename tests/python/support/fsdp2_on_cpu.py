# SPDX-License-Identifier: Apache-2.0
"""Lets FSDP2 of torch 2.6 train on a CPU with gloo, as that of torch 2.13 does by itself: streams of a CPU
have no events there, gloo has no average, and writing what was gathered counts as a modification."""
from typing import Any

import torch
import torch.distributed as dist


def _averaging(collective: Any, output_of: Any) -> Any:
    """Sums where FSDP asks for an average, and divides."""

    def called(*arguments: Any, **keywords: Any) -> Any:
        if keywords.get("op") != dist.ReduceOp.AVG:
            return collective(*arguments, **keywords)
        keywords["op"] = dist.ReduceOp.SUM
        work = collective(*arguments, **keywords)
        output_of(*arguments, **keywords).div_(dist.get_world_size(keywords.get("group")))
        return work

    return called


def _without_modification(copy_out: Any) -> Any:
    def called(gathered: Any, parameters: Any, group: Any) -> None:
        before = {id(t): t._version for one in parameters for t in one.all_gather_outputs}
        copy_out(gathered, parameters, group)
        for tensor in (t for one in parameters for t in one.all_gather_outputs):
            torch._C._autograd._unsafe_set_version_counter(tensor, before.get(id(tensor), 0))

    return called


def prepare() -> None:
    """Does nothing where streams have events, as from torch 2.13 on and after the first call."""
    if hasattr(torch.cpu.Stream, "record_event"):
        return
    from torch.distributed.fsdp._fully_shard import _fsdp_collectives, _fsdp_param_group

    stream: Any = torch.cpu.Stream
    stream.record_event = lambda _self, event=None: event or torch.cpu.Event()
    stream.wait_event = lambda _self, event: None
    dist.reduce_scatter_tensor = _averaging(dist.reduce_scatter_tensor, lambda output, *_, **__: output)
    dist.all_reduce = _averaging(dist.all_reduce, lambda tensor, *_, **__: tensor)
    kept = _without_modification(_fsdp_collectives.foreach_all_gather_copy_out)
    _fsdp_param_group.foreach_all_gather_copy_out = kept
