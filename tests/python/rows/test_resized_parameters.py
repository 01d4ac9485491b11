# SPDX-License-Identifier: Apache-2.0
"""Parameters whose shape changes while they are watched."""
from pathlib import Path
from typing import Any, Callable

import gradmon
import jobs
import pytest
import torch

OLD = torch.__version__.startswith("1.")
KEYS: "dict[str, Any]" = {
    "wg_distribution": True,
    "mv_distribution": True,
    "xy_distribution": True,
    "all_xy": True,
}


def train(
    tmp_path: Path, model: torch.nn.Module, before: Callable[[int], Any], explicit: bool = False, **keys: Any
) -> "dict[str, list[int]]":
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    config = jobs.write_config(tmp_path, **KEYS, **keys)
    with gradmon.Monitor(config, output_dir=tmp_path / "out", dynamic=False).watch(
        model, optimizer
    ) as monitor:
        for step in range(6):
            optimizer.zero_grad(set_to_none=True)
            model(jobs.batch(step)).pow(2).mean().backward()
            optimizer.step()
            before(step + 1)
            if explicit:
                monitor.step()
    return jobs.steps_of(jobs.rows(tmp_path / "out", "grad_unreduced"))


def test_a_lazy_layer_is_watched_once_it_has_a_shape(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.LazyLinear(5), torch.nn.Linear(5, 2))
    steps = train(tmp_path, model, lambda _: None)
    assert steps["1.weight"] == [0, 1, 2, 3, 4, 5]
    assert steps["0.weight"] == [0, 1, 2, 3, 4, 5][OLD:]  # torch 1.13 has no post-accumulate hooks


def test_another_shape_while_nothing_is_collected(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Linear(5, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    config = jobs.write_config(tmp_path, **KEYS, step_interval=6)
    monitor = gradmon.Monitor(config, output_dir=tmp_path / "out", dynamic=False).watch(model, optimizer)

    def between(step: int) -> None:
        if step == 1:
            monitor.set("ops", ["norm"])  # hooks are attached again in a step that is not collected
        if step == 3:
            grow(model)
            optimizer.zero_grad(set_to_none=True)

    jobs.train(model, optimizer, 7, between)
    monitor.stop()
    assert jobs.steps_of(jobs.rows(tmp_path / "out", "grad_unreduced"))["0.weight"] == [0, 6]


def grow(model: torch.nn.Sequential) -> None:
    with torch.no_grad():
        model[0].weight.data, model[0].bias.data = torch.ones(7, 4), torch.zeros(7)
        model[1].weight.data = torch.ones(2, 7)


@pytest.mark.parametrize("explicit, interval", [(True, 1), (False, 3)])
def test_another_shape_before_the_boundary_of_a_collected_step(
    tmp_path: Path, explicit: bool, interval: int
) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Linear(5, 2))
    at = 2 if explicit else 1
    steps = train(
        tmp_path, model, lambda step: grow(model) if step == at else None, explicit, step_interval=interval
    )
    assert steps["0.weight"] == list(range(0, 6, interval))
    assert jobs.rows(tmp_path / "out", "grad_unreduced")["0.weight", 3, 0]["zeros"] < 1
