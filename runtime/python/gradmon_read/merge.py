# SPDX-License-Identifier: Apache-2.0
"""One SQLite database of a whole job, with tables that describe the job (CONVERT.md). Needs pyarrow."""
import argparse
import os
import sqlite3
from pathlib import Path
from typing import Any, Iterator, NamedTuple

import numpy

from gradmon_read import __version__
from gradmon_read.command_line import CommandError, default_output_dir
from gradmon_read.conversion import NOTHING, Conversion, Meter, run_conversion
from gradmon_read.csv_tables import KindFile, Problems, kind_files_in, parse_kind_file
from gradmon_read.database_rows import kinds_in
from gradmon_read.metrics_database import PARTITION_STEPS, NewDatabase, PartWriter, Tensors, stored_scopes
from gradmon_read.rank_database import FILE
from gradmon_read.rank_rows import RankInput, RankRows, chosen_files
from gradmon_read.runs import (
    MOST_RUN_FILE_BYTES,
    RankDirectory,
    Run,
    find_run,
    id_of_run_file,
    json_text,
    parse_rank_directory,
    read_format_1,
    runs_in,
)

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


class _RunFinder:
    """Finds the runs that places name. Reads each output directory once."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._known: "dict[Path, list[Run]]" = {}

    def find(self, place: Path) -> "tuple[Path, list[Run], Problems]":
        """The output directory, the chosen runs, and what receives the problems of their run-{id}.json."""
        reported_already = Problems()
        whole = Path(os.path.abspath(place))
        if whole.is_dir():
            runs = self._runs_in(whole)
            if runs:
                return whole, runs, reported_already
            # find_run() recognizes a rank's directory by its CSV files; it may have only a database.
            name = parse_rank_directory(whole.name)
            if name:
                return (
                    whole.parent,
                    [Run(name.id, name.time, [RankDirectory(name.rank, whole)])],
                    self._problems,
                )
        elif id_of_run_file(whole.name) and whole.is_file():
            for run in self._runs_in(whole.parent):
                if run.id == id_of_run_file(whole.name):
                    return whole.parent, [run], reported_already
        return whole.parent, [find_run(whole, "", self._problems)], reported_already

    def _runs_in(self, output_dir: Path) -> "list[Run]":
        if output_dir not in self._known:
            self._known[output_dir] = runs_in(output_dir, self._problems)
        return self._known[output_dir]


def job_runs(places: "list[Path]", problems: Problems) -> "list[JobRun]":
    """The runs at the places, in the order given, each once. Raises CommandError, which names the place and
    the expected input. A run-{id}.json that cannot be read is a problem."""
    jobs = []
    finder = _RunFinder(problems)
    known: "set[Path]" = set()  # directories of ranks
    for place in places:
        output_dir, runs, of_notes = finder.find(place)
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

    def add(self, rows: int, steps: "set[int]") -> None:
        self.rows += rows
        self.steps |= steps


class _BytesOnly(Meter):
    """Counts no rows: they are counted when they are written."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    def add(self, rows: int = 0, repeated: int = 0, bytes: int = 0) -> None:
        self._meter.add(bytes=bytes)


class _StartWriter:
    """Writes the output of one start in the directory of one rank: the rows of its database, then the rows of
    its CSV files that the database lacks. Later starts come first: skips steps of a kind that they have."""

    def __init__(
        self, rank: int, writer: PartWriter, taken: "dict[str, set[int]]", meter: Meter, problems: Problems
    ) -> None:
        self.extent = _Extent()
        self.steps: "dict[str, set[int]]" = {}  # by kind
        self._rank, self._writer, self._taken = rank, writer, taken
        self._meter, self._problems = meter, problems

    def write(self, directory: Path) -> None:
        stored = kinds_in(directory, self._problems)
        size = (directory / FILE).stat().st_size // sum(map(len, stored.values())) if stored else 0
        for kind, tables in stored.items():
            for table in tables:
                self._write(kind, [table])
                self._meter.add(bytes=size)
        files = chosen_files(RankInput(self._rank, [directory]), self._problems, kind_files_in)
        for kind, of_kind in files.items():
            self._write(kind, of_kind)
        self._writer.finish()

    def _write(self, kind: str, files: "list[KindFile]") -> None:
        rows = RankRows(kind, files, _BytesOnly(self._meter), self._problems)
        self._writer.begin_kind(kind, rows.target)
        for batch in rows:
            taken = self._taken.get(kind, set())
            repeated = numpy.isin(
                batch.step, [one for one in numpy.unique(batch.step).tolist() if one in taken]
            )
            self._meter.add(repeated=int(repeated.sum()))
            batch = batch.take(~repeated)
            if batch.rows:
                found = set(numpy.unique(batch.step).tolist())
                self.steps.setdefault(kind, set()).update(found)
                written = self._writer.write(batch)
                self.extent.add(written, found)
                self._meter.add(rows=written)


