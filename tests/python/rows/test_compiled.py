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


def train_compiled(noted: twice.Noted, monitor: Any, how: str, blocks: bool) -> None:
    """20 steps. Notes what the callers of the compiled modules see, and the number of breaks of graphs."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch.manual_seed(3)
    model, optimizer = jobs.with_sgd(Deep())
    if blocks:
        for i in range(2):
            model.blocks[i] = compile_module(model.blocks[i], how)
    run = model if blocks else compile_module(model, how)
    monitor.watch(run, optimizer)
    for step in range(20):
        optimizer.zero_grad()
        x = jobs.batch(step)
        output = run(x)
        noted.note("actv", "model.input", step, x)
        noted.note("actv", "model.output", step, output)
        output.pow(2).mean().backward()
        noted.gradients(model, step, "grad_reduced")
        optimizer.step()
    counters = torch._dynamo.utils.counters
    noted.fired.append(f"{sum(counters['graph_break'].values())} breaks")
    noted.stop(monitor, model, optimizer)


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("blocks", [if_full(False), True])
@pytest.mark.parametrize("since", [if_full(0), 1])  # compiled in a collected step, or before one
def test_compiled_modules_have_rows_ten_times_on_and_off(
    tmp_path: Path, how: str, blocks: bool, since: int
) -> None:
    compilations = []

    def training(noted: twice.Noted, monitor: Any) -> None:
        train_compiled(noted, monitor, how, blocks)
        compilations.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])

    plain = twice.both(tmp_path, training, step_interval=2, start_step=since)  # nothing is left, too
    assert plain.fired[0] == "0 breaks"
    # Two blocks of the same code are one graph, unless a guard tells them apart. Collecting makes another.
    assert compilations[0] <= 2 and compilations[1] <= 2 * compilations[0]
    found = twice.read(tmp_path / "out", "actv")
    collected = {key: t for key, t in plain.tensors["actv"].items() if key[1] % 2 == since}
    assert len(collected) == 20
    for key, tensor in collected.items():
        twice.check_bits(found[key], tensor, key)
    names = {name for name, _, _ in found}
    outer = {"model.input", "model.output"}
    inner = {f"{part}.{side}" for part in ("blocks.0", "joint", "blocks.1") for side in ("input", "output")}
    parts = [f"blocks.{block}.{layer}" for block in (0, 1) for layer in ("fc1", "fc2")]
    layers = {f"{part}.{side}" for part in parts for side in ("input", "output")}
    assert names == outer | inner | layers
    gradients = {name for name, _, _ in twice.read(tmp_path / "out", "actv_grad")}
    assert gradients == names - {"model.input", "blocks.0.input", "blocks.0.fc1.input"}
    for kind in ("grad_reduced", "grad_unreduced"):
        noted = {
            (name.replace("_orig_mod.", ""), step, micro): t
            for (name, step, micro), t in plain.tensors["grad_reduced"].items()
            if step % 2 == since
        }
        twice.check_rows(twice.read(tmp_path / "out", kind), noted, kind)


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
