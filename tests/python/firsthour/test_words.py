# SPDX-License-Identifier: Apache-2.0
"""The first hour with gradmon: sentences in log and status at the right moment."""
import json
import os
import subprocess
from pathlib import Path

import gradmon
import jobs
import torch

CTL = os.path.join(os.environ["GRADMON_BIN"], "gradmonctl")


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
    config = jobs.write_config(tmp_path, dynamic_on=False, wg_distribution=True, collect_times=2)
    model = jobs.make_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    said = tmp_path / "stderr"
    with jobs.stderr_to(said):
        monitor = gradmon.Monitor(config, output_dir=tmp_path / "out", dynamic=False).watch(model, optimizer)
        jobs.reach_the_hub(monitor)
        jobs.train(model, optimizer, 1)

        def line() -> str:
            command = [CTL, "status", "--output-dir", str(tmp_path / "out")]
            return subprocess.run(command, capture_output=True, text=True, timeout=30).stdout.split("\n")[0]

        assert jobs.eventually(lambda: "1 of 2 collections left · dynamic_on is ignored · static" in line())
        jobs.train(model, optimizer, 2)
        assert jobs.eventually(lambda: line().startswith("OFF: finished · static mode"))
        monitor.stop()
    assert "static: collecting now; dynamic_on is ignored" in said.read_text()


class Training:
    """A job in dynamic mode whose model takes steps as long as it is asked for."""

    def __init__(self, directory: Path, config: Path) -> None:
        self.out = directory / "out"
        self.model = jobs.make_net()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.monitor = gradmon.Monitor(config, output_dir=self.out, dynamic=True)
        self.monitor.watch(self.model, self.optimizer)
        jobs.reach_the_hub(self.monitor)

    def reason_becomes(self, beginning: str) -> bool:
        def became() -> bool:
            jobs.train(self.model, self.optimizer, 1)
            status = self.monitor.status()
            return status is not None and status.reason.startswith(beginning)

        return jobs.eventually(became)

    def ctl(self, *words: str) -> "tuple[int, str]":
        command = [CTL, *words, "--output-dir", str(self.out)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        return done.returncode, done.stderr


def test_a_job_says_why_it_collects_nothing(tmp_path: Path) -> None:
    config = jobs.write_config(tmp_path, dynamic_on=False, collect_times=2)
    said = tmp_path / "stderr"
    with jobs.stderr_to(said):
        training = Training(tmp_path, config)
        assert training.reason_becomes("never turned on")
        assert jobs.eventually(lambda: "off: dynamic_on is false (true in " in said.read_text())

        before = config.read_text()
        code, message = training.ctl("set", 'op=["norm"]')
        assert code == 6 and 'unknown key "op" (did you mean "ops"?)' in message
        code, message = training.ctl("set", 'ops=["std"]')
        assert code == 6 and 'unknown op "std", expected min, max, ' in message
        assert config.read_text() == before
        assert training.ctl("set", "--force", 'op=["norm"]')[0] == 0
        assert json.loads(config.read_text())["op"] == ["norm"]

        code, message = training.ctl("on")
        assert code == 7 and "nothing will be collected: the config enables no kind of row" in message
        assert training.reason_becomes("finished: nothing was collected")
        assert jobs.eventually(lambda: not json.loads(config.read_text())["dynamic_on"])
        training.monitor.stop()
    with jobs.stderr_to(said):
        again = Training(tmp_path, config)
        assert again.reason_becomes(
            "dynamic_on is false: an earlier job wrote it back when its collection ended"
        )
        again.monitor.stop()
    assert "wrote it back when its collection ended with step " in said.read_text()
