# SPDX-License-Identifier: Apache-2.0
"""What a new user reads in the first hour: words, names, alerts, and what is shown where."""
import contextlib
import csv
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Iterator

import gradmon
import jobs
import pytest
import torch
from training import Training, gradmonctl


def test_watch_without_an_optimizer_says_how_a_step_ends(tmp_path: Path) -> None:
    config = jobs.write_config(tmp_path, dynamic_on=False, wg_distribution=True)
    model = jobs.make_net()
    said = tmp_path / "stderr"
    sentence = "watch() got no optimizer: call monitor.step() at the end of each iteration"
    with jobs.stderr_to(said):
        monitor = gradmon.Monitor(config, output_dir=tmp_path / "out", dynamic=True).watch(model)
        jobs.reach_the_hub(monitor)

        def warns() -> bool:
            status = monitor.status()
            assert status is not None
            return any(line.startswith(sentence) for line in status.warnings)

        assert jobs.eventually(warns)
        monitor.step()
        assert jobs.eventually(lambda: not warns())
        monitor.stop()
    assert said.read_text().count(sentence) == 1


def test_static_mode_says_that_it_collects_and_ignores_the_switch(tmp_path: Path) -> None:
    model, optimizer = jobs.make()
    said = tmp_path / "stderr"
    with jobs.stderr_to(said):
        monitor = jobs.monitor(tmp_path, dynamic_on=False, wg_distribution=True, collect_times=2).watch(
            model, optimizer
        )
        jobs.reach_the_hub(monitor)
        jobs.train(model, optimizer, 1)

        def line() -> str:
            return gradmonctl("status", "--output-dir", tmp_path / "out").stdout.split("\n")[0]

        assert jobs.eventually(lambda: "1 of 2 collections left · dynamic_on is ignored · static" in line())
        jobs.train(model, optimizer, 2)
        assert jobs.eventually(lambda: line().startswith("OFF: finished · static mode"))
        monitor.stop()
    assert "static: collecting now; dynamic_on is ignored" in said.read_text()


def training_of(directory: Path, config: Path) -> Training:
    training = Training(config, directory / "out")
    jobs.reach_the_hub(training.monitor)
    return training


def reason_becomes(training: Training, beginning: str) -> bool:
    def became() -> bool:
        status = training.monitor.status()
        return status is not None and status.reason.startswith(beginning)

    return bool(training.until(became))


def test_a_job_says_why_it_collects_nothing(tmp_path: Path) -> None:
    config = jobs.write_config(tmp_path, dynamic_on=False, collect_times=2)
    said = tmp_path / "stderr"
    with jobs.stderr_to(said):
        training = training_of(tmp_path, config)
        assert reason_becomes(training, "never turned on")
        assert jobs.eventually(lambda: "off: dynamic_on is false (true in " in said.read_text())

        before = config.read_text()
        done = training.ctl("set", 'op=["norm"]')
        assert done.returncode == 6 and 'unknown key "op" (did you mean "ops"?)' in done.stderr
        done = training.ctl("set", 'ops=["std"]')
        assert done.returncode == 6 and 'unknown op "std", expected min, max, ' in done.stderr
        assert config.read_text() == before
        assert training.ctl("set", "--force", 'op=["norm"]').returncode == 0
        assert json.loads(config.read_text())["op"] == ["norm"]

        done = training.ctl("on")
        assert done.returncode == 7
        assert "nothing will be collected: the config enables no kind of row" in done.stderr
        assert reason_becomes(training, "finished: nothing was collected")
        assert jobs.eventually(lambda: not json.loads(config.read_text())["dynamic_on"])
        training.monitor.stop()
    assert "on, but the config enables no kind of row (set wg_distribution, " in said.read_text()
    with jobs.stderr_to(said):
        again = training_of(tmp_path, config)
        assert reason_becomes(
            again, "dynamic_on is false: an earlier job wrote it back when its collection ended"
        )
        again.monitor.stop()
    assert "wrote it back when its collection ended with step " in said.read_text()


def test_on_says_why_it_waits_where_no_step_ends_and_the_history_what_was_refused(tmp_path: Path) -> None:
    training = training_of(tmp_path, jobs.write_config(tmp_path, dynamic_on=False, wg_distribution=True))
    training.step()
    out = str(tmp_path / "out")
    refused = gradmonctl("set", 'ops=["std"]', "--output-dir", out)
    assert refused.returncode == 6
    waited = gradmonctl("on", "--wait", "--timeout", "3", out)
    assert waited.returncode == 7 and waited.stdout == ""
    said = waited.stderr.splitlines()
    assert (
        said[0].startswith("gradmonctl: pending: ") and "not applied by every rank within 3 s" in said[-1]
    ), said
    assert len(said) <= 3
    line = gradmonctl("history", out).stdout.splitlines()[1]
    assert line.split()[:4] == ["-", "refused", "-", "ctl"], line
    assert 'set ops=["std"]: refused: unknown op "std", expected min, max, ' in line
    training.monitor.stop()


