# SPDX-License-Identifier: Apache-2.0
"""gradmon.open(): the rows of runs, lazily, from every form."""
import csv
import math
import random
import struct
from pathlib import Path
from typing import Any

import duckdb
import gradmon_read
import pandas
import polars
import pytest
import zstandard
from gradmon_read.rows import SCHEMA
from gradmon_read.runs import parse_rank_directory
from reading import Commands, RankWriter, corrupted, event_of, record_of, write_files

HEADER = "vpp_stage,name,step,norm,max,shape,dtype\n"
FIRST = "grad_reduced_0-9.csv"


def csv_run(output: Path, ranks: int = 2, steps: int = 20, run: str = "8c0ffee0") -> Path:
    """Rows of grad_reduced of two parameters, ten steps a file, and of two passes of actv."""
    text = "vpp_stage,name,step,micro_step,norm,shape,dtype\n0,fc.input,3,0,,,\n1,fc.input,3,1,-0.0,,\n"
    for rank in range(ranks):
        files = {"actv_0-9.csv": text}
        for first in range(0, steps, 10):
            rows = [
                f'0,{name},{step},{step + rank / 100},nan,"[4]",torch.float32\n'
                for step in range(first, first + 10)
                for name in ("fc.weight", "head.weight")
            ]
            files[f"grad_reduced_{first}-{first + 9}.csv"] = HEADER + "".join(rows)
        write_files(output / f"Nov24_08-30-12-rank{rank}-{run}", files)
    return output


def test_each_value_is_a_row_with_the_same_columns_in_every_engine(tmp_path: Path) -> None:
    rows = gradmon_read.open(csv_run(tmp_path)).where(steps=3, ranks=[1])
    frame = rows.pandas()
    assert list(frame.columns) == SCHEMA.names
    values = [
        ("8c0ffee0", 1, 3, None, "grad_reduced", "fc.weight", "norm", 3.01, 0),
        ("8c0ffee0", 1, 3, None, "grad_reduced", "fc.weight", "max", math.nan, 0),
        ("8c0ffee0", 1, 3, None, "grad_reduced", "head.weight", "norm", 3.01, 0),
        ("8c0ffee0", 1, 3, None, "grad_reduced", "head.weight", "max", math.nan, 0),
        ("8c0ffee0", 1, 3, 1, "actv", "fc.input", "norm", -0.0, 1),
    ]
    expected = sorted(map(repr, values))
    assert sorted(map(repr, rows.relation().fetchall())) == expected
    assert sorted(map(repr, rows.polars().collect().rows())) == expected
    assert sorted(repr(tuple(row.values())) for row in rows.table().to_pylist()) == expected
    assert frame["micro_step"].dtype == "Int64" and frame["micro_step"].isna().sum() == 4


@pytest.mark.parametrize(
    "conditions, count",
    [
        ({}, 162),
        ({"kind": "actv"}, 2),
        ({"op": "norm"}, 82),
        ({"op": ["norm", "max"], "kind": ["grad_reduced"]}, 160),
        ({"steps": range(5, 15)}, 80),
        ({"steps": range(0, 20, 19)}, 16),
        ({"ranks": 1}, 81),
        ({"names": "head.weight"}, 80),
        ({"names": ["head.weight", "nothing"], "ranks": {0}}, 40),
    ],
)
def test_conditions_choose_rows(tmp_path: Path, conditions: "dict[str, Any]", count: int) -> None:
    rows = gradmon_read.open(csv_run(tmp_path)).where(**conditions)
    assert rows.table().num_rows == count
    assert rows.relation().count("*").fetchall() == [(count,)]


def test_a_pattern_of_names_is_searched(tmp_path: Path) -> None:
    import re

    rows = gradmon_read.open(csv_run(tmp_path)).where(names=re.compile(r"^h.*\.weight"), op="norm", ranks=0)
    assert set(rows.pandas()["name"]) == {"head.weight"}
    assert rows.where(steps=4).table().num_rows == 1
    unlike = rows.where(names=re.compile(r"weight(?<!head\.weight)$"))
    assert unlike.table().num_rows == 0 and unlike.relation().count("*").fetchall() == [(0,)]


def test_only_the_files_that_a_filter_needs_are_read(tmp_path: Path) -> None:
    csv_run(tmp_path)
    directory = tmp_path / "Nov24_08-30-12-rank0-8c0ffee0"
    (directory / FIRST).write_text("no header\n")
    rows = gradmon_read.open(tmp_path)
    assert rows.where(steps=range(10, 20)).table().num_rows == 80
    assert rows.where(ranks=1, kind="grad_reduced").table().num_rows == 80
    assert rows.relation().filter("step >= 10 AND kind = 'grad_reduced'").count("*").fetchall() == [(80,)]
    assert rows.problems.count == 0
    with pytest.warns(UserWarning, match='found "no header" at the beginning'):
        assert rows.where(kind="grad_reduced").table().num_rows == 120
    assert rows.problems.count == 1


