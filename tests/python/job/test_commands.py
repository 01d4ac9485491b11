# SPDX-License-Identifier: Apache-2.0
"""The program switches its job: on(), off(), set(). `gradmonctl targets` says what watches it."""
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any, Callable

import gradmon
import jobs
import numpy as np
import pytest
import torch
from gradmon.loops.loop_monitor import LoopMonitor


class Training:
    def __init__(self, directory: Path, **keys: Any) -> None:
        self.config = jobs.write_config(directory, dynamic_on=False, wg_distribution=True, **keys)
        self.out = directory / "out"
        self.model = jobs.make_net()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.monitor = gradmon.Monitor(self.config, output_dir=self.out, dynamic=True)
        self.monitor.watch(self.model, self.optimizer)

    def until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < end
            jobs.train(self.model, self.optimizer, 1)

    def state(self) -> str:
        status = self.monitor.status()
        return status.state if status is not None else ""

    def steps(self) -> "list[int]":
        return jobs.steps_of(jobs.rows(self.out, "grad_reduced"))["fc1.weight"]


def test_on_collects_as_often_as_asked_and_the_file_says_so(tmp_path: Path) -> None:
    training = Training(tmp_path)
    training.monitor.on(collect_times=3, step_interval=2)
    training.until(lambda: json.loads(training.config.read_text()).get("collect_times") == 3)
    training.until(lambda: not json.loads(training.config.read_text())["dynamic_on"])
    training.monitor.stop()
    steps = training.steps()
    assert steps == [steps[0], steps[0] + 2, steps[0] + 4]


def test_off_ends_what_on_began_and_set_changes_what_is_collected(tmp_path: Path) -> None:
    training = Training(tmp_path)
    training.monitor.on()
    training.until(lambda: training.state() == "on")
    training.monitor.set("param_distribution", True)
    training.until(lambda: bool(list(training.out.rglob("param_origin_*.csv"))))
    training.monitor.off()
    training.until(lambda: not json.loads(training.config.read_text())["dynamic_on"])
    training.until(lambda: training.state() == "off")
    status = training.monitor.status()
    assert status is not None
    jobs.train(training.model, training.optimizer, 5)
    training.monitor.stop()
    assert training.steps()[-1] == status.effective_step - 1
    assert json.loads(training.config.read_text())["param_distribution"] is True


def test_commands_of_one_step_take_effect_in_their_order(tmp_path: Path) -> None:
    training = Training(tmp_path)
    for op in ("max", "min", "max"):
        training.monitor.set("ops", [op])
    training.monitor.on()
    training.monitor.off()
    training.monitor.set("ndigits", 7)  # the last command: once it is done, so are the earlier ones
    training.until(lambda: json.loads(training.config.read_text())["ndigits"] == 7)
    kept = json.loads(training.config.read_text())
    assert kept["ops"] == ["max"] and kept["dynamic_on"] is False
    training.until(lambda: training.state() == "off")
    training.monitor.stop()


def test_a_layer_that_came_while_nothing_was_collected_may_be_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gradmon._steps._LOOK_EVERY_S", 0.0)
    training = Training(tmp_path, targets={"fc2.1": {}})
    jobs.train(training.model, training.optimizer, 2)
    training.model.fc2 = torch.nn.Sequential(training.model.fc2, torch.nn.Linear(2, 2))
    jobs.train(training.model, training.optimizer, 20)  # models are checked every 16 steps
    training.monitor.on(collect_times=1)
    training.until(lambda: json.loads(training.config.read_text()).get("collect_times") == 1)
    training.until(lambda: not json.loads(training.config.read_text())["dynamic_on"])
    training.monitor.stop()
    found = jobs.rows(training.out, "grad_unreduced")
    assert {name for name, _, _ in found} == {"fc2.1.weight", "fc2.1.bias"}


def test_commands_before_watch_are_logged_and_ignored(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    gradmon.Monitor(tmp_path / "config.json").on()
    assert "on() before watch() does nothing" in capfd.readouterr().err


def test_a_static_job_refuses_to_be_switched_and_says_so(tmp_path: Path) -> None:
    config = jobs.write_config(tmp_path, wg_distribution=True)
    model = jobs.make_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    said = tmp_path / "stderr"
    monitor = gradmon.Monitor(config, output_dir=tmp_path / "out", dynamic=False)
    with jobs.stderr_to(said), monitor.watch(model, optimizer):
        monitor.off()
        end = time.monotonic() + 30
        while "off was refused: static mode" not in said.read_text():
            assert time.monotonic() < end, said.read_text()
            jobs.train(model, optimizer, 1)
    steps = jobs.steps_of(jobs.rows(tmp_path / "out", "grad_reduced"))["fc1.weight"]
    assert steps == list(range(len(steps)))


def attached(monitor: gradmon.Monitor, output: Path) -> Any:
    model = jobs.make_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    monitor.watch(model, optimizer)
    gradmonctl = os.environ["GRADMON_BIN"] + "/gradmonctl"
    command = [gradmonctl, "targets", "--json", "--output-dir", output]
    answers: "list[str]" = []

    def answered() -> bool:  # a job can be asked once its hub has begun
        jobs.train(model, optimizer, 1)
        asked = subprocess.run(command, capture_output=True, text=True, timeout=60)
        answers.append(asked.stderr if asked.returncode != 0 else asked.stdout)
        return asked.returncode == 0

    assert jobs.eventually(answered), answers[-1]
    monitor.stop()
    return json.loads(answers[-1])["ranks"][0]["attached"]


def test_targets_name_what_watches_each_model_and_optimizer(tmp_path: Path) -> None:
    config = jobs.write_config(tmp_path, wg_distribution=True)
    outs = [tmp_path / "own", tmp_path / "loop"]
    own = gradmon.Monitor(config, output_dir=outs[0], dynamic=False)
    of_loop = LoopMonitor(config, framework="numpy", output_dir=outs[1], dynamic=False)
    found = [attached(monitor, out) for monitor, out in zip((own, of_loop), outs)]
    by = (f"gradmon.Monitor, torch {torch.__version__}", f"gradmon.numpy, numpy {np.__version__}")
    assert found == [[f"Net: {one}", f"SGD: {one}"] for one in by]
