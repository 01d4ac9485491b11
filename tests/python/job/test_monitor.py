# SPDX-License-Identifier: Apache-2.0
"""gradmon.Monitor in one process; also a second one, as when a notebook cell is run again."""
import csv
import dataclasses
import gc
import os
import weakref
from pathlib import Path
from typing import Any, Callable, Optional

import gradmon
import jobs
import pytest
import torch


def test_nothing_is_left_after_stop_and_the_monitor_can_go(tmp_path: Path) -> None:
    model, optimizer = jobs.make()
    monitor = jobs.monitor(tmp_path, **jobs.EVERYTHING)
    monitor.watch(model, optimizer)
    assert jobs.hooks_of(model) == 2 * len(list(model.modules()))
    jobs.train(model, optimizer, 2)
    monitor.stop()
    monitor.stop()
    assert jobs.hooks_of(model) == 0
    assert "step" not in vars(optimizer)
    before = jobs.steps_of(jobs.rows(tmp_path / "out", "actv"))
    jobs.train(model, optimizer, 2)
    assert jobs.steps_of(jobs.rows(tmp_path / "out", "actv")) == before
    gone = weakref.ref(monitor)
    del monitor
    gc.collect()
    assert gone() is None


def test_models_and_optimizers_can_go_once_it_has_stopped(tmp_path: Path) -> None:
    model, optimizer = jobs.make()
    monitor = jobs.monitor(tmp_path, **jobs.EVERYTHING, scalars={"global-grad-norm": "records"}).watch(
        model, optimizer
    )
    jobs.train(model, optimizer, 2)
    monitor.stop()
    rows = monitor.metrics()
    assert rows
    going = [weakref.ref(model), weakref.ref(model.fc1.weight), weakref.ref(optimizer)]
    del model, optimizer
    gc.collect()
    assert [gone() for gone in going] == [None] * 3
    other, optimizer = jobs.make()
    monitor.watch(other, optimizer)  # no effect after stop()
    assert jobs.hooks_of(other) == 0 and "step" not in vars(optimizer)


def test_a_monitor_that_nobody_keeps_watches_on_as_long_as_the_optimizer_lives(tmp_path: Path) -> None:
    model, optimizer = jobs.make()
    jobs.monitor(tmp_path, **jobs.GRADIENTS).watch(model, optimizer)
    gc.collect()
    jobs.train(model, optimizer, 3)
    del optimizer
    gc.collect()
    assert jobs.steps_of(jobs.rows(tmp_path / "out", "grad_reduced"))["fc1.weight"] == [0, 1, 2]


def test_a_collected_step_makes_no_tensor(tmp_path: Path) -> None:
    def memory_of_tensors(collects: bool) -> "list[int]":
        model = jobs.make_net()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        monitor = jobs.monitor(tmp_path, **jobs.EVERYTHING)
        if collects:
            monitor.watch(model, optimizer)
        jobs.train(model, optimizer, 2)
        cpu = [torch.profiler.ProfilerActivity.CPU]
        with torch.profiler.profile(activities=cpu, profile_memory=True) as p:
            jobs.train(model, optimizer, 2)
        monitor.stop()
        events = p.profiler.kineto_results.events()
        return [event.nbytes() for event in events if event.name() == "[memory]" and event.nbytes() > 0]

    bare = memory_of_tensors(False)
    assert bare and memory_of_tensors(True) == bare


def test_an_explicit_step_takes_over_and_counts_the_first_iteration_once(tmp_path: Path) -> None:
    model, optimizer = jobs.make()
    with jobs.monitor(tmp_path, **jobs.GRADIENTS).watch(model, optimizer) as monitor:
        for step in range(4):
            optimizer.zero_grad()
            model(jobs.batch(step)).pow(2).mean().backward()
            if step != 2:  # as when GradScaler skips an update
                optimizer.step()
            monitor.step()
    assert jobs.steps_of(jobs.rows(tmp_path / "out", "grad_reduced"))["fc1.weight"] == [0, 1, 2, 3]


