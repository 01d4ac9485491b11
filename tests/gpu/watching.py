# SPDX-License-Identifier: Apache-2.0
"""A small model on the device, trained under the whole monitor, and what it writes."""
import csv
import json
import math
from pathlib import Path
from typing import Any, Dict

import pytest
import torch

gradmon = pytest.importorskip("gradmon", reason="gradmon cannot be imported here")

EVERYTHING = {
    "wg_distribution": True,
    "param_distribution": True,
    "mv_distribution": True,
    "xy_distribution": True,
    "all_xy": True,
}

Rows = Dict[Any, Dict[str, float]]


def make_model() -> torch.nn.Sequential:
    torch.manual_seed(3)
    layers = [torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8)]
    return torch.nn.Sequential(*layers).cuda()


def batch(step: int) -> torch.Tensor:
    return torch.sin(torch.arange(32.0 * 64, device="cuda") * 0.7 + step).reshape(32, 64)


def watched(directory: Path, model: Any, optimizer: Any, scaler: Any = None, **keys: Any) -> Any:
    config = directory / "config.json"
    common = {"ops": ["norm", "min", "max", "mean", "nans"], "ndigits": 9, "step_count_per_record": 1000}
    config.write_text(json.dumps({**common, **(keys or EVERYTHING)}))
    monitor = gradmon.Monitor(config, output_dir=directory / "out", dynamic=False, rank=0, world_size=1)
    return monitor.watch(model, optimizer, scaler=scaler)


def rows_of(directory: Path, kind: str) -> Rows:
    found: Rows = {}
    for path in (directory / "out").glob(f"*-rank0-*/{kind}_[0-9]*.csv"):
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                found[row["name"], int(row["step"])] = {
                    op: float(row[op]) for op in ("norm", "min", "max") if row[op]
                }
    return found


def near(row: "dict[str, float]", tensor: torch.Tensor) -> bool:
    return math.isclose(row["norm"], float(tensor.double().norm()), rel_tol=1e-5)


def sgd(parameters: Any) -> Any:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
