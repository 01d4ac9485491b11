# SPDX-License-Identifier: Apache-2.0
"""One SQLite database of a whole job, with tables that describe the job (CONVERT.md). Needs pyarrow."""
import argparse
import os
import sqlite3
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any, Iterator, NamedTuple

import numpy

from gradmon_read import __version__
from gradmon_read.command_line import CommandError, default_output_dir
from gradmon_read.conversion import NOTHING, Meter, RankInput, RankRows, chosen_files, run_conversion
from gradmon_read.csv_tables import kind_files_in, parse_kind_file
from gradmon_read.listing import Problems
from gradmon_read.kind_rows import database_kinds
from gradmon_read.metrics_database import PARTITION_STEPS, NewDatabase, PartWriter, Tensors, stored_scopes
from gradmon_read.rank_database import FILE
from gradmon_read.runs import MOST_RUN_FILE_BYTES, Run, find_run, id_of_run_file, json_text, read_format_1
from gradmon_read.runs import runs_in

_TABLES = """
CREATE TABLE job_about (name TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE job_runs (
  run_id TEXT NOT NULL, output_dir TEXT NOT NULL, started TEXT NOT NULL, world_size INTEGER,
  revisions_left_out INTEGER NOT NULL, scopes TEXT, PRIMARY KEY (run_id, output_dir)) WITHOUT ROWID;
CREATE TABLE job_versions (
  run_id TEXT NOT NULL, name TEXT NOT NULL, version TEXT NOT NULL, PRIMARY KEY (run_id, name)) WITHOUT ROWID;
CREATE TABLE job_ranks (
  run_id TEXT NOT NULL, rank INTEGER NOT NULL, host TEXT, pid INTEGER, directory TEXT, rows INTEGER NOT NULL,
  first_step INTEGER, last_step INTEGER, PRIMARY KEY (run_id, rank)) WITHOUT ROWID;
CREATE TABLE job_revisions (
  run_id TEXT NOT NULL, revision INTEGER NOT NULL, effective_step INTEGER NOT NULL, is_on INTEGER NOT NULL,
  cause TEXT NOT NULL, by TEXT NOT NULL, config TEXT NOT NULL, PRIMARY KEY (run_id, revision)) WITHOUT ROWID;
CREATE TABLE job_problems (number INTEGER PRIMARY KEY, text TEXT NOT NULL);
CREATE TABLE job_gaps (
  metric_id INTEGER NOT NULL, rank INTEGER NOT NULL, missing TEXT NOT NULL, first_step INTEGER NOT NULL,
  last_step INTEGER NOT NULL, steps INTEGER NOT NULL, fewest_rows INTEGER NOT NULL,
  most_rows INTEGER NOT NULL,
  PRIMARY KEY (metric_id, rank, missing, first_step)) WITHOUT ROWID"""
_ABOUT = {
    "job_runs": "the starts of the job: id, where its output was, when it began, number of ranks, the scope "
    "of each parameter on rank 0 (JSON)",
    "job_versions": "of gradmon, torch and others, in each run",
    "job_ranks": "the ranks of each run: host, process, the newest directory, the rows that were taken from "
    "all of its directories and their steps; a rank without a directory has written nothing",
    "job_revisions": "the plans of each run: from which step on, on or off, why, by whom, and the config "
    "(JSON)",
    "job_gaps": "steps of which a rank has no row of a metric although another rank has (missing 'step'), or "
    "fewer rows than in its fullest step (missing 'rows'): rows that were dropped, or targets that "
    "took no part",
    "job_problems": "what could not be read of the job's output, with file and line; the last one counts the "
    "others",
    "v_metrics": "all values: rank, step, metric, target, vpp_stage, micro_step, op, value; NULL is NaN",
    "v_nonfinite": "the values that are not finite",
    "v_layer_step": "the targets of a layer together",
}
# Several places may hold one rank of a run, each with some of its properties.
_JOIN_RANKS = (
    "ON CONFLICT DO UPDATE SET host = coalesce(host, excluded.host), pid = coalesce(pid, excluded.pid), "
    "directory = coalesce(excluded.directory, directory), rows = rows + excluded.rows, "
    "first_step = coalesce(min(first_step, excluded.first_step), first_step, excluded.first_step), "
    "last_step = coalesce(max(last_step, excluded.last_step), last_step, excluded.last_step)"
)
_MOST_IMPLIED_RANKS = 1_000_000


class JobRun(NamedTuple):
    """One start of the job."""

    run: Run
    output_dir: Path
    notes: "dict[str, Any]"  # the contents of its run-{id}.json; empty without the file


def _of_type(notes: "dict[str, Any]", key: str, default: Any) -> Any:
    """The value of a key; the default if it is missing or has another type."""
    value = notes.get(key, default)
    if isinstance(default, int) and isinstance(value, int) and abs(value) >= 2**63:
        return default
    return value if type(value) is type(default) else default


