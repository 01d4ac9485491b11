# SPDX-License-Identifier: Apache-2.0
"""A spike, and later NaN that lasts: one log line each, and both first in the list, also after the job."""
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import gradmon
import jobs
import pytest
import torch


def train(tmp_path: Path) -> "tuple[Path, int, int, int]":
    """A job that ends: its output directory, the steps of spike, first NaN and end."""
    rules = [{"rule_name": "AnomalySpike", "args": {"threshold": 100}}, {"rule_name": "AnomalyNan"}]
    keys: "dict[str, Any]" = {"scalars": {"loss": "records"}, "keep_last": 8, "wg_distribution": True}
    config = jobs.write_config(
        tmp_path, dynamic_on=True, ops=["norm", "mean"], alert={"rules": rules, "dump": True}, **keys
    )
    model = jobs.make_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    monitor = gradmon.Monitor(config, output_dir=tmp_path / "out", dynamic=True)
    steps = 0

    def train_steps(count: int, factor: float = 1.0) -> None:
        nonlocal steps
        for _ in range(count):
            optimizer.zero_grad()
            loss = model(jobs.batch(0)).pow(2).mean() * factor
            loss.backward()
            monitor.scalar("loss", loss.item())
            optimizer.step()
            steps += 1

    with monitor.watch(model, optimizer):
        assert jobs.eventually(lambda: train_steps(1) or monitor.status().effective_step >= 0)
        began = monitor.status().effective_step
        train_steps(began + 40 - steps)
        spike = steps
        train_steps(1, 1e6)
        train_steps(20)
        nan = steps
        train_steps(100, float("nan"))
        monitor.stop()
    return tmp_path / "out", spike, nan, steps - 1


def gradmonctl(*words: str) -> "subprocess.CompletedProcess[str]":
    command = [os.environ["GRADMON_BIN"] + "/gradmonctl", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_a_spike_and_a_lasting_nan_have_one_line_each_and_are_first_in_the_list_of_the_ended_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv("GRADMON_LOG", "info")
    out, spike, nan, last = train(tmp_path)
    log = [line.partition("gradmon: ")[2] for line in capfd.readouterr().err.splitlines()]
    lines = [line for line in log if " at step " in line and ", rank 0: " in line]
    assert [line.partition(",")[0] for line in lines] == [f"spike at step {spike}", f"NaN at step {nan}"], log
    assert lines[0].startswith(f"spike at step {spike}, rank 0: loss is ") and "(usually " in lines[0]
    assert lines[0].endswith("more series") and lines[1].endswith("more series")
    assert " is nan (usually " in lines[1]
    assert len([line for line in log if line.startswith("flight recorder: steps ")]) == 2, log

    end = time.monotonic() + 30
    ended = gradmonctl("alerts", str(out))
    while "from the job's files" not in ended.stderr and time.monotonic() < end:
        ended = gradmonctl("alerts", str(out))
    assert ended.returncode == 0 and "showing the alerts from the job's files" in ended.stderr, ended
    table = [line.split() for line in ended.stdout.splitlines()]
    assert [row[:2] for row in table[1:3]] == [
        [str(spike), "AnomalySpike"],
        [str(nan), "AnomalyNan"],
    ], ended.stdout
    assert len(table) == 3 and "-nan" not in ended.stdout
    assert table[1][-1] == "loss" and table[2][-1] == "loss"
    of_rank = next(out.glob("*-rank0-*"))
    assert gradmonctl("alerts", str(of_rank)).stdout == ended.stdout
    each = gradmonctl("alerts", str(out), "--all").stdout.splitlines()
    assert len(each) > len(table) and " nan " in each[-1] and "-nan" not in "".join(each)
    listed = json.loads(gradmonctl("alerts", str(out), "--json").stdout)["alerts"]
    assert {alert["step"] for alert in listed} == {spike, nan}

    # The dump is msprobe's: an entry in each step.
    dump = json.loads((out / "anomaly_detected" / "rank0" / "anomaly.json").read_text())
    assert {entry["step"] for entry in dump.values()} == {spike, *range(nan, last + 1)}


def test_alerts_of_a_directory_without_a_job_are_refused_with_what_was_expected(tmp_path: Path) -> None:
    done = gradmonctl("alerts", str(tmp_path))
    assert done.returncode == 4 and done.stdout == ""
    assert f"no job has written in {tmp_path}; expected an output directory of gradmon" in done.stderr


def test_the_list_of_an_earlier_release_is_read(tmp_path: Path) -> None:
    line = {"number": 7, "at": 1783341296789, "rank": 3, "step": 12, "rule": "AnomalyNan", "op": "norm"}
    line.update(
        {"tag_name": "0:fc1.weight/rank3/post_grad", "value": "nan", "history_mean": 0.5, "message": ""}
    )
    jobs_of_out = tmp_path / ".gradmon" / "epoch"
    jobs_of_out.mkdir(parents=True)
    (jobs_of_out / "alerts.jsonl").write_text(json.dumps(line) + "\n")
    done = gradmonctl("alerts", str(tmp_path))
    assert done.returncode == 0, done
    row = done.stdout.splitlines()[1]
    assert row.split() == "12 AnomalyNan 3 1 nan 0.5 fc1.weight: gradient norm".split()
