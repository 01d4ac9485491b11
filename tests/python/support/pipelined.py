# SPDX-License-Identifier: Apache-2.0
"""A model of four layers, trained by torch's pipelines in two ranks, and the same layers trained in one."""
import json
import sys
from typing import Any

import gradmon
import torch
import torch.distributed as dist

MICRO_BATCHES = 4
STEPS = 3


class Layer(torch.nn.Module):
    def __init__(self, number: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(100 + number)
        self.fc = torch.nn.Linear(4, 4)
        for parameter in self.fc.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator) * 0.5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x).tanh()


class Stage(torch.nn.Module):
    """Some of the layers, under the names that they have in the whole model."""

    def __init__(self, *numbers: int) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleDict({str(number): Layer(number) for number in numbers})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers.values():
            x = layer(x)
        return x


def batch(step: int) -> torch.Tensor:
    return torch.sin(torch.arange(8.0 * MICRO_BATCHES) * 0.7 + step).reshape(2 * MICRO_BATCHES, 4)


def loss_of(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (output - target).pow(2).mean()


def optimizer_of(*stages: torch.nn.Module) -> Any:
    return torch.optim.SGD([p for stage in stages for p in stage.parameters()], lr=0.1)


def main() -> None:
    from torch.distributed.pipelining import (
        PipelineStage,
        Schedule1F1B,
        ScheduleGPipe,
        ScheduleInterleaved1F1B,
    )

    options = json.loads(sys.argv[1])
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    interleaved = options["schedule"] == "interleaved"
    modules = [Stage(rank), Stage(rank + 2)] if interleaved else [Stage(2 * rank, 2 * rank + 1)]
    optimizer = optimizer_of(*modules)
    count = 4 if interleaved else 2
    stages = [
        PipelineStage(module, rank + 2 * i, count, torch.device("cpu")) for i, module in enumerate(modules)
    ]
    schedule: Any = None
    if interleaved:
        schedule = ScheduleInterleaved1F1B(stages, MICRO_BATCHES, loss_fn=loss_of)
    else:
        kind = ScheduleGPipe if options["schedule"] == "gpipe" else Schedule1F1B
        schedule = kind(stages[0], MICRO_BATCHES, loss_fn=loss_of)
    monitor = gradmon.Monitor(options["config"], output_dir=options["output"], dynamic=False)
    if options["watched"]:
        for module in modules:
            monitor.watch(module, optimizer, grad_acc_steps=MICRO_BATCHES, pp_group=dist.group.WORLD)
    for step in range(STEPS):
        optimizer.zero_grad()
        x = batch(step)
        if rank == 0:
            schedule.step(x)
        else:
            schedule.step(target=x)
        optimizer.step()
    monitor.stop()
    torch.save([p.detach() for module in modules for p in module.parameters()], f"{options['ends']}.{rank}")
    dist.destroy_process_group()
