# SPDX-License-Identifier: Apache-2.0
"""Rows of tensors that were read in part ("sample"): every reader knows their marks."""
import json
import math
from pathlib import Path

import gradmon_read
import pandas
import pytest
from reading import Commands, write_files

TITLES = "vpp_stage,name,step,norm,mean,sampled,mean_se,norm_se,shape,dtype\n"
PLAIN = "vpp_stage,name,step,norm,mean,shape,dtype\n"
MARKS = {"sampled": 0.0625, "mean_se": 0.25, "norm_se": 1.5}


def write(output: Path, rows: "list[str]", rank: int = 0, titles: str = TITLES) -> Path:
    text = titles + "".join(row + "\n" for row in rows)
    return write_files(output, {f"Nov24_12-04-37-rank{rank}-1a2b3c4d/grad_reduced_0-99.csv": text})


def write_scope(output: Path, rank: int, of_all: int, offset: int, size: int) -> None:
    scope = {"scope": "shard", "shape": [of_all], "offset": [offset], "size": [size]}
    text = json.dumps({"format": 1, "targets": {"0:w": {"grad_reduced": scope}}})
    write_files(output, {f"Nov24_12-04-37-rank{rank}-1a2b3c4d/scopes.json": text})


@pytest.fixture
def job(tmp_path: Path) -> Path:
    rows = [
        '0,large,1,30.0,0.5,0.0625,0.25,1.5,"[999999]",torch.float32',
        '0,small,1,4.0,0.125,,,,"[16]",torch.float32',
    ]
    return write(tmp_path / "out", rows)


def values(table: pandas.DataFrame, name: str) -> "dict[str, float]":
    rows = table[table["name"] == name]
    return dict(zip(rows["op"], rows["value"]))


def test_load_and_open_have_the_marks_of_the_rows_that_have_them(job: Path) -> None:
    for table in (gradmon_read.load(job), gradmon_read.open(job).pandas()):
        assert values(table, "large") == {"norm": 30, "mean": 0.5, **MARKS}
        assert values(table, "small") == {"norm": 4, "mean": 0.125}
    errors = gradmon_read.open(job).where(op="norm_se").pandas()
    assert list(errors["name"]) == ["large"]


@pytest.mark.parametrize("member", ["csv2db", "csv2tb", "parquet"])
def test_each_conversion_keeps_the_marks(run: Commands, job: Path, tmp_path: Path, member: str) -> None:
    output = "-o" if member == "parquet" else "--output-dir"
    answer = run("convert", member, job, output, tmp_path / "converted")
    assert (answer.code, answer.err) == (0, "")
    table = gradmon_read.load(tmp_path / "converted")
    assert values(table, "large") == {"norm": 30, "mean": 0.5, **MARKS}
    assert values(table, "small") == {"norm": 4, "mean": 0.125}


def test_without_samples_a_database_has_no_columns_for_them(run: Commands, tmp_path: Path) -> None:
    job = write(tmp_path / "out", ['0,small,1,4.0,0.125,"[16]",torch.float32'], titles=PLAIN)
    answer = run("convert", "csv2db", job, "--output-dir", tmp_path / "converted")
    assert (answer.code, answer.err) == (0, "")
    assert set(gradmon_read.load(tmp_path / "converted")["op"]) == {"norm", "mean"}


def test_diff_compares_samples_with_samples_only(run: Commands, job: Path, tmp_path: Path) -> None:
    row = '0,large,1,{},{},"[999999]",torch.float32'
    whole = write(tmp_path / "whole", [row.format("31.0", "0.5")], titles=PLAIN)
    answer = run("analyse", "diff", job, whole)
    assert "rows with no statistic in common: 1" in answer.out
    assert "first part" not in answer.out
    other = write(tmp_path / "other", [row.format("31.0", "0.5,0.0625,0.25,1.5")])
    answer = run("analyse", "diff", job, other)
    assert "norm 30 in A, 31 in B" in answer.out


def test_the_error_of_an_infinite_tensor_is_no_nan_of_its_elements(run: Commands, tmp_path: Path) -> None:
    titles = TITLES.replace("norm,mean,", "nans,")
    job = write(tmp_path / "out", ['0,large,1,0,0.0625,nan,nan,"[999999]",torch.float32'], titles=titles)
    assert "NaN" not in run("analyse", "first", job).out


def test_joined_parts_have_the_marks_of_the_whole(tmp_path: Path) -> None:
    """The second part is small, and was read whole."""
    output = tmp_path / "out"
    write(output, ['0,w,1,30.0,0.5,0.0625,0.25,1.5,"[300000]",torch.float32'])
    write(output, ['0,w,1,40.0,1.5,,,,"[100000]",torch.float32'], rank=1)
    for rank, (offset, size) in enumerate([(0, 300000), (300000, 100000)]):
        write_scope(output, rank, 400000, offset, size)
    found = values(gradmon_read.load(output, whole=True), "w")
    wanted = {"norm": 50, "mean": 0.75, "sampled": 0.75 * 0.0625 + 0.25, "mean_se": 0.75 * 0.25}
    assert found == pytest.approx({**wanted, "norm_se": 30 / 50 * 1.5})


def test_nan_in_a_part_stays_nan_in_the_marks_of_the_whole(tmp_path: Path) -> None:
    output = tmp_path / "out"
    write(output, ['0,w,1,nan,nan,0.0625,nan,nan,"[300000]",torch.float32'])
    write(output, ['0,w,1,40.0,1.5,0.0625,1,1,"[300000]",torch.float32'], rank=1)
    for rank in (0, 1):
        write_scope(output, rank, 600000, 300000 * rank, 300000)
    found = values(gradmon_read.load(output, whole=True), "w")
    assert found["sampled"] == pytest.approx(0.0625)
    assert math.isnan(found["mean_se"]) and math.isnan(found["norm_se"])
