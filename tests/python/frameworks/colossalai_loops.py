# SPDX-License-Identifier: Apache-2.0
"""Trainings by ColossalAI's ZeRO optimizer in one of two ranks. Run by test_colossalai.py."""
import contextlib
import json
import sys
from pathlib import Path
from typing import Any, Callable, Optional

import colossalai_cpu  # noqa: F401  (before colossalai)
import engine_oracle
import jobs
import loops
import torch
import torch.distributed as dist
import twice
from colossalai.interface import ModelWrapper
from colossalai.zero.low_level import LowLevelZeroOptimizer

import gradmon

STEPS = 4
# Stage, micro batches of a step, whether all but the last only accumulate.
CASES = [("1", 1, False), ("1", 2, False), ("1", 2, True), ("2", 1, False), ("2", 2, False)]


class Net(torch.nn.Module):
    """Sizes that two ranks do not divide. Returns the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = torch.nn.Linear(4, 5)
        self.norm = torch.nn.LayerNorm(5)
        self.fc2 = torch.nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(self.norm(torch.tanh(self.fc1(x)))).pow(2).mean()


def make() -> Net:
    torch.manual_seed(7)
    return Net()


def batch(step: int, micro: int) -> torch.Tensor:
    return jobs.batch(step, 5 * micro + 11 * dist.get_rank())


def train(case: "tuple[str, int, bool]", options: "Optional[dict[str, Any]]") -> "dict[str, Any]":
    stage, micro, puts_off = case
    model = ModelWrapper(make())
    optimizer = LowLevelZeroOptimizer(
        torch.optim.AdamW(model.parameters(), lr=engine_oracle.LR),
        partition_grad=stage == "2",
        clip_grad_norm=loops.CLIP,
        reduce_bucket_size=32,  # several buckets
    )
    before = traces(model, optimizer)
    monitor: Any = twice.NoMonitor()
    if options is not None:
        own = dict(options)
        config = own.pop("config")
        monitor = gradmon.colossalai.watch(model, optimizer, config, grad_acc_steps=micro, **own)
    with engine_oracle.CountedCollectives() as counted:
        for step in range(STEPS):
            for number in range(micro):
                waits = puts_off and number + 1 < micro
                with optimizer.no_sync() if waits else contextlib.nullcontext():
                    optimizer.backward(model(batch(step, number)) / micro)
                    optimizer.step() if waits else None  # does nothing
            optimizer.step()
            optimizer.zero_grad()
    labels = gradmon.colossalai.scopes(model, optimizer)
    monitor.stop()
    assert traces(model, optimizer) == before
    ends = [one.detach().clone() for one in model.parameters()]
    for state in optimizer.optim.state.values():
        ends += [one.clone() for one in state.values() if torch.is_tensor(one)]
    return {"collectives": counted.count, "ends": ends, "scopes": labels}


def traces(model: Any, optimizer: Any) -> "list[Any]":
    """The traces that gradmon could leave."""
    inner = optimizer.optim
    left: "list[Any]" = ["step" in vars(optimizer), "step" in vars(inner)]
    left += [len(inner._optimizer_step_pre_hooks), len(inner._optimizer_step_post_hooks)]
    for module in model.modules():
        left.append((len(module._forward_hooks), len(module._forward_pre_hooks)))
    for parameter in model.parameters():
        left.append(list((parameter._post_accumulate_grad_hooks or {}).values()))
    return left


def loss_of(x: torch.Tensor) -> "Callable[[torch.nn.Module], torch.Tensor]":
    def loss(model: torch.nn.Module) -> torch.Tensor:
        found: torch.Tensor = model(x)
        return found

    return loss


def compare(directory: Path, case: "tuple[str, int, bool]") -> None:
    _, micro, puts_off = case
    rank = dist.get_rank()
    bare = train(case, None)
    own = directory / f"rank{rank}"
    own.mkdir(parents=True)
    config = jobs.write_config(own, **twice.EVERYTHING)
    watched = train(case, {"config": config, "output_dir": directory / "out", "dynamic": False})
    engine_oracle.check_same(bare, watched)
    noted = twice.Noted()
    plain = engine_oracle.Plain(make(), noted, micro, dist.group.WORLD, last_alone=not puts_off)
    for step in range(STEPS):
        plain.accumulate([loss_of(batch(step, number)) for number in range(micro)])
        engine_oracle.clip([plain.masters], loops.CLIP)
        plain.update()
    engine_oracle.check_rows(directory / "out", rank, noted, watched["scopes"])
    if rank == 0:
        engine_oracle.save(directory, noted)


def name_of(case: "tuple[str, int, bool]") -> str:
    return f"stage{case[0]}-{case[1]}{'-no_sync' if case[2] else ''}"


def main() -> None:
    directory = Path(json.loads(sys.argv[1])["directory"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for case in CASES:
        compare(directory / name_of(case), case)
    dist.destroy_process_group()
