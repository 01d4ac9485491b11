# SPDX-License-Identifier: Apache-2.0
"""The rig of the benchmarks in Python that train: a scratch job, the time that collecting adds to a training
step, and models and optimizers that take hardly any time themselves."""
import functools
import json
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Iterator

import torch
import torch.distributed as dist

INTERVAL = 5  # a round of measure()
OPS = ["norm", "min", "max", "mean", "nans", "zeros"]


def seconds_of(task: "Callable[[], object]") -> float:
    begin = time.perf_counter()
    task()
    return time.perf_counter() - begin


@contextmanager
def scratch_job(**keys: Any) -> "Iterator[tuple[Path, dict[str, Any]]]":
    """A config with these keys in a temporary directory, and the options of a monitor of one rank."""
    # The hub may write there until it ends, after the job.
    with tempfile.TemporaryDirectory(prefix="gradmon-bench-", ignore_cleanup_errors=True) as scratch:
        config = Path(scratch) / "monitor_config.json"
        config.write_text(json.dumps(keys))
        output = Path(scratch) / "monitor_output"
        yield config, {"rank": 0, "world_size": 1, "output_dir": output, "dynamic": True}


def until(reached: "Callable[[], bool]", act: "Callable[[], object]", what: str, seconds: float = 20) -> None:
    """Acts until the condition is true. Raises RuntimeError if it is not within the time."""
    deadline = time.monotonic() + seconds
    while not reached():
        if time.monotonic() > deadline:
            raise RuntimeError(f"not within {seconds} s: {what}")
        act()


def rows_on_disk(output: Path) -> int:
    return sum(len(path.read_text().splitlines()) - 1 for path in output.rglob("*.csv"))


def stop(monitor: Any, output: Path, least: int) -> int:
    """Stops the monitor; returns the rows on disk. Raises RuntimeError if rows were dropped, or are fewer."""
    monitor.stop()
    if monitor.status().ranks[0].dropped > 0:
        raise RuntimeError("rows were dropped")
    if (rows := rows_on_disk(output)) < least:
        raise RuntimeError("too little was collected")
    return rows


class CollectingRig:
    """The time that collecting adds to a training step: every fifth step is collected. It and the one
    before it, at whose end the hooks attach, are compared with the steps before and after these two."""

    def __init__(
        self, keys: "dict[str, Any]", model: torch.nn.Module, optimizer: Any, backward: "Callable[[], None]"
    ) -> None:
        import gradmon

        self._scratch = scratch_job(dynamic_on=True, step_interval=INTERVAL, ops=OPS, **keys)
        config, options = self._scratch.__enter__()
        self._output = options["output_dir"]
        self._optimizer, self._backward = optimizer, backward
        backward()  # creates the gradients
        self.monitor = monitor = gradmon.Monitor(config, **options).watch(model, optimizer)
        steps = 0

        def step() -> None:
            nonlocal steps
            steps += 1
            monitor.step()
            time.sleep(0.001)

        until(lambda: monitor.status().state == "on", step, "the monitor is on")
        collected = monitor.status().effective_step
        begin = max(steps + 4, collected + 2)
        begin += (collected + 2 - begin) % INTERVAL  # the last step but one has been collected
        for _ in range(begin - steps):
            self._step()

    def measure(self, rounds: int, read: "Callable[[], object]" = lambda: None) -> "tuple[list[float], ...]":
        """Three lists of seconds: each collected step and the one before it, minus the two steps beside
        these; each step beside these; and each `read`, which runs once per round."""
        added, idle, reads = [], [], []
        for _ in range(rounds):
            reads.append(seconds_of(read))
            self._step()  # not counted: `read` has filled the caches
            before, attaching, collected, after = (seconds_of(self._step) for _ in range(4))
            idle += [before, after]
            added.append(attaching + collected - before - after)
        return added, idle, reads

    def own_share(self) -> float:
        """The cost of a collected step as a share of a step's time, over the last eight, as
        measured by the monitor."""
        monitor, nap = self.monitor, functools.partial(time.sleep, 0.05)
        known = "the monitor has measured itself"  # the hub tells it
        until(lambda: monitor.status().ranks[0].overhead is not None, nap, known, seconds=10)
        return float(monitor.status().ranks[0].overhead) * INTERVAL

    def check(self, rows: int) -> None:
        """Stops the monitor. Raises if rows were dropped, or fewer than `rows` are on disk."""
        stop(self.monitor, self._output, rows)
        self._scratch.__exit__(None, None, None)

    def _step(self) -> None:
        self._backward()
        self._optimizer.step()
        self.monitor.step()


class EmptyStep:
    """An optimizer that does nothing. It does not derive from torch's class, which calls the
    profiler in each step: those microseconds vary by more than the measured time."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.param_groups = [{"params": list(model.parameters())}]
        self.state: "dict[Any, Any]" = {}

    def step(self) -> None:
        pass


class _Touch(torch.autograd.Function):
    """Uses parameters; their gradients are given."""

    @staticmethod
    def forward(ctx: Any, gradients: "list[torch.Tensor]", *parameters: torch.Tensor) -> torch.Tensor:
        ctx.gradients = gradients
        return torch.zeros(())

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        return (None, *ctx.gradients)


class Touched(torch.nn.Module):
    """Parameters of these shapes. Its forward and backward cost hardly more than writing the gradients."""

    def __init__(self, shapes: "list[torch.Size]") -> None:
        super().__init__()
        for number, shape in enumerate(shapes):
            self.register_parameter(f"p{number}", torch.nn.Parameter(torch.full(shape, 0.5)))
        self.gradients = [torch.full(shape, 1e-3) for shape in shapes]

    def forward(self) -> torch.Tensor:
        found: torch.Tensor = _Touch.apply(self.gradients, *self.parameters())
        return found

    def backward(self) -> None:
        for parameter in self.parameters():
            parameter.grad = None
        self().backward()


def sharded(model: Any) -> Any:
    """The model under FSDP2, in one rank."""
    from torch.distributed.fsdp import fully_shard

    if not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    fully_shard(model)
    return model
