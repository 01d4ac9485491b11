# SPDX-License-Identifier: Apache-2.0
"""Tests of the first hour: the loss beside the step it is of, pictures, texts and the README's walk."""
import csv
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gradmon
import jobs
import pytest
import torch


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
        model = jobs.make_net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
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
            done = gradmonctl(tmp_path, *command, *place)
            assert done.returncode == 0, (command, place, done.stderr)
            assert "/./" not in done.stdout + done.stderr, (command, place)
    diff = gradmonctl(tmp_path, "analyse", "diff", "monitor_output", "./monitor_output")
    assert diff.returncode == 0, diff.stderr
    for command in ("status", "off", "history"):
        done = gradmonctl(tmp_path, command, "./monitor_output")
        assert done.returncode != 2, (command, done.stderr)
        assert "/./" not in done.stdout + done.stderr, command


def gradmonctl(place: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    env = {name: value for name, value in os.environ.items() if name != "MONITOR_OUTPUT_DIR"}
    program = Path(os.environ["GRADMON_BIN"]) / "gradmonctl"
    return subprocess.run([program, *arguments], cwd=place, env=env, capture_output=True, text=True)
