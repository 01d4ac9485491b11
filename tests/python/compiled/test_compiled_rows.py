# SPDX-License-Identifier: Apache-2.0
"""Rows of actv and actv_grad from within compiled code are those of eager mode, and training is unchanged."""
import time
from pathlib import Path
from typing import Any, Callable, Iterator

import compiled_models
import jobs
import pytest
from scale import FULL, IF_LATE_FULL
import torch
from torch._dynamo.utils import counters

pytestmark = IF_LATE_FULL
WAYS = ["whole", "blocks", "module.compile()"]


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    counters.clear()
    with torch._dynamo.config.patch(allow_rnn=True):
        yield
    torch._dynamo.reset()


def compile_by(way: str, model: compiled_models.Model, backend: str = "aot_eager") -> torch.nn.Module:
    """The module to call."""
    if way == "whole":
        whole: torch.nn.Module = torch.compile(model, backend=backend, fullgraph=True)
        return whole
    if way == "blocks":
        for block in model.blocks:
            block.compile(backend=backend, fullgraph=True)
    elif way == "module.compile()":
        model.compile(backend=backend, fullgraph=True)
    elif way == "forward":
        model.forward = torch.compile(  # type: ignore[method-assign]
            model.forward, backend=backend, fullgraph=True
        )
    return model


