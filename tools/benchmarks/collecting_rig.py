# SPDX-License-Identifier: Apache-2.0
"""What collecting adds to a step of a training: collecting_rig.cc, in Python."""
import json
import tempfile
import time
from pathlib import Path
from typing import Any, Callable

import torch

import gradmon

INTERVAL = 2  # collected steps and others take turns, so that noise hits both alike
OPS = ["norm", "min", "max", "mean", "nans", "zeros"]


def seconds_of(task: "Callable[[], object]") -> float:
    begin = time.perf_counter()
    task()
    return time.perf_counter() - begin


class CollectingRig:
    """What collecting adds to a step of a training: every second step is collected, and
    is held against the two beside it."""

    def __init__(
        self, keys: "dict[str, Any]", model: torch.nn.Module, optimizer: Any, backward: "Callable[[], None]"
    ) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="gradmon-bench-")
        self.output = Path(self._scratch.name) / "monitor_output"
        config = Path(self._scratch.name) / "monitor_config.json"
        config.write_text(json.dumps({"dynamic_on": True, "step_interval": INTERVAL, "ops": OPS, **keys}))
        self._optimizer, self._backward = optimizer, backward
        backward()  # so that gradients are there
        self.monitor = gradmon.Monitor(config, rank=0, world_size=1, output_dir=self.output, dynamic=True)
        self.monitor.watch(model, optimizer)
        self._next = steps_until(self.monitor, "on")
        self._effective = self.monitor.status().effective_step
        while self._next < self._effective + 4 or (self._next - self._effective) % INTERVAL == 0:
            self._timed_step()

    def measure(self, rounds: int, read: "Callable[[], object]") -> "tuple[list[float], ...]":
        """Seconds that a collected step takes over its neighbours, seconds of those, and
        of `read`, which comes once a round."""
        added, idle, reads = [], [], []
        for _ in range(rounds):
            reads.append(seconds_of(read))
            before, collected, after = (self._timed_step() for _ in range(3))
            self._timed_step()  # collected, and not counted, so that each round begins alike
            idle += [before, after]
            added.append(collected - (before + after) / 2)
        return added, idle, reads

    def own_share(self) -> float:
        """What the monitor's meter says of a collected step, over the last eight."""
        deadline = time.monotonic() + 10  # the status comes from the hub
        while (share := self.monitor.status().ranks[0].overhead) is None:
            if time.monotonic() > deadline:
                raise RuntimeError("the monitor has not measured itself")
            time.sleep(0.05)
        return float(share) * INTERVAL

    def check(self, rows: int) -> None:
        """Ends the monitor. Raises where rows were dropped, or fewer than these are on disk."""
        self.monitor.stop()
        if self.monitor.status().ranks[0].dropped > 0:
            raise RuntimeError("rows were dropped")
        if sum(len(path.read_text().splitlines()) - 1 for path in self.output.rglob("*.csv")) < rows:
            raise RuntimeError("too little was collected")
        self._scratch.cleanup()

    def _timed_step(self) -> float:
        self._next += 1
        return seconds_of(self._step)

    def _step(self) -> None:
        self._backward()
        self._optimizer.step()
        self.monitor.step()


def steps_until(monitor: gradmon.Monitor, state: str) -> int:
    """How many steps it took; raises after 20 s."""
    deadline = time.monotonic() + 20
    steps = 0
    while monitor.status().state != state:
        if time.monotonic() > deadline:
            raise RuntimeError(f"the monitor did not come to be {state} but is {monitor.status().state}")
        monitor.step()
        steps += 1
        time.sleep(0.001)
    return steps
