# SPDX-License-Identifier: Apache-2.0
"""Models compiled by torch: training is unchanged, and rows that need no module hooks are there."""
from pathlib import Path
from typing import Any

import jobs
import pytest
import torch
import twice
from gradmon._compiled import constant
from scale import if_full


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = torch.nn.Linear(4, 6), torch.nn.Linear(6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(self.fc1(x).relu())


def train(noted: twice.Noted, monitor: Any, within_autograd: bool) -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch.manual_seed(3)
    model = Net()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    monitor.watch(compiled, optimizer)
    for step in range(4):
        optimizer.zero_grad()
        with torch._dynamo.config.patch(compiled_autograd=within_autograd):
            loss = compiled(jobs.batch(step)).pow(2).mean()
            if within_autograd:
                with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
                    loss.backward()
            else:
                loss.backward()
        noted.gradients(model, step, "grad_reduced")
        optimizer.step()
    assert (torch._dynamo.utils.counters["compiled_autograd"]["captures"] > 0) == within_autograd
    noted.stop(monitor, model, optimizer)


@pytest.mark.parametrize("within_autograd", [False, True])
@pytest.mark.parametrize("first_collected", [if_full(0), 1])  # compiled in a collected step, or before one
def test_training_is_the_same(tmp_path: Path, within_autograd: bool, first_collected: int) -> None:
    twice.compare(
        tmp_path,
        lambda noted, monitor: train(noted, monitor, within_autograd),
        since=first_collected,
        start_step=first_collected,
    )
    forward = {name for name, _, _ in twice.read(tmp_path / "out", "actv")}
    parts = ("model", "fc1", "fc2")
    assert forward == {f"{part}.{side}" for part in parts for side in ("input", "output")}


class Deep(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(Net() for _ in range(2))
        self.joint = torch.nn.Linear(2, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.joint(self.blocks[0](x))
        y: torch.Tensor = self.blocks[1](x)
        return y


def compile_module(module: torch.nn.Module, how: str) -> torch.nn.Module:
    """The module to call."""
    if how == "wrapper":
        wrapped: torch.nn.Module = torch.compile(module, backend="aot_eager", fullgraph=True)
        return wrapped
    if how == "in_place":
        module.compile(backend="aot_eager", fullgraph=True)
    else:
        module.forward = torch.compile(  # type: ignore[method-assign]
            module.forward, backend="aot_eager", fullgraph=True
        )
    return module


WAYS = ["wrapper", "in_place", "forward"]


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("collect_times", [1, 3])
def test_modules_in_code_that_was_compiled_before_watch_are_named(
    tmp_path: Path, how: str, collect_times: int
) -> None:
    torch._dynamo.reset()
    model = Deep()
    model.blocks[1] = compile_module(model.blocks[1], how)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    jobs.train(model, optimizer, 1)
    monitor = jobs.monitor(tmp_path, xy_distribution=True, all_xy=True, collect_times=collect_times)
    with monitor.watch(model, optimizer):
        jobs.train(model, optimizer, 4)
        said = (
            "blocks.1.fc1, blocks.1.fc2 of Deep are within code that torch.compile had compiled before "
            "watch(): no rows of actv and actv_grad; gradmon.observe() shows tensors there"
        )
        assert jobs.eventually(lambda: jobs.warnings_of(monitor) == [said])
    assert {name for name, _, _ in jobs.rows(tmp_path / "out", "actv")} >= {"blocks.1.output", "joint.output"}


def test_modules_in_code_that_was_compiled_too_often_are_named_and_training_goes_on(tmp_path: Path) -> None:
    torch._dynamo.reset()
    model = Deep()
    model.blocks[1] = compile_module(model.blocks[1], "in_place")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    keys = {"xy_distribution": True, "all_xy": True, "collect_times": 100, "start_step": 2}
    with torch._dynamo.config.patch(recompile_limit=1):
        with jobs.monitor(tmp_path, **keys).watch(model, optimizer) as monitor:
            jobs.train(model, optimizer, 5)
            said = "blocks.1.fc1, blocks.1.fc2 of Deep are within code that torch has compiled too often"
            assert jobs.eventually(lambda: [said in one for one in jobs.warnings_of(monitor)] == [True])
    names = {name for name, _, _ in jobs.rows(tmp_path / "out", "actv")}
    assert "blocks.1.output" in names and "blocks.1.fc1.output" not in names


def test_the_compiler_takes_functions_for_constant_as_gradmon_marks_them() -> None:
    def by_torch() -> int:
        return 0

    def by_gradmon() -> int:
        return 0

    assert vars(torch.compiler.assume_constant_result(by_torch)) == vars(constant(by_gradmon)) != {}


def test_a_module_that_is_compiled_anew_while_it_is_watched_stays_so(tmp_path: Path) -> None:
    model = jobs.make_net()
    model.compile(backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with jobs.monitor(tmp_path, xy_distribution=True, all_xy=True).watch(model, optimizer):
        jobs.train(model, optimizer, 1)
        model.compile(backend="eager")
        own = model._compiled_call_impl
        jobs.train(model, optimizer, 1)
    assert model._compiled_call_impl is own
