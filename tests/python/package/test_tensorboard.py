# SPDX-License-Identifier: Apache-2.0
"""The real tensorboard package reads gradmon's event files, and those that gradmonctl convert makes."""
import csv
import math
import os
import struct
import subprocess
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


def read_files(directory: Path) -> EventAccumulator:
    return EventAccumulator(str(directory), size_guidance={"scalars": 0, "tensors": 0}).Reload()


def read(directory: Path) -> EventAccumulator:
    return read_files(directory / "tensorboard")


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


def check(found: Points, expected: Points) -> None:
    assert len(expected) > 900
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert found[key] == value or (math.isnan(found[key]) and math.isnan(value)), key


def test_the_scalars_are_the_numbers_in_the_csv_files(tmp_path: Path) -> None:
    write_run(tmp_path)
    found = points_of(read(tmp_path))
    check(found, points_in_csv(tmp_path))
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


@pytest.mark.parametrize("threads", ["1", "4"])
def test_curves_that_csv2tb_makes_are_the_numbers_in_the_csv_files(tmp_path: Path, threads: str) -> None:
    run = tmp_path / "Nov24_12-04-37-rank2-1a2b3c4d"
    run.mkdir()
    write_run(run)
    options = ["--output-dirpath", tmp_path / "curves", "--process-num", threads, "--tags", "gradmon"]
    done = gradmonctl("convert", "csv2tb", "--monitor-path", tmp_path, *options, check=True)
    assert done.stderr == ""
    found: Points = {}
    for kind in (tmp_path / "curves" / "rank2").iterdir():
        found.update(points_of(read_files(kind)))
    check(found, points_in_csv(run))
