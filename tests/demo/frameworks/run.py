# SPDX-License-Identifier: Apache-2.0
"""One rank's training in tools/demo --frameworks: edits the config while it runs, and notes the values that
are compared later."""
import json
import time
from pathlib import Path
from typing import Any, Callable, Iterator, Optional

import torch
import torch.distributed as dist

MOST_STEPS = 2000
FIRST_EDIT = 8  # steps before it
OPS = ["norm", "min", "max", "mean", "nans", "zeros"]
_ALWAYS = {"ops": OPS, "ndigits": 100, "step_count_per_record": MOST_STEPS, "squash_name": False}
EVERYTHING = {
    "collect_times": 6,
    "wg_distribution": True,
    "param_distribution": True,
    "mv_distribution": True,
    "xy_distribution": True,
    "all_xy": True,
}
GRADIENTS = {"collect_times": 3, "step_interval": 2, "wg_distribution": True}
EDITS = (EVERYTHING, GRADIENTS)


def config_text(dynamic_on: bool, keys: "dict[str, Any]") -> str:
    return json.dumps({"dynamic_on": dynamic_on, **_ALWAYS, **keys})


class Run:
    """A training, watched or not. The watched one ends when all edits have been collected on all ranks, the
    other one after as many steps."""

    def __init__(self, directory: Path, steps: Optional[int] = None) -> None:
        """steps: of a training that is not watched."""
        self.directory = directory
        self.rank = dist.get_rank() if dist.is_initialized() else 0
        self.watched = steps is None
        self.seconds: "list[float]" = []  # of each step
        self.ends: "list[torch.Tensor]" = []
        self._steps = steps
        self._left = list(EDITS)
        self._config = directory / "monitor_config.json"
        self._begin = time.perf_counter()
        self._collectives = _collectives()
        if self.watched and self.rank == 0:
            self._write(False, {})
        if dist.is_initialized():
            dist.barrier()

    def watch(self, attach: "Callable[..., Any]") -> Any:
        """Returns attach(config, options of Monitor), or None where nothing is watched."""
        options = {"output_dir": self.directory / "out", "dynamic": True}
        return attach(self._config, **options) if self.watched else None

    def step_ended(self) -> bool:
        """To be called after each step. Returns whether the training ends."""
        self.seconds.append(time.perf_counter() - self._begin)
        ends = torch.tensor(float(self.rank == 0 and self._ends()))
        if dist.is_initialized():
            dist.all_reduce(ends)
        self._begin = time.perf_counter()
        return bool(ends.item() > 0)

    def steps(self, monitor: Any) -> "Iterator[int]":
        """The numbers of the steps, for a loop. At its end the monitor stops, if there is one."""
        for step in range(MOST_STEPS):
            yield step
            if self.step_ended():
                break
        if monitor is not None:
            monitor.stop()

    def ended(self, model: torch.nn.Module) -> None:
        """Notes what is compared between the two trainings."""
        self.collectives = _collectives() - self._collectives
        for tensor in model.state_dict().values():
            self.ends.append(getattr(tensor, "_local_tensor", tensor).detach().clone())

    def _ends(self) -> bool:
        if self._steps is not None:
            return len(self.seconds) >= self._steps
        if len(self.seconds) >= MOST_STEPS:
            raise RuntimeError(f"after {MOST_STEPS} steps, {len(self._left)} edits have not been collected")
        if len(self.seconds) < FIRST_EDIT or self._collects():
            return False
        if not self._left:
            return True
        self._write(True, self._left.pop(0))
        return False

    def _collects(self) -> bool:
        """Whether the last edit has not been collected yet on all ranks: gradmon then writes false back."""
        try:
            return bool(json.loads(self._config.read_text())["dynamic_on"])
        except ValueError:  # it is just being written
            return True

    def _write(self, dynamic_on: bool, keys: "dict[str, Any]") -> None:
        self._config.write_text(config_text(dynamic_on, keys))


def _collectives() -> int:
    """How many have been started, in all groups."""
    if not dist.is_initialized():
        return 0
    groups = dist.distributed_c10d._world.pg_map
    return sum(int(group._get_sequence_number_for_group()) for group in groups if group is not None)


def train_twice(directory: Path, train: "Callable[[Run], None]") -> None:
    """Trains with gradmon and without, and writes this rank's outcome."""
    watched = Run(directory)
    train(watched)
    bare = Run(directory, len(watched.seconds))
    train(bare)
    same = len(bare.ends) > 0 and len(bare.ends) == len(watched.ends)
    outcome = {
        "equal": same and all(torch.equal(one, other) for one, other in zip(bare.ends, watched.ends)),
        "collectives": [bare.collectives, watched.collectives],
        "seconds": {"bare": bare.seconds, "watched": watched.seconds},
    }
    (directory / f"rank{watched.rank}.json").write_text(json.dumps(outcome))
