# SPDX-License-Identifier: Apache-2.0
"""The program switches its job: on(), off(), set(). Alerts switch it, too."""
import json
from pathlib import Path
from typing import Any

import gradmon
import jobs
import pytest
import numpy as np
import torch
from training import Training, gradmonctl
from gradmon._framework_monitor import FrameworkMonitor


def training_of(directory: Path, **keys: Any) -> Training:
    config = jobs.write_config(directory, dynamic_on=False, wg_distribution=True, **keys)
    return Training(config, directory / "out")


def test_on_collects_as_often_as_asked_and_the_file_says_so(tmp_path: Path) -> None:
    training = training_of(tmp_path)
    training.monitor.on(collect_times=3, step_interval=2)
    training.until(lambda: json.loads(training.config.read_text()).get("collect_times") == 3)
    training.until(lambda: not training.is_on_in_file())
    training.monitor.stop()
    steps = training.steps()
    assert steps == [steps[0], steps[0] + 2, steps[0] + 4]


def test_off_ends_what_on_began_and_set_changes_what_is_collected(tmp_path: Path) -> None:
    training = training_of(tmp_path)
    training.monitor.on()
    training.until(lambda: training.state() == "on")
    training.monitor.set("param_distribution", True)
    training.until(lambda: bool(list(training.out.rglob("param_origin_*.csv"))))
    training.monitor.off()
    training.until(lambda: not training.is_on_in_file())
    training.until(lambda: training.state() == "off")
    status = training.monitor.status()
    assert status is not None
    jobs.train(training.model, training.optimizer, 5)
    training.monitor.stop()
    assert training.steps()[-1] == status.effective_step - 1
    assert json.loads(training.config.read_text())["param_distribution"] is True


def test_commands_of_one_step_take_effect_in_their_order(tmp_path: Path) -> None:
    training = training_of(tmp_path)
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
    training = training_of(tmp_path, targets={"fc2.1": {}})
    jobs.train(training.model, training.optimizer, 2)
    training.model.fc2 = torch.nn.Sequential(training.model.fc2, torch.nn.Linear(2, 2))
    jobs.train(training.model, training.optimizer, 20)  # models are checked every 16 steps
    training.monitor.on(collect_times=1)
    training.until(lambda: json.loads(training.config.read_text()).get("collect_times") == 1)
    training.until(lambda: not training.is_on_in_file())
    training.monitor.stop()
    found = jobs.rows(training.out, "grad_unreduced")
    assert {name for name, _, _ in found} == {"fc2.1.weight", "fc2.1.bias"}


