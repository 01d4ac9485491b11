# SPDX-License-Identifier: Apache-2.0
"""Models compiled by torch: training is unchanged, and rows that need no module hooks are there."""
from pathlib import Path
from typing import Any

import gradmon
import jobs
import pytest
import torch
import twice
from gradmon._compiled import constant


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
@pytest.mark.parametrize("first_collected", [0, 1])  # compiled in a collected step, or before one
def test_training_is_the_same(tmp_path: Path, within_autograd: bool, first_collected: int) -> None:
    twice.compare(
        tmp_path,
        lambda noted, monitor: train(noted, monitor, within_autograd),
        since=first_collected,
        start_step=first_collected,
    )
    forward = {name for name, _, _ in twice.read(tmp_path / "out", "actv")}
    assert forward == {"model.input", "model.output"}


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
    """20 steps. Notes what the callers of the compiled modules see, and the numbers of graphs and breaks."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch.manual_seed(3)
    model = Deep()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
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
    noted.fired.append(f"{counters['stats']['unique_graphs']} {sum(counters['graph_break'].values())}")
    noted.stop(monitor, model, optimizer)


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("since", [0, 1])  # compiled in a collected step, or before one
def test_compiled_modules_are_seen_from_outside_ten_times_on_and_off(
    tmp_path: Path, how: str, blocks: bool, since: int
) -> None:
    def training(noted: twice.Noted, monitor: Any) -> None:
        train_compiled(noted, monitor, how, blocks)

    plain = twice.both(
        tmp_path, training, step_interval=2, start_step=since
    )  # also the number of graphs, and that nothing is left
    # Two blocks of the same code are one graph, unless a guard tells them apart.
    assert plain.fired[0].endswith(" 0") and int(plain.fired[0].split()[0]) <= 2
    found = twice.read(tmp_path / "out", "actv")
    collected = {key: t for key, t in plain.tensors["actv"].items() if key[1] % 2 == since}
    assert len(collected) == 20
    for key, tensor in collected.items():
        twice.check_bits(found[key], tensor, key)
    names = {name for name, _, _ in found}
    outer = {"model.input", "model.output"}
    inner = {f"{part}.{side}" for part in ("blocks.0", "joint", "blocks.1") for side in ("input", "output")}
    assert names == (outer | inner if blocks else outer)
    gradients = twice.read(tmp_path / "out", "actv_grad")
    assert {name for name, _, _ in gradients} == names - {"model.input", "blocks.0.input"}
    for kind in ("grad_reduced", "grad_unreduced"):
        noted = {
            (name.replace("_orig_mod.", ""), step, micro): t
            for (name, step, micro), t in plain.tensors["grad_reduced"].items()
            if step % 2 == since
        }
        twice.check_rows(twice.read(tmp_path / "out", kind), noted, kind)


def warnings_of(monitor: gradmon.Monitor) -> "list[str]":
    status = monitor.status()
    return status.warnings if status is not None else []


@pytest.mark.parametrize("how", WAYS)
def test_modules_within_compiled_code_are_named_with_the_reason(tmp_path: Path, how: str) -> None:
    model = Deep()
    model.blocks[1] = compile_module(model.blocks[1], how)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    monitor = jobs.monitor(tmp_path, xy_distribution=True, all_xy=True)
    with monitor.watch(model, optimizer):
        jobs.train(model, optimizer, 2)
        said = "blocks.1.fc1, blocks.1.fc2 of Deep are within code that torch.compile has"
        assert jobs.eventually(lambda: [one.startswith(said) for one in warnings_of(monitor)] == [True])
    assert {name for name, _, _ in jobs.rows(tmp_path / "out", "actv")} >= {"blocks.1.output", "joint.output"}


def test_modules_within_compiled_code_are_named_without_a_watched_optimizer(tmp_path: Path) -> None:
    model = Deep()
    model.blocks[1] = compile_module(model.blocks[1], WAYS[0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    monitor = jobs.monitor(tmp_path, xy_distribution=True, all_xy=True, collect_times=100)
    with monitor.watch(model):
        for _ in range(2):
            jobs.train(model, optimizer, 1)
            monitor.step()
        reason = "blocks.1.fc1, blocks.1.fc2 of Deep are within code that torch.compile has"
        assert jobs.eventually(lambda: any(said.startswith(reason) for said in warnings_of(monitor)))


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
