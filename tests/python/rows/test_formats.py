# SPDX-License-Identifier: Apache-2.0
"""One run in all formats: each holds the same numbers, to the last digit that it carries."""
import math
import sqlite3
import struct
from pathlib import Path

import gradmon
import jobs
import torch

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError:  # Debian has none
    EventAccumulator = None

DIGITS = 17
KINDS = {"grad_reduced": "post_grad", "param_updated": "param_updated"}


def as_float32(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])


def same(left: float, right: float) -> bool:
    """Alike but for what rounding to DIGITS decimals takes."""
    both_nan = math.isnan(left) and math.isnan(right)
    return both_nan or math.isclose(left, right, rel_tol=1e-15, abs_tol=10.0**-DIGITS)


def of_database(output: Path, kind: str) -> "dict[tuple[str, int, str], float]":
    """{(name, step, op): value} of the database. A NaN is NULL in a row of v_metrics."""
    (path,) = output.glob("*/monitor_metrics.db")
    with sqlite3.connect(path) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        rows = database.execute("SELECT target, step, op, value FROM v_metrics WHERE metric = ?", (kind,))
        return {row[:3]: math.nan if row[3] is None else row[3] for row in rows}


def of_event_files(output: Path, task: str) -> "dict[tuple[str, int, str], float]":
    (directory,) = output.glob("*/tensorboard")
    events = EventAccumulator(str(directory), size_guidance={"scalars": 0}).Reload()
    found = {}
    for tag in events.Tags()["scalars"]:
        name, _, rest = tag.partition("/rank0/")
        if rest.rpartition("_")[0] == task:
            for event in events.Scalars(tag):
                found[name.removeprefix("0:"), event.step, rest.rpartition("_")[2]] = event.value
    return found


def test_each_format_holds_the_numbers_of_the_others(tmp_path: Path) -> None:
    model = jobs.make_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    config = jobs.write_config(
        tmp_path,
        wg_distribution=True,
        param_distribution=True,
        ndigits=DIGITS,
        format=["csv", "tensorboard", "sqlite", "api"],
    )
    out = tmp_path / "out"
    monitor = gradmon.Monitor(config, output_dir=out, dynamic=False)
    with monitor.watch(model, optimizer):
        for step in range(4):
            optimizer.zero_grad()
            (model(jobs.batch(step)) * (math.nan if step == 3 else 1.0)).pow(2).mean().backward()
            optimizer.step()
    for kind, task in KINDS.items():
        csv = {
            (name, step, op): value
            for (name, step, _), ops in jobs.rows(out, kind).items()
            for op, value in ops.items()
        }
        assert {step for _, step, _ in csv} == {0, 1, 2, 3}
        assert any(math.isnan(value) for value in csv.values()) or kind != "grad_reduced"
        database = of_database(out, kind)
        assert database.keys() == csv.keys()
        assert all(same(database[key], csv[key]) for key in csv)
        if EventAccumulator is not None:
            events = of_event_files(out, task)
            assert events.keys() == csv.keys()
            assert all(same(events[key], as_float32(database[key])) for key in csv)