def merge_job(runs: "list[JobRun]", path: Path, meter: Meter, problems: Problems) -> None:
    """Makes one database of all rows of the runs. If several have a step and kind on a rank, the rows of the
    last one are taken. Raises CommandError, which names the file, and Interrupted."""
    ranks: "dict[int, list[tuple[int, Path]]]" = {}
    for index, job in enumerate(runs):
        for rank, directory in job.run.ranks:
            ranks.setdefault(rank, []).append((index, directory))
    extents: "dict[tuple[int, int], _Extent]" = {}
    try:
        database = NewDatabase(path, PARTITION_STEPS)
        for rank, starts in sorted(ranks.items()):
            taken: "dict[str, set[int]]" = {}
            scopes = stored_scopes([directory for _, directory in starts], problems)
            tensors = Tensors()
            for index, directory in reversed(starts):
                part = PartWriter(database, rank, scopes, tensors)
                writer = _StartWriter(rank, part, taken, meter, problems)
                writer.write(directory)
                extents.setdefault((index, rank), _Extent()).add(writer.extent.rows, writer.extent.steps)
                for kind, steps in writer.steps.items():
                    taken.setdefault(kind, set()).update(steps)
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
            insert(
                "job_revisions",
                run.id,
                _of_type(one, "revision", 0),
                _of_type(one, "effective_step", 0),
                int(_of_type(one, "on", False)),
                _of_type(one, "cause", ""),
                _of_type(one, "by", ""),
                json_text(one["config"]) if "config" in one else "",
            )
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
        yield (
            rank,
            _of_type(note, "host", "") or None,
            _of_type(note, "pid", 0) or None,
            directory or None,
            taken.rows,
            min(taken.steps, default=None),
            max(taken.steps, default=None),
        )


class _Gap(NamedTuple):
    """Consecutive collected steps. The rank lacks either all of these steps or rows in each."""

    missing: str  # "step" or "rows"; "": no gap
    first_step: int
    last_step: int
    steps: int
    fewest_rows: int


def _write_gaps(database: NewDatabase) -> None:
    for metric in database.metrics:
        rows: "dict[int, dict[int, int]]" = {}  # by step, by rank
        for _, table in sorted(metric.partitions.items()):
            counts = f"SELECT rank, step, count(*) FROM {table} GROUP BY rank, step"
            for rank, step, count in database.run(counts):
                rows.setdefault(step, {})[rank] = count
        most: "dict[int, int]" = {}
        for by_rank in rows.values():
            for rank, count in by_rank.items():
                most[rank] = max(most.get(rank, 0), count)
        for rank in sorted(most):
            for gap in _gaps(most[rank], ((step, rows[step].get(rank, 0)) for step in sorted(rows))):
                values = (metric.id, rank, *gap, most[rank])
                database.run("INSERT INTO job_gaps VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)


def _gaps(most: int, rows: "Iterator[tuple[int, int]]") -> "Iterator[_Gap]":
    """`most`: the rows of the fullest step; `rows`: by step."""
    gap = _Gap("", 0, 0, 0, 0)
    for step, count in rows:
        missing = "step" if count == 0 else "rows" if count < most else ""
        if missing != gap.missing:
            if gap.missing:
                yield gap
            gap = _Gap(missing, step, step, 0, count)
        gap = gap._replace(last_step=step, steps=gap.steps + 1, fewest_rows=min(gap.fewest_rows, count))
    if gap.missing:
        yield gap


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
    conversion = Conversion(
        input=", ".join(map(str, places)),
        ranks=sorted({directory.rank for directory in directories}),
        bytes=size,
        target=Path(arguments.o),
        earlier=NOTHING,
        write=lambda path, meter, problems: merge_job(runs, path, meter, problems),
    )
    return run_conversion(conversion, problems)
