# SPDX-License-Identifier: Apache-2.0
"""csv2tensorboard_by_step(), csv2db() and their modules under as_msprobe."""
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import gradmon
import jobs
import pytest
import torch

SCRIPT = """
from msprobe.pytorch.monitor.csv2tb import csv2tensorboard_by_step
from msprobe.core.monitor.csv2db import CSV2DBConfig, csv2db

csv2tensorboard_by_step(
    monitor_path="~/monitor_output",
    time_start="Dec03_21-34-40",
    time_end="Dec03_21-34-42",
    process_num=8,
    data_type_list=["param_origin"],
)
csv2db(
    CSV2DBConfig(
        monitor_path="~/monitor_output",
        time_start="Dec03_21-34-40",
        time_end="Dec03_21-34-42",
        process_num=8,
        data_type_list=["grad_unreduced", "actv"],
        step_partition=500,
        output_dirpath="~/monitor_output",
    )
)
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A stand-in for gradmonctl on PATH, and a function that returns the arguments of its calls."""
    program, log = tmp_path / "bin" / "gradmonctl", tmp_path / "calls"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\nimport json, os, sys\n"
        f"open({str(log)!r}, 'a').write(json.dumps(sys.argv[1:]) + '\\n')\n"
        "print(os.environ.get('SAY', ''), file=sys.stderr)\nsys.exit(int(os.environ.get('CODE', '0')))\n"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(program.parent) + os.pathsep + os.environ["PATH"])
    monkeypatch.setattr("gradmon.converting.__file__", str(tmp_path / "nowhere" / "converting.py"))
    return lambda: [json.loads(line) for line in log.read_text().splitlines()]


def as_msprobe(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "gradmon.as_msprobe", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_arguments_are_passed_on(calls: Any) -> None:
    gradmon.csv2tensorboard_by_step("out")
    gradmon.csv2tensorboard_by_step("~/out", "Dec03_21-34-40", None, 2, ["actv", "other"], "~/curves")
    gradmon.csv2db(gradmon.CSV2DBConfig("out", data_type_list=[], step_partition=1000))
    home = os.path.expanduser("~")
    assert calls() == [
        ["convert", "csv2tb", "--monitor-path", "out", "--process-num", "1", "--tags", "msprobe"],
        ["convert", "csv2tb", "--monitor-path", home + "/out", "--time-start", "Dec03_21-34-40"]
        + ["--process-num", "2", "--data-type-list", "actv,other", "--output-dirpath", home + "/curves"]
        + ["--tags", "msprobe"],
        ["convert", "csv2db", "--monitor-path", "out", "--process-num", "1", "--step-partition", "1000"],
    ]


def test_a_failure_is_an_exception_that_says_what_the_program_said(
    calls: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SAY", "3 rows left out")
    gradmon.csv2tensorboard_by_step("out")
    assert "3 rows left out" in capfd.readouterr().err
    monkeypatch.setenv("CODE", "2")
    with pytest.raises(ValueError, match="^3 rows left out$"):
        gradmon.csv2tensorboard_by_step("out")
    monkeypatch.setenv("CODE", "1")
    monkeypatch.setenv("SAY", "")
    with pytest.raises(RuntimeError, match="gradmonctl convert csv2db ended with exit code 1"):
        gradmon.csv2db(gradmon.CSV2DBConfig("out"))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(FileNotFoundError, match="neither .*nowhere/gradmonctl nor on PATH"):
        gradmon.csv2db(gradmon.CSV2DBConfig("out"))


def test_a_script_with_msprobes_converters_runs_unchanged(tmp_path: Path, calls: Any) -> None:
    script = tmp_path / "convert.py"
    script.write_text(SCRIPT)
    done = as_msprobe(str(script), HOME="/home/me")
    assert done.returncode == 0, done.stderr
    span = ["--time-start", "Dec03_21-34-40", "--time-end", "Dec03_21-34-42", "--process-num", "8"]
    assert calls() == [
        ["convert", "csv2tb", "--monitor-path", "/home/me/monitor_output", *span]
        + ["--data-type-list", "param_origin", "--tags", "msprobe"],
        ["convert", "csv2db", "--monitor-path", "/home/me/monitor_output", *span]
        + ["--data-type-list", "grad_unreduced,actv", "--output-dirpath", "/home/me/monitor_output"]
        + ["--step-partition", "500"],
    ]


@pytest.mark.parametrize(
    "module", ["msprobe.core.monitor.anomaly_processor", "msprobe.pytorch.monitor.anomaly_analyse"]
)
def test_the_analyser_of_alerts_is_a_module(module: str, calls: Any) -> None:
    arguments = ["-d", "anomaly_detected", "-k", "3", "-s", "[1, 2]"]
    done = as_msprobe("-m", module, *arguments, CODE="7")
    assert done.returncode == 7, done.stderr
    assert calls() == [["analyse", "anomalies", *arguments]]


def test_another_module_of_msprobe_is_refused() -> None:
    done = as_msprobe("-m", "msprobe.core.monitor.data_writers")
    assert done.returncode == 1
    assert "gradmon does not stand in for msprobe.core.monitor.data_writers, only for" in done.stderr
    assert "usage: python3 -m gradmon.as_msprobe SCRIPT|-m MODULE" in as_msprobe("-m").stderr


def test_what_is_converted_is_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the real program."""
    monkeypatch.setenv("PATH", os.environ["GRADMON_BIN"] + os.pathsep + os.environ["PATH"])
    model = jobs.make_net()
    optimizer = torch.optim.Adam(model.parameters())
    out = tmp_path / "out"
    with jobs.monitor(tmp_path, wg_distribution=True, xy_distribution=True, all_xy=True, ndigits=17).watch(
        model, optimizer
    ):
        jobs.train(model, optimizer, 3)
    gradmon.csv2db(gradmon.CSV2DBConfig(str(out), output_dirpath=str(tmp_path / "db")))
    gradmon.csv2tensorboard_by_step(str(out), output_dirpath=str(tmp_path / "tb"))
    key = ["rank", "step", "kind", "name", "op", "vpp_stage"]
    original = gradmon.load(out).set_index(key).sort_index()
    for directory, tolerance in ((tmp_path / "db", 1e-15), (tmp_path / "tb", 1e-6)):
        converted = gradmon.load(directory).set_index(key).sort_index()
        assert list(converted.index) == list(original.index)
        assert list(converted["value"]) == pytest.approx(list(original["value"]), rel=tolerance, abs=1e-17)
        assert converted["micro_step"].isna().tolist() == original["micro_step"].isna().tolist()
