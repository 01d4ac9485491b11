# SPDX-License-Identifier: Apache-2.0
"""Alerts leave the rank: `gradmonctl alerts`, and the actions of the config's on_alert."""
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any, Callable

import gradmon
import jobs
import torch


class Training:
    """A job of one rank whose loss can be multiplied for a step."""

    def __init__(self, directory: Path, dynamic: bool, **keys: Any) -> None:
        rules = [{"rule_name": "AnomalyNan", "args": {"threshold": 1e6}}]
        self.out = directory / "out"
        self.config = jobs.write_config(
            directory, dynamic_on=True, ops=["norm"], wg_distribution=True, alert={"rules": rules}, **keys
        )
        self.model = jobs.make_net()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.monitor = gradmon.Monitor(self.config, output_dir=self.out, dynamic=dynamic)
        self.monitor.watch(self.model, self.optimizer)

    def step(self, factor: float = 1.0) -> None:
        self.optimizer.zero_grad()
        (self.model(jobs.batch(0)).pow(2).mean() * factor).backward()
        self.optimizer.param_groups[0]["lr"] = 0.01 if factor == 1.0 else 0.0
        self.optimizer.step()

    def until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < end
            for _ in range(20):  # a change takes effect some steps later
                self.step()

    def ask(self, command: str) -> Any:
        program = Path(os.environ["GRADMON_BIN"]) / "gradmonctl"
        asked = [str(program), command, "--json", "--output-dir", str(self.out)]
        answers: "list[bytes]" = []

        def answered() -> bool:  # The hub may not answer within gradmonctl's 3 s.
            done = subprocess.run(asked, capture_output=True, timeout=60)
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
    training = Training(tmp_path, dynamic=True, on_alert=capture)
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
    assert [alert.message for alert in training.monitor.alerts()] == [
        alert["message"] for alert in listed["alerts"]
    ]
    assert status["ranks"][0]["alerts"] == {"raised": listed["raised"], "listed": len(listed["alerts"])}
    assert [entry["cause"] for entry in history] == ["start", "alert", "alert"]
    assert history[1]["by"] == f"an alert (AnomalyNan on rank 0 at step {first['step']})"
    begin = history[1]["effective_step"]
    steps = {step for _, step, _ in jobs.rows(training.out, "actv")}
    assert steps == {begin, begin + 1, begin + 2}
    reduced = jobs.steps_of(jobs.rows(training.out, "grad_reduced"))["fc1.weight"]
    assert set(range(begin, begin + 3)) < set(reduced) and reduced[-1] > history[2]["effective_step"]
    assert json.loads(training.config.read_text())["dynamic_on"] is True


def test_static_mode_runs_the_program_and_refuses_the_capture(tmp_path: Path) -> None:
    program = tmp_path / "notify"
    program.write_text('#!/bin/sh\ncat > "$1.new"\nmv "$1.new" "$1"\n')
    program.chmod(0o700)
    told = tmp_path / "told"
    actions = {"exec": [str(program), str(told)], "collect": {"xy_distribution": True}}
    training = Training(tmp_path, dynamic=False, on_alert=actions)
    training.spike()
    training.until(told.exists)
    warnings = training.ask("status")["warnings"]
    training.monitor.stop()
    assert json.loads(told.read_text())["alerts"][0]["rule"] == "AnomalyNan"
    assert any(line.startswith('static mode: "collect" of "on_alert" has no effect') for line in warnings)
    assert not list(training.out.rglob("actv_*.csv"))
