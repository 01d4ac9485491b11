# SPDX-License-Identifier: Apache-2.0
"""gradmon.ColossalAIMonitor."""
import csv
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import gradmon
import jobs
import pytest
import ranks
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


DATA_PARALLEL = """
model = jobs.make_net()
del model.spare
ddp, optimizer = jobs.with_sgd(torch.nn.parallel.DistributedDataParallel(model))
monitor = gradmon.ColossalAIMonitor(options["config"])
monitor.monitor(ddp)
for step in range(3):
    optimizer.zero_grad()
    ddp(jobs.batch(step + 10 * rank)).pow(2).mean().backward()
    optimizer.step()
    monitor.step_end(ddp)
monitor.stop()
dist.barrier()
"""


def test_ranks_that_share_a_directory_append_to_one_pair_of_files(tmp_path: Path) -> None:
    ranks.run(tmp_path, ranks.GLOO + DATA_PARALLEL, config=str(write(tmp_path)))
    norms = {}
    for name in ("local", "global"):
        path = tmp_path / "out" / f"grad_stats_{name}.csv"
        assert path.read_text().count("step,rank,param_name") == 1
        rows = table(path)
        norms[name] = {(int(row["rank"]), row["step"], row["param_name"]): row["norm"] for row in rows}
        assert len(norms[name]) == len(rows) == 2 * 3 * 4
    for rank, step, parameter in norms["local"]:
        others = (1 - rank, step, parameter)
        assert norms["local"][rank, step, parameter] != norms["local"][others]
        assert norms["global"][rank, step, parameter] == norms["global"][others]


def test_a_second_call_of_monitor_stops_the_first_and_goes_on_counting_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    monitor = gradmon.ColossalAIMonitor(write(tmp_path))
    for _ in range(2):
        model = jobs.make_net()
        monitor.monitor(model)
        assert len(list(scratch.rglob("config.json"))) == 1
        train(model, monitor, 1)
    monitor.stop()
    assert jobs.eventually(lambda: not any(path.is_file() for path in scratch.rglob("*")))
    assert {row["step"] for row in table(tmp_path / "out" / "grad_stats_global.csv")} == {"0", "1"}


def test_columns_that_the_config_leaves_out_are_empty(tmp_path: Path) -> None:
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
    monkeypatch.setenv("SLURM_STEP_ID", "0")
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