def test_an_explicit_step_whose_first_iteration_was_left_out_counts_it(tmp_path: Path) -> None:
    model, optimizer = jobs.make()
    with jobs.monitor(tmp_path, **jobs.GRADIENTS).watch(model, optimizer) as monitor:
        monitor.step()
        jobs.train(model, optimizer, 2, lambda _: monitor.step())
    assert jobs.steps_of(jobs.rows(tmp_path / "out", "grad_reduced"))["fc1.weight"] == [1, 2]


def test_print_struct_says_that_training_may_end(tmp_path: Path) -> None:
    model, optimizer = jobs.make()
    with jobs.monitor(tmp_path, print_struct=True).watch(model, optimizer) as monitor:
        assert not monitor.may_end
        jobs.train(model, optimizer, 1)
        assert monitor.may_end
    assert "0:fc1" in (tmp_path / "out" / "module_struct" / "rank0" / "module_struct.json").read_text()


def test_metrics_are_those_of_the_step_collected_last(tmp_path: Path) -> None:
    model, optimizer = jobs.with_sgd(jobs.make_net(), momentum=0.9)
    out = tmp_path / "out"
    with jobs.monitor(tmp_path, **jobs.EVERYTHING).watch(model, optimizer) as monitor:
        assert monitor.metrics() == []
        seen: "list[Any]" = []

        def is_there(step: int) -> bool:
            seen[step:] = [monitor.metrics()]
            return {metric.step for metric in seen[step]} == {step}

        jobs.train(model, optimizer, 3, lambda step: jobs.eventually(lambda: is_there(step)))
        monitor.step()  # takes over
        monitor.step()
        assert monitor.metrics() == []  # the last collected step had no rows
    for step, metrics in enumerate(seen):
        assert {metric.step for metric in metrics} == {step}
        for kind in ("grad_reduced", "actv", "other"):
            rows = {key: row for key, row in jobs.rows(out, kind).items() if key[1] == step}
            found = {(m.name, m.step, m.micro_step or 0): m.values for m in metrics if m.kind == kind}
            assert found.keys() == rows.keys()
            for key, values in found.items():
                assert values == pytest.approx(rows[key], rel=1e-5, abs=1e-9, nan_ok=True)


def test_modules_that_take_no_hooks_and_containers_in_themselves_are_passed_over(tmp_path: Path) -> None:
    layers = {"scripted": torch.jit.script(torch.nn.Linear(2, 2)), "plain": torch.nn.Linear(2, 2)}
    model, optimizer = jobs.with_sgd(jobs.Parts(lambda m, given: m.plain(m.scripted(given["x"])), **layers))
    context: dict = {"x": torch.ones(1, 2)}
    context["root"] = context
    with jobs.monitor(tmp_path, **jobs.EVERYTHING).watch(model, optimizer):
        for _ in range(2):
            optimizer.zero_grad()
            model(context).sum().backward()
            optimizer.step()
    forward = jobs.steps_of(jobs.rows(tmp_path / "out", "actv"))
    assert forward["plain.output"] == [0, 1]


def test_elements_of_nested_containers_have_names_of_their_own(tmp_path: Path) -> None:
    class Net(torch.nn.Linear):
        def forward(self, given: dict) -> torch.Tensor:
            return super().forward(given["a"]["x"]) + given["b"]["x"] + given["b"]["y"][0]

    model, optimizer = jobs.with_sgd(Net(2, 2))
    x = torch.ones(1, 2)
    with jobs.monitor(tmp_path, **jobs.EVERYTHING).watch(model, optimizer):
        model({"a": {"x": x}, "b": {"x": x * 2, "y": [x * 3]}}).sum().backward()
        optimizer.step()
    forward = jobs.rows(tmp_path / "out", "actv")
    for name, tensor in {"model.input_x": x, "model.input_1": x * 2, "model.input_2": x * 3}.items():
        jobs.check(forward[name, 0, 0], tensor)


