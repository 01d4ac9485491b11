# SPDX-License-Identifier: Apache-2.0
"""torch's pipelines, several micro batches at a time: each row has the micro step of its own micro batch."""
import inspect
from pathlib import Path
from typing import Any

import jobs
import pipelined
import pytest
import ranks
import torch
import twice

pytest.importorskip("torch.distributed.pipelining", reason="this torch has no pipelines")

SCRIPT = "import pipelined; pipelined.main()"
# From torch 2.7 on, a schedule divides what it has accumulated by the number of micro batches. Before, 1F1B
# hangs over gloo, also without gradmon.
DIVIDES = "scale_grads" in inspect.signature(torch.distributed.pipelining.ScheduleGPipe).parameters
NEEDS_1F1B = pytest.mark.skipif(not DIVIDES, reason="1F1B over gloo hangs before torch 2.7")


def run(directory: Path, schedule: str, watched: bool, **keys: Any) -> "list[list[torch.Tensor]]":
    """Trains with two ranks; returns the weights of each at the end."""
    config = jobs.write_config(directory, **{**twice.EVERYTHING, **keys})
    ranks.run(
        directory,
        SCRIPT,
        schedule=schedule,
        watched=watched,
        config=str(config),
        output=str(directory / "out"),
        ends=str(directory / f"ends_{watched}"),
    )
    return [torch.load(directory / f"ends_{watched}.{rank}") for rank in range(2)]


def plain() -> twice.Noted:
    """The whole model in one process, one micro batch after the other."""
    noted = twice.Noted()
    model = pipelined.Stage(0, 1, 2, 3)
    optimizer = pipelined.optimizer_of(model)
    for step in range(pipelined.STEPS):
        optimizer.zero_grad()
        x = pipelined.batch(step)
        for micro, part in enumerate(x.tensor_split(pipelined.MICRO_BATCHES)):
            before = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
            values, gradients = twice.plain_activations(
                model, lambda part=part: pipelined.loss_of(model(part), part)
            )
            for kind, found in (("actv", values), ("actv_grad", gradients)):
                for name, tensor in found.items():
                    noted.note(kind, name, step, tensor, micro)
            for name, parameter in model.named_parameters():
                own = parameter.grad - before[name] if name in before else parameter.grad
                noted.note("grad_unreduced", name, step, own, micro)
        noted.gradients(model, step, "accumulated")
        if DIVIDES:
            for parameter in model.parameters():
                parameter.grad /= pipelined.MICRO_BATCHES
        noted.gradients(model, step, "grad_reduced")
        optimizer.step()
    return noted


def rank_of(name: str, schedule: str) -> "tuple[int, str]":
    """The rank that has the layer of a row's name, and the chunk's prefix."""
    layer = int(name.split(".")[1])
    return (layer % 2, "1:" if layer >= 2 else "") if schedule == "interleaved" else (layer // 2, "")


@pytest.mark.parametrize(
    "schedule",
    ["gpipe", pytest.param("1f1b", marks=NEEDS_1F1B), pytest.param("interleaved", marks=NEEDS_1F1B)],
)
def test_micro_steps_are_those_of_the_micro_batches_and_training_is_the_same(
    tmp_path: Path, schedule: str
) -> None:
    # In step 0 torch also runs each stage once with uninitialised memory, to learn the shapes.
    keys = {"monitor_mbs_grad": True}
    ends = [run(tmp_path, schedule, watched, **keys) for watched in (False, True)]
    for bare, watched in zip(*ends):
        assert bare and all(torch.equal(one, other) for one, other in zip(bare, watched))
    noted = plain()
    for kind in ("actv", "actv_grad", "grad_unreduced", "grad_reduced"):
        found = [twice.read(tmp_path / "out", kind, rank) for rank in range(2)]
        seen = 0
        for (name, step, micro), tensor in noted.tensors[kind].items():
            if not name.startswith("layers."):
                continue
            rank, chunk = rank_of(name, schedule)
            jobs.check(found[rank][chunk + name, step, micro], tensor)
            seen += 1
        assert seen == sum(len([k for k in rows if "layers" in k[0]]) for rows in found), kind
        assert {micro for _, _, micro in found[0]} == (
            {0} if kind == "grad_reduced" else set(range(pipelined.MICRO_BATCHES))
        )


@NEEDS_1F1B
def test_without_rows_of_micro_batches_the_sum_of_all_is_read(tmp_path: Path) -> None:
    run(tmp_path, "1f1b", True)
    noted = plain()
    found = [twice.read(tmp_path / "out", "grad_unreduced", rank) for rank in range(2)]
    for (name, step, _), tensor in noted.tensors["accumulated"].items():
        jobs.check(found[rank_of(name, "1f1b")[0]][name, step, 0], tensor)
