# SPDX-License-Identifier: Apache-2.0
"""gradmonctl convert merge: rows of databases and CSV files of several runs, and what the tables say of the
job."""
import contextlib
import math
import subprocess
from pathlib import Path
from typing import Any

import numpy
import pytest
from gradmon_read.conversion import Target
from gradmon_read.csv_tables import Problems
from gradmon_read.merge import job_runs
from gradmon_read.kind_rows import Batch, database_pages
from gradmon_read.metrics_database import NewDatabase, PartWriter, Tensors, stored_scopes
from gradmon_read.rank_database import FILE, RankDatabase
from reading import GRADMONCTL, Commands, change, golden_difference, query_rows, without, write_files

FIRST = "Nov24_12-04-37-rank{}-1a2b3c4d"
SECOND = "Nov24_13-00-00-rank{}-5e6f7a8b"
RUN_FILE = """{"format": 1, "run_id": "1a2b3c4d", "started": "2026-11-24T12:04:37.120+01:00",
 "world_size": 3, "versions": {"gradmon": "0.2.0", "torch": "2.13"},
 "ranks": [{"rank": 0, "host": "alpha", "pid": 17}, {"rank": 1, "host": "beta", "pid": 18}],
 "revisions": [{"revision": 1, "effective_step": 0, "on": true, "cause": "start", "by": "root",
                "config": {"targets": {"": {}}, "ops": ["norm"]}},
               {"revision": 2, "effective_step": 4, "on": false, "cause": "ctl", "by": "ann", "config": {}}],
 "revisions_left_out": 0, "scopes": {"0:layers.0.weight": {"scope": "whole"}}}"""


def write_csv(directory: Path, steps: "dict[int, tuple[int, float]]") -> Path:
    """Rows of grad_reduced: by step the number of targets "layers.{i}.weight", and the norm of the first."""
    rows = "".join(
        f'0,layers.{i}.weight,{step},{norm + i},nan,"[2, 2]",torch.bfloat16\n'
        for step, (targets, norm) in steps.items()
        for i in range(targets)
    )
    name = f"grad_reduced_{min(steps)}-99.csv"
    return write_files(directory, {name: f"vpp_stage,name,step,norm,absmax,shape,dtype\n{rows}"})


