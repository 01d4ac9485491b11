# SPDX-License-Identifier: Apache-2.0
"""Makes a database of metrics (FORMAT.md, "SQLite"), with the tables and views of the ranks' own sink. Needs
pyarrow."""
import argparse
import os
import re
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, Optional, Tuple

import numpy

from gradmon_read.command_line import CommandError
from gradmon_read.conversion import FILE, NOTHING, Meter, Target, Task, converted, make_directories
from gradmon_read.conversion import request_of
from gradmon_read.kind_rows import Batch, grown
from gradmon_read.listing import Problems
from gradmon_read.rank_database import FILE as DATABASE
from gradmon_read.rank_database import APPLICATION_ID, LAST_STEP, SCHEMA_VERSION, nan_bit, sql_name, sql_text
from gradmon_read.runs import directory_name, json_text, parse_rank_directory, read_format_1
from gradmon_read.vocabulary import COLUMN_ORDER, DTYPES, KINDS, KINDS_WITH_MICRO_STEPS, OPS
from gradmon_read.vocabulary import SAMPLE_MARKS, SQL_FOLDS, stats_of

PARTITION_STEPS = 500  # of one table, unless the user says otherwise

# The journal holds only pages that existed when the transaction began: almost none.
_SETTINGS = """
PRAGMA page_size = 8192; PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF;
PRAGMA locking_mode = EXCLUSIVE; PRAGMA cache_size = -32768; PRAGMA temp_store = MEMORY;
"""
_TABLES = """
CREATE TABLE monitoring_targets (
  target_id INTEGER PRIMARY KEY,
  target_name TEXT NOT NULL,
  vpp_stage INTEGER NOT NULL,
  micro_step INTEGER NOT NULL DEFAULT 0,
  UNIQUE (target_name, vpp_stage, micro_step));
CREATE TABLE monitoring_metrics (metric_id INTEGER PRIMARY KEY, metric_name TEXT NOT NULL UNIQUE);
CREATE TABLE metric_stats (
  metric_id INTEGER NOT NULL, stat_name TEXT NOT NULL, PRIMARY KEY (metric_id, stat_name)) WITHOUT ROWID;
CREATE TABLE global_stats (stat_name TEXT PRIMARY KEY, stat_value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE target_tensors (
  metric_id INTEGER NOT NULL,
  target_id INTEGER NOT NULL,
  rank INTEGER NOT NULL,
  step INTEGER NOT NULL,
  shape TEXT NOT NULL,
  dtype TEXT NOT NULL,
  PRIMARY KEY (metric_id, target_id, rank, step)) WITHOUT ROWID;
CREATE TABLE target_scope (
  metric_id INTEGER NOT NULL,
  target_id INTEGER NOT NULL,
  rank INTEGER NOT NULL,
  scope TEXT NOT NULL,
  detail TEXT NOT NULL,
  PRIMARY KEY (metric_id, target_id, rank)) WITHOUT ROWID;
CREATE TABLE target_layers (target_name TEXT PRIMARY KEY, layer TEXT NOT NULL) WITHOUT ROWID;
"""
_NO_VALUES = (
    "SELECT 0 AS rank, 0 AS step, '' AS metric, '' AS target, 0 AS vpp_stage, 0 AS micro_step, '' AS op, "
    "0.0 AS value WHERE 0"
)
_NONFINITE = (
    "SELECT rank, step, metric, target, vpp_stage, micro_step, op, CASE WHEN value IS NULL THEN 'nan' "
    "WHEN value = 9e999 THEN 'inf' WHEN value = -9e999 THEN '-inf' ELSE value END AS value FROM "
    "v_metrics WHERE value IS NULL OR value = 9e999 OR value = -9e999 OR (op = 'nans' AND value > 0)"
)
_LAYER_STEP = (
    "SELECT rank, step, metric, vpp_stage, micro_step, layer, op, count(*) AS targets, count(*) - "
    "count(value) AS nan_targets, min(value) AS least, max(value) AS greatest, CASE WHEN count(value) < "
    f"count(*) THEN NULL ELSE CASE op {SQL_FOLDS} END END AS value FROM v_metrics JOIN target_layers ON "
    "target_name = target GROUP BY rank, step, metric, vpp_stage, micro_step, layer, op"
)
_ROWS_OF_INSERT = 64  # nearly twice as fast as single ones
_TERMS_OF_VIEW = 400  # SQLite refuses a union of more than 500
_MOST_EXACT = 2**53  # a float has every integer up to here
_MOST_SCOPES_BYTES = 256 << 20
_SCOPED = re.compile(r"(\d{1,9}):(.*)", re.ASCII | re.DOTALL)