def test_what_a_dataclass_holds_is_named_by_its_fields(tmp_path: Path) -> None:
    @dataclasses.dataclass
    class Output:
        logits: torch.Tensor
        hidden: "list[torch.Tensor]"
        loss: Optional[torch.Tensor] = None

    class Net(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> Output:
            hidden = super().forward(x)
            return Output(hidden * 2, [hidden])

    model, optimizer = jobs.with_sgd(Net(2, 2))
    with jobs.monitor(tmp_path, **jobs.EVERYTHING).watch(model, optimizer):
        output = model(torch.ones(1, 2))
        output.logits.sum().backward()
        optimizer.step()
    forward = jobs.rows(tmp_path / "out", "actv")
    jobs.check(forward["model.output_logits", 0, 0], output.logits)
    jobs.check(forward["model.output_1", 0, 0], output.hidden[0])
    backward = jobs.rows(tmp_path / "out", "actv_grad")
    jobs.check(backward["model.output_logits", 0, 0], torch.ones(1, 2))


def test_unreadable_outputs_and_optimizers_end_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    class Odd(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> "dict[object, object]":
            return {b"\xff": x, Unprintable(): x, "deep": [[x], ({"y": x},)]}

    class Unprintable:
        def __str__(self) -> str:
            raise RuntimeError("no text")

    class Own:
        param_groups = [{"params": ["no tensor"]}]
        steps = 0

        def step(self) -> None:
            self.steps += 1

    model, optimizer = Odd(), Own()
    with jobs.monitor(tmp_path, **jobs.EVERYTHING).watch(model, optimizer):
        for _ in range(3):
            model(torch.ones(2))
            optimizer.step()
    assert optimizer.steps == 3
    said = capfd.readouterr().err
    assert said.count("cannot read the optimizer: ") == 1
    assert said.count("cannot read a module's output: RuntimeError: no text") == 1


def test_placements_of_another_kind_than_a_dtensors_do_not_disturb_watching(tmp_path: Path) -> None:
    model, optimizer = jobs.make()
    model.fc1.weight.placements = ["row"]  # type: ignore[attr-defined]
    model.fc2.weight.placements = 7  # type: ignore[attr-defined]
    jobs.collect(tmp_path, 1, model, optimizer, **jobs.GRADIENTS)
    assert "fc1.weight" in {name for name, _, _ in jobs.rows(tmp_path / "out", "grad_reduced")}


def test_paths_may_be_any_that_the_system_takes(tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"r\xff")
    odd.mkdir()
    jobs.collect(odd, 1, **jobs.GRADIENTS)
    assert jobs.rows(odd / "out", "grad_reduced")


@pytest.mark.parametrize("timeout", ["soon", float("nan"), [1]])
def test_a_timeout_that_is_no_number_is_logged_and_left_out(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], timeout: Any
) -> None:
    model, optimizer = jobs.make()
    monitor = jobs.monitor(tmp_path, jobs.ALONE, collect_times=1_000_000, wg_distribution=True)
    monitor.watch(model, optimizer)
    jobs.train(model, optimizer, 2)
    monitor.stop(timeout)
    assert f"stop(timeout={timeout!r})" in capfd.readouterr().err
    status = monitor.status()
    assert status is not None and status.reason == "stopped"
    assert {step for _, step, _ in jobs.rows(tmp_path / "out", "grad_reduced")} == {0, 1}


SAID = "a second Monitor in this process replaces the first, which stops"


class Notebook:
    def __init__(self, directory: Path, dynamic: bool) -> None:
        self.directory = directory
        self.dynamic = dynamic
        self.model, self.optimizer = jobs.make()

    def run_cell(self, name: str, **keys: Any) -> gradmon.Monitor:
        """Runs the cell with a config and an output directory of that name, and the same model."""
        folder = self.directory / name
        folder.mkdir(exist_ok=True)
        config = jobs.write_config(folder, dynamic_on=True, collect_times=100_000, step_interval=1, **keys)
        monitor = gradmon.Monitor(config, output_dir=folder / "out", dynamic=self.dynamic)
        return monitor.watch(self.model, self.optimizer)

    def train_until(self, condition: Callable[[], Any]) -> None:
        jobs.train_until(self.model, self.optimizer, condition)

    def files(self, name: str) -> "dict[str, str]":
        found = (self.directory / name / "out").rglob("*.csv")
        return {path.name: path.read_text() for path in found}


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_second_monitor_takes_the_place_of_the_first(tmp_path: Path, dynamic: bool) -> None:
    notebook = Notebook(tmp_path, dynamic)
    first = notebook.run_cell("one", wg_distribution=True)
    notebook.train_until(lambda: any("grad_reduced" in name for name in notebook.files("one")))
    second = notebook.run_cell("two", param_distribution=True)
    left = notebook.files("one")
    notebook.train_until(lambda: any("param_updated" in name for name in notebook.files("two")))
    third = notebook.run_cell("two", param_distribution=True)
    third.stop()
    assert notebook.files("one") == left  # complete once the second Monitor writes, and final
    for stopped in (first, second, third):
        status = stopped.status()
        assert status is not None and status.state == "off"


def test_with_another_model_it_is_told_by_the_output_directory_and_said_once(tmp_path: Path) -> None:
    config = jobs.write_config(tmp_path, wg_distribution=True)
    script = f"""
import gradmon, jobs, torch
kept = []
for _ in range(3):
    model, optimizer = jobs.make()
    monitor = gradmon.Monitor({str(config)!r}, output_dir={str(tmp_path / "out")!r}, dynamic=False)
    kept.append(monitor.watch(model, optimizer))
    jobs.train(model, optimizer, 1)
    print([one.status().reason for one in kept])
"""
    result = jobs.python("-c", script)
    assert result.returncode == 0 and result.stderr.count(SAID) == 1, result.stderr
    assert result.stdout.splitlines()[-1].count("stopped") == 2


def test_ranks_of_one_process_have_a_monitor_each(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    config = jobs.write_config(tmp_path, wg_distribution=True)
    model, optimizer = jobs.make()
    options: "dict[str, Any]" = dict(output_dir=tmp_path / "out", dynamic=False, world_size=2)
    monitors = [gradmon.Monitor(config, rank=r, **options).watch(model, optimizer) for r in range(2)]
    jobs.train(model, optimizer, 2)
    for monitor in monitors:
        monitor.stop()
    assert SAID not in capfd.readouterr().err
    for rank in range(2):
        found = jobs.rows(tmp_path / "out", "grad_reduced", rank)
        assert jobs.steps_of(found)["fc1.weight"] == [0, 1]


def test_an_edit_of_sample_takes_effect_at_one_step_and_back(tmp_path: Path) -> None:
    model = torch.nn.Linear(600, 600, bias=False)  # 1.4 MB
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    keys = {"wg_distribution": True, "ops": ["norm"], "digits": 17, "collect_times": 100_000}
    config = jobs.write_config(tmp_path, dynamic_on=True, **keys)
    norms: "list[float]" = []

    def rows() -> "dict[int, dict[str, float]]":
        found: "dict[int, dict[str, float]]" = {}
        for path in (tmp_path / "out").glob("*/grad_reduced_*.csv"):
            for row in csv.DictReader(path.read_text().splitlines()):
                numbers = {key: float(row[key]) for key in ("norm", "sampled", "norm_se") if row.get(key)}
                assert found.setdefault(int(row["step"]), numbers) is numbers
        return found

    with gradmon.Monitor(config, output_dir=tmp_path / "out", dynamic=True).watch(model, optimizer):

        def train() -> bool:
            optimizer.zero_grad()
            model(torch.randn(4, 600)).pow(2).sum().backward()
            norms.append(float(model.weight.grad.double().norm()))
            optimizer.step()
            return True

        def phases() -> "list[bool]":
            sampled = ["sampled" in row for _, row in sorted(rows().items())]
            return [one for i, one in enumerate(sampled) if i == 0 or one != sampled[i - 1]]

        for sample, expected in ((1, [False]), (4, [False, True]), (1, [False, True, False])):
            jobs.write_config(tmp_path, dynamic_on=True, sample=sample, **keys)
            assert jobs.eventually(lambda: train() and phases() == expected)
    found = rows()
    for step, row in found.items():
        error = abs(row["norm"] - norms[step])
        assert error <= (6 * row["norm_se"] if "sampled" in row else 1e-9 * norms[step])
        assert row.get("sampled", 0.25) == pytest.approx(0.25, abs=0.01)
