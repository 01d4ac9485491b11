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
SCHEDULES = {
    "gpipe": "ScheduleGPipe",
    "1f1b": "Schedule1F1B",
    "interleaved": "ScheduleInterleaved1F1B",
    "zero_bubble": "ScheduleInterleavedZeroBubble",
    "zbv": "ScheduleZBVZeroBubble",
    "dual_pipe_v": "ScheduleDualPipeV",
}


def stages_of(rank: int, schedule: str) -> "list[int]":
    """The stages of a rank: one of two, or two of four."""
    if schedule in ("gpipe", "1f1b"):
        return [rank]
    return [rank, 3 - rank] if schedule in ("zbv", "dual_pipe_v") else [rank, rank + 2]


class Layer(torch.nn.Module):
    """Uses its weights `uses` times."""

    def __init__(self, number: int, uses: int) -> None:
        super().__init__()
        self.uses = uses
        generator = torch.Generator().manual_seed(100 + number)
        self.fc = torch.nn.Linear(4, 4)
        for parameter in self.fc.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator) * 0.5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(self.uses):
            x = self.fc(x).tanh()
        return x


class Stage(torch.nn.Module):
    """Some of the layers, under the names that they have in the whole model."""

    def __init__(self, *numbers: int, uses: int = 1) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleDict({str(number): Layer(number, uses) for number in numbers})

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
    from torch.distributed.pipelining import PipelineStage, schedules

    options = json.loads(sys.argv[1])
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    numbers = stages_of(rank, options["schedule"])
    uses = options.get("uses", 1)
    modules = [Stage(2 * n, 2 * n + 1) if len(numbers) == 1 else Stage(n, uses=uses) for n in numbers]
    optimizer = optimizer_of(*modules)
    stages = [
        PipelineStage(module, number, 2 * len(numbers), torch.device("cpu"))
        for number, module in zip(numbers, modules)
    ]
    kind = getattr(schedules, SCHEDULES[options["schedule"]])
    schedule: Any = kind(stages if len(stages) > 1 else stages[0], MICRO_BATCHES, loss_fn=loss_of)
    monitor = gradmon.Monitor(options["config"], output_dir=options["output"], dynamic=False)
    if options["watched"]:
        for module in modules:
            monitor.watch(
                module,
                optimizer,
                grad_acc_steps=options.get("grad_acc_steps", MICRO_BATCHES),
                pp_group=dist.group.WORLD,
            )
    for step in range(STEPS):
        optimizer.zero_grad()
        x = batch(step)
        schedule.step(*[x] if 0 in numbers else [], **{"target": x} if stages[-1].is_last else {})
        optimizer.step()
    monitor.stop()
    torch.save([p.detach() for module in modules for p in module.parameters()], f"{options['ends']}.{rank}")
    dist.destroy_process_group()
