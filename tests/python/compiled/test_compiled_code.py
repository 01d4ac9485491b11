# SPDX-License-Identifier: Apache-2.0
"""The code that torch.compile makes of watched modules: that without gradmon while nothing is collected, and
the values that it computes while something is."""
from pathlib import Path
from typing import Any, Iterator

import compiled_models
import jobs
import pytest
from scale import FULL
import torch
from test_compiled_rows import compile_by, fresh_compiler, train, wait_for  # noqa: F401
from torch._dynamo.utils import counters
from torch._functorch.aot_autograd import make_boxed_func
from torch.utils._pytree import tree_leaves

NAMES = [name for name in compiled_models.MODELS if name != "reentrant"]  # which torch takes in parts alone
# Within a checkpoint torch refuses to keep a tensor.
VALUES = [name for name in NAMES if name != "checkpointed"]
if not FULL:
    NAMES, VALUES = ["residual", "lstm", "experts", "checkpointed"], ["experts", "autocast"]


class Graphs:
    """A backend that notes the operations of each forward and backward graph, as the next compiler would get
    them. Inputs and kept values are numbered by their first use: torch numbers them in another order."""

    def __init__(self) -> None:
        self.codes: "list[list[str]]" = []

    def __call__(self, graph: torch.fx.GraphModule, inputs: Any) -> Any:
        from torch._dynamo.backends.common import aot_autograd

        return aot_autograd(fw_compiler=self._note, bw_compiler=self._note)(graph, inputs)

    def _note(self, graph: torch.fx.GraphModule, inputs: Any) -> Any:
        numbers: "dict[str, str]" = {}

        def numbered(node: torch.fx.Node) -> str:
            return numbers.setdefault(node.name, f"%{len(numbers)}")

        operations = []
        for node in graph.graph.nodes:
            shown = torch.fx.map_arg((node.args, node.kwargs), numbered)
            if node.op == "output":
                operations.append(f"{len(inputs)} inputs, {sorted(map(str, shown[0][0]))}")
            elif node.op != "placeholder":
                operations.append(f"{numbered(node)} = {node.target}{shown}")
        self.codes.append(operations)
        return make_boxed_func(graph.forward)