class Decoder(torch.nn.Module):
    """Has an embedding that no short form is known of, beside layers that have one."""

    def __init__(self) -> None:
        super().__init__()
        self.embed_tokens = torch.nn.Linear(4, 4)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed_tokens(x)
        for layer in self.layers:
            x = layer(x)
        return x


class Language(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.model = Decoder()
        self.lm_head = torch.nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lm_head(self.model(x))


def rows_of(directory: Path, model: torch.nn.Module, **keys: Any) -> "dict[str, dict[Any, dict[str, float]]]":
    """The rows of two steps by kind."""
    directory.mkdir()
    optimizer = torch.optim.Adam(model.parameters())
    with jobs.monitor(directory, **{**jobs.EVERYTHING, **keys}).watch(model, optimizer):
        jobs.train(model, optimizer, 2)
    kinds = ("actv", "actv_grad", "grad_reduced", "param_origin", "exp_avg")
    return {kind: jobs.rows(directory / "out", kind) for kind in kinds}


@contextlib.contextmanager
def alone() -> "Iterator[None]":
    """In a process group of this process only."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


def names_in(rows: "dict[str, dict[Any, dict[str, float]]]") -> "set[str]":
    return {name for of_kind in rows.values() for name, _, _ in of_kind}


def compiled(model: torch.nn.Module) -> torch.nn.Module:
    return torch.compile(model, backend="eager")  # type: ignore[no-any-return]


def replicated(model: torch.nn.Module) -> torch.nn.Module:
    return torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)


class Float16Module(torch.nn.Module):
    """As Megatron's: around the model, and within DistributedDataParallel."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.module(x)  # type: ignore[no-any-return]


@pytest.mark.parametrize("make", [jobs.make_net, Language])
@pytest.mark.parametrize(
    "wrap",
    [replicated, lambda model: replicated(Float16Module(model)), lambda model: torch.nn.DataParallel(model)],
    ids=["DistributedDataParallel", "Float16Module", "DataParallel"],
)
def test_rows_of_a_wrapped_model_are_those_of_the_raw_one(
    tmp_path: Path,
    make: "Callable[[], torch.nn.Module]",
    wrap: "Callable[[torch.nn.Module], torch.nn.Module]",
) -> None:
    torch.manual_seed(3)
    raw = rows_of(tmp_path / "raw", make())
    torch.manual_seed(3)
    with alone():
        wrapped = rows_of(tmp_path / "wrapped", wrap(make()))
    assert wrapped.keys() == raw.keys() and all(raw.values())
    assert wrapped == raw


def test_rows_of_a_compiled_wrapper_are_named_as_those_of_the_raw_model(tmp_path: Path) -> None:
    with alone():
        inside = names_in(rows_of(tmp_path / "inside", replicated(compiled(jobs.make_net()))))
        around = names_in(rows_of(tmp_path / "around", compiled(replicated(jobs.make_net()))))
    assert inside == around
    assert {"model.input", "model.output", "fc1.input", "fc1.weight"} <= inside
    assert not any(name.startswith(("module", "_orig_mod", ".")) for name in inside)


def test_names_are_shortened_all_or_none(tmp_path: Path) -> None:
    names = names_in(rows_of(tmp_path / "full", Language()))
    parts = ("lm_head", "model", "model.embed_tokens", "model.layers.0", "model.layers.1")
    sides = [f"{part}.{side}" for part in parts for side in ("input", "output")]
    assert names == {"root.input", "root.output", *sides, *dict(Language().named_parameters())}
    short = torch.nn.Sequential()
    short.add_module("decoder", Decoder())
    del short.decoder.embed_tokens
    short.decoder.embed_tokens = torch.nn.Identity()  # type: ignore[assignment]
    names = names_in(rows_of(tmp_path / "short", short))
    assert {"layers.0.weight", "layers.0.output", "decoder.output", "model.output"} <= names
    assert not any(name.startswith("decoder.layers") for name in names)


def test_the_model_itself_can_be_selected(tmp_path: Path) -> None:
    keys = {"xy_distribution": True, "all_xy": False, "targets": {"model": {}}}
    rows = rows_of(tmp_path / "net", jobs.make_net(), **keys)
    assert {name for name, _, _ in rows["actv"]} == {"model.input", "model.output"}
    assert {name for name, _, _ in rows["grad_reduced"]} >= {"fc1.weight", "fc2.bias"}
    keys["targets"] = {"root": {}}
    rows = rows_of(tmp_path / "language", Language(), **keys)
    assert {name for name, _, _ in rows["actv"]} == {"root.input", "root.output"}


def train(tmp_path: Path) -> "tuple[Path, int, int, int]":
    """A job that ends: its output directory, the steps of spike, first NaN and end."""
    rules = [{"rule_name": "AnomalySpike", "args": {"threshold": 100}}, {"rule_name": "AnomalyNan"}]
    keys: "dict[str, Any]" = {"scalars": {"loss": "records"}, "keep_last": 8, "wg_distribution": True}
    config = jobs.write_config(
        tmp_path, dynamic_on=True, ops=["norm", "mean"], alert={"rules": rules, "dump": True}, **keys
    )
    model, optimizer = jobs.with_sgd(jobs.make_net(), lr=0.0)
    monitor = gradmon.Monitor(config, output_dir=tmp_path / "out", dynamic=True)
    steps = 0

    def train_steps(count: int, factor: float = 1.0) -> None:
        nonlocal steps
        for _ in range(count):
            optimizer.zero_grad()
            loss = model(jobs.batch(0)).pow(2).mean() * factor
            loss.backward()
            monitor.scalar("loss", loss.item())
            optimizer.step()
            steps += 1

    with monitor.watch(model, optimizer):
        assert jobs.eventually(lambda: train_steps(1) or monitor.status().effective_step >= 0)
        began = monitor.status().effective_step
        train_steps(began + 40 - steps)
        spike = steps
        train_steps(1, 1e6)
        train_steps(20)
        nan = steps
        train_steps(100, float("nan"))
        monitor.stop()
    return tmp_path / "out", spike, nan, steps - 1


def test_a_spike_and_a_lasting_nan_have_one_line_each_and_are_first_in_the_list_of_the_ended_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv("GRADMON_LOG", "info")
    out, spike, nan, last = train(tmp_path)
    log = [line.partition("gradmon: ")[2] for line in capfd.readouterr().err.splitlines()]
    lines = [line for line in log if " at step " in line and ", rank 0: " in line]
    assert [line.partition(",")[0] for line in lines] == [f"spike at step {spike}", f"NaN at step {nan}"], log
    assert lines[0].startswith(f"spike at step {spike}, rank 0: loss is ") and "(usually " in lines[0]
    assert lines[0].endswith("more series") and lines[1].endswith("more series")
    assert " is nan (usually " in lines[1]
    assert len([line for line in log if line.startswith("flight recorder: steps ")]) == 2, log

    end = time.monotonic() + 30
    ended = gradmonctl("alerts", str(out))
    while "from the job's files" not in ended.stderr and time.monotonic() < end:
        ended = gradmonctl("alerts", str(out))
    assert ended.returncode == 0 and "showing the alerts from the job's files" in ended.stderr, ended
    table = [line.split() for line in ended.stdout.splitlines()]
    assert [row[:2] for row in table[1:3]] == [
        [str(spike), "AnomalySpike"],
        [str(nan), "AnomalyNan"],
    ], ended.stdout
    assert len(table) == 3 and "-nan" not in ended.stdout
    assert table[1][-1] == "loss" and table[2][-1] == "loss"
    of_rank = next(out.glob("*-rank0-*"))
    assert gradmonctl("alerts", str(of_rank)).stdout == ended.stdout
    each = gradmonctl("alerts", str(out), "--all").stdout.splitlines()
    assert len(each) > len(table) and " nan " in each[-1] and "-nan" not in "".join(each)
    listed = json.loads(gradmonctl("alerts", str(out), "--json").stdout)["alerts"]
    assert {alert["step"] for alert in listed} == {spike, nan}

    # The dump is msprobe's: an entry in each step.
    dump = json.loads((out / "anomaly_detected" / "rank0" / "anomaly.json").read_text())
    assert {entry["step"] for entry in dump.values()} == {spike, *range(nan, last + 1)}


def test_alerts_of_a_directory_without_a_job_are_refused_with_what_was_expected(tmp_path: Path) -> None:
    done = gradmonctl("alerts", str(tmp_path))
    assert done.returncode == 4 and done.stdout == ""
    assert f"no job has written in {tmp_path}; expected an output directory of gradmon" in done.stderr


def test_the_list_of_an_earlier_release_is_read(tmp_path: Path) -> None:
    line = {"number": 7, "at": 1783341296789, "rank": 3, "step": 12, "rule": "AnomalyNan", "op": "norm"}
    line.update(
        {"tag_name": "0:fc1.weight/rank3/post_grad", "value": "nan", "history_mean": 0.5, "message": ""}
    )
    jobs_of_out = tmp_path / ".gradmon" / "epoch"
    jobs_of_out.mkdir(parents=True)
    (jobs_of_out / "alerts.jsonl").write_text(json.dumps(line) + "\n")
    done = gradmonctl("alerts", str(tmp_path))
    assert done.returncode == 0, done
    row = done.stdout.splitlines()[1]
    assert row.split() == "12 AnomalyNan 3 1 nan 0.5 fc1.weight: gradient norm".split()


def scalars(out: Path, name: str = "loss") -> "dict[int, float]":
    """{step: value}"""
    found: "dict[int, float]" = {}
    for path in sorted(out.rglob("scalar_*.csv")):
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                if row["name"] == name:
                    assert int(row["step"]) not in found
                    found[int(row["step"])] = float(row["value"])
    return found


class Loop:
    """A training whose loss in step n is n + 0.5, and that reports it in a place of its own."""

    def __init__(self, place: Path, **keys: Any) -> None:
        self.out = place / "out"
        self.config = jobs.write_config(place, scalars={"loss": "records"}, **keys)
        self.model = jobs.make_net()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def watch(self, **options: Any) -> gradmon.Monitor:
        monitor = gradmon.Monitor(self.config, output_dir=self.out, dynamic=False)
        return monitor.watch(self.model, self.optimizer, **options)

    def forward(self, step: int) -> torch.Tensor:
        return self.model(jobs.batch(step)).pow(2).mean()


KEYS = [
    {},
    {"wg_distribution": True},
    {"wg_distribution": True, "xy_distribution": True, "all_xy": True},
    {"start_step": 2, "collect_times": 2, "step_interval": 2},
]


@pytest.mark.parametrize("keys", KEYS, ids=lambda keys: "-".join(keys) or "scalars")
@pytest.mark.parametrize(
    "place", ["after forward", "before update", "after update", "after step", "at the top", "computed"]
)
def test_a_loss_belongs_to_its_step_wherever_the_loop_reports_it(
    place: str, keys: "dict[str, Any]", tmp_path: Path
) -> None:
    loop = Loop(tmp_path, **keys)
    with loop.watch(grad_acc_steps=2, explicit_steps=place == "after step") as monitor:
        for step in range(7):
            if place == "at the top" and step > 0:
                monitor.scalar("loss", step - 0.5)  # after the end of the step before
            loop.optimizer.zero_grad()
            for _ in range(2):
                loss = loop.forward(step)
                if place == "after forward":
                    monitor.scalar("loss", step + 0.5)
                loss.backward()
            if place == "before update":
                monitor.scalar("loss", step + 0.5)
            loop.optimizer.step()
            if place == "after update":
                monitor.scalar("loss", step + 0.5)
            if place == "after step":
                monitor.step()
                monitor.scalar("loss", torch.tensor(step + 0.5))
            if place == "computed":  # makes nodes for autograd, as a forward does
                monitor.scalar("loss", loss * 0 + (step + 0.5))
    first, count, each = keys.get("start_step", 0), keys.get("collect_times", 6), keys.get("step_interval", 1)
    found = scalars(loop.out)
    found.pop(6, None)  # the last one at the top of an iteration that there is not
    assert found == {step: step + 0.5 for step in range(first, 6, each)[:count]}


def test_a_loss_after_a_forward_is_of_that_step_though_the_step_before_has_none(tmp_path: Path) -> None:
    loop = Loop(tmp_path)
    with loop.watch() as monitor:
        for step in range(6):
            loop.optimizer.zero_grad()
            loss = loop.forward(step)
            if step % 2 == 1:
                monitor.scalar("loss", step + 0.5)
            loss.backward()
            loop.optimizer.step()
    assert scalars(loop.out) == {1: 1.5, 3: 3.5, 5: 5.5}


def test_a_late_loss_is_there_at_once_and_through_changes_of_the_config(tmp_path: Path) -> None:
    loop = Loop(tmp_path, wg_distribution=True, format=["csv", "api"])
    with loop.watch() as monitor:
        for step in range(4):
            loop.optimizer.zero_grad()
            loop.forward(step).backward()
            if step == 2:
                monitor.set("ops", ["norm", "max"])
            loop.optimizer.step()
            monitor.scalar("loss", step + 0.5)
            rows = monitor.metrics()
            assert {row.step for row in rows} == {step}
            assert {row.kind for row in rows} == {"grad_unreduced", "grad_reduced", "scalar"}
    assert scalars(loop.out) == {step: step + 0.5 for step in range(4)}


def test_a_late_value_replaces_a_computed_one_and_a_step_has_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    loop = Loop(tmp_path)
    loop.config = jobs.write_config(
        tmp_path, scalars={"loss": ["log", "records"], "grad-norm": ["log", "records"]}
    )
    with loop.watch() as monitor:
        for step in range(3):
            jobs.train(loop.model, loop.optimizer, 1)
            monitor.scalar("loss", step + 0.5)
            monitor.scalar("grad-norm", 100.0 + step)
    norms = scalars(loop.out, "grad-norm")
    assert norms.pop(0) < 100  # the first one is not awaited
    assert norms == {1: 101.0, 2: 102.0}
    said = [line for line in capfd.readouterr().err.splitlines() if "loss" in line]
    assert ["step 0: loss 0.5" in said[0], said[1:]] == [
        True,
        ["gradmon: step 1: loss 1.5, grad-norm 101.0", "gradmon: step 2: loss 2.5, grad-norm 102.0"],
    ]


def test_an_alert_of_a_late_loss_names_its_step_collected_or_not(tmp_path: Path) -> None:
    rules = [{"rule_name": "AnomalyNan"}]
    loop = Loop(tmp_path, step_interval=2, keep_last=3, alert={"rules": rules})
    with loop.watch() as monitor:
        for step in range(8):
            jobs.train(loop.model, loop.optimizer, 1)
            monitor.scalar("loss", math.nan if step in (3, 6) else 1.0)
    alerts = [alert.step for alert in monitor.alerts()]
    assert alerts == [3, 6]


def test_an_unknown_kind_is_answered_by_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ValueError) as raised:
        gradmon.load(tmp_path, kind="grads")
    assert str(raised.value).startswith(
        'kind: found "grads"; expected one of actv, actv_grad, grad_unreduced, '
    )


