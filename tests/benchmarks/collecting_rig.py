# SPDX-License-Identifier: Apache-2.0
"""The time that collecting adds to a training step: collecting_rig.cc, in Python."""
import json
import tempfile
import time
from pathlib import Path
from typing import Any, Callable

import torch

import gradmon

INTERVAL = 5  # a round of measure()
OPS = ["norm", "min", "max", "mean", "nans", "zeros"]


def seconds_of(task: "Callable[[], object]") -> float:
    begin = time.perf_counter()
    task()
    return time.perf_counter() - begin


class CollectingRig:
    """The time that collecting adds to a training step: every fifth step is collected. It and the one
    before it, at whose end the hooks attach, are compared with the steps before and after these two."""

    def __init__(
        self, keys: "dict[str, Any]", model: torch.nn.Module, optimizer: Any, backward: "Callable[[], None]"
    ) -> None:
        # The hub may write there until it ends, after the job.
        self._scratch = tempfile.TemporaryDirectory(prefix="gradmon-bench-", ignore_cleanup_errors=True)
        self.output = Path(self._scratch.name) / "monitor_output"
        config = Path(self._scratch.name) / "monitor_config.json"
        config.write_text(json.dumps({"dynamic_on": True, "step_interval": INTERVAL, "ops": OPS, **keys}))
        self._optimizer, self._backward = optimizer, backward
        backward()  # creates the gradients
        self.monitor = gradmon.Monitor(config, rank=0, world_size=1, output_dir=self.output, dynamic=True)
        self.monitor.watch(model, optimizer)
        self._next = steps_until(self.monitor, "on")
        self._effective = self.monitor.status().effective_step
        steps = 0
        while steps < 4 or not self._last_but_one_was_collected():
            self._timed_step()
            steps += 1

    def measure(self, rounds: int, read: "Callable[[], object]") -> "tuple[list[float], ...]":
        """Three lists of seconds: each collected step and the one before it, minus the two steps beside
        these; each step beside these; and each `read`, which runs once per round."""
        added, idle, reads = [], [], []
        for _ in range(rounds):
            reads.append(seconds_of(read))
            self._timed_step()  # not counted: `read` has filled the caches
            before, attaching, collected, after = (self._timed_step() for _ in range(4))
            idle += [before, after]
            added.append(attaching + collected - before - after)
        return added, idle, reads

    def own_share(self) -> float:
        """The cost of a collected step as a share of a step's time, over the last eight, as
        measured by the monitor."""
        deadline = time.monotonic() + 10  # the status comes from the hub
        while (share := self.monitor.status().ranks[0].overhead) is None:
            if time.monotonic() > deadline:
                raise RuntimeError("the monitor has not measured itself")
            time.sleep(0.05)
        return float(share) * INTERVAL

    def check(self, rows: int) -> None:
        """Stops the monitor. Raises if rows were dropped, or fewer than `rows` are on disk."""
        self.monitor.stop()
        if self.monitor.status().ranks[0].dropped > 0:
            raise RuntimeError("rows were dropped")
        if sum(len(path.read_text().splitlines()) - 1 for path in self.output.rglob("*.csv")) < rows:
            raise RuntimeError("too little was collected")
        self._scratch.cleanup()

    def _last_but_one_was_collected(self) -> bool:
        since = self._next - 2 - self._effective
        return since >= 0 and since % INTERVAL == 0

    def _timed_step(self) -> float:
        self._next += 1
        return seconds_of(self._step)

    def _step(self) -> None:
        self._backward()
        self._optimizer.step()
        self.monitor.step()


def steps_until(monitor: gradmon.Monitor, state: str) -> int:
    """Steps the monitor until it has this state; returns the number of steps. Raises after 20 s."""
    deadline = time.monotonic() + 20
    steps = 0
    while monitor.status().state != state:
        if time.monotonic() > deadline:
            raise RuntimeError(f"the monitor did not reach state {state}; it is {monitor.status().state}")
        monitor.step()
        steps += 1
        time.sleep(0.001)
    return steps