def graphs_of(name: str, directory: Path, **keys: Any) -> "list[list[str]]":
    """The code of two steps; without keys, without gradmon."""
    torch._dynamo.reset()
    model, noted = compiled_models.made(name), Graphs()
    called = torch.compile(model, backend=noted, fullgraph=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    if not keys:
        train(model, called, optimizer, range(2))
        return noted.codes
    directory.mkdir(exist_ok=True)
    with jobs.monitor(directory, xy_distribution=True, all_xy=True, **keys).watch(called, optimizer):
        train(model, called, optimizer, range(2))
    return noted.codes


@pytest.mark.parametrize("name", NAMES)
def test_the_code_is_that_without_gradmon_while_nothing_is_collected(tmp_path: Path, name: str) -> None:
    plain = graphs_of(name, tmp_path)
    assert graphs_of(name, tmp_path / "off", start_step=100) == plain
    assert plain and "gradmon" not in str(plain)
    collecting = graphs_of(name, tmp_path / "on", start_step=0)
    assert "gradmon" in str(collecting)


class Returning(torch.nn.Module):
    """The model made to return what its modules return; of the calls of a module the first one counts."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model
        self.kept: "dict[str, torch.Tensor]" = {}  # by row
        for name, module in model.named_modules():
            if name:
                module.register_forward_hook(lambda _m, _i, output, name=name: self.keep(name, output))

    def keep(self, name: str, output: Any) -> None:
        if isinstance(output, torch.Tensor):
            self.kept.setdefault(f"{name}.output", output.clone())  # it may be written to in place
        elif isinstance(output, tuple):
            for number, tensor in enumerate(tree_leaves(output)):
                self.kept.setdefault(f"{name}.output_{number}", tensor.clone())

    def forward(self, x: torch.Tensor) -> Any:
        self.kept = {}
        return self.model(x), self.kept


@pytest.mark.parametrize("name", VALUES)
def test_a_value_is_that_of_the_same_code_made_to_return_the_tensor(tmp_path: Path, name: str) -> None:
    returning = Returning(compiled_models.made(name))
    _, kept = torch.compile(returning, backend="aot_eager", fullgraph=True)(compiled_models.batch(0))
    with jobs.monitor(tmp_path, **jobs.EVERYTHING, digits=17).watch(torch.nn.Linear(1, 1), None) as monitor:
        for row, tensor in kept.items():
            monitor.tap("actv", row, tensor.detach())
        monitor.step()
    wanted = compiled_models.rows(tmp_path, "actv")
    assert len(wanted) == len(kept)
    torch._dynamo.reset()
    directory = tmp_path / "compiled"
    directory.mkdir()
    model = compiled_models.made(name)
    called = compile_by("whole", model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with jobs.monitor(directory, **jobs.EVERYTHING, digits=17).watch(called, optimizer):
        train(model, called, optimizer, range(1))
    found = {key[0]: values for key, values in compiled_models.rows(directory, "actv").items()}
    for key, values in wanted.items():
        assert found[key[0]] == values, key


def test_other_targets_and_statistics_compile_nothing(tmp_path: Path) -> None:
    model = compiled_models.made("residual", blocks=3)
    called = compile_by("blocks", model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    plans: "list[dict[str, Any]]" = [
        {"all_xy": True},
        {"all_xy": True, "ops": ["max", "mean"]},
        {"targets": {"blocks.1.up": {"output": "tensor"}}},
        {"all_xy": True, "forward_only": True},
    ]
    graphs = 1
    for number, plan in enumerate(plans):
        directory = tmp_path / str(number)
        directory.mkdir()
        with jobs.monitor(directory, xy_distribution=True, **plan).watch(called, optimizer):
            train(model, called, optimizer, range(2))
        assert counters["stats"]["unique_graphs"] == graphs
    only = jobs.rows(tmp_path / "2" / "out", "actv")
    assert {name for name, _, _ in only} == {"blocks.1.up.output"}


@pytest.fixture
def one_compilation() -> Iterator[None]:
    with torch._dynamo.config.patch(recompile_limit=1):
        yield


def test_beyond_the_compilers_limit_there_are_no_rows_and_training_goes_on(
    tmp_path: Path, one_compilation: None
) -> None:
    results = []
    for watched in (False, True):
        torch._dynamo.reset()
        model = compiled_models.made("residual")
        called = torch.compile(model, backend="aot_eager", fullgraph=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        if not watched:
            results.append(train(model, called, optimizer, range(6)))
            continue
        keys = {"xy_distribution": True, "all_xy": True, "start_step": 2}
        with jobs.monitor(tmp_path, **keys).watch(called, optimizer) as monitor:
            losses = train(model, called, optimizer, range(6))
            wait_for(lambda: any("compiled too often" in text for text in monitor.status().warnings))
            results.append(losses)
    assert results[0] == results[1]
    assert {name for name, _, _ in jobs.rows(tmp_path / "out", "actv")} <= {"model.input", "model.output"}


def test_status_says_that_a_step_compiles(tmp_path: Path) -> None:
    model = compiled_models.made("plain")
    seen: "list[str]" = []

    def warnings() -> "list[str]":
        return [text for text in monitor.status().warnings if text.startswith("compiling the modules")]

    def backend(graph: Any, inputs: Any) -> Any:
        if "gradmon" in graph.code:  # compiles until status says so
            wait_for(lambda: bool(warnings()))
            seen.extend(warnings())
        else:
            assert warnings() == []
        return graph.forward

    called = torch.compile(model, backend=backend, fullgraph=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    monitor = jobs.monitor(tmp_path, xy_distribution=True, all_xy=True, start_step=2)
    with monitor.watch(called, optimizer):
        train(model, called, optimizer, range(5))
        assert len(seen) == 1 and ": this step takes longer" in seen[0]
        wait_for(lambda: warnings() == [])
    from torch._dynamo.callback import callback_handler

    assert callback_handler.start_callbacks == []


def test_compile_ahead_compiles_both_variants_before_the_first_switch(tmp_path: Path) -> None:
    losses, graphs = [], []
    for ahead in (False, True):
        torch._dynamo.reset()
        counters.clear()
        model = compiled_models.made("residual", blocks=3)
        called = compile_by("blocks", model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        directory = tmp_path / str(ahead)
        directory.mkdir()
        monitor = jobs.monitor(directory, xy_distribution=True, all_xy=True, start_step=4)
        with monitor.watch(called, optimizer, compile_ahead=ahead):
            losses.append(train(model, called, optimizer, range(3)))
            graphs.append(counters["stats"]["unique_graphs"])
            losses[-1] += train(model, called, optimizer, range(3, 8))
        assert counters["stats"]["unique_graphs"] == 2
    assert graphs == [1, 2] and losses[0] == losses[1]
    found = [jobs.rows(tmp_path / name / "out", "actv") for name in ("False", "True")]
    assert found[0] == found[1] and {step for _, step, _ in found[0]} == {4, 5, 6, 7}
