# SPDX-License-Identifier: Apache-2.0
"""Trainings in a loop of plain torch: alone, and with torch's own ways to use several ranks."""
from typing import Any

import gpt
import torch
import torch.distributed as dist
from run import Run

import gradmon


def _loop(run: Run, model: Any, optimizer: Any, place: int, watched: Any = None, **keys: Any) -> None:
    """watched: what the monitor watches in place of the model. keys: of watch()."""

    def attach(config: Any, **options: Any) -> Any:
        return gradmon.Monitor(config, **options).watch(watched or model, optimizer, **keys)

    for step in run.steps(run.watch(attach)):
        optimizer.zero_grad()
        model(gpt.batch(step, place)).backward()
        optimizer.step()
    run.ended(model)


def plain(run: Run) -> None:
    """One process: a step has one micro batch for each of the others' data-parallel ranks."""
    model = gpt.seeded()
    optimizer = gpt.adam(model)

    def attach(config: Any, **options: Any) -> Any:
        return gradmon.Monitor(config, **options).watch(model, optimizer, grad_acc_steps=gpt.PLACES)

    for step in run.steps(run.watch(attach)):
        optimizer.zero_grad()
        for place in range(gpt.PLACES):
            (model(gpt.batch(step, place)) / gpt.PLACES).backward()
        optimizer.step()
    run.ended(model)


def ddp(run: Run) -> None:
    model = gpt.seeded()
    wrapped = torch.nn.parallel.DistributedDataParallel(model)
    # The model in it, whose names are the user's; its first rank writes what all ranks hold.
    _loop(run, wrapped, gpt.adam(wrapped), run.rank, watched=model, dp_group=dist.group.WORLD)


def fsdp2(run: Run) -> None:
    from torch.distributed.fsdp import fully_shard

    model = gpt.seeded()
    for block in model.blocks:  # type: ignore[union-attr]
        fully_shard(block)
    fully_shard(model)
    _loop(run, model, gpt.adam(model), run.rank)


def fsdp2_tp(run: Run) -> None:
    """Data-parallel ranks times two tensor-parallel ones."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    model = gpt.seeded()
    shape = (gpt.PLACES, dist.get_world_size() // gpt.PLACES)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("data", "tensor"))
    columns = {
        name: ColwiseParallel() for name in ("attention.query", "attention.key", "attention.value", "up")
    }
    rows = {name: RowwiseParallel() for name in ("attention.out", "down")}
    for block in model.blocks:  # type: ignore[union-attr]
        parallelize_module(block, mesh["tensor"], {**columns, **rows})
        fully_shard(block, mesh=mesh["data"])
    fully_shard(model, mesh=mesh["data"])
    _loop(run, model, gpt.adam(model), mesh.get_coordinate()[0])
