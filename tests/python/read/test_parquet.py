# SPDX-License-Identifier: Apache-2.0
"""gradmonctl convert parquet and convert trend."""
import json
import math
import os
import sqlite3
from pathlib import Path
from typing import Any

import duckdb
import gradmon_read
import pytest
from engines_script import cell
from pyarrow import parquet
from reading import Commands, RankWriter, write_files

VALUES = ["nan", "inf", "-inf", "-0.0", "5e-324", "1.7976931348623157e+308", "0.1", "", "-1234567890.123"]
HEADER = "vpp_stage,name,step,norm,max,shape,dtype\n"
TIME = "Nov24_08-30-12"


def write(
    output: Path, rank: int, file: str, rows: "list[str]", time: str = TIME, run: str = "8c0ffee0"
) -> None:
    write_files(output, {f"{time}-rank{rank}-{run}/{file}": HEADER + "".join(f"{row}\n" for row in rows)})


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Two ranks; every value of VALUES as a norm; names and steps in no order."""
    output = tmp_path / "monitor_output"
    for rank in (0, 1):
        rows = [
            f'{i % 2},layers.{9 - i}.w,{step},{value},1,"[4, 2]",torch.float32'
            for step in (11, 10)
            for i, value in enumerate(VALUES)
        ]
        write(output, rank, "grad_reduced_0-99.csv", rows)
        text = (
            "vpp_stage,name,step,micro_step,norm,shape,dtype\n0,fc.input,10,0,nan,,\n0,fc.input,10,1,2.5,,\n"
        )
        (output / f"{TIME}-rank{rank}-8c0ffee0" / "actv_0-99.csv").write_text(text)
    return output


def converted(run: Commands, job: Path) -> Path:
    target = job.parent / "dataset"
    answer = run("convert", "parquet", job, "-o", target)
    assert (answer.code, answer.err) == (0, "")
    return target / "rows"


def exact(rows: Any) -> "list[Any]":
    return sorted([*map(str, row[:2]), *map(cell, row[2:])] for row in rows)


def test_values_are_exact_sorted_and_in_row_groups_with_statistics(run: Commands, job: Path) -> None:
    target = converted(run, job)
    assert run("convert", "parquet", job, "-o", target.parent).code == 1  # it replaces nothing
    files = sorted(file.relative_to(target).as_posix() for file in target.rglob("*.parquet"))
    assert files == [
        f"kind={kind}/rank={rank}/rows.parquet" for kind in ("actv", "grad_reduced") for rank in (0, 1)
    ]
    file = parquet.ParquetFile(target / files[2])
    rows = file.read().to_pylist()
    assert [(row["name"], row["step"]) for row in rows] == sorted((row["name"], row["step"]) for row in rows)
    found = {(row["name"], row["step"]): row for row in rows}
    for i, text in enumerate(VALUES):
        row = found[f"layers.{9 - i}.w", 10]
        assert cell(row["norm"]) == cell(float(text) if text else None)
        assert (row["vpp_stage"], row["micro_step"], row["shape"], row["max"], row["mean"]) == (
            *(i % 2, None, "[4, 2]", 1.0),
            None,
        )
    statistics = file.metadata.row_group(0).column(0).statistics
    assert (statistics.min, statistics.max) == ("layers.1.w", "layers.9.w")
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"


def test_a_dataset_has_the_rows_of_the_csv_files(run: Commands, job: Path) -> None:
    target = converted(run, job)
    columns = ["kind", "rank", "name", "step", "micro_step", "value", "vpp_stage"]
    before = gradmon_read.open(job).relation().select(*columns).fetchall()
    assert exact(gradmon_read.open(target).relation().select(*columns).fetchall()) == exact(before)
    sql = "SELECT rank, step, value FROM rows WHERE kind = 'actv' AND isnan(value) ORDER BY rank"
    answer = run("query", sql, target, "--format", "csv")
    assert answer.out == "rank,step,value\n0,10,nan\n1,10,nan\n"
    sql = "SELECT kind, rank, name, step, micro_step, value, vpp_stage FROM rows ORDER BY ALL"
    stored, files = (run("query", sql, place, "--format", "csv").out for place in (target, job))
    assert stored == files and stored.count("\n") == 73
    refused = run("query", "SELECT * FROM read_text('/etc/passwd')", target)
    assert refused.code == 1 and "/etc/passwd" in refused.err


def test_only_row_groups_that_may_have_a_name_are_read(run: Commands, tmp_path: Path) -> None:
    rows = [f'0,p{i:05},1,{i},1,"[4]",torch.float32' for i in range(70_000)]
    write(tmp_path / "job", 0, "grad_reduced_0-99.csv", rows)
    target = tmp_path / "dataset"
    assert run("convert", "parquet", tmp_path / "job", "-o", target).code == 0
    file = target / "rows" / "kind=grad_reduced" / "rank=0" / "rows.parquet"
    metadata = parquet.ParquetFile(file).metadata
    assert metadata.num_row_groups == 3
    first = metadata.row_group(0).column(0)
    begin = first.dictionary_page_offset or first.data_page_offset
    with file.open("r+b") as opened:  # the first group cannot be read
        opened.seek(begin)
        opened.write(b"\xff" * first.total_compressed_size)
    chosen = gradmon_read.open(target).where(names="p69999", op="norm").pandas()
    assert chosen["value"].tolist() == [69999.0]
    with pytest.raises(ValueError):
        gradmon_read.open(target).where(names="p00001").pandas()


def test_of_a_repeated_step_the_rows_of_the_last_start_are_taken(run: Commands, tmp_path: Path) -> None:
    for time, run_id, norm in ((TIME, "11111111", 1), ("Nov24_09-30-12", "22222222", 2)):
        rows = [f'0,w,{step},{norm},1,"[4]",torch.float32' for step in range(norm, norm + 2)]
        write(tmp_path / "job", 0, f"grad_reduced_{norm}-{norm + 1}.csv", rows, time, run_id)
    answer = run("convert", "parquet", tmp_path / "job", "-o", tmp_path / "dataset")
    assert "1 rows are left out" in answer.out
    found = duckdb.sql(
        f"SELECT step, norm FROM '{tmp_path}/dataset/rows/*/*/*.parquet' ORDER BY step"
    ).fetchall()
    assert found == [(1, 1.0), (2, 2.0), (3, 2.0)]


def test_databases_of_ranks_are_converted_too(run: Commands, tmp_path: Path) -> None:
    for run_id, steps in (("11111111", range(1, 4)), ("22222222", range(3, 6))):
        writer = RankWriter(tmp_path / "job", 0, run=run_id)
        for step in steps:
            writer.write(step, ["b", "a"], {"b": [math.nan, int(run_id[0])]})
        writer.close()
    os.utime(tmp_path / "job" / f"{TIME}-rank0-11111111", (1, 1))
    answer = run("convert", "parquet", tmp_path / "job", "-o", tmp_path / "dataset")
    assert (answer.code, answer.err) == (0, "")
    table = parquet.read_table(
        tmp_path / "dataset" / "rows" / "kind=grad_reduced" / "rank=0" / "rows.parquet"
    )
    assert table["name"].to_pylist() == ["a"] * 5 + ["b"] * 5
    assert all(map(math.isnan, table["norm"].to_pylist()[5:]))
    assert table["max"].to_pylist()[5:] == [1.0, 1.0, 2.0, 2.0, 2.0]


def test_what_is_known_of_the_job_is_beside_the_rows(run: Commands, job: Path) -> None:
    scopes = {"format": 1, "targets": {"0:w": {"grad_reduced": {"scope": "replica"}}}}
    (job / f"{TIME}-rank1-8c0ffee0" / "scopes.json").write_text(json.dumps(scopes))
    note = {"format": 1, "run_id": "8c0ffee0", "versions": {"torch": "2.13.0"}, "revisions": []}
    (job / "run-8c0ffee0.json").write_text(json.dumps(note))
    (job / "run-99999999.json").write_text(json.dumps(note))  # of a run without rows
    about = json.loads((converted(run, job).parent / "job.json").read_text())
    assert about == {"format": 1, "runs": {"8c0ffee0": note}, "scopes": {"1": scopes["targets"]}}


def trend(run: Commands, job: Path) -> sqlite3.Connection:
    target = job.parent / "job.trend.db"
    answer = run("convert", "trend", job, "-o", target)
    assert (answer.code, answer.err) == (0, "")
    assert run("convert", "trend", job, "-o", target).code == 1
    return sqlite3.connect(target)


def test_trend_has_the_tables_that_the_plug_in_reads(run: Commands, job: Path) -> None:
    database = trend(run, job)
    stats = database.execute("SELECT * FROM global_stats").fetchall()
    names = [column[1] for column in database.execute("PRAGMA table_info(global_stats)")]
    assert dict(zip(names, stats[0])) == {
        **{"min_step": 10, "max_step": 11, "max_rank": 1},
        **{"actv": "norm", "grad_reduced": "norm,max"},
    }
    sql = (
        "SELECT target_name, norm FROM trend_data JOIN monitoring_targets USING (target_id) "
        "JOIN monitoring_metrics USING (metric_id) "
        "WHERE metric_name = 'grad_reduced' AND rank = 0 AND step = 10"
    )
    found = dict(database.execute(sql))
    expected = [
        None,
        1000000001.0,
        -1000000001.0,
        -0.0,
        5e-324,
        1.7976931348623157e308,
        0.1,
        None,
        -1234567890.123,
    ]
    assert [found[f"layers.{9 - i}.w"] for i in range(9)] == expected
    tags = database.execute("SELECT tag_name, category FROM monitoring_tags ORDER BY 1 LIMIT 3").fetchall()
    assert tags == [("fc", "module"), ("input", "module"), ("layers", "module")]
    tagged = (
        "SELECT target_name FROM tag_target_mapping JOIN monitoring_tags USING (tag_id) "
        "JOIN monitoring_targets USING (target_id) WHERE tag_name = 'layers.3' AND category = 'layer'"
    )
    assert database.execute(tagged).fetchall() == [("layers.3.w",)]