def test_a_run_without_csv_is_read_from_its_databases(run: Commands, tmp_path: Path) -> None:
    for rank in range(3):
        writer = RankWriter(tmp_path, rank)
        for step in range(498, 503):
            writer.write(step, ["a", "b"], {"b": [math.nan, -math.inf]})
        writer.close()
    rows = gradmon_read.open(tmp_path)
    assert rows.table().num_rows == 3 * 5 * 4
    found = rows.where(ranks=2, steps=500, op="norm").pandas()
    assert found["value"].iloc[0] == 500.02 and math.isnan(found["value"].iloc[1])
    assert found["micro_step"].isna().all()
    one = gradmon_read.open(tmp_path / "Nov24_08-30-12-rank1-8c0ffee0" / "monitor_metrics.db")
    assert set(one.pandas()["rank"]) == {1}


def test_compressed_files_are_read_as_plain_ones_here_and_by_the_engines(
    run: Commands, tmp_path: Path
) -> None:
    plain, compressed = csv_run(tmp_path / "1"), csv_run(tmp_path / "2")
    frames = []
    for file in compressed.rglob("*.csv"):
        header, *rows = file.read_text().splitlines(keepends=True)
        parts = [header + "".join(rows[:3]), "".join(rows[3:])]
        made = file.with_name(f"{file.name}.zst")
        made.write_bytes(b"".join(zstandard.compress(part.encode()) for part in parts))
        file.unlink()
        frames.append(made)
    wanted = sorted(map(repr, all_rows(gradmon_read.open(plain))))
    assert sorted(map(repr, all_rows(gradmon_read.open(compressed)))) == wanted
    for command in ("analyse top", "analyse first", "analyse anomalies"):
        answers = [run(*command.split(), place) for place in (plain, compressed)]
        shown = [(answer.code, answer.out.replace(".csv.zst", ".csv")) for answer in answers]
        assert shown[0] == (shown[1][0], shown[1][1].replace(f"{compressed}/", f"{plain}/"))
    for file in frames:
        columns = {name: "VARCHAR" for name in gradmon_read_header(file)}
        engines = [
            duckdb.read_csv(str(file), dtype=columns, header=True).fetchall(),
            polars.read_csv(file, infer_schema=False).rows(),
            [tuple(row) for row in pandas.read_csv(file, dtype=str, keep_default_na=False).values.tolist()],
        ]
        plain_file = plain / file.parent.name / file.name.removesuffix(".zst")
        rows = list(csv.reader(plain_file.open(newline="")))[1:]
        for found in engines:
            assert [[cell or "" for cell in row] for row in found] == rows


def gradmon_read_header(file: Path) -> "list[str]":
    with zstandard.open(file, "rt") as opened:
        return next(csv.reader(opened))


def test_event_files_have_the_same_rows_as_float32(run: Commands, tmp_path: Path) -> None:
    job = csv_run(tmp_path / "job")
    wanted = sorted(repr((*row[1:7], as_float32(row[7]), row[8])) for row in all_rows(gradmon_read.open(job)))
    made = tmp_path / "made"
    assert run("convert", "csv2tb", "--monitor-path", job, "--output-dirpath", made).code == 0
    found = gradmon_read.open(made)
    assert sorted(repr(row[1:]) for row in all_rows(found)) == wanted
    assert found.where(kind="actv", steps=range(3, 4)).relation().count("*").fetchall() == [(2,)]
    for directory in job.iterdir():  # the same files, as a rank writes them
        rank = parse_rank_directory(directory.name).rank
        for file in directory.glob("*.csv"):
            file.unlink()
        (directory / "tensorboard").mkdir()
        for number, file in enumerate(sorted(made.glob(f"rank{rank}/*/events*"))):
            file.rename(directory / "tensorboard" / f"events.out.tfevents.{number}")
    assert sorted(repr(row[1:]) for row in all_rows(gradmon_read.open(job))) == wanted
    for form in ("csv", "sqlite"):
        with pytest.raises(FileNotFoundError, match=f"the run has no files of the form {form}"):
            gradmon_read.load(job, form=form)


def all_rows(rows: gradmon_read.Rows) -> "list[tuple[Any, ...]]":
    return [tuple(row.values()) for row in rows.table().to_pylist()]


def as_float32(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])


