# SPDX-License-Identifier: Apache-2.0
"""ColossalAIMonitor's API, on gradmon."""
import csv
import json
import os
from pathlib import Path
from typing import Any

import gradmon
import jobs
import pytest
import torch


def write(tmp_path: Path, **keys: Any) -> Path:
    path = tmp_path / "monitor_config.json"
    path.write_text(json.dumps({"parallel_mode": "dp", "output_dir": str(tmp_path / "out"), **keys}))
    return path


def train(
    model: torch.nn.Module, monitor: gradmon.ColossalAIMonitor, steps: int
) -> "dict[Any, torch.Tensor]":
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gradients = {}
    for step in range(steps):
        optimizer.zero_grad()
        model(jobs.batch(step)).pow(2).mean().backward()
        optimizer.step()
        gradients.update(
            {(step, n): p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
        )
        monitor.step_end(model)
    return gradients


def table(path: Path) -> "list[dict[str, str]]":
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_both_files_hold_the_gradients_of_each_step(tmp_path: Path) -> None:
    model = jobs.make_net()
    monitor = gradmon.ColossalAIMonitor(write(tmp_path))
    monitor.monitor(model)
    gradients = train(model, monitor, 3)
    monitor.stop()
    for name in ("grad_stats_local.csv", "grad_stats_global.csv"):
        path = tmp_path / "out" / name
        assert path.read_text().splitlines()[0] == "step,rank,param_name,norm,mean,max,min"
        rows = table(path)
        assert {(int(row["step"]), row["param_name"]) for row in rows} == gradients.keys()
        assert len(rows) == len(gradients)
        for row in rows:
            wanted = jobs.expected(gradients[int(row["step"]), row["param_name"]])
            assert row["rank"] == "0"
            for op in ("norm", "mean", "max", "min"):
                assert float(row[op]) == pytest.approx(wanted[op], rel=1e-5, abs=1e-9)
    assert sorted(os.listdir(tmp_path / "out")) == ["grad_stats_global.csv", "grad_stats_local.csv"]


def test_what_the_config_leaves_out_is_empty(tmp_path: Path) -> None:
    model = jobs.make_net()
    monitor = gradmon.ColossalAIMonitor(write(tmp_path, front=False, max=False, mean=False))
    monitor.monitor(model)
    train(model, monitor, 1)
    monitor.stop()
    train(model, monitor, 1)
    assert os.listdir(tmp_path / "out") == ["grad_stats_global.csv"]
    rows = table(tmp_path / "out" / "grad_stats_global.csv")
    assert len(rows) == 4
    assert all(row["max"] == row["mean"] == "" and row["min"] and row["norm"] for row in rows)


def test_parameters_have_their_full_names_and_the_rank_is_the_launchers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_PROCID", "1")
    monkeypatch.setenv("SLURM_NTASKS", "2")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    model = torch.nn.Sequential()
    model.add_module("layers", torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4)))
    model.add_module("norm", torch.nn.LayerNorm(4))
    whole = torch.nn.Sequential()
    whole.add_module("model", model)
    monitor = gradmon.ColossalAIMonitor(write(tmp_path))
    monitor.monitor(whole)
    train(whole, monitor, 1)
    monitor.stop()
    rows = table(tmp_path / "out" / "grad_stats_global.csv")
    assert {row["param_name"] for row in rows} == {name for name, _ in whole.named_parameters()}
    assert {row["rank"] for row in rows} == {"1"}


def test_a_step_without_gradients_has_no_rows_and_a_full_disk_ends_nothing(tmp_path: Path) -> None:
    model = jobs.make_net()
    monitor = gradmon.ColossalAIMonitor(write(tmp_path))
    monitor.monitor(model)
    train(model, monitor, 1)
    monitor.step_end(model)
    assert {row["step"] for row in table(tmp_path / "out" / "grad_stats_local.csv")} == {"0"}
    (tmp_path / "out").rename(tmp_path / "away")
    (tmp_path / "out").write_text("in the way")
    train(model, monitor, 1)
    monitor.stop()


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"parallel_mode": "tp"}, 'parallel_mode: found "tp", expected "dp"'),
        ({"max": 1}, "max: found 1, expected true or false"),
        ({"output_dir": 3}, "output_dir: found 3, expected a path"),
    ],
)
def test_a_config_that_cannot_be_followed_is_refused(tmp_path: Path, keys: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        gradmon.ColossalAIMonitor(write(tmp_path, **keys))
    with pytest.raises(ValueError, match="none.json"):
        gradmon.ColossalAIMonitor(tmp_path / "none.json")