def metric_id_of(kind: str) -> int:
    return KINDS.index(kind) + 1


def layer_of(target: bytes) -> bytes:
    """The name up to the first part that is a number, "layers.3" of "layers.3.fc.weight"; "" without one."""
    match = re.match(rb"[^.]*(?:\.[^.]*)*?\.[0-9]+(?=\.|\Z)", target)
    return match[0] if match else b""


class _Metric:
    def __init__(self, kind: str) -> None:
        self.id = metric_id_of(kind)
        self.kind = kind
        self.stats: "list[str]" = []  # in the order of columns
        self.partitions: "dict[int, str]" = {}  # tables, by first step

    def views(self) -> "dict[str, str]":
        """v_metric_{id} over the partitions; for many of them helper views too, which come first."""
        columns = ", ".join(["rank, step, target_id, nan_mask", *map(sql_name, self.stats)])
        name = f"v_metric_{self.id}"
        parts = list(self.partitions.values())
        views: "dict[str, str]" = {}

        def union(tables: "list[str]") -> str:
            return " UNION ALL ".join(f"SELECT {columns} FROM {table}" for table in tables)

        if len(parts) > _TERMS_OF_VIEW:
            for first in range(0, len(parts), _TERMS_OF_VIEW):
                views[f"{name}_{len(views)}"] = union(parts[first : first + _TERMS_OF_VIEW])
            parts = list(views)
        return {**views, name: union(parts)}

    def select(self) -> str:
        """Its rows of v_metrics."""

        def case(values: "list[str]") -> str:
            pairs = zip(map(sql_text, self.stats), values)
            return (
                "CASE s.stat_name" + "".join(f" WHEN {stat} THEN {value}" for stat, value in pairs) + " END"
            )

        value = case([f"m.{sql_name(stat)}" for stat in self.stats])
        bit = case([str(nan_bit(stat)) for stat in self.stats])
        return (
            f"SELECT m.rank AS rank, m.step AS step, {sql_text(self.kind)} AS metric, t.target_name AS "
            "target, t.vpp_stage AS vpp_stage, t.micro_step AS micro_step, s.stat_name AS op, "
            f"{value} AS value FROM v_metric_{self.id} m CROSS JOIN metric_stats s CROSS JOIN "
            f"monitoring_targets t WHERE s.metric_id = {self.id} AND t.target_id = m.target_id AND ({value} "
            f"IS NOT NULL OR m.nan_mask >> {bit} & 1)"
        )


