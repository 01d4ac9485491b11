# SPDX-License-Identifier: Apache-2.0
"""A small model, its training, and the rows that gradmon has written."""
import contextlib
import csv
import json
import math
import os
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, Callable, Iterator, TypeVar

import torch

OPS = ["min", "max", "mean", "norm", "nans", "zeros", "absmax"]
ACTIVATIONS = {"xy_distribution": True, "all_xy": True}
GRADIENTS = {"wg_distribution": True}
UPDATES = {**GRADIENTS, "param_distribution": True, "mv_distribution": True}
EVERYTHING = {**UPDATES, "mg_direction": True, **ACTIVATIONS}


def write_config(directory: Path, **keys: Any) -> Path:
    path = directory / "config.json"
    path.write_text(json.dumps({"ops": OPS, "ndigits": 9, "step_count_per_record": 1000, **keys}))
    return path


ALONE = {"rank": 0, "world_size": 1}
Model = TypeVar("Model", bound=torch.nn.Module)


def monitor(directory: Path, options: "dict[str, Any]" = {}, **keys: Any) -> Any:
    """A Monitor in static mode with a config of these keys. Its rows come into `out`. options: as Monitor."""
    import gradmon  # Not above: programs that train without it use this module, too.

    config = write_config(directory, **keys)
    return gradmon.Monitor(config, **{"output_dir": directory / "out", "dynamic": False, **options})


class Net(torch.nn.Module):
    """Two layers with an in-place activation between them. `spare` is never called."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = torch.nn.Linear(4, 6)
        self.act = torch.nn.ReLU(inplace=True)
        self.fc2 = torch.nn.Linear(6, 2)
        self.spare = torch.nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(self.act(self.fc1(x)))


class Parts(torch.nn.Module):
    """A model from named modules and a forward function, whose first argument is the model."""

    def __init__(self, forward: Callable[..., Any], **modules: torch.nn.Module) -> None:
        super().__init__()
        for name, module in modules.items():
            self.add_module(name, module)
        self._forward = forward

    def forward(self, *inputs: Any, **keywords: Any) -> Any:
        return self._forward(self, *inputs, **keywords)


def make_net() -> Net:
    torch.manual_seed(7)
    return Net()


def with_sgd(model: Model, **options: Any) -> "tuple[Model, torch.optim.Optimizer]":
    return model, torch.optim.SGD(model.parameters(), **{"lr": 0.1, **options})


def make() -> "tuple[Net, torch.optim.Optimizer]":
    return with_sgd(make_net())


def batch(step: int, micro: int = 0) -> torch.Tensor:
    return torch.sin(torch.arange(12.0) * 0.7 + step + 0.3 * micro).reshape(3, 4)


def nothing(_step: int) -> None:
    pass


def train(
    model: torch.nn.Module,
    optimizer: Any,
    steps: int,
    each: Callable[[int], Any] = nothing,
    reduced: Callable[[int], Any] = nothing,
    micro: int = 1,
) -> None:
    """`micro` times forward and backward, then an update. reduced, each: called with the step before its
    update and after it."""
    for step in range(steps):
        optimizer.zero_grad()
        for number in range(micro):
            model(batch(step, number)).pow(2).mean().backward()
        reduced(step)
        optimizer.step()
        each(step)


def collect(directory: Path, steps: int, *trained: Any, options: "dict[str, Any]" = {}, **keys: Any) -> None:
    """Trains under monitor(). trained: a model and its optimizer, if not those of make()."""
    model, optimizer = trained or make()
    with monitor(directory, options, **keys).watch(model, optimizer):
        train(model, optimizer, steps)


def train_until(
    model: torch.nn.Module, optimizer: Any, condition: Callable[[], Any], seconds: float = 30
) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        train(model, optimizer, 1)
        time.sleep(0.002)  # for the job's other processes


def rows(output: Path, kind: str, rank: int = 0) -> "dict[tuple[str, int, int], dict[str, float]]":
    """{(name, step, micro step): {op: value}}. An empty cell has no entry."""
    found: "dict[tuple[str, int, int], dict[str, float]]" = {}
    for path in sorted(output.glob(f"*-rank{rank}-*/{kind}_*.csv")):
        if not path.name[len(kind) + 1].isdigit():
            continue
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                key = (row["name"], int(row["step"]), int(row.get("micro_step", 0)))
                assert key not in found, f"{key} twice in {path}"
                found[key] = {
                    op: float(value) for op, value in row.items() if op in OPS + ["mg_direction"] and value
                }
    return found


def hooks_of(model: torch.nn.Module) -> int:
    """The number of forward hooks at all modules of the model."""
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def steps_of(found: "dict[tuple[str, int, int], Any]") -> "dict[str, list[int]]":
    steps = defaultdict(set)
    for name, step, _ in found:
        steps[name].add(step)
    return {name: sorted(of_name) for name, of_name in steps.items()}


def expected(tensor: torch.Tensor) -> "dict[str, float]":
    x = tensor.detach().double()
    return {
        "min": x.min().item(),
        "max": x.max().item(),
        "mean": x.mean().item(),
        "norm": x.norm().item(),
        "nans": float(x.isnan().sum()),
        "absmax": x.abs().max().item(),
        "zeros": (x.abs() < 1e-8).double().mean().item(),
    }


def check(found: "dict[str, float]", tensor: torch.Tensor) -> None:
    values = expected(tensor)
    # A mean cancels: its error is the values' own, which differs from one kind of CPU to another.
    of_mean = 1e-7 * values["absmax"] if math.isfinite(values["absmax"]) else 0
    for op, value in values.items():
        abs_tol = max(1e-9, of_mean if op == "mean" else 0)
        assert math.isclose(found[op], value, rel_tol=1e-5, abs_tol=abs_tol), (op, found[op], value)


def check_values(
    found: "dict[str, float]", expected: "dict[str, float]", what: object, tolerance: float = 1e-6
) -> None:
    """The statistics of a row: within the tolerance of the tensor's norm, or of its largest magnitude."""
    largest = max(abs(expected["min"]), abs(expected["max"]))
    for op, value in expected.items():
        scale = {"norm": expected["norm"], "nans": 0.0, "zeros": 1.0}.get(op, largest)
        assert abs(found[op] - value) <= tolerance * scale, (what, op, found[op], value)


def warnings_of(monitor: Any) -> "list[str]":
    status = monitor.status()
    return list(status.warnings) if status is not None else []


def python(*words: object, **options: Any) -> "subprocess.CompletedProcess[str]":
    """Another Python. options: of subprocess.run()."""
    command = [sys.executable, "-B", *map(str, words)]
    return subprocess.run(command, **{"capture_output": True, "text": True, "timeout": 240, **options})


def eventually(condition: Callable[[], bool], seconds: float = 60) -> bool:
    """Waits so long for the condition; returns whether it came true."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


@contextlib.contextmanager
def stderr_to(file: Path) -> "Iterator[None]":
    """What this process writes to stderr goes to the end of the file, to be read while its threads write.

    pytest's capfd.readouterr() loses what a thread writes between its read and its truncation.
    """
    before = os.dup(2)
    with file.open("ab") as end:
        os.dup2(end.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


def reach_the_hub(monitor: Any) -> None:
    """Call it after watch() and before the first step, whose wait for the hub is limited."""

    def joined() -> bool:
        status = monitor.status()  # without an epoch it is the rank's own
        return bool(status.epoch) and any(rank.state != "absent" for rank in status.ranks)

    assert eventually(joined)