def _objects(notes: "dict[str, Any]", key: str) -> "list[dict[str, Any]]":
    return [each for each in _of_type(notes, key, []) if isinstance(each, dict)]


def job_runs(places: "list[Path]", problems: Problems) -> "list[JobRun]":
    """The runs at the places, in the order given, each once. Raises CommandError, which names the place and
    the expected input. A run-{id}.json that cannot be read is a problem."""
    jobs = []
    read: "dict[Path, list[Run]]" = {}  # output directories
    known: "set[Path]" = set()  # directories of ranks

    def runs_at(output_dir: Path) -> "list[Run]":
        if output_dir not in read:
            read[output_dir] = runs_in(output_dir, problems)
        return read[output_dir]

    for place in (Path(os.path.abspath(place)) for place in places):
        id = id_of_run_file(place.name) if place.is_file() else ""
        output_dir = place if place.is_dir() and runs_at(place) else place.parent
        runs = runs_at(output_dir) if id or output_dir == place else []
        runs = [run for run in runs if not id or run.id == id] or [find_run(place, "", Problems())]
        of_notes = Problems() if output_dir in read else problems  # runs_in() has read the notes, too
        for run in runs:
            fresh = [rank for rank in run.ranks if rank.path not in known]
            known.update(rank.path for rank in fresh)
            if fresh:
                file = output_dir / f"run-{run.id}.json"
                notes = read_format_1(file, MOST_RUN_FILE_BYTES, of_notes) if file.exists() else None
                jobs.append(JobRun(run._replace(ranks=fresh), output_dir, notes or {}))
    return jobs


class _Extent:
    """The rows and steps that are taken of a rank and run."""

    def __init__(self) -> None:
        self.rows = 0
        self.steps: "set[int]" = set()


class _BytesOnly(Meter):
    """Counts no rows: they are counted when they are written."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    def add(self, rows: int = 0, repeated: int = 0, bytes: int = 0) -> None:
        self._meter.add(bytes=bytes)


def _write_start(
    start: RankInput, writer: PartWriter, taken: "dict[str, set[int]]", extent: _Extent, meter: Meter,
    problems: Problems,
) -> None:  # fmt: skip
    """Writes the output of one start in the directory of one rank: the rows of its database, then the rows of
    its CSV files that the database lacks. Later starts come first: skips steps of a kind that are `taken`."""
    file = start.starts[0] / FILE
    tables = [
        (kind, [table]) for kind, found in database_kinds(file.parent, problems).items() for table in found
    ]
    size = file.stat().st_size // len(tables) if tables else 0
    files = chosen_files(start, problems, kind_files_in)
    own: "dict[str, set[int]]" = {}
    for number, (kind, of_kind) in enumerate([*tables, *files.items()]):
        rows = RankRows(kind, of_kind, _BytesOnly(meter), problems)
        writer.begin_kind(kind, rows.target)
        for batch in rows:
            steps = set(numpy.unique(batch.step).tolist())
            repeated = numpy.isin(batch.step, list(steps & taken.get(kind, set())))
            meter.add(repeated=int(repeated.sum()))
            batch = batch.take(~repeated)
            if batch.rows:
                steps -= taken.get(kind, set())
                own.setdefault(kind, set()).update(steps)
                extent.steps |= steps
                written = writer.write(batch)
                extent.rows += written
                meter.add(rows=written)
        meter.add(bytes=size if number < len(tables) else 0)
    writer.finish()
    for kind, steps in own.items():
        taken.setdefault(kind, set()).update(steps)


def merge_job(runs: "list[JobRun]", path: Path, meter: Meter, problems: Problems) -> None:
    """Makes one database of all rows of the runs. If several have a step and kind on a rank, the rows of the
    last one are taken. Raises CommandError, which names the file, and Interrupted."""
    ranks: "dict[int, list[tuple[int, Path]]]" = {}
    for index, job in enumerate(runs):
        for rank, directory in job.run.ranks:
            ranks.setdefault(rank, []).append((index, directory))
    extents: "defaultdict[tuple[int, int], _Extent]" = defaultdict(_Extent)
    try:
        database = NewDatabase(path, PARTITION_STEPS)
        for rank, starts in sorted(ranks.items()):
            taken: "dict[str, set[int]]" = {}
            scopes = stored_scopes([directory for _, directory in starts], problems)
            tensors = Tensors()
            for index, directory in reversed(starts):
                part, start = PartWriter(database, rank, scopes, tensors), RankInput(rank, [directory])
                _write_start(start, part, taken, extents[index, rank], meter, problems)
        _write_job_tables(database, runs, extents, problems)
        _write_gaps(database)
        database.finish()
    except (sqlite3.Error, OSError) as error:
        raise CommandError(f"{path}: {getattr(error, 'strerror', None) or error}") from None


def _write_job_tables(
    database: NewDatabase, runs: "list[JobRun]", extents: "dict[tuple[int, int], _Extent]", problems: Problems
) -> None:
    for statement in _TABLES.split(";"):
        database.run(statement)

    def insert(table: str, *values: Any, known: str = "ON CONFLICT DO NOTHING") -> None:
        texts = [one.encode("utf-8", "replace").decode() if isinstance(one, str) else one for one in values]
        places = ", ".join("?" * len(values))
        database.run(f"INSERT INTO {table} VALUES ({places}) {known}", texts)

    insert("job_about", "made_by", f"gradmonctl convert merge {__version__}")
    for about in _ABOUT.items():
        insert("job_about", *about)
    for index, (run, output_dir, notes) in enumerate(runs):
        size = _of_type(notes, "world_size", -1)
        scopes = json_text(notes["scopes"]) if "scopes" in notes else None
        left_out = _of_type(notes, "revisions_left_out", 0)
        insert(
            "job_runs", run.id, str(output_dir), run.started, size if size >= 0 else None, left_out, scopes
        )
        for name, version in _of_type(notes, "versions", {}).items():
            if isinstance(version, str):
                insert("job_versions", run.id, name, version)
        for values in _ranks_of(runs[index], index, extents):
            insert("job_ranks", run.id, *values, known=_JOIN_RANKS)
        for one in _objects(notes, "revisions"):
            defaults = {"revision": 0, "effective_step": 0, "on": False, "cause": "", "by": ""}
            texts = [_of_type(one, key, default) for key, default in defaults.items()]
            config = json_text(one["config"]) if "config" in one else ""
            insert("job_revisions", run.id, *texts, config)
    for number, message in enumerate(problems.messages(), 1):
        insert("job_problems", number, message)


def _ranks_of(
    job: JobRun, index: int, extents: "dict[tuple[int, int], _Extent]"
) -> "Iterator[tuple[Any, ...]]":
    """Every rank that the run's file names, that has a directory, or that the number of ranks implies."""
    size = _of_type(job.notes, "world_size", -1)
    directories = dict.fromkeys(range(min(size, _MOST_IMPLIED_RANKS)), "")
    notes = {_of_type(note, "rank", -1): note for note in _objects(job.notes, "ranks")}
    directories.update(dict.fromkeys(notes, ""))
    directories.update((rank, str(path)) for rank, path in job.run.ranks)
    for rank, directory in sorted(directories.items()):
        note = notes.get(rank, {})
        taken = extents.get((index, rank), _Extent())
        texts = (_of_type(note, "host", "") or None, _of_type(note, "pid", 0) or None, directory or None)
        yield rank, *texts, taken.rows, min(taken.steps, default=None), max(taken.steps, default=None)