class NewDatabase:
    """A database that is made in one transaction, in a file that no other process knows. After an error, the
    file is useless. Methods raise sqlite3.Error and OSError."""

    def __init__(self, path: Path, partition_steps: int) -> None:
        self.partition_steps = partition_steps
        self._path = path
        self._metrics: "dict[str, _Metric]" = {}  # by kind
        self._views: "dict[str, str]" = {}  # made since begin_part()
        self._targets: "dict[tuple[bytes, int, int], int]" = {}  # by name, vpp_stage and micro_step
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640))
        self.connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self.run = self.connection.execute
        self.run_many = self.connection.executemany
        for statement in f"{_SETTINGS}BEGIN IMMEDIATE;{_TABLES}".split(";"):
            self.run(statement)
        for name, number in (("schema_version", SCHEMA_VERSION), ("step_partition_size", partition_steps)):
            self.run("INSERT INTO global_stats VALUES (?, ?)", (name, number))
        views = {"v_metrics": _NO_VALUES, "v_nonfinite": _NONFINITE, "v_layer_step": _LAYER_STEP}
        for name, select in views.items():
            self.run(f"CREATE VIEW {name} AS {select}")
        self.run(f"PRAGMA application_id = {APPLICATION_ID}")
        self.run(f"PRAGMA user_version = {SCHEMA_VERSION}")

    @property
    def metrics(self) -> "list[_Metric]":
        """By id."""
        return sorted(self._metrics.values(), key=lambda metric: metric.id)

    def begin_part(self) -> None:
        """Call it before the rows of another rank, kind or start."""
        self._views = {}
        for metric in self._metrics.values():
            metric.partitions = dict(sorted(metric.partitions.items()))

    def partition(self, kind: str, step: int, stats: "list[str]") -> str:
        """The table for a step. Adds what is missing: the metric, columns, the table, views."""
        if kind not in self._metrics:
            self._metrics[kind] = _Metric(kind)
            self.run("INSERT INTO monitoring_metrics VALUES (?, ?)", (metric_id_of(kind), kind))
        metric = self._metrics[kind]
        new = [stat for stat in stats if stat not in metric.stats]
        for stat in new:
            self.run("INSERT INTO metric_stats VALUES (?, ?)", (metric.id, stat))
            for table in metric.partitions.values():
                self.run(f"ALTER TABLE {table} ADD COLUMN {sql_name(stat)} REAL")
        metric.stats = sorted([*metric.stats, *new], key=COLUMN_ORDER.index)
        first = step - step % self.partition_steps
        if first not in metric.partitions:
            table = f"metric_{metric.id}_step_{first}_{min(first + self.partition_steps - 1, LAST_STEP)}"
            columns = "".join(f"{sql_name(stat)} REAL, " for stat in metric.stats)
            self.run(
                f"CREATE TABLE {table} (rank INTEGER NOT NULL, step INTEGER NOT NULL, target_id INTEGER "
                f"NOT NULL, {columns}nan_mask INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (rank, step, "
                "target_id)) WITHOUT ROWID"
            )
            metric.partitions[first] = table
        elif not new:
            return metric.partitions[first]
        selects = [f"{each.select()}" for each in self.metrics if each.partitions]
        for name, select in {**metric.views(), "v_metrics": " UNION ALL ".join(selects)}.items():
            if self._views.get(name) != select:
                self.run(f"DROP VIEW IF EXISTS {name}")
                self.run(f"CREATE VIEW {name} AS {select}")
                self._views[name] = select
        return metric.partitions[first]

    def target_id(self, name: bytes, vpp_stage: int, micro_step: int) -> int:
        """Adds an unknown target."""
        key = (name, vpp_stage, micro_step)
        if key not in self._targets:
            self._targets[key] = len(self._targets) + 1
            values = (self._targets[key], *key)
            self.run("INSERT INTO monitoring_targets VALUES (?, CAST(? AS TEXT), ?, ?)", values)
            layer = layer_of(name)
            if layer:
                layers = "INSERT OR IGNORE INTO target_layers VALUES (CAST(? AS TEXT), CAST(? AS TEXT))"
                self.run(layers, (name, layer))
        return self._targets[key]

    def finish(self) -> None:
        """Commits, closes and syncs the file."""
        self.run("COMMIT")
        self.connection.close()
        with open(self._path, "rb+") as file:
            os.fsync(file.fileno())


class Tensors:
    """Small numbers for shapes and data types; 0 is the empty shape without a type."""

    MOST_SHAPES, MOST_BYTES = 1 << 18, 64 << 20

    def __init__(self) -> None:
        self.shapes = [b""]
        self._ids = {b"": 0}
        self._bytes = 0

    def id_of(self, shape: bytes, dtype: bytes) -> int:
        """Beyond MOST_SHAPES, a new shape is as an empty one."""
        if shape not in self._ids:
            if len(self.shapes) > self.MOST_SHAPES or self._bytes + len(shape) > self.MOST_BYTES:
                shape = b""
            else:
                self._ids[shape] = len(self.shapes)
                self.shapes.append(shape)
                self._bytes += len(shape)
        return self._ids[shape] << 8 | (DTYPES.index(dtype) + 1 if dtype in DTYPES else 0)

    def texts(self, id: int) -> "tuple[bytes, bytes]":
        return self.shapes[id >> 8], DTYPES[(id & 255) - 1] if id & 255 else b""


Scopes = Dict[Tuple[str, int, bytes], str]  # JSON texts, by kind, vpp_stage and name


def stored_scopes(directories: "list[Path]", problems: Problems) -> Scopes:
    """The contents of one rank's scopes.json files. If several have a target and kind, the last one counts.
    A directory without the file is no problem."""
    scopes: Scopes = {}
    for file in [directory / "scopes.json" for directory in directories]:
        if not file.exists():
            continue
        value = read_format_1(file, _MOST_SCOPES_BYTES, problems, "; target_scope lacks what it has") or {}
        targets = value.get("targets", {})
        if not isinstance(targets, dict):
            problems.add(file, 0, 'expected an object of "targets"; target_scope lacks what it has')
            continue
        for name, kinds in targets.items():
            target = _SCOPED.fullmatch(name)
            for kind, scope in kinds.items() if target and isinstance(kinds, dict) else ():
                label = scope.get("scope") if isinstance(scope, dict) else None
                if target and kind in KINDS and isinstance(label, str):
                    others = sorted(item for item in scope.items() if item[0] != "scope")
                    encoded = target[2].encode("utf-8", "replace")
                    scopes[(kind, int(target[1]), encoded)] = json_text({"scope": label, **dict(others)})
    return scopes


