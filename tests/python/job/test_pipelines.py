# SPDX-License-Identifier: Apache-2.0
"""torch's pipelines, several micro batches at a time, also with split backwards: each row has the micro step
of its own micro batch."""
import inspect
import json
import sys
from pathlib import Path
from typing import Any

import gradmon
import jobs
import pytest
import ranks
import torch
import torch.distributed as dist
from torch.distributed.pipelining import schedules
import twice

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


SCRIPT = "import test_pipelines; test_pipelines.main()"
# From torch 2.7 on, a schedule divides what it has accumulated by the number of micro batches. Before, 1F1B
# hangs over gloo, also without gradmon.
DIVIDES = "scale_grads" in inspect.signature(schedules.ScheduleGPipe).parameters
NEEDS_1F1B = pytest.mark.skipif(not DIVIDES, reason="1F1B over gloo hangs before torch 2.7")


HAS_SPLIT = hasattr(schedules, "ScheduleDualPipeV")
NEEDS_SPLIT = pytest.mark.skipif(not HAS_SPLIT, reason="this torch has no such schedules")


def run(directory: Path, schedule: str, watched: bool, uses: int = 1, **options: Any) -> "list[Any]":
    """Trains with two ranks; returns the weights of each at the end. options: keys of the config, and
    grad_acc_steps."""
    accumulated = {key: options.pop(key) for key in ["grad_acc_steps"] if key in options}
    ends = str(directory / f"ends_{watched}")
    ranks.run(
        directory,
        SCRIPT,
        schedule=schedule,
        watched=watched,
        uses=uses,
        config=str(jobs.write_config(directory, **{**twice.EVERYTHING, **options})),
        output=str(directory / "out"),
        ends=ends,
        **accumulated,
    )
    return [torch.load(f"{ends}.{rank}") for rank in range(2)]


def check_same_training(directory: Path, schedule: str, **options: Any) -> None:
    ends = [run(directory, schedule, watched, **options) for watched in (False, True)]
    for bare, watched in zip(*ends):
        assert bare and all(torch.equal(one, other) for one, other in zip(bare, watched))


def plain(uses: int = 1) -> twice.Noted:
    """The whole model in one process, one micro batch after the other."""
    noted = twice.Noted()
    model = Stage(0, 1, 2, 3, uses=uses)
    optimizer = optimizer_of(model)
    for step in range(STEPS):
        optimizer.zero_grad()
        x = batch(step)
        for micro, part in enumerate(x.tensor_split(MICRO_BATCHES)):
            before = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
            both = twice.plain_activations(model, lambda part=part: loss_of(model(part), part))
            for kind, found in zip(("actv", "actv_grad"), both):
                for name, tensor in found.items():
                    if name.startswith("layers."):
                        noted.note(kind, name, step, tensor, micro)
            for name, parameter in model.named_parameters():
                own = parameter.grad - before[name] if name in before else parameter.grad
                noted.note("grad_unreduced", name, step, own, micro)
        noted.gradients(model, step, "accumulated")
        if DIVIDES:
            for parameter in model.parameters():
                parameter.grad /= MICRO_BATCHES
        noted.gradients(model, step, "grad_reduced")
        optimizer.step()
    return noted


def place_of(name: str, schedule: str) -> "tuple[int, str]":
    """The rank that has the layer of a row's name, and the chunk's prefix."""
    layer = int(name.split(".")[1])
    stage = layer // 2 if schedule in ("gpipe", "1f1b") else layer
    ((rank, chunk),) = [
        (rank, numbers.index(stage)) for rank in range(2) if stage in (numbers := stages_of(rank, schedule))
    ]
    return rank, f"{chunk}:" if chunk else ""


def check_rows(directory: Path, schedule: str, kind: str, expected: "dict[Any, torch.Tensor]") -> Any:
    """The rows of the layers are these, on the rank that has the layer. Returns them."""
    found = [twice.read(directory / "out", kind, rank) for rank in range(2)]
    for (name, step, micro), tensor in expected.items():
        rank, chunk = place_of(name, schedule)
        jobs.check(found[rank][chunk + name, step, micro], tensor)
    assert len(expected) == sum("layers." in name for rows in found for name, _, _ in rows), kind
    return found


@pytest.mark.parametrize(
    "schedule",
    ["gpipe", pytest.param("1f1b", marks=NEEDS_1F1B), pytest.param("interleaved", marks=NEEDS_1F1B)],
)
def test_micro_steps_are_of_their_micro_batches_and_training_is_the_same(
    tmp_path: Path, schedule: str
) -> None:
    # In step 0 torch also runs each stage once with uninitialised memory, to learn the shapes.
    check_same_training(tmp_path, schedule, monitor_mbs_grad=True)
    noted = plain()
    for kind in ("actv", "actv_grad", "grad_unreduced", "grad_reduced"):
        found = check_rows(tmp_path, schedule, kind, noted.tensors[kind])
        assert {micro for _, _, micro in found[0]} == (
            {0} if kind == "grad_reduced" else set(range(MICRO_BATCHES))
        )


@NEEDS_1F1B
def test_without_rows_of_micro_batches_the_sum_of_all_is_read(tmp_path: Path) -> None:
    run(tmp_path, "1f1b", True)
    check_rows(tmp_path, "1f1b", "grad_unreduced", plain().tensors["accumulated"])


@NEEDS_SPLIT
@pytest.mark.parametrize(
    "schedule, grad_acc_steps, uses",
    [("zero_bubble", 4, 1), ("zbv", 1, 2), ("dual_pipe_v", 4, 2)],
)
def test_gradients_of_split_backwards_have_their_rows(
    tmp_path: Path, schedule: str, grad_acc_steps: int, uses: int
) -> None:
    check_same_training(tmp_path, schedule, uses=uses, grad_acc_steps=grad_acc_steps)
    noted = plain(uses)
    for kind, of in (
        ("actv_grad", "actv_grad"),
        ("grad_unreduced", "accumulated"),
        ("grad_reduced", "grad_reduced"),
    ):
        check_rows(tmp_path, schedule, kind, noted.tensors[of])