# Consecutive collected steps of which a rank lacks either all or rows in each; `place`: of a step among all.
_GAPS = """
INSERT INTO job_gaps
WITH
  most AS (SELECT rank, max(n) AS most FROM counts GROUP BY rank),
  places AS (SELECT step, row_number() OVER (ORDER BY step) AS place FROM (SELECT DISTINCT step FROM counts)),
  held AS (SELECT rank, step, place, coalesce(n, 0) AS n, most, iif(n IS NULL, 'step', 'rows') AS missing
    FROM most CROSS JOIN places LEFT JOIN counts USING (rank, step) WHERE n IS NULL OR n < most),
  gaps AS (SELECT *, place - row_number() OVER (PARTITION BY rank, missing ORDER BY place) AS gap FROM held)
SELECT ?, rank, missing, min(step), max(step), count(*), min(n), most FROM gaps GROUP BY rank, missing, gap"""


def _write_gaps(database: NewDatabase) -> None:
    database.run("CREATE TEMP TABLE counts (rank, step, n, PRIMARY KEY (rank, step)) WITHOUT ROWID")
    for metric in database.metrics:
        database.run("DELETE FROM counts")
        for table in metric.partitions.values():
            database.run(f"INSERT INTO counts SELECT rank, step, count(*) FROM {table} GROUP BY rank, step")
        database.run(_GAPS, (metric.id,))


def perform(arguments: argparse.Namespace) -> int:
    places = [Path(place) for place in arguments.RUN] or [default_output_dir()]
    problems = Problems()
    runs = job_runs(places, problems)
    directories = [directory for job in runs for directory in job.run.ranks]
    size = sum(
        entry.stat().st_size
        for directory in directories
        for entry in (directory.path.iterdir() if directory.path.is_dir() else ())
        if entry.is_file() and (entry.name == FILE or parse_kind_file(entry))
    )
    ranks = sorted({directory.rank for directory in directories})
    write = partial(merge_job, runs)
    return run_conversion(
        ", ".join(map(str, places)), ranks, size, Path(arguments.o), NOTHING, write, problems
    )
