# SPDX-License-Identifier: Apache-2.0
"""gradmonctl convert: the real tensorboard package and sqlite3 read the numbers of the CSV files."""
import csv
import math
import os
import sqlite3
import struct
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("tensorboard")

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: E402

BIN = Path(os.environ["GRADMON_BIN"])
NOT_NUMBERS = ("vpp_stage", "name", "step", "micro_step", "shape", "dtype")
# {(kind, name, vpp_stage, micro_step or None, step, op): value}
Values = dict[tuple[str, str, str, "str | None", int, str], float]
MSPROBE = """vpp_stage,name,step,micro_step,norm,min,max,mean,nans,zeros,shape,dtype
0,fc1.input,1,0,6.653186,-2.491939,1.724086,0.034626,0,0.0,"[5, 8]",torch.float32
0,fc1.output,1,0,nan,nan,nan,nan,nan,nan,nan,nan
0,"odd, name",1,0,nan,nan,nan,nan,40,0.0,"[5, 8]",torch.float32
"""


def write_job(output: Path) -> None:
    """Twenty steps of rank 2 under two configs, in all kinds; and what msprobe writes of rank 7."""
    run = output / "Nov24_12-04-37-rank2-1a2b3c4d"
    run.mkdir(parents=True)
    subprocess.run([BIN / "tensorboard-sample-run", run, "20000", "csv"], check=True, capture_output=True)
    other = output / "Nov24_12-04-38-rank7-0c0ffee0"
    other.mkdir()
    (other / "actv_0-99.csv").write_text(MSPROBE)


def values_in_csv(output: Path, rank: int) -> Values:
    values: Values = {}
    for path in output.glob(f"*-rank{rank}-*/*.csv"):
        kind = path.name.rpartition("_")[0]
        with open(path, newline="") as file:
            for row in csv.DictReader(file):
                if row.get("shape") == "nan":  # msprobe's row of an input without a gradient
                    continue
                key = (kind, row["name"], row.get("vpp_stage", "0"), row.get("micro_step"), int(row["step"]))
                for op in row:
                    if op not in NOT_NUMBERS and row[op]:
                        values[key + (op,)] = float(row[op])
    return values


def float32(value: float) -> float:
    number: float = struct.unpack("f", struct.pack("f", value))[0]
    return number


def same(left: float, right: float) -> bool:
    return left == right or (math.isnan(left) and math.isnan(right))


def convert(command: str, output: Path, to: Path, *options: str) -> str:
    words = [
        BIN / "gradmonctl",
        "convert",
        command,
        "--monitor-path",
        output,
        "--output-dirpath",
        to,
        *options,
    ]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    assert done.stderr == ""
    return done.stdout


def curves_in(directory: Path) -> "dict[tuple[str, int], float]":
    events = EventAccumulator(str(directory), size_guidance={"scalars": 0}).Reload()
    tags = events.Tags()["scalars"]
    return {(tag, point.step): point.value for tag in tags for point in events.Scalars(tag)}


@pytest.mark.parametrize("threads, tags", [("1", "msprobe"), ("4", "gradmon")])
def test_tensorboard_shows_the_numbers_of_the_csv_files(tmp_path: Path, threads: str, tags: str) -> None:
    write_job(tmp_path / "output")
    convert("csv2tb", tmp_path / "output", tmp_path / "curves", "--process-num", threads, "--tags", tags)
    assert sorted(path.name for path in (tmp_path / "curves").iterdir()) == ["rank2", "rank7"]
    for rank in (2, 7):
        expected: "dict[str, dict[tuple[str, int], float]]" = {}
        values = values_in_csv(tmp_path / "output", rank)
        for (kind, name, vpp, micro_step, step, op), value in values.items():
            micro = "" if micro_step is None else f":micro{micro_step}"
            key = f"vp{vpp}:{name}{micro}/{op}", step
            if tags == "gradmon":
                stage = "" if vpp == "0" else f"{vpp}:"
                key = f"{kind}_{op}/{stage}{name}{micro}", step
                if kind == "scalar":
                    key = (name, step) if op == "value" else (name + "-vs-samples", int(value))
                    value = values[kind, name, vpp, micro_step, step, "value"]
            expected.setdefault(kind, {})[key] = float32(value)
        assert sorted(path.name for path in (tmp_path / f"curves/rank{rank}").iterdir()) == sorted(expected)
        for kind, points in expected.items():
            found = curves_in(tmp_path / f"curves/rank{rank}" / kind)
            assert sorted(found) == sorted(points)
            assert all(same(found[key], points[key]) for key in points), kind


def test_a_database_has_the_numbers_of_the_csv_files(tmp_path: Path) -> None:
    write_job(tmp_path / "output")
    convert("csv2db", tmp_path / "output", tmp_path / "db", "--step-partition", "10")
    with sqlite3.connect(tmp_path / "db/monitor_metrics.db") as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        for rank in (2, 7):
            rows = database.execute(
                "SELECT metric, target, vpp_stage, micro_step, step, op, value FROM v_metrics WHERE rank = ?",
                (rank,),
            )
            found = {row[:6]: math.nan if row[6] is None else row[6] for row in rows}
            expected = {
                (kind, name, int(vpp), int(micro_step or 0), step, op): value
                for (kind, name, vpp, micro_step, step, op), value in values_in_csv(
                    tmp_path / "output", rank
                ).items()
            }
            assert sorted(found) == sorted(expected)
            assert all(same(found[key], expected[key]) for key in expected)


def test_query_reads_what_csv2db_and_merge_have_made(tmp_path: Path) -> None:
    write_job(tmp_path / "output")
    convert("csv2db", tmp_path / "output", tmp_path / "db")
    subprocess.run(
        [BIN / "gradmonctl", "convert", "merge", tmp_path / "output", "-o", tmp_path / "job.db"], check=True
    )
    query = ["--metric", "actv", "--op", "nans", "--rank", "7", "--format", "csv"]
    for place in (tmp_path / "db", tmp_path / "job.db"):
        done = subprocess.run(
            [BIN / "gradmonctl", "query", *query, place], check=True, capture_output=True, text=True
        )
        rows = list(csv.DictReader(done.stdout.splitlines()))
        assert [(row["target"], row["value"]) for row in rows] == [
            ("fc1.input", "0.0"),
            ("odd, name", "40.0"),
        ]