def test_commands_before_watch_are_only_logged(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    gradmon.Monitor(tmp_path / "config.json").on()
    assert "on() before watch() does nothing" in capfd.readouterr().err


def test_a_static_job_refuses_to_be_switched_and_says_so(tmp_path: Path) -> None:
    model, optimizer = jobs.make()
    said = tmp_path / "stderr"
    monitor = jobs.monitor(tmp_path, wg_distribution=True)
    with jobs.stderr_to(said), monitor.watch(model, optimizer):
        monitor.off()
        jobs.train_until(model, optimizer, lambda: "off was refused: static mode" in said.read_text())
    steps = jobs.steps_of(jobs.rows(tmp_path / "out", "grad_reduced"))["fc1.weight"]
    assert steps == list(range(len(steps)))


def attached(monitor: gradmon.Monitor, output: Path) -> Any:
    model, optimizer = jobs.make()
    monitor.watch(model, optimizer)
    answers: "list[str]" = []

    def answered() -> bool:  # a job can be asked once its hub has begun
        jobs.train(model, optimizer, 1)
        asked = gradmonctl("targets", "--json", "--output-dir", output)
        answers.append(asked.stderr if asked.returncode != 0 else asked.stdout)
        return asked.returncode == 0

    assert jobs.eventually(answered), answers[-1]
    monitor.stop()
    return json.loads(answers[-1])["ranks"][0]["attached"]


def test_targets_name_what_watches_each_model_and_optimizer(tmp_path: Path) -> None:
    config = jobs.write_config(tmp_path, wg_distribution=True)
    outs = [tmp_path / "own", tmp_path / "loop"]
    own = gradmon.Monitor(config, output_dir=outs[0], dynamic=False)
    of_loop = FrameworkMonitor(config, "numpy", output_dir=outs[1], dynamic=False)
    found = [attached(monitor, out) for monitor, out in zip((own, of_loop), outs)]
    by = (f"gradmon.Monitor, torch {torch.__version__}", f"gradmon.numpy, numpy {np.__version__}")
    assert found == [[f"Net: {one}", f"SGD: {one}"] for one in by]


# --- `gradmonctl alerts`, and the actions of the config's on_alert ---


class TrainingOnAlert(Training):
    """Its loss can be multiplied for a step."""

    def __init__(self, directory: Path, **keys: Any) -> None:
        rules = [{"rule_name": "AnomalyNan", "args": {"threshold": 1e6}}]
        own = {"dynamic_on": True, "ops": ["norm"], "wg_distribution": True, "alert": {"rules": rules}}
        super().__init__(jobs.write_config(directory, **own, **keys), directory / "out", lr=0.01)

    def step(self, factor: float = 1.0) -> None:
        self.optimizer.zero_grad()
        (self.model(jobs.batch(0)).pow(2).mean() * factor).backward()
        self.optimizer.param_groups[0]["lr"] = 0.01 if factor == 1.0 else 0.0
        self.optimizer.step()

    def ask(self, command: str) -> Any:
        answers: "list[str]" = []

        def answered() -> bool:  # The hub may not answer within gradmonctl's 3 s.
            done = gradmonctl(command, "--json", "--output-dir", self.out)
            answers.extend([done.stdout] * (done.returncode == 0))
            return bool(answers)

        assert jobs.eventually(answered)
        return json.loads(answers[0])

    def changes(self) -> "list[dict[str, Any]]":
        """What was agreed on, without tries that a busy machine made too slow."""
        return [entry for entry in self.ask("history")["revisions"] if entry["verdict"] == "commit"]

    def spike(self) -> None:
        """Multiplies the loss of a collected step."""
        self.until(lambda: bool(jobs.rows(self.out, "grad_reduced")))
        self.step(1e12)


def test_an_alert_is_listed_and_starts_a_capture(tmp_path: Path) -> None:
    capture = {"collect": {"xy_distribution": True, "all_xy": True}, "times": 3, "cooldown": 600}
    training = TrainingOnAlert(tmp_path, on_alert=capture)
    training.spike()
    training.until(lambda: len(training.changes()) == 3)
    training.until(lambda: bool(training.changes()[2]["applied"]))
    for _ in range(20):
        training.step()
    listed = training.ask("alerts")
    first = listed["alerts"][0]
    history = training.changes()
    status = training.ask("status")
    training.monitor.stop()
    assert {alert["rule"] for alert in listed["alerts"]} == {"AnomalyNan"}
    assert (first["rank"], first["op"]) == (0, "norm") and first["value"] > 1e6
    messages = [alert["message"] for alert in listed["alerts"]]
    assert [alert.message for alert in training.monitor.alerts()] == messages
    assert status["ranks"][0]["alerts"] == {"raised": listed["raised"], "listed": len(listed["alerts"])}
    assert [entry["cause"] for entry in history] == ["start", "alert", "alert"]
    assert history[1]["by"] == f"an alert (AnomalyNan on rank 0 at step {first['step']})"
    begin = history[1]["effective_step"]
    steps = {step for _, step, _ in jobs.rows(training.out, "actv")}
    assert steps == {begin, begin + 1, begin + 2}
    reduced = jobs.steps_of(jobs.rows(training.out, "grad_reduced"))["fc1.weight"]
    assert set(range(begin, begin + 3)) < set(reduced) and reduced[-1] > history[2]["effective_step"]
    assert training.is_on_in_file()
