# SPDX-License-Identifier: Apache-2.0
"""The real tensorboard package and sqlite3 read gradmon's event files, and what gradmonctl convert makes."""
import csv
import math
import os
import sqlite3
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from training import gradmonctl


pytest.importorskip("tensorboard")

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: E402

WRITER = os.path.join(os.environ["GRADMON_BIN"], "tensorboard-sample-run")
NOT_NUMBERS = ("vpp_stage", "name", "step", "micro_step", "shape", "dtype")
Points = dict[tuple[str, int], float]


def write_run(directory: Path, bytes_of_a_file: int = 20000) -> None:
    """Twenty steps of rank 2 under two configs, as event files and as CSV files."""
    subprocess.run([WRITER, str(directory), str(bytes_of_a_file), "csv"], check=True, capture_output=True)


def files_of(directory: Path) -> "list[Path]":
    return sorted((directory / "tensorboard").iterdir())


def read(directory: Path) -> EventAccumulator:
    accumulator = EventAccumulator(str(directory / "tensorboard"), size_guidance={"scalars": 0, "tensors": 0})
    return accumulator.Reload()


def points_of(accumulator: EventAccumulator) -> Points:
    tags = accumulator.Tags()["scalars"]
    return {(tag, point.step): point.value for tag in tags for point in accumulator.Scalars(tag)}


def float32(text: "str | float") -> float:
    number: float = struct.unpack("f", struct.pack("f", float(text)))[0]
    return number


def points_of_row(prefix: str, row: "dict[str, str]") -> Points:
    step = int(row["step"])
    if prefix == "scalar":
        value = float32(row["value"])
        return {(row["name"], step): value, (row["name"] + "-vs-samples", int(row["samples"])): value}
    micro_step = ":micro" + row["micro_step"] if "micro_step" in row else ""
    stage = "" if row["vpp_stage"] == "0" else row["vpp_stage"] + ":"
    return {
        (f"{prefix}_{op}/{stage}{row['name']}{micro_step}", step): float32(row[op])
        for op in row
        if op not in NOT_NUMBERS and row[op]
    }


def points_in_csv(directory: Path) -> Points:
    points: Points = {}
    for path in directory.glob("*.csv"):
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                points.update(points_of_row(path.name.rsplit("_", 1)[0], row))
    return points


def same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


def inspect(directory: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "tensorboard.main", "--inspect", "--logdir", str(directory), *arguments]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_the_scalars_are_the_numbers_in_the_csv_files(tmp_path: Path) -> None:
    write_run(tmp_path)
    expected, found = points_in_csv(tmp_path), points_of(read(tmp_path))
    assert len(expected) > 900
    assert found.keys() == expected.keys()
    assert [key for key in found if not same(found[key], expected[key])] == []
    assert any(math.isnan(value) for value in found.values())
    assert any(math.isinf(value) for value in found.values())


def test_every_rotated_file_is_read(tmp_path: Path) -> None:
    write_run(tmp_path / "large", 1 << 26)
    write_run(tmp_path / "small", 4000)
    assert len(files_of(tmp_path / "large")) == 2  # one for each config
    assert len(files_of(tmp_path / "small")) == 20
    large, small = points_of(read(tmp_path / "large")), points_of(read(tmp_path / "small"))
    assert list(map(repr, small.items())) == list(map(repr, large.items()))


def test_the_config_of_each_revision_is_a_text(tmp_path: Path) -> None:
    write_run(tmp_path)
    accumulator = read(tmp_path)
    assert accumulator.Tags()["tensors"] == ["config"]
    assert accumulator.SummaryMetadata("config").plugin_data.plugin_name == "text"
    texts = accumulator.Tensors("config")
    assert [text.step for text in texts] == [0, 10]
    assert texts[1].tensor_proto.string_val[0].decode() == (
        'Revision 2\n\n    {"ops": ["norm", "mean", "nans"], "monitor_mbs_grad": true}\n'
    )


def test_inspect_lists_the_tags_and_all_steps(tmp_path: Path) -> None:
    write_run(tmp_path, 4000)
    text = inspect(tmp_path)
    for tag in ("actv_norm/fc1.input:micro1", "param_origin_max/1:fc1.weight", "loss-vs-samples"):
        assert f"   {tag}\n" in text
    # It reads a directory's files in no order, so first_step and last_step mean nothing.
    loss = dict(
        line.split()[:2] for line in inspect(tmp_path, "--tag", "loss").splitlines() if "_step" in line
    )
    assert (loss["min_step"], loss["max_step"], loss["num_steps"]) == ("0", "19", "20")


def test_a_file_that_was_cut_is_read_to_its_last_whole_record(tmp_path: Path) -> None:
    write_run(tmp_path, 1 << 26)
    whole = points_of(read(tmp_path))
    last = files_of(tmp_path)[-1]
    data = last.read_bytes()
    for bytes_missing in (1, 4, 5, 40):
        last.write_bytes(data[:-bytes_missing])
        cut = points_of(read(tmp_path))
        assert whole.keys() - cut.keys() == {("loss-vs-samples", 5120)}


def test_a_restarted_run_goes_on_behind_a_file_that_was_cut(tmp_path: Path) -> None:
    write_run(tmp_path, 1 << 26)
    before = files_of(tmp_path)
    before[-1].write_bytes(before[-1].read_bytes()[:-3])
    write_run(tmp_path, 1 << 26)
    assert files_of(tmp_path)[:2] == before and len(files_of(tmp_path)) == 4
    losses = [point.step for point in read(tmp_path).Scalars("loss")]
    assert losses == [*range(20), *range(20)]


def test_an_empty_file_and_a_partial_head_are_passed_over(tmp_path: Path) -> None:
    write_run(tmp_path, 1 << 26)
    whole = points_of(read(tmp_path))
    head = files_of(tmp_path)[0].read_bytes()[:20]
    (tmp_path / "tensorboard" / "events.out.tfevents.1000000000.host.1").touch()
    (tmp_path / "tensorboard" / "events.out.tfevents.1000000001.host.1").write_bytes(head)
    assert list(map(repr, points_of(read(tmp_path)).items())) == list(map(repr, whole.items()))


# --- gradmonctl convert ---


BIN = Path(os.environ["GRADMON_BIN"])
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


def convert(command: str, output: Path, to: Path, *options: str) -> str:
    places = ["--monitor-path", output, "--output-dirpath", to]
    done = gradmonctl("convert", command, *places, *options, check=True)
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
    gradmonctl("convert", "merge", tmp_path / "output", "-o", tmp_path / "job.db", check=True)
    query = ["--metric", "actv", "--op", "nans", "--rank", "7", "--format", "csv"]
    for place in (tmp_path / "db", tmp_path / "job.db"):
        done = gradmonctl("query", *query, place, check=True)
        rows = list(csv.DictReader(done.stdout.splitlines()))
        assert [(row["target"], row["value"]) for row in rows] == [
            ("fc1.input", "0.0"),
            ("odd, name", "40.0"),
        ]
