# SPDX-License-Identifier: Apache-2.0
"""gradmon.observe(): tensors of eager and compiled forwards, and of regions that torch traces apart."""
import shutil
from pathlib import Path
from typing import Any, Callable

import gradmon
import jobs
import pytest
import torch
import torch.utils.checkpoint
import twice


STEPS = 20
BACKENDS = ["eager", "aot_eager", "inductor"]


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = torch.nn.Linear(4, 6), torch.nn.Linear(6, 2)
        self.seen: "list[torch.Tensor]" = []

    def hidden(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc1(x).relu()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(gradmon.observe(self.hidden(x), "hidden"))


def needed(backend: str) -> None:
    if backend == "inductor" and shutil.which("g++") is None:
        pytest.skip("no compiler for inductor")


def graphs() -> "tuple[int, int]":
    """Graphs that were compiled, and breaks."""
    counters = torch._dynamo.utils.counters
    return counters["stats"]["unique_graphs"], sum(counters["graph_break"].values())


def train(noted: twice.Noted, monitor: Any, backend: str, how: str = "wrapper", steps: int = STEPS) -> None:
    torch.manual_seed(3)
    model, optimizer = jobs.with_sgd(Net())
    run = model
    if backend != "none":
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        if how == "wrapper":
            run = torch.compile(model, backend=backend, fullgraph=True)
        elif how == "in_place":
            model.compile(backend=backend, fullgraph=True)
        else:
            compiled = torch.compile(model.forward, backend=backend, fullgraph=True)
            setattr(model, "forward", compiled)
    monitor.watch(run, optimizer)
    for step in range(steps):
        optimizer.zero_grad()
        x = jobs.batch(step)
        noted.note("actv", "hidden.output", step, model.hidden(x).detach())
        run(x).pow(2).mean().backward()
        noted.gradients(model, step, "grad_reduced")
        optimizer.step()
    noted.fired.append(str(graphs()) if backend != "none" else "")
    monitor.stop()
    noted.ends += [tensor.detach().clone() for tensor in model.state_dict().values()]


def trained(directory: Path, backend: str, how: str) -> twice.Noted:
    config = jobs.write_config(directory, **twice.EVERYTHING, step_interval=2)
    return twice.with_monitor(config, directory / "out", lambda *given: train(*given, backend, how))


def rows_of(directory: Path, kind: str) -> "dict[Any, Any]":
    found = twice.read(directory / "out", kind)
    return {key: row for key, row in found.items() if key[0].startswith("hidden")}


@pytest.mark.parametrize("backend, how", [("none", ""), *[(backend, "wrapper") for backend in BACKENDS]])
def test_rows_are_those_of_plain_torch_on_and_off(tmp_path: Path, backend: str, how: str) -> None:
    """Ten times on and off: no breaks, the same training; one more graph if modules are within the first."""
    needed(backend)
    plain = twice.without(lambda noted, monitor: train(noted, monitor, backend, how))
    watched = trained(tmp_path, backend, how)
    assert plain.fired == ["" if backend == "none" else "(1, 0)"]
    assert watched.fired == (plain.fired if backend == "none" else ["(2, 0)"])
    assert all(torch.equal(one, other) for one, other in zip(plain.ends, watched.ends))
    collected = {key: tensor for key, tensor in plain.tensors["actv"].items() if key[1] % 2 == 0}
    found = rows_of(tmp_path, "actv")
    assert found.keys() == collected.keys() and len(found) == 10
    for key, tensor in collected.items():
        twice.check_bits(found[key], tensor, key)
    assert len(rows_of(tmp_path, "actv_grad")) == (10 if backend in ("none", "eager") else 0)


@pytest.mark.parametrize("how", ["in_place", "forward"])
def test_every_way_to_compile_is_seen(tmp_path: Path, how: str) -> None:
    assert trained(tmp_path, "aot_eager", how).fired == ["(2, 0)"]
    assert len(rows_of(tmp_path, "actv")) == 10


@pytest.mark.skipif(not hasattr(torch.Tag, "cudagraph_unsafe"), reason="this torch does not know the tag")
def test_the_compiler_may_call_it_outside_of_cuda_graphs() -> None:
    assert torch.Tag.cudagraph_unsafe in torch.ops.gradmon.tap.default.tags


def test_it_returns_the_tensor_itself_or_what_is_none_and_needs_no_monitor() -> None:
    for value in (torch.ones(3), None, 3, [torch.ones(2)]):
        assert gradmon.observe(value, "x") is value  # type: ignore[arg-type]


@pytest.mark.parametrize("compiled", [False, True])
def test_calls_and_micro_steps_are_told_apart(tmp_path: Path, compiled: bool) -> None:
    class Twice(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = torch.nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(2):
                x = gradmon.observe(self.fc(x), "fc_again")
            return x

    model, optimizer = jobs.with_sgd(Twice())
    run = torch.compile(model, backend="aot_eager", fullgraph=True) if compiled else model
    monitor = jobs.monitor(tmp_path, xy_distribution=True, all_xy=True)
    with monitor.watch(run, optimizer, grad_acc_steps=2):
        for step in range(2):
            for micro in range(2):
                run(jobs.batch(step, micro)).sum().backward()
            optimizer.step()
            with torch.no_grad():  # an evaluation has no rows
                run(jobs.batch(step))
    found = {key for key in jobs.rows(tmp_path / "out", "actv") if key[0].startswith("fc_again")}
    steps = [(step, micro) for step in range(2) for micro in range(2)]
    assert found == {(name, *at) for name in ("fc_again.output", "fc_again.output@2") for at in steps}


def test_targets_select_observed_names(tmp_path: Path) -> None:
    jobs.collect(tmp_path, 1, *jobs.with_sgd(Net()), xy_distribution=True, targets={"hidden": {}})
    assert {name for name, _, _ in jobs.rows(tmp_path / "out", "actv")} == {"hidden.output"}


def test_a_compiled_function_outside_of_all_watched_modules_is_seen(tmp_path: Path) -> None:
    model, optimizer = jobs.with_sgd(Net())

    @torch.compile(backend="aot_eager", fullgraph=True)
    def loss_of(output: torch.Tensor) -> torch.Tensor:
        return gradmon.observe(output.pow(2), "squares").mean()

    with jobs.monitor(tmp_path, xy_distribution=True, all_xy=True).watch(model, optimizer):
        for step in range(3):
            optimizer.zero_grad()
            loss_of(model(jobs.batch(step))).backward()
            optimizer.step()
    found = {key for key in jobs.rows(tmp_path / "out", "actv") if key[0].startswith("squares")}
    assert found == {("squares.output", step, 0) for step in range(3)}


# --- within torch.cond and the like ---


Forward = Callable[[torch.Tensor], torch.Tensor]


def part(x: torch.Tensor) -> torch.Tensor:
    return gradmon.observe(x * 2, "part")


def mapped(x: torch.Tensor) -> torch.Tensor:
    return torch.vmap(lambda row: part(row).sum())(x)


def differentiated(x: torch.Tensor) -> torch.Tensor:
    return torch.func.grad(lambda y: part(y).pow(2).sum())(x)


def checkpointed(x: torch.Tensor) -> torch.Tensor:
    return torch.utils.checkpoint.checkpoint(part, x, use_reentrant=False)  # type: ignore[no-any-return]


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return part(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 2


def by_hand(x: torch.Tensor) -> torch.Tensor:
    return Doubled.apply(x)  # type: ignore[no-any-return]


def branched(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, part, lambda y: part(y) * 3, (x,))


def attended(x: torch.Tensor) -> torch.Tensor:
    from torch.nn.attention.flex_attention import flex_attention

    def score(score: torch.Tensor, b: int, h: int, q: int, k: int) -> torch.Tensor:
        return part(score)

    q = x.detach().view(1, 1, *x.shape)  # on a CPU it has no backward
    return x + flex_attention(q, q, q, score_mod=score)


class NetWithin(torch.nn.Module):
    def __init__(self, inner: Forward) -> None:
        super().__init__()
        self.fc, self.inner = torch.nn.Linear(4, 16), inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return gradmon.observe(self.inner(self.fc(x)), "whole").pow(2).mean()


def losses(config: Path, inner: Forward, compiled: bool) -> "list[float]":
    torch.manual_seed(3)
    torch._dynamo.reset()
    model, optimizer = jobs.with_sgd(NetWithin(inner))
    run = torch.compile(model, backend="aot_eager", fullgraph=True) if compiled else model
    found = []
    with gradmon.Monitor(config, output_dir=config.parent / "out", dynamic=False).watch(run, optimizer):
        for step in range(2):
            optimizer.zero_grad()
            loss = run(torch.full((16, 4), step + 1.0))
            loss.backward()
            optimizer.step()
            found.append(loss.item())
    return found


# Of eager code and of a graph.
HAS_ROWS = {
    mapped: (False, False),
    differentiated: (False, True),
    checkpointed: (True, True),
    by_hand: (True, True),
    branched: (False, False),
    attended: (False, False),
}
if hasattr(getattr(torch, "compiler", None), "nested_compile_region"):
    HAS_ROWS[torch.compiler.nested_compile_region(part)] = (True, False)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("forward", HAS_ROWS)
def test_the_program_goes_on(
    tmp_path: Path, forward: Forward, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = jobs.write_config(tmp_path, xy_distribution=True, all_xy=True)
    found = losses(config, forward, compiled)
    names = {name for name, _, _ in jobs.rows(tmp_path / "out", "actv")}
    assert "whole.output" in names and ("part.output" in names) == HAS_ROWS[forward][compiled]
    monkeypatch.setattr(gradmon, "observe", lambda x, name: x)
    assert found == losses(config, forward, compiled)