def test_several_runs_are_told_apart(tmp_path: Path) -> None:
    one, other = csv_run(tmp_path / "a", run="11111111"), csv_run(tmp_path / "b", run="22222222")
    rows = gradmon_read.open([one, other])
    assert rows.relation().aggregate("run, count(*) AS n", "run").order("run").fetchall() == [
        ("11111111", 162),
        ("22222222", 162),
    ]
    csv_run(tmp_path / "a", run="33333333")
    assert set(gradmon_read.open(one, run="11111111").pandas()["run"]) == {"11111111"}


def test_missing_places_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="none: No such file"):
        gradmon_read.open(tmp_path / "none")
    with pytest.raises(FileNotFoundError, match="expected the output directory of a job"):
        gradmon_read.open(tmp_path)


def test_sql_sees_csv_rows_steps_and_ranks(run: Commands, tmp_path: Path) -> None:
    csv_run(tmp_path)
    answer = run(
        "query", "SELECT rank, step, name, value FROM rows WHERE kind = 'actv'", tmp_path, "--format", "csv"
    )
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == "rank,step,name,value\n0,3,fc.input,-0.0\n1,3,fc.input,-0.0\n"
    sql = "SELECT step, \"values\" FROM steps WHERE rank = 1 AND kind = 'grad_reduced' ORDER BY step LIMIT 2"
    assert run("query", sql, tmp_path, "--format", "csv").out == "step,values\n0,4\n1,4\n"
    found = run("query", "SELECT run, rank, path FROM ranks ORDER BY rank", tmp_path, "--format", "csv").out
    assert found.splitlines()[1] == f"8c0ffee0,0,{tmp_path}/Nov24_08-30-12-rank0-8c0ffee0"
    options = ["--metric", "grad_reduced", "--op", "norm", "--steps", "7", "--rank", "1", "--format", "csv"]
    assert run("query", *options, tmp_path).out.splitlines()[1] == "1,7,grad_reduced,fc.weight,0,0,norm,7.01"


def test_sql_sees_the_alerts_of_the_run(run: Commands, tmp_path: Path) -> None:
    csv_run(tmp_path)
    for rank in range(2):
        directory = tmp_path / f"Nov24_08-30-12-rank{rank}-8c0ffee0"
        (directory / "switches.jsonl").write_text('{"epoch": "old", "rank": 0}\n{"epoch": "e1", "rank": 0}\n')
    register = tmp_path / ".gradmon" / "e1"
    register.mkdir(parents=True)
    alert = '{"number": %d, "rank": 1, "step": %d, "rule": "AnomalyNan", "tag_name": "0:w", "value": %s}\n'
    (register / "alerts.jsonl.1").write_text(alert % (1, 3, '"nan"'))
    broken = '[1]\n{half\n{"number": [2]}\n'
    (register / "alerts.jsonl").write_text(alert % (1, 3, '"nan"') + broken + alert % (2, 4, "2.5"))
    sql = "SELECT rank, step, rule, tag_name, value, op FROM alerts WHERE step > 0 ORDER BY step"
    answer = run("query", sql, tmp_path, "--format", "csv")
    assert answer.out.splitlines()[1:] == [
        "1,3,AnomalyNan,0:w,nan,",
        "1,4,AnomalyNan,0:w,2.5,",
    ]


def test_random_bytes_in_a_csv_file_never_raise(tmp_path: Path) -> None:
    csv_run(tmp_path, ranks=1, steps=10)
    file = tmp_path / "Nov24_08-30-12-rank0-8c0ffee0" / FIRST
    sound = file.read_bytes()
    chance = random.Random(51)
    for _ in range(100):
        broken = corrupted(sound, chance.randrange(1, 20), chance)
        file.write_bytes(broken[: chance.randrange(len(broken))])
        rows = gradmon_read.open(tmp_path).where(kind="grad_reduced")
        try:
            frame = rows.relation().df()
        except duckdb.Error as error:
            pytest.fail(str(error))
        assert isinstance(frame, pandas.DataFrame) and len(frame) <= 80
        assert isinstance(rows.polars(), polars.LazyFrame)


@pytest.mark.parametrize(
    "tag", ["actv_norm/99999999999999999999:w:micro1", "actv_norm/w:micro99999999999999999999"]
)
def test_numbers_in_event_files_that_no_row_holds_are_no_rows(tmp_path: Path, tag: str) -> None:
    directory = tmp_path / "Nov24_08-30-12-rank0-8c0ffee0" / "tensorboard"
    directory.mkdir(parents=True)
    file = directory / "events.out.tfevents.1"
    file.write_bytes(record_of(event_of(tag, 0.5, 1)))
    assert all(abs(row[-1]) < 2**31 for row in all_rows(gradmon_read.open(tmp_path)))
    file.write_bytes(record_of(event_of("loss", 0.5, -1)))
    with pytest.raises(ValueError, match="events.out.tfevents.1: .* step -1; expected a number from 0"):
        gradmon_read.open(tmp_path).table()