class PartWriter:
    """Writes the rows of one rank, kind by kind. The first of two rows of a target in a step stays."""

    def __init__(self, database: NewDatabase, rank: int, scopes: Scopes, tensors: Tensors) -> None:
        self._database = database
        self._rank = rank
        self._scopes = scopes
        self._tensors = tensors
        self._tensors_of_kind: "dict[str, Any]" = {}  # of the last row, by id
        self._steps: "tuple[int, int]" = (LAST_STEP, -1)
        database.begin_part()

    def begin_kind(self, kind: str, target: "Callable[[int], Target]") -> None:
        """`target`: of a number in Batch.name."""
        self._kind = kind
        self._target = target
        self._ids = numpy.zeros(1024, numpy.int64)  # of targets in the database, by number

    def write(self, batch: Batch) -> int:
        """Writes rows with ascending steps. Returns the number of new rows."""
        ids = self._target_ids(batch.name)
        ops = [
            op
            for op in (*OPS, *SAMPLE_MARKS)
            if op in batch.values and (op not in batch.absent or batch.has(op).any())
        ]
        stats = stats_of(self._kind, ops)
        partitions = batch.step // self._database.partition_steps
        begins = numpy.flatnonzero(numpy.diff(partitions, prepend=-1)).tolist()
        written = 0
        for first, last in zip(begins, [*begins[1:], len(partitions)]):
            table = self._database.partition(self._kind, int(batch.step[first]), stats)
            before = self._database.connection.total_changes
            self._insert(table, batch.take(slice(first, last)), ids[first:last], stats)
            written += self._database.connection.total_changes - before
        self._note_tensors(ids, batch)
        low, high = self._steps
        self._steps = (min(low, int(batch.step.min())), max(high, int(batch.step.max())))
        return written

    def _target_ids(self, numbers: Any) -> Any:
        self._ids = grown(self._ids, int(numbers.max()) + 1)
        for number in dict.fromkeys(numbers[self._ids[numbers] == 0].tolist()):
            stage, name, micro_step = self._target(number)
            has_micro_step = self._kind in ("grad_unreduced", *KINDS_WITH_MICRO_STEPS)
            id = self._database.target_id(name, stage, max(micro_step, 0) if has_micro_step else 0)
            self._ids[number] = id
            detail = self._scopes.get((self._kind, stage, name))
            if detail is not None:
                # A text that is no JSON for SQLite does not mean a damaged file.
                self._database.run(
                    "INSERT OR REPLACE INTO target_scope VALUES (?1, ?2, ?3, "
                    "coalesce(CASE WHEN json_valid(?4) THEN json_extract(?4, '$.scope') END, ''), ?4)",
                    (metric_id_of(self._kind), id, self._rank, detail),
                )
        return self._ids[numbers]

    def _insert(self, table: str, rows: Batch, ids: Any, stats: "list[str]") -> None:
        present = [stat for stat in stats if stat in rows.values]
        mask = numpy.zeros(rows.rows, numpy.int64)
        for stat in present:
            nans = numpy.isnan(rows.values[stat])
            if nans.any():
                mask |= (nans & rows.has(stat)).astype(numpy.int64) << nan_bit(stat)
        names = ["step", "target_id", *map(sql_name, present)]
        columns = [rows.step, ids, *(rows.values[stat] for stat in present)]  # SQLite takes a NaN for a null
        if mask.any():
            names.append("nan_mask")
            columns.append(mask)
        # SQLite makes integers of floats in a column of integers.
        exact = rows.step.max() < _MOST_EXACT and mask.max() < _MOST_EXACT
        cells = numpy.empty((rows.rows, len(names)), float if exact else object)
        for i, column in enumerate(columns):
            cells[:, i] = column
        row = f"({self._rank}{', ?' * len(names)})"
        statement = f"INSERT OR IGNORE INTO {table} (rank, {', '.join(names)}) VALUES {row}"
        whole = rows.rows - rows.rows % _ROWS_OF_INSERT
        groups = cells[:whole].reshape(-1, _ROWS_OF_INSERT * len(names))
        more = f", {row}" * (_ROWS_OF_INSERT - 1)
        self._database.run_many(statement + more, map(numpy.ndarray.tolist, groups))
        self._database.run_many(statement, cells[whole:].tolist())

    def _note_tensors(self, ids: Any, batch: Batch) -> None:
        """A row of target_tensors for each change of a target's tensor."""
        pair = batch.shape.astype(numpy.int64) * len(batch.dtypes) + batch.dtype
        pairs = numpy.unique(pair) if (pair != pair[0]).any() else pair[:1]
        texts = [divmod(one, len(batch.dtypes)) for one in pairs.tolist()]
        known = numpy.array([self._tensors.id_of(batch.shapes[i], batch.dtypes[j]) for i, j in texts])
        tensors = known[numpy.searchsorted(pairs, pair)]
        last = self._tensors_of_kind.get(self._kind, numpy.zeros(1024, numpy.int64))
        last = self._tensors_of_kind[self._kind] = grown(last, int(ids.max()) + 1)
        if (last[ids] == tensors).all():
            return
        order = numpy.argsort(ids, kind="stable")
        sorted_ids, sorted_tensors = ids[order], tensors[order]
        before = last[sorted_ids]
        same = numpy.flatnonzero(sorted_ids[1:] == sorted_ids[:-1]) + 1
        before[same] = sorted_tensors[same - 1]
        changed = numpy.sort(order[before != sorted_tensors])
        last[ids] = tensors
        notes = zip(ids[changed].tolist(), batch.step[changed].tolist(), tensors[changed].tolist())
        metric = metric_id_of(self._kind)
        self._database.run_many(
            "INSERT OR REPLACE INTO target_tensors VALUES (?, ?, ?, ?, CAST(? AS TEXT), CAST(? AS TEXT))",
            ((metric, id, self._rank, step, *self._tensors.texts(tensor)) for id, step, tensor in notes),
        )

    def finish(self) -> None:
        low, high = self._steps
        if high < 0:
            return
        for name, number in (("max_rank", self._rank), ("min_step", low), ("max_step", high)):
            self._database.run(
                "INSERT INTO global_stats VALUES (?, ?) ON CONFLICT (stat_name) DO UPDATE SET "
                f"stat_value = {name[:3]}(stat_value, excluded.stat_value)",
                (name, number),
            )


