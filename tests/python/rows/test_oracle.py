# SPDX-License-Identifier: Apache-2.0
"""Compares every row of every kind with a recorder in plain torch, over many models and loops."""
import csv
import math
import re
from pathlib import Path
from typing import Any, Iterator

import jobs
import oracle_loops
import oracle_models  # noqa: F401, fills LOOPS
import oracle_optimizers  # noqa: F401, likewise
import pytest
import torch
import twice
from recorder import Recorder

KINDS = [
    "grad_unreduced",
    "grad_reduced",
    "param_origin",
    "param_updated",
    "exp_avg",
    "exp_avg_sq",
    "actv",
    "actv_grad",
]
FEATURES = {"other": ["mg_direction"], "linear_hook": ["sr", "kernel_norm"]}
CONFIG = {
    **twice.EVERYTHING,
    "squash_name": False,
    "recording_l2_features": True,
    "l2_targets": {"linear_hook": []},
}

# By loop: rows (kind, pattern of names) that are not compared, because gradmon has no such row or another
# value.
EXPLAINED: "dict[str, list[tuple[str, str]]]" = {
    # The part that main_grad lacks while a backward runs is unknown.
    "main_gradients": [("grad_unreduced", ".*")],
    # A dropout of 0 returns its input itself; attention gets one tensor three times. The gradient of the
    # keys' bias is 0 except for rounding, which the recorder's copies change.
    "post_norm_layer": [
        ("actv_grad", r"1\.dropout[12]?\.input|1\.self_attn\.input_[012]"),
        ("other", r"1\.self_attn\.in_proj_bias"),
    ],
}
_compared = 0


@pytest.fixture(scope="module", autouse=True)
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A process group of one rank, for DDP."""
    store = tmp_path_factory.mktemp("group") / "store"
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def train(name: str, watcher: Any, ends_iterations: bool) -> "list[torch.Tensor]":
    torch.manual_seed(7)
    run = oracle_loops.Run(watcher, ends_iterations)
    oracle_loops.LOOPS[name](run)
    watcher.stop()
    return [tensor.detach().clone() for model in run.models for tensor in model.state_dict().values()]


def is_explained(name: str, kind: str, row: str) -> bool:
    return any(kind == of and re.fullmatch(pattern, row) for of, pattern in EXPLAINED.get(name, []))


def near(found: "dict[str, Any]", tensor: torch.Tensor) -> bool:
    """True if the row has the tensor's values, up to rounding in another order of summation."""
    x = tensor.detach().double().flatten()
    scale = max(x.abs().max().item(), 1e-30)
    wanted = jobs.expected(tensor)
    close = {
        op: math.isclose(found[op], wanted[op], rel_tol=1e-4, abs_tol=1e-5 * scale)
        for op in ("min", "max", "mean", "absmax")
    }
    close["norm"] = math.isclose(found["norm"], wanted["norm"], rel_tol=1e-4, abs_tol=1e-12)
    # Rounding decides whether a value near 0 counts as 0.
    close["zeros"] = abs(found["zeros"] - wanted["zeros"]) <= 0.2
    return all(close.values()) and found["nans"] == wanted["nans"]


def read_columns(output: Path, kind: str, columns: "list[str]") -> "dict[Any, dict[str, float]]":
    found = {}
    for path in output.glob(f"*/{kind}_[0-9]*.csv"):
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                name = row["name"] if row["vpp_stage"] == "0" else f"{row['vpp_stage']}:{row['name']}"
                found[name, int(row["step"]), 0] = {column: float(row[column]) for column in columns}
    return found


@pytest.mark.parametrize("name", oracle_loops.LOOPS)
def test_rows_are_what_plain_torch_has(name: str, tmp_path: Path) -> None:
    global _compared
    recorder = Recorder()
    train(name, recorder, True)
    bare = train(name, twice.NoMonitor(), False)
    monitor = jobs.monitor(tmp_path, **CONFIG)
    watched = train(name, monitor, False)
    assert len(bare) == len(watched) and all(torch.equal(*pair) for pair in zip(bare, watched))
    differences = []
    for kind in KINDS:
        found = twice.read(tmp_path / "out", kind)
        wanted = {
            key: value
            for key, value in recorder.tensors[kind].items()
            if not is_explained(name, kind, key[0])
        }
        differences += [f"{kind} {key}: not there" for key in wanted.keys() - found.keys()]
        differences += [f"{kind} {key}: ought not to be there" for key in found.keys() - wanted.keys()]
        for key in wanted.keys() & found.keys():
            _compared += len(jobs.OPS)
            if not near(found[key], wanted[key]):
                differences.append(f"{kind} {key}: {found[key]}, plain torch {jobs.expected(wanted[key])}")
    for kind, columns in FEATURES.items():
        found = read_columns(tmp_path / "out", kind, columns)
        _compared += len(columns) * len(found)
        expected = {k: v for k, v in recorder.features[kind].items() if not is_explained(name, kind, k[0])}
        found = {k: v for k, v in found.items() if not is_explained(name, kind, k[0])}
        differences += [f"{kind} {key}: not there" for key in expected.keys() - found.keys()]
        differences += [f"{kind} {key}: ought not to be there" for key in found.keys() - expected.keys()]
        differences += [
            f"{kind} {key}: {found[key]}, plain torch {expected[key]}"
            for key in expected.keys() & found.keys()
            if found[key] != pytest.approx(expected[key], rel=1e-5)
        ]
    assert not differences, "\n".join(sorted(differences)[:40])


def test_as_many_values_were_compared_as_are_known() -> None:
    """A loop or a kind that is no longer compared must not go unnoticed."""
    assert len(oracle_loops.LOOPS) >= 40
    assert _compared >= 50_800
