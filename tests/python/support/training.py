# SPDX-License-Identifier: Apache-2.0
"""A job of one rank in this process, which trains as long as it is asked to; and gradmonctl."""
import json
import os
import subprocess
from pathlib import Path
from typing import Any, Callable

import gradmon
import jobs

GRADMONCTL = os.environ["GRADMON_BIN"] + "/gradmonctl"


def gradmonctl(*words: object, **options: Any) -> "subprocess.CompletedProcess[str]":
    """options: of subprocess.run()."""
    command = [GRADMONCTL, *map(str, words)]
    return subprocess.run(command, **{"capture_output": True, "text": True, "timeout": 60, **options})


class Training:
    def __init__(self, config: Path, out: Path, lr: float = 0.1) -> None:
        self.config = config
        self.out = out
        self.model, self.optimizer = jobs.with_sgd(jobs.make_net(), lr=lr)
        self.monitor = gradmon.Monitor(config, output_dir=out, dynamic=True)
        self.monitor.watch(self.model, self.optimizer)

    def step(self) -> None:
        jobs.train(self.model, self.optimizer, 1)

    def until(self, condition: Callable[[], Any]) -> Any:
        """Trains until the condition is true; returns what it gave."""
        found: "list[Any]" = []

        def came_true() -> bool:
            found[:] = [condition()]
            if not found[0]:
                self.step()
            return bool(found[0])

        assert jobs.eventually(came_true), self.monitor.status()
        return found[0]

    def is_on_in_file(self) -> bool:
        return json.loads(self.config.read_text())["dynamic_on"] is True

    def state(self) -> str:
        status = self.monitor.status()
        return status.state if status is not None else ""

    def steps(self) -> "list[int]":
        """The collected steps."""
        return jobs.steps_of(jobs.rows(self.out, "grad_reduced"))["fc1.weight"]

    def ctl(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """gradmonctl, while the training goes on."""
        command = [GRADMONCTL, *words, "--output-dir", str(self.out)]
        running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.until(lambda: running.poll() is not None)
        out, err = running.communicate()
        return subprocess.CompletedProcess(command, running.returncode, out, err)