def write_database(
    tasks: "list[Task]", path: Path, meter: Meter, problems: Problems, steps: int, name: Optional[str] = None
) -> None:
    """Makes the database `path`; with a name, the directory `path` and the database in it. `steps`: of one
    table. Raises CommandError, which names the file, and Interrupted."""
    if name:
        make_directories(path)
        path = path / name
    try:
        database = NewDatabase(path, steps)
        scopes: Scopes = {}
        for i, task in enumerate(tasks):
            if i == 0 or tasks[i - 1].rank != task.rank:
                scopes = stored_scopes(task.rank.starts, problems)
            writer = PartWriter(database, task.rank.rank, scopes, Tensors())
            rows = task.rows(meter, problems)
            writer.begin_kind(task.kind, rows.target)
            for batch in _ahead(rows):
                writer.write(batch)
            writer.finish()
        database.finish()
    except (sqlite3.Error, OSError) as error:
        raise CommandError(f"{path}: {getattr(error, 'strerror', None) or error}") from None


def _ahead(batches: "Iterable[Batch]") -> "Iterator[Batch]":
    """Reads the next one on another thread: writing sets the pace."""
    with ThreadPoolExecutor(1, "gradmon-convert") as pool:
        following: Any = partial(next, iter(batches), None)
        waiting = pool.submit(following)
        while (batch := waiting.result()) is not None:
            waiting = pool.submit(following)
            yield batch


def perform(arguments: argparse.Namespace) -> int:
    request = request_of(arguments)
    target = request.output or request.new_directory("csv2db", is_beside=False)
    write = partial(write_database, steps=arguments.step_partition)
    if not target.is_dir():
        return converted(request, target, NOTHING, partial(write, name=DATABASE))
    database = target / DATABASE
    of_job = parse_rank_directory(directory_name(target)) is not None
    in_use = of_job or any(os.path.exists(f"{database}{end}") for end in ("-wal", "-journal"))
    if database.exists() and in_use:
        raise CommandError(
            f"{database} is the database of a job, or in use; expected another --output-dirpath"
        )
    return converted(request, database, FILE, write)
