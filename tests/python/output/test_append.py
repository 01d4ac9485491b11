# SPDX-License-Identifier: Apache-2.0
"""append_output: a restarted job goes on in the directory of the killed one."""
import contextlib
import csv
import io
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import gradmon
import jobs
import pytest
import ranks
import torch

BIN = Path(os.environ["GRADMON_BIN"])
ALL = ["Jan01_00-00-00", "Dec31_23-59-59"]

TRAINING = """
import sys
sys.path[:0] = [PATHS]
import gradmon, jobs, torch
model = jobs.make_net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
monitor = gradmon.Monitor(sys.argv[1], output_dir=sys.argv[2], dynamic=False)
with monitor.watch(model, optimizer):
    jobs.train(model, optimizer, 1 << 30)
"""

OF_TWO_RANKS = """
import json, sys, torch, torch.distributed as dist, gradmon, jobs
options = json.loads(sys.argv[1])
dist.init_process_group("gloo")
model = jobs.make_net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
monitor = gradmon.Monitor(options["config"], output_dir=options["out"], dynamic=False)
with monitor.watch(model, optimizer, start_iteration=options["first"]):
    jobs.reach_the_hub(monitor)  # both directories are of one run
    jobs.train(model, optimizer, 4)
    monitor.stop()
dist.barrier()
"""


def rows_in(output: Path, form: str) -> "list[tuple[str, str, int]]":
    """Kind, name and step of each row on disk."""
    found: "list[tuple[str, str, int]]" = []
    for path in output.glob("*-rank0-*/grad_*.csv"):
        kind = path.name[: path.name.rindex("_")]
        text = path.read_text()
        whole = io.StringIO(text[: text.rfind("\n") + 1])  # without a row that is being written, or torn
        found += [(kind, row["name"], int(row["step"])) for row in csv.DictReader(whole)]
    for path in output.glob("*-rank0-*/monitor_metrics.db"):
        with contextlib.closing(sqlite3.connect(path)) as database:
            with contextlib.suppress(sqlite3.OperationalError):  # no row so far
                found += database.execute("SELECT metric, target, step FROM v_metrics WHERE op = 'norm'")
    return found


def train(config: Path, output: Path, first: int, last: int) -> None:
    """Trains the steps from `first` up to, not including, `last`."""
    model = jobs.make_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    monitor = gradmon.Monitor(config, output_dir=output, dynamic=False)
    with monitor.watch(model, optimizer, start_iteration=first):
        jobs.train(model, optimizer, last - first)
        monitor.stop()
        assert (monitor.status().ranks[0].dropped, monitor.status().ranks[0].error) == (0, "")


def train_and_be_killed(config: Path, output: Path, form: str, tmp_path: Path) -> None:
    """Trains from step 0 in another process, which is killed once rows of step 12 are on disk."""
    script = tmp_path / "training.py"
    script.write_text(TRAINING.replace("PATHS", ", ".join(repr(path) for path in sys.path)))
    with subprocess.Popen([sys.executable, "-B", str(script), str(config), str(output)]) as process:
        trained = jobs.eventually(lambda: any(step >= 12 for _, _, step in rows_in(output, form)))
        process.send_signal(signal.SIGKILL)
    assert trained and process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("form, steps_a_file", [("csv", 1), ("csv", 1000), ("sqlite", 1)])
def test_a_killed_job_goes_on_in_its_directory(form: str, steps_a_file: int, tmp_path: Path) -> None:
    output = tmp_path / "out"
    keys = {"wg_distribution": True, "format": form, "step_count_per_record": steps_a_file}
    first = jobs.write_config(tmp_path, **keys)
    train_and_be_killed(first, output, form, tmp_path)
    (directory,) = output.glob("*-rank0-*")
    last = max(step for _, _, step in rows_in(output, form))
    resumed = jobs.write_config(tmp_path, append_output=ALL, **keys)
    train(resumed, output, 10, last + 5)
    assert list(output.glob("*-rank0-*")) == [directory]
    found = rows_in(output, form)
    assert len(found) == len(set(found)), "a row is there twice"
    names = {(kind, name) for kind, name, _ in found}
    assert len(names) == 8
    assert set(found) == {(kind, name, step) for kind, name in names for step in range(last + 5)}


def test_a_rank_without_a_directory_has_a_fresh_one_and_a_warning(
    tmp_path: Path, capfd: "pytest.CaptureFixture[str]"
) -> None:
    config = jobs.write_config(tmp_path, wg_distribution=True, append_output=ALL)
    train(config, tmp_path / "out", 0, 2)
    assert "append_output: no directory of rank 0" in capfd.readouterr().err
    assert len(list((tmp_path / "out").glob("*-rank0-*/grad_reduced_0-999.csv"))) == 1


@pytest.mark.parametrize("lost", [False, True])
def test_query_sees_all_ranks_of_a_restarted_job_as_one_run(lost: bool, tmp_path: Path) -> None:
    """`lost`: rank 1 restarts on a host that has not its directory."""
    output = tmp_path / "out"
    keys = {"wg_distribution": True, "format": "sqlite"}
    config = jobs.write_config(tmp_path, **keys)
    ranks.run(tmp_path, OF_TWO_RANKS, config=str(config), out=str(output), first=0)
    if lost:
        (directory,) = output.glob("*-rank1-*")
        shutil.rmtree(directory)
    config = jobs.write_config(tmp_path, append_output=ALL, **keys)
    ranks.run(tmp_path, OF_TWO_RANKS, config=str(config), out=str(output), first=3)
    assert len(list(output.glob("*-rank?-*"))) == 2
    sql = "SELECT rank, count(*) AS n, min(step) AS a, max(step) AS b FROM v_metrics GROUP BY 1 ORDER BY 1"
    command = [BIN / "gradmonctl", "query", sql, output, "--format", "json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    first = 3 if lost else 0
    rows_a_step = 2 * 4 * len(gradmon.load(output)["op"].unique())
    assert [list(row.values()) for row in json.loads(done.stdout)] == [
        [0, 7 * rows_a_step, 0, 6],
        [1, (7 - first) * rows_a_step, first, 6],
    ]
    assert done.stderr == ""


def test_tensorboard_goes_on_in_a_new_file(tmp_path: Path) -> None:
    keys = {"wg_distribution": True, "format": "tensorboard"}
    train(jobs.write_config(tmp_path, **keys), tmp_path / "out", 0, 6)
    (directory,) = (tmp_path / "out").glob("*-rank0-*")
    train(jobs.write_config(tmp_path, append_output=ALL, **keys), tmp_path / "out", 3, 9)
    assert list((tmp_path / "out").glob("*-rank0-*")) == [directory]
    assert len(list((directory / "tensorboard").glob("events.*"))) == 2
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(directory / "tensorboard"))
    events.Reload()
    series = events.Scalars("grad_reduced_norm/fc1.weight")
    assert [point.step for point in series] == list(range(9))
