# SPDX-License-Identifier: Apache-2.0
"""append_output: a job goes on in the output of an earlier one, and its number of samples goes on."""
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
from typing import Any

import gradmon
import jobs
import pytest
import ranks
from scale import if_full
from training import gradmonctl


BIN = Path(os.environ["GRADMON_BIN"])
ALL = ["Jan01_00-00-00", "Dec31_23-59-59"]

TRAINING = """
import sys
sys.path[:0] = [PATHS]
import gradmon, jobs, torch
model, optimizer = jobs.with_sgd(jobs.make_net(), lr=0.01)
monitor = gradmon.Monitor(sys.argv[1], output_dir=sys.argv[2], dynamic=False)
with monitor.watch(model, optimizer):
    jobs.train(model, optimizer, 1 << 30)
"""

OF_TWO_RANKS = """
model, optimizer = jobs.with_sgd(jobs.make_net(), lr=0.01)
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
    model, optimizer = jobs.with_sgd(jobs.make_net(), lr=0.01)
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


@pytest.mark.parametrize("form, steps_a_file", [if_full("csv", 1), ("csv", 1000), ("sqlite", 1)])
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


def test_a_rank_without_a_directory_has_a_new_one(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    config = jobs.write_config(tmp_path, wg_distribution=True, append_output=ALL)
    train(config, tmp_path / "out", 0, 2)
    assert "append_output: no directory of rank 0" in capfd.readouterr().err
    assert len(list((tmp_path / "out").glob("*-rank0-*/grad_reduced_0-999.csv"))) == 1


@pytest.mark.parametrize("lost", [if_full(False), True])
def test_query_sees_all_ranks_of_a_restarted_job_as_one_run(lost: bool, tmp_path: Path) -> None:
    """`lost`: rank 1 restarts on a host that has not its directory."""
    output = tmp_path / "out"
    keys = {"wg_distribution": True, "format": "sqlite"}
    config = jobs.write_config(tmp_path, **keys)
    ranks.run(tmp_path, ranks.GLOO + OF_TWO_RANKS, config=str(config), out=str(output), first=0)
    if lost:
        (directory,) = output.glob("*-rank1-*")
        shutil.rmtree(directory)
    config = jobs.write_config(tmp_path, append_output=ALL, **keys)
    ranks.run(tmp_path, ranks.GLOO + OF_TWO_RANKS, config=str(config), out=str(output), first=3)
    assert len(list(output.glob("*-rank?-*"))) == 2
    sql = "SELECT rank, count(*) AS n, min(step) AS a, max(step) AS b FROM v_metrics GROUP BY 1 ORDER BY 1"
    done = gradmonctl("query", sql, output, "--format", "json", check=True)
    first = 3 if lost else 0
    rows_a_step = 2 * 4 * len(gradmon.load(output)["op"].unique())
    assert [list(row.values()) for row in json.loads(done.stdout)] == [
        [0, 7 * rows_a_step, 0, 6],
        [1, (7 - first) * rows_a_step, first, 6],
    ]
    assert done.stderr == ""


FORMS = ["csv", "sqlite", "tensorboard"]
BATCH = 32


def train_samples(place: Path, first: int, last: int, **keys: Any) -> Path:
    """Trains the steps from `first` up to, not including, `last`, and reports the samples of each."""
    scalars = {"loss": ["records", "log"], "throughput_linearity": "records"}
    model, optimizer = jobs.with_sgd(jobs.make_net(), lr=0.01)
    monitor = jobs.monitor(place, format=FORMS, scalars=scalars, throughput_baseline=1.0, **keys)
    with monitor.watch(model, optimizer, start_iteration=first):
        for step in range(first, last):
            loss = model(jobs.batch(step)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            monitor.scalar("loss", loss)
            monitor.samples(BATCH)
            optimizer.step()
        monitor.stop()
        assert (monitor.status().ranks[0].dropped, monitor.status().ranks[0].error) == (0, "")
    return place / "out"


def samples(out: Path, form: str) -> "dict[int, float]":
    table = gradmon.load(out, form=form, kind="scalar", names="loss", ranks=0)
    table = table[table["op"] == "samples"]
    return dict(zip(table["step"], table["value"]))


@pytest.mark.parametrize("first", [3, 6])
def test_a_resumed_job_counts_on_in_every_format(
    first: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """From a checkpoint at step `first`; the earlier job ended after step 5."""
    train_samples(tmp_path, 0, 6)
    out = train_samples(tmp_path, first, 9, append_output=ALL)
    for form in FORMS:
        assert samples(out, form) == {step: BATCH * (step + 1) for step in range(9)}, form
    assert len(list(out.glob("*-rank0-*"))) == 1
    assert f"step 8, {9 * BATCH} samples: loss" in capfd.readouterr().err


def test_rows_have_no_number_while_the_earlier_one_cannot_be_read(tmp_path: Path) -> None:
    out = train_samples(tmp_path, 0, 6)
    (file,) = out.glob("*-rank0-*/scalar_*.csv")
    keys = {"append_output": ALL, "format": ["csv"], "scalars": {"loss": "records"}}
    file.with_name("scalar_5000-5000.csv").mkdir()
    model, optimizer = jobs.with_sgd(jobs.make_net(), lr=0.01)
    monitor = jobs.monitor(tmp_path, {"output_dir": out}, **keys)
    with monitor.watch(model, optimizer, start_iteration=6):
        monitor.scalar("loss", 1.0)
        monitor.samples(BATCH)
        jobs.train(model, optimizer, 1)
        assert jobs.eventually(lambda: "samples" in "".join(monitor.status().warnings))
        warnings = monitor.status().warnings
        monitor.stop()
    assert any("scalar_5000-5000.csv is not a regular file" in warning for warning in warnings)
    file.with_name("scalar_5000-5000.csv").rmdir()
    assert samples(out, "csv") == {step: BATCH * (step + 1) for step in range(6)}
    assert list(gradmon.load(out, form="csv", kind="scalar", steps=6)["op"]) == ["value"]


def test_tensorboards_data_server_shows_all_points(tmp_path: Path) -> None:
    """A point whose step is not above the last one of its tag makes it remove later points of the tag."""
    ingester = pytest.importorskip("tensorboard.data.server_ingester")
    from tensorboard import context
    from tensorboard.util import grpc_util

    train_samples(tmp_path, 0, 6)
    out = train_samples(tmp_path, 6, 9, append_output=ALL)
    server = ingester.SubprocessServerDataIngester(
        ingester.get_server_binary(),
        str(out),
        reload_interval=0,
        channel_creds_type=grpc_util.ChannelCredsType.LOCAL,
    )
    server.start()

    def steps() -> "dict[str, list[int]]":
        found = server.data_provider.read_scalars(
            context.RequestContext(), experiment_id="", plugin_name="scalars", downsample=1000
        )
        return {
            tag: [point.step for point in points] for tags in found.values() for tag, points in tags.items()
        }

    try:
        assert jobs.eventually(lambda: steps().get("loss") == list(range(9)))
        assert steps()["loss-vs-samples"] == [BATCH * (step + 1) for step in range(9)]
    finally:
        server._stdin_handle.close()  # ends the server
