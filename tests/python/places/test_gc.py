# SPDX-License-Identifier: Apache-2.0
"""gradmonctl gc: what it removes from output directories, and what it leaves."""
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Callable

import gradmon
import jobs
import pytest
import torch
from training import gradmonctl

DAY = 86_400
RUN = "0a1b2c3d"


def gc(out: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    return gradmonctl("gc", str(out), *options)


def wait_for_the_end_of_the_job(out: Path) -> None:
    assert jobs.eventually(
        lambda: gradmonctl("status", "--output-dir", str(out)).returncode == 4
        and not list(out.glob(".gradmon/jobs/*.json"))
    )


def age(path: Path, days: float) -> None:
    """Sets the times of the file, or of the directory and all that it holds."""
    when = time.time() - days * DAY
    for one in [*path.rglob("*"), path]:
        os.utime(one, (when, when), follow_symlinks=False)


def make_run(out: Path, days: float, run: str = RUN, rank: int = 0) -> Path:
    made = out / f"Oct01_12-00-00-rank{rank}-{run}"
    made.mkdir(parents=True)
    (made / "grad_reduced_0-99.csv").write_text("name\n" * 300_000)
    (made / "scopes.json").write_text("{}")
    (out / f"run-{run}.json").write_text("{}")
    age(made, days)
    age(out / f"run-{run}.json", days)
    return made


def left(out: Path) -> "list[str]":
    return sorted(path.name for path in out.iterdir())


def write_everything(out: Path, directory: Path, format_: str) -> None:
    """A job that writes each file that gradmon writes in this format."""
    config = jobs.write_config(
        directory,
        dynamic_on=True,
        format=format_,
        keep_last=3,
        stack_info=True,
        scalars={"loss": "records"},
        alert={"rules": [{"rule_name": "AnomalyNan", "args": {"threshold": 1e-30}}], "dump": True},
        **jobs.EVERYTHING,
    )
    model = jobs.make_net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    with gradmon.Monitor(config, output_dir=out, dynamic=True) as monitor:
        monitor.watch(model, optimizer)
        jobs.train(model, optimizer, 6, lambda step: monitor.scalar("loss", float(step)))
    wait_for_the_end_of_the_job(out)


def test_all_output_of_an_old_job_is_removed_and_a_dry_run_lists_it(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for format_ in ("csv", "tensorboard", "sqlite"):
        write_everything(out, tmp_path, format_)
    (out / "module_struct/rank0").mkdir(parents=True)
    (out / "module_struct/rank0/module_struct.json").touch()
    written = {path.name for path in out.rglob("*")}
    assert written > set(
        "anomaly.json flight switches.jsonl scopes.json stack_info.csv history.jsonl".split()
    )
    age(out, 29)
    assert gc(out, "--older-than", "30d", "--dry-run").stdout == f"would be removed from {out}: 0 KiB\n"
    age(out, 31)
    before = sorted(out.rglob("*"))
    dry = gc(out, "--older-than", "30d", "--dry-run")
    assert (dry.returncode, dry.stderr) == (0, "")
    assert sorted(out.rglob("*")) == before
    done = gc(out, "--older-than", "720h")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.replace("removed from", "would be removed from") == dry.stdout
    assert left(out) == [".gradmon"]
    assert left(out / ".gradmon") == ["jobs"]


def test_a_run_is_as_old_as_its_newest_change_on_any_rank(tmp_path: Path) -> None:
    make_run(tmp_path, 50, rank=0)
    young = make_run(tmp_path, 3, rank=1)
    old = make_run(tmp_path, 40, run="ffffffff")
    done = gc(tmp_path, "--older-than", "30d")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["KiB", "newest", "change", "path"]
    assert lines[1].endswith(old.name) and lines[1].strip().startswith("1464 ")
    assert lines[-1] == f"removed from {tmp_path}: 1464 KiB"
    assert len(left(tmp_path)) == 3 and young.exists()


def test_output_that_a_live_job_may_have_written_stays(tmp_path: Path) -> None:
    during = make_run(tmp_path, 35, run="11111111")
    make_run(tmp_path, 50, run="22222222")
    entry = tmp_path / ".gradmon/jobs/live.json"
    entry.parent.mkdir(parents=True)
    began = int((time.time() - 40 * DAY) * 1000)
    entry.write_text(json.dumps({"endpoint": "ipc:///nowhere", "launch_id": "live", "started": began}))
    done = gc(tmp_path, "--older-than", "30d")
    assert done.returncode == 0
    assert done.stderr == f"gradmonctl: {tmp_path}: kept what has changed since job live began: it is live\n"
    assert left(tmp_path) == [".gradmon", during.name, "run-11111111.json"]


# A change of a run's directory, and what gc says of it.
CHANGES: "dict[str, tuple[Callable[[Path], object], str]]" = {
    "foreign file": (lambda run: (run / "notes.txt").touch(), "notes.txt: gradmon did not write it"),
    "foreign directory": (lambda run: (run / "plots").mkdir(), "plots: gradmon did not write it"),
    "link to a file": (
        lambda run: (run / "grad_reduced_100-199.csv").symlink_to(run.parent.parent / "elsewhere.csv"),
        "grad_reduced_100-199.csv: not a regular file",
    ),
    "link to a directory": (
        lambda run: (run / "tensorboard").symlink_to(run.parent.parent, target_is_directory=True),
        "tensorboard: not a regular file",
    ),
    "file of another user": (
        lambda run: os.chown(run / "scopes.json", 65_534, 65_534),
        "scopes.json: of uid 65534",
    ),
    "directory of another user": (lambda run: os.chown(run, 65_534, 65_534), "of uid 65534"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_directory_stays_whole_if_it_is_not_gradmons_alone(tmp_path: Path, name: str) -> None:
    change, why = CHANGES[name]
    if "uid" in why and os.geteuid() != 0:
        pytest.skip("only root can give files to another user")
    out = tmp_path / "out"
    run = make_run(out, 50)
    change(run)
    age(run, 50)
    before = sorted(out.rglob("*"))
    (tmp_path / "elsewhere.csv").touch()
    done = gc(out, "--older-than", "1d")
    assert done.returncode == 0
    assert f"{run}: kept: {why}\n" in done.stderr
    assert f"run-{RUN}.json: kept: a directory of its run stays" in done.stderr
    assert sorted(out.rglob("*")) == before
    assert (tmp_path / "elsewhere.csv").exists()


def test_what_gradmon_has_not_made_is_not_looked_at(tmp_path: Path) -> None:
    """msprobe's directories have the same form of name; a link may have any name."""
    for name in ("Oct01_12-00-00-rank0-0a1b2c3d", "checkpoints", "Oct01_12-00-00-rank0-0a1b2c3d-old"):
        (tmp_path / "out" / name).mkdir(parents=True)
        (tmp_path / "out" / name / "grad_reduced_0-99.csv").touch()
    run = make_run(tmp_path / "elsewhere", 50)
    (tmp_path / "out" / run.name.replace("Oct01", "Oct02")).symlink_to(run, target_is_directory=True)
    (tmp_path / "out" / f"run-{RUN}.txt").touch()
    age(tmp_path / "out", 50)
    before = sorted(tmp_path.rglob("*"))
    done = gc(tmp_path / "out", "--older-than", "1d")
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("text", ["30", "d", "0d", "-3d", "30days", "", "1.5d", "999999999999999999999d"])
def test_an_age_that_is_none_is_a_usage_error(tmp_path: Path, text: str) -> None:
    run = make_run(tmp_path, 50)
    done = gc(tmp_path, "--older-than=" + text)
    assert done.returncode == 2
    assert "--older-than" in done.stderr
    assert run.exists()


def test_a_directory_that_is_missing_is_an_error(tmp_path: Path) -> None:
    done = gc(tmp_path / "none", "--older-than", "1d")
    assert done.returncode == 1
    assert done.stderr == f"gradmonctl: {tmp_path}/none: No such file or directory\n"