def train(model: torch.nn.Module, called: torch.nn.Module, optimizer: Any, steps: "range") -> "list[float]":
    losses = []
    for step in steps:
        optimizer.zero_grad()
        loss = called(compiled_models.batch(step)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def trained(directory: Path, name: str, way: str, watched: bool = True, steps: int = 4, **keys: Any) -> Any:
    """The losses, and the parameters at the end. The plan collects every second step."""
    model = compiled_models.made(name)
    called = compile_by(way, model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    if not watched:
        losses = train(model, called, optimizer, range(steps))
    else:
        directory.mkdir()
        with jobs.monitor(directory, **{**compiled_models.ACTIVATIONS, **keys}).watch(called, optimizer):
            losses = train(model, called, optimizer, range(steps))
    return losses, [parameter.detach().clone() for parameter in model.parameters()]


# The output of a module that the module has used itself: see the test of its gradient.
USED_WITHIN = "pair.output_hidden"

CASES = [(name, way) for name in compiled_models.MODELS for way in WAYS]
CASES = [case for case in CASES if case[0] != "reentrant" or case[1] == "blocks"]  # else torch refuses it
if not FULL:
    CASES = [case for case in CASES if case[1] == "blocks" or case == ("checkpointed", "whole")]
CASES.append(("plain", "forward"))


@pytest.mark.parametrize("name, way", CASES)
def test_rows_are_those_of_eager_mode(tmp_path: Path, name: str, way: str) -> None:
    plain = trained(tmp_path, name, way, watched=False)
    torch._dynamo.reset()
    counters.clear()
    losses, parameters = trained(tmp_path / "compiled", name, way, wg_distribution=True)
    assert not counters["graph_break"]
    trained(tmp_path / "eager", name, "eager", wg_distribution=True)
    tolerance = 1e-2 if name == "autocast" else 1e-5
    for kind in ("actv", "actv_grad", "grad_unreduced", "grad_reduced"):
        eager, found = (compiled_models.rows(tmp_path / how, kind) for how in ("eager", "compiled"))
        if kind in ("actv", "grad_reduced"):
            assert list(found) == list(eager)
        for key, expected in eager.items():
            scale = max(abs(expected["min"]), abs(expected["max"]), 1e-30)
            if kind == "actv_grad" and key[0].endswith(USED_WITHIN):
                expected = {}
            for op, value in expected.items():
                assert abs(found[key][op] - value) <= tolerance * max(scale, abs(value)), (kind, key, op)
            del found[key]
        assert {key[0].split(".", 2)[2] for key in found} <= compiled_models.WRITTEN_IN_PLACE
    assert losses == plain[0]
    assert all(torch.equal(a, b) for a, b in zip(parameters, plain[1]))


def test_the_gradient_of_an_output_is_the_part_from_outside_the_module(tmp_path: Path) -> None:
    """In eager mode it is the whole gradient of the tensor."""
    trained(tmp_path / "compiled", "containers", "blocks", steps=1)
    model = compiled_models.made("containers")
    norms: "dict[str, float]" = {}
    for number, block in enumerate(model.blocks):
        name = f"blocks.{number}.pair.output_hidden"

        def note(gradient: torch.Tensor, name: str = name) -> None:
            norms[name] = gradient.norm().item()

        def shown(_module: Any, _inputs: Any, output: Any, note: Any = note) -> Any:
            hidden = output["hidden"] * 1  # a tensor that the module itself has not used
            hidden.register_hook(note)
            return {**output, "hidden": hidden}

        block.get_submodule("pair").register_forward_hook(shown)
    train(model, model, torch.optim.SGD(model.parameters(), lr=0.0), range(1))
    found = compiled_models.rows(tmp_path / "compiled", "actv_grad")
    rows = {key[0]: values for key, values in found.items()}
    assert len(norms) == 2
    for name, norm in norms.items():
        assert rows[name]["norm"] == pytest.approx(norm, rel=1e-5)


def test_switching_compiles_each_graph_once_more(tmp_path: Path) -> None:
    model = compiled_models.made("residual", blocks=24)
    called = compile_by("blocks", model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    keys = {"xy_distribution": True, "all_xy": True, "step_interval": 2, "collect_times": 100}
    with jobs.monitor(tmp_path, **keys).watch(called, optimizer):
        train(model, called, optimizer, range(1))
        train(model, called, optimizer, range(1, 4))
        assert counters["stats"]["unique_graphs"] == 2  # all blocks share them
        train(model, called, optimizer, range(4, 24))
        assert counters["stats"]["unique_graphs"] == 2
    assert len(jobs.rows(tmp_path / "out", "actv")) == 12 * (3 + 24 * 5) * 2


LATER = ["torch.compile(model)", "model.compile()", "blocks", "a function", "never"]


@pytest.mark.parametrize("way", LATER)
def test_a_model_that_is_compiled_after_watch_has_rows_if_announced(tmp_path: Path, way: str) -> None:
    trained(tmp_path / "eager", "plain", "eager")
    torch._dynamo.reset()
    model = compiled_models.made("plain")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    (tmp_path / "later").mkdir()
    called: Any = model
    with jobs.monitor(tmp_path / "later", **compiled_models.ACTIVATIONS).watch(
        model, optimizer, compiled=True
    ) as monitor:
        if way == "torch.compile(model)":
            called = torch.compile(model, backend="aot_eager", fullgraph=True)
        elif way == "a function":
            called = torch.compile(lambda x: model(x), backend="aot_eager", fullgraph=True)
        elif way != "never":
            compile_by(way, model)
        train(model, called, optimizer, range(4))
        assert not any("compile" in warning for warning in monitor.status().warnings)
    for kind in ("actv", "actv_grad"):
        eager, found = (compiled_models.rows(tmp_path / how, kind) for how in ("eager", "later"))
        for key, expected in eager.items():
            assert found.pop(key) == pytest.approx(expected, rel=1e-5, abs=1e-7), (kind, key)
        assert {key[0].split(".", 2)[2] for key in found} <= compiled_models.WRITTEN_IN_PLACE
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_50_switches_of_an_announced_model_compile_each_graph_once_more(tmp_path: Path) -> None:
    model = compiled_models.made("residual", blocks=4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    keys = {"xy_distribution": True, "all_xy": True, "step_interval": 2, "collect_times": 100}
    with jobs.monitor(tmp_path, **keys).watch(model, optimizer, compiled=True):
        called = torch.compile(model, backend="aot_eager", fullgraph=True)
        train(model, called, optimizer, range(4))
        graphs = counters["stats"]["unique_graphs"]
        assert 2 <= graphs <= 4  # torch compiles the hooks of the outermost module apart
        train(model, called, optimizer, range(4, 50))
    assert counters["stats"]["unique_graphs"] == graphs


def wait_for(condition: "Callable[[], bool]") -> None:
    until = time.monotonic() + 10  # a status is 100 ms old
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.parametrize("since", [0, 2])  # compiled while hooks are there, and before
def test_a_model_that_is_compiled_after_watch_is_named(tmp_path: Path, since: int) -> None:
    model = compiled_models.made("plain")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with jobs.monitor(tmp_path, xy_distribution=True, all_xy=True, start_step=since).watch(
        model, optimizer
    ) as one:
        called = torch.compile(model, backend="aot_eager")
        train(model, called, optimizer, range(5))
        sentence = (
            "no call of the modules within Model was seen: no rows of actv and actv_grad. If the program "
            "compiles it after watch(), pass compiled=True to watch()"
        )
        wait_for(lambda: sentence in one.status().warnings)
        train(model, model, optimizer, range(5, 8))  # not compiled
        wait_for(lambda: sentence not in one.status().warnings)