@pytest.mark.parametrize("package", ["pandas", "matplotlib"])
def test_what_is_missing_is_named_with_the_command_that_installs_it(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError) as raised:
        gradmon.load(tmp_path) if package == "pandas" else gradmon.heatmap(None)
    function = "load" if package == "pandas" else "heatmap"
    assert str(raised.value).startswith(f"gradmon.{function}() needs {package}: pip install {package} (")
    assert raised.value.__suppress_context__  # one sentence, not two tracebacks


def test_the_doctor_is_fast_because_it_does_not_import_torchs_compiler() -> None:
    program = """
import sys, torch
if "torch._dynamo" in sys.modules:
    sys.exit(77)
from gradmon import doctor
assert "torch._dynamo" not in sys.modules, "imported by gradmon"
assert doctor.examine()
assert "torch._dynamo" not in sys.modules, "imported by examine()"
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    if done.returncode == 77:
        pytest.skip("this torch imports its compiler by itself")
    assert done.returncode == 0, done.stdout + done.stderr


def test_paths_have_no_dots_and_one_argument_names_the_output_everywhere(tmp_path: Path) -> None:
    here = os.getcwd()
    os.chdir(tmp_path)
    try:
        jobs.write_config(Path("."), wg_distribution=True)
        model, optimizer = jobs.make()
        with gradmon.Monitor("./config.json", dynamic=False).watch(model, optimizer):
            jobs.train(model, optimizer, 2)
    finally:
        os.chdir(here)
    assert (tmp_path / "monitor_output").is_dir()
    for command in (
        ["analyse", "first"],
        ["analyse", "top"],
        ["analyse", "plot", "-o", "plot.svg"],
        ["convert", "csv2tb", "--output-dirpath", "curves"],
        ["convert", "csv2db", "--output-dirpath", "database"],
        ["gc", "--older-than", "1h"],
    ):
        for place in ([], ["monitor_output"], ["./monitor_output/."]):
            done = in_place(tmp_path, *command, *place)
            assert done.returncode == 0, (command, place, done.stderr)
            assert "/./" not in done.stdout + done.stderr, (command, place)
    diff = in_place(tmp_path, "analyse", "diff", "monitor_output", "./monitor_output")
    assert diff.returncode == 0, diff.stderr
    for command in ("status", "off", "history"):
        done = in_place(tmp_path, command, "./monitor_output")
        assert done.returncode != 2, (command, done.stderr)
        assert "/./" not in done.stdout + done.stderr, command


def in_place(place: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    env = {name: value for name, value in os.environ.items() if name != "MONITOR_OUTPUT_DIR"}
    return gradmonctl(*arguments, cwd=place, env=env)