def write_database(directory: Path, rank: int, steps: "dict[int, tuple[int, float]]") -> Path:
    """The same as a rank's database."""
    directory.mkdir(parents=True)
    database = NewDatabase(directory / FILE, 500)
    writer = PartWriter(database, rank, {}, Tensors())
    writer.begin_kind("grad_reduced", lambda number: Target(0, b"layers.%d.weight" % number, -1))
    for step, (targets, norm) in steps.items():
        name, zero = numpy.arange(targets), numpy.zeros(targets, "int64")
        values = {"norm": norm + name, "absmax": numpy.full(targets, math.nan)}
        writer.write(Batch(zero + step, name, *[zero] * 7, values, {}, [], [b"[2, 2]"], [b"torch.bfloat16"]))
    writer.finish()
    database.finish()
    return directory


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A first run of ranks 0 (a database) and 1 (CSV), of 3; a second run of rank 0 alone, from step 2 on."""
    job = tmp_path / "job"
    write_database(job / FIRST.format(0), 0, {step: (2, 10 * step) for step in range(4)})
    write_csv(job / FIRST.format(1), {0: (2, 100), 2: (2, 120), 3: (1, 130)})
    write_csv(job / SECOND.format(0), {step: (2, 1000 + 10 * step) for step in range(2, 5)})
    return write_files(job, {"run-1a2b3c4d.json": RUN_FILE})


def test_a_merged_database_has_the_rows_of_all_runs_and_says_what_job_it_is_of(
    run: Commands, job: Path, tmp_path: Path
) -> None:
    file = tmp_path / "job.db"
    answer = run("convert", "merge", job, "-o", file)
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == (
        f"15 rows of ranks 0, 1 in {file}\n4 rows are left out, of steps that a later start of the job has "
        "collected again\n"
    )
    assert query_rows(file, "PRAGMA integrity_check") == ["ok"]
    text = ""
    for sql in (
        "SELECT rank, step, target, op, value FROM v_metrics ORDER BY rank, step, target, op",
        "SELECT * FROM target_tensors ORDER BY rank, target_id",
        "SELECT * FROM job_runs ORDER BY started",
        "SELECT * FROM job_versions",
        "SELECT * FROM job_ranks ORDER BY run_id, rank",
        "SELECT * FROM job_revisions",
        "SELECT * FROM job_gaps",
        "SELECT * FROM job_problems",
        "SELECT name FROM job_about ORDER BY name",
    ):
        text += f"-- {sql}\n" + "".join(f"{row}\n" for row in query_rows(file, sql))
    assert golden_difference("merge.txt", without(text, job, "OUT")) == ""
    version = subprocess.run([GRADMONCTL, "--version"], capture_output=True, text=True).stdout.split()[-1]
    made_by = query_rows(file, "SELECT text FROM job_about WHERE name = 'made_by'")
    assert made_by == [f"gradmonctl convert merge {version}"]
    undescribed = "name GLOB 'job_*' AND name <> 'job_about' AND name NOT IN (SELECT name FROM job_about)"
    assert query_rows(file, f"SELECT name FROM sqlite_schema WHERE type = 'table' AND {undescribed}") == []


def test_what_rows_are_of_comes_from_the_scopes_json_of_the_last_start_that_has_it(
    run: Commands, job: Path, tmp_path: Path
) -> None:
    first = """{"0:layers.0.weight": {"grad_reduced": {"scope":"replica"}},
                "0:layers.1.weight": {"grad_reduced": {"scope":"piece","begin":2}}}"""
    second = '{"0:layers.0.weight": {"grad_reduced": {"scope":"whole"}, "new_kind": {"scope":"whole"}}}'
    write_files(
        job,
        {
            f"{FIRST.format(0)}/scopes.json": f'{{"format": 1, "targets": {first}}}',
            f"{SECOND.format(0)}/scopes.json": f'{{"format": 1, "targets": {second}}}',
            f"{FIRST.format(1)}/scopes.json": "{",
        },
    )
    file = tmp_path / "job.db"
    assert run("convert", "merge", job, "-o", file).code == 0
    assert query_rows(
        file,
        "SELECT rank, target_name, scope, detail FROM target_scope JOIN monitoring_targets USING (target_id) "
        "WHERE metric_id = 4 ORDER BY target_name",
    ) == [
        '0|layers.0.weight|whole|{"scope":"whole"}',
        '0|layers.1.weight|piece|{"scope":"piece","begin":2}',
    ]
    assert query_rows(file, "SELECT count(*), text GLOB '*: expected a JSON*' FROM job_problems") == ["1|1"]


def test_of_a_rank_with_two_directories_in_one_run_all_rows_are_counted(
    run: Commands, tmp_path: Path
) -> None:
    write_csv(tmp_path / FIRST.format(0), {0: (2, 0), 1: (2, 0)})
    write_csv(tmp_path / FIRST.format(0).replace("12-04-37", "12-30-00"), {2: (2, 0)})
    assert run("convert", "merge", tmp_path, "-o", tmp_path / "job.db").code == 0
    sql = "SELECT rank, rows, first_step, last_step FROM job_ranks"
    assert query_rows(tmp_path / "job.db", sql) == ["0|6|0|2"]


def test_a_run_is_named_by_its_file_or_by_the_directory_of_one_rank(
    run: Commands, job: Path, tmp_path: Path
) -> None:
    def rows_of(*places: Path) -> str:
        file = tmp_path / "places.db"
        answer = run("convert", "merge", *places, "-o", file)
        if answer.code == 0:
            file.unlink()
        return answer.err or answer.out.split(" in ")[0]

    assert rows_of(job / "run-1a2b3c4d.json") == "13 rows of ranks 0, 1"
    assert rows_of(job / FIRST.format(0)) == "8 rows of rank 0"
    # The runs follow each other as they are given; a directory that is given twice is read once.
    assert rows_of(job / SECOND.format(0), job) == "15 rows of ranks 0, 1"
    assert "no directory of a rank and no CSV file" in rows_of(tmp_path)


def test_merge_overwrites_nothing(run: Commands, job: Path) -> None:
    write_files(job, {"job.db": "mine"})
    answer = run("convert", "merge", job, "-o", job / "job.db")
    assert (answer.code, (job / "job.db").read_text()) == (1, "mine")
    expected = "is there already; expected a new name or an empty directory"
    assert answer.err == f"gradmonctl: {job / 'job.db'} {expected}\n"
    assert run("convert", "merge", job).code == 2


def test_ranks_of_one_run_in_two_places_have_what_each_place_knows_of_them(
    run: Commands, job: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (job / FIRST.format(1)).rename(other / FIRST.format(1))
    sql = "SELECT host, rows, first_step, last_step FROM job_ranks WHERE run_id = '1a2b3c4d' AND rank = 1"
    for number, places in enumerate(((job, other), (other, job))):
        assert run("convert", "merge", *places, "-o", tmp_path / f"{number}.db").code == 0
        assert query_rows(tmp_path / f"{number}.db", sql) == ["beta|5|0|3"]


def test_of_two_runs_the_rows_of_the_one_that_is_given_last_are_taken(
    run: Commands, job: Path, tmp_path: Path
) -> None:
    sql = "SELECT value FROM v_metrics WHERE step = 2 AND op = 'norm' AND target = 'layers.0.weight'"
    first, second = job / FIRST.format(0), job / SECOND.format(0)
    for number, (places, norm) in enumerate((((first, second), "1020.0"), ((second, first), "20.0"))):
        assert run("convert", "merge", *places, "-o", tmp_path / f"{number}.db").code == 0
        assert query_rows(tmp_path / f"{number}.db", sql) == [norm]


def test_rows_of_a_database_and_of_csv_files_are_one_table(run: Commands, job: Path, tmp_path: Path) -> None:
    rows = "layers.0.weight,1,7,\nlayers.5.weight,1,8,9\nlayers.0.weight,600,1,nan\n"
    files = {
        "grad_reduced_0-999.csv": f"name,step,norm,max\n{rows}",
        "grad_unreduced_0-9.csv": "name,step,norm\na,0,1\n",
    }
    write_files(job / FIRST.format(0), files)
    file = tmp_path / "job.db"
    assert run("convert", "merge", job / FIRST.format(0), "-o", file).out.startswith("11 rows of rank 0")
    sql = "SELECT step, target, op, value FROM v_metrics WHERE step IN (1, 600) ORDER BY 1, 2, 3"
    assert query_rows(file, sql) == [
        *("1|layers.0.weight|absmax|", "1|layers.0.weight|norm|10.0"),  # the database's row stays
        *("1|layers.1.weight|absmax|", "1|layers.1.weight|norm|11.0"),
        *("1|layers.5.weight|max|9.0", "1|layers.5.weight|norm|8.0"),
        *("600|layers.0.weight|max|", "600|layers.0.weight|norm|1.0"),
    ]


def test_damaged_input_is_named_and_the_rest_is_merged(run: Commands, job: Path, tmp_path: Path) -> None:
    database = job / FIRST.format(0) / FILE
    database.write_bytes(b"x" * 9000)
    write_files(job, {"run-5e6f7a8b.json": "{"})
    answer = run("convert", "merge", job, "-o", tmp_path / "job.db")
    assert answer.out.startswith("11 rows of ")
    text = "file is not a database; expected a database that gradmon writes"
    assert f"gradmonctl: {database}: {text}\n" in answer.err
    assert 'run-5e6f7a8b.json: expected a JSON object with "format": 1' in answer.err
    assert query_rows(tmp_path / "job.db", "SELECT count(*) FROM job_problems") == ["2"]


@pytest.mark.parametrize(
    "statements, problem, rows",
    [
        ("UPDATE monitoring_metrics SET metric_name = 'new'", 'the metric "new" with the id 4; expected', 0),
        ("INSERT INTO metric_stats VALUES (4, 'new')", 'the statistic "new" of grad_reduced; expected', 8),
        ("DELETE FROM monitoring_targets WHERE target_id = 2", "without rank, target or value", 4),
        ("UPDATE metric_4_step_0_499 SET norm = 'x', absmax = NULL, nan_mask = 0 WHERE step = 1",
         "a row of metric_4_step_0_499 without rank, target or value", 6),
        ("UPDATE metric_4_step_0_499 SET rank = 7 WHERE step = 1", "without rank, target or value", 6),
        ("PRAGMA user_version = 9", "found another database; expected one of gradmon's, schema version 1", 0),
        ("DROP TABLE metric_4_step_0_499; CREATE TABLE metric_4_step_0_499 (rank, step);"
         "INSERT INTO metric_4_step_0_499 VALUES (0, 1)", "; the rest of metric_4_step_0_499 is left out", 0),
    ],
)  # fmt: skip
def test_what_no_rank_writes_into_a_database_is_left_out(
    run: Commands, job: Path, tmp_path: Path, statements: str, problem: str, rows: int
) -> None:
    change(job / FIRST.format(0) / FILE, statements)
    write_csv(job / FIRST.format(0), {9: (1, 5)})
    answer = run("convert", "merge", job / FIRST.format(0), "-o", tmp_path / "job.db")
    assert problem in answer.err
    assert answer.out.startswith(f"{rows + 1} rows of rank 0 in ")


@pytest.mark.full
def test_a_target_has_its_shape_in_a_database_of_more_than_a_million_changes_of_shapes(
    run: Commands, job: Path, tmp_path: Path
) -> None:
    change(
        job / FIRST.format(0) / FILE,
        "UPDATE target_tensors SET shape = '[3]' WHERE target_id = 2;"
        "INSERT INTO target_tensors VALUES (4, 2, 0, 2, '[5, 5]', 'torch.float32');"
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000001) "
        "INSERT INTO target_tensors SELECT 4, 1, 0, i + 9, '[' || i || ']', 'torch.float32' FROM n",
    )
    file = tmp_path / "job.db"
    assert run("convert", "merge", job / FIRST.format(0), "-o", file).code == 0
    sql = (
        "SELECT target_name, step, shape, dtype FROM target_tensors JOIN monitoring_targets USING (target_id)"
    )
    assert query_rows(file, f"{sql} ORDER BY 1, 2") == [
        "layers.0.weight|0|[2, 2]|torch.bfloat16",
        *("layers.1.weight|0|[3]|torch.bfloat16", "layers.1.weight|2|[5, 5]|torch.float32"),
    ]


def test_a_tensors_shape_holds_until_the_step_before_the_next_one(job: Path) -> None:
    file = job / FIRST.format(0) / FILE
    change(
        file,
        "DELETE FROM target_tensors;"
        "INSERT INTO target_tensors VALUES (4, 1, 0, 1, '[3]', 'a'), (4, 1, 0, 3, '[5]', 'b'), "
        "(4, 1, 1, 4, '[4]', 'c'), (5, 1, 0, 4, '[4]', 'c')",
    )
    with contextlib.closing(RankDatabase(file)) as database:
        (metric,) = database.metrics
        ((_, _, table),) = database_pages(database, metric, metric.partitions[0], ["norm"])
    found = list(zip(*(table[name].to_pylist() for name in ("name", "step", "shape", "dtype"))))
    assert {row[2:] for row in found if row[0] == b"layers.1.weight"} == {(b"", b"")}
    texts = [row[2:] for row in found if row[0] == b"layers.0.weight"]
    assert texts == [(b"", b""), (b"[3]", b"a"), (b"[3]", b"a"), (b"[5]", b"b")]


def test_files_of_a_run_nested_too_deep_are_problems_and_the_rest_is_merged(
    run: Commands, job: Path, tmp_path: Path
) -> None:
    for depth in (200_000, 101):
        deep = "[" * depth + "]" * depth
        scope = f'{{"grad_reduced": {{"scope": "whole", "x": {deep}}}}}'
        files = {
            "run-5e6f7a8b.json": f'{{"format": 1, "scopes": {deep}}}',
            f"{SECOND.format(0)}/scopes.json": f'{{"format": 1, "targets": {{"0:a.weight": {scope}}}}}',
        }
        answer = run("convert", "merge", write_files(job, files), "-o", tmp_path / f"{depth}.db")
        assert answer.out.startswith("15 rows of ")
        for file in ("run-5e6f7a8b.json", "scopes.json"):
            assert f"{file}: expected brackets nested at most 100 deep" in answer.err


@pytest.mark.parametrize(
    "text", ["", "[]", "null", '{"format": 2}', '{"format": "1"}', '{"format": true}', '{"format": 1',
             '{"format": 1, "scopes": NaN}', '{"format": 1, "scopes": "\\ud83d"}']
)  # fmt: skip
def test_a_run_file_that_is_none_is_a_problem(run: Commands, job: Path, tmp_path: Path, text: str) -> None:
    write_files(job, {"run-1a2b3c4d.json": text})
    answer = run("convert", "merge", job, "-o", tmp_path / "job.db")
    assert answer.code == 0
    assert 'run-1a2b3c4d.json: expected a JSON object with "format": 1; only the names' in answer.err
    assert query_rows(tmp_path / "job.db", "SELECT count(*), count(world_size) FROM job_runs") == ["2|0"]


def test_the_notes_of_a_run_may_be_of_any_type(run: Commands, job: Path, tmp_path: Path) -> None:
    text = """{"format": 1, "world_size": "x", "versions": [1], "ranks": [3, {"rank": {}}], "scopes": "😀",
               "revisions": {"a": 1}, "revisions_left_out": 99999999999999999999}"""
    write_files(job, {"run-1a2b3c4d.json": text})
    file = tmp_path / "job.db"
    assert run("convert", "merge", job, "-o", file).code == 0
    sql = "SELECT world_size, revisions_left_out, scopes FROM job_runs WHERE run_id = '1a2b3c4d'"
    assert query_rows(file, sql) == ['|0|"😀"']
    assert query_rows(file, "SELECT rank FROM job_ranks WHERE run_id = '1a2b3c4d'") == ["-1", "0", "1"]
    assert query_rows(file, "SELECT count(*) FROM job_revisions") == ["0"]


def test_the_scopes_of_100000_parameters_keep_their_order(job: Path) -> None:
    scopes = "".join(f'"0:layers.{i}.weight":{{"scope":"shard"}},' for i in range(100_000, 0, -1))
    text = f'{{"format": 1, "scopes": {{{scopes}"0:last": 1, "0:layers.2.weight": {{"scope": "whole"}}}}}}'
    write_files(job, {"run-1a2b3c4d.json": text})
    first, *_ = job_runs([job], Problems())
    found: "dict[str, Any]" = first.notes["scopes"]
    assert list(found)[-3:] == ["0:layers.2.weight", "0:layers.1.weight", "0:last"]
    assert found["0:layers.2.weight"] == {"scope": "whole"}  # of a duplicate key the last value counts
    assert stored_scopes([job], Problems()) == {}
