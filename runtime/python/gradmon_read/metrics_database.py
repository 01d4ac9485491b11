# SPDX-License-Identifier: Apache-2.0
"""Makes a database of metrics (FORMAT.md, "SQLite"), with the tables and views of the ranks' own sink."""
import os
import re
import sqlite3
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, NamedTuple, Tuple

import numpy

from gradmon_read.rank_database import (
    APPLICATION_ID,
    LAST_STEP,
    SCHEMA_VERSION,
    column_place,
    nan_bit,
    sql_name,
)
from gradmon_read.vocabulary import DTYPES, FOLDS, KINDS

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
_FOLDS = {"least": "min(value)", "greatest": "max(value)", "sum": "sum(value)"}
_FOLDS["root_of_squares"] = "sqrt(sum(value * value))"
_ROWS_OF_INSERT = 32  # nearly twice as fast as single ones
_TERMS_OF_VIEW = 400  # SQLite refuses a union of more than 500

# The statistics of kinds that have columns of their own; True: beside OPS.
_COLUMNS: "dict[str, tuple[list[str], bool]]" = {
    "attention_hook": (["entropy", "softmax_max"], False),
    "linear_hook": (["sr", "kernel_norm"], False),
    "other": (["mg_direction"], True),
    "moe_router_weight_hook": (["cosine"], False),
    "moe_router_logit_hook": (["entropy"], False),
    "scalar": (["samples", "value"], False),
    "update": ([], False),
    "ratio": ([], False),
}


def metric_id_of(kind: str) -> int:
    return KINDS.index(kind) + 1


def stats_of(kind: str, ops: "Iterable[str]") -> "list[str]":
    """The statistics of a kind in rows with some OPS, in the order of columns."""
    own, has_ops = _COLUMNS.get(kind, ([], True))
    return sorted([*own, *(ops if has_ops else ())], key=column_place)


def _sql_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _layer_step_view() -> str:
    folds = "".join(f" WHEN '{op}' THEN {_FOLDS[fold]}" for op, fold in FOLDS.items() if fold in _FOLDS)
    return (
        "SELECT rank, step, metric, vpp_stage, micro_step, layer, op, count(*) AS targets, count(*) - "
        "count(value) AS nan_targets, min(value) AS least, max(value) AS greatest, CASE WHEN count(value) < "
        f"count(*) THEN NULL ELSE CASE op{folds} END END AS value FROM v_metrics JOIN target_layers ON "
        "target_name = target GROUP BY rank, step, metric, vpp_stage, micro_step, layer, op"
    )


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
            pairs = zip(map(_sql_text, self.stats), values)
            return (
                "CASE s.stat_name" + "".join(f" WHEN {stat} THEN {value}" for stat, value in pairs) + " END"
            )

        value = case([f"m.{sql_name(stat)}" for stat in self.stats])
        bit = case([str(nan_bit(stat)) for stat in self.stats])
        return (
            f"SELECT m.rank AS rank, m.step AS step, {_sql_text(self.kind)} AS metric, t.target_name AS "
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
        views = {"v_metrics": _NO_VALUES, "v_nonfinite": _NONFINITE, "v_layer_step": _layer_step_view()}
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
        metric.stats = sorted([*metric.stats, *new], key=column_place)
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
        file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.fsync(file)
        finally:
            os.close(file)


class Values(NamedTuple):
    """Values of a kind, by row; steps ascend."""

    steps: Any
    keys: Any  # small numbers, each of a target and its micro step
    tensors: Any  # of Tensors.id_of()
    columns: "dict[str, tuple[Any, Any]]"  # by statistic: numbers, and if there is one (None: yes)

    def chosen(self, rows: Any) -> "Values":
        """`rows`: a slice, or a boolean for each."""
        columns = {
            stat: (numbers[rows], None if valid is None else valid[rows])
            for stat, (numbers, valid) in self.columns.items()
        }
        return Values(self.steps[rows], self.keys[rows], self.tensors[rows], columns)


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


class PartWriter:
    """Writes the rows of one rank, kind by kind. The first of two rows of a target in a step stays."""

    def __init__(self, database: NewDatabase, rank: int, scopes: Scopes, tensors: Tensors) -> None:
        self._database = database
        self._rank = rank
        self._scopes = scopes
        self._tensors = tensors
        self._ids = numpy.full(1024, 0)  # of targets in the database, by key
        self._tensors_of_kind: "dict[str, Any]" = {}  # of the last row, by id
        self._steps: "tuple[int, int]" = (LAST_STEP, -1)
        database.begin_part()

    def begin_keys(self) -> None:
        """The keys mean other targets from now on."""
        self._ids[:] = 0

    def begin_kind(self, kind: str) -> None:
        self._kind = kind
        self.begin_keys()

    def write(
        self, values: Values, stats: "list[str]", target_of: "Callable[[int], tuple[bytes, int, int]]"
    ) -> int:
        """Writes rows; `stats` are the columns of the tables, `target_of` the target of a key. Returns the
        number of new rows."""
        ids = self._target_ids(values.keys, target_of)
        before = self._database.connection.total_changes
        written = 0
        partitions = values.steps // self._database.partition_steps
        ends = [*(numpy.flatnonzero(partitions[1:] != partitions[:-1]) + 1).tolist(), len(partitions)]
        for first, last in zip([0, *ends], ends):
            table = self._database.partition(self._kind, int(values.steps[first]), stats)
            before = self._database.connection.total_changes
            self._insert(table, values.chosen(slice(first, last)), ids[first:last])
            written += self._database.connection.total_changes - before
        self._note_tensors(values, ids)
        low, high = self._steps
        self._steps = (min(low, int(values.steps[0])), max(high, int(values.steps[-1])))
        return written

    def _target_ids(self, keys: Any, target_of: "Callable[[int], tuple[bytes, int, int]]") -> Any:
        while len(self._ids) <= keys.max():
            self._ids = numpy.append(self._ids, numpy.zeros_like(self._ids))
        for key in dict.fromkeys(keys[self._ids[keys] == 0].tolist()):
            name, vpp_stage, micro_step = target_of(key)
            id = self._ids[key] = self._database.target_id(name, vpp_stage, micro_step)
            detail = self._scopes.get((self._kind, vpp_stage, name))
            if detail is not None:
                self._set_scope(int(id), detail)
        return self._ids[keys]

    def _set_scope(self, id: int, detail: str) -> None:
        # A text that is no JSON for SQLite does not mean a damaged file.
        self._database.run(
            "INSERT OR REPLACE INTO target_scope VALUES (?1, ?2, ?3, "
            "coalesce(CASE WHEN json_valid(?4) THEN json_extract(?4, '$.scope') END, ''), ?4)",
            (metric_id_of(self._kind), id, self._rank, detail),
        )

    def _insert(self, table: str, values: Values, ids: Any) -> None:
        names, columns = ["step", "target_id"], [values.steps.tolist(), ids.tolist()]
        mask = numpy.zeros(len(ids), numpy.int64)
        for stat, (numbers, valid) in values.columns.items():
            names.append(sql_name(stat))
            columns.append(numbers.tolist())  # SQLite takes a NaN for a null
            nans = numpy.isnan(numbers)
            mask |= (nans if valid is None else nans & valid).astype(numpy.int64) << nan_bit(stat)
        if mask.any():
            names.append("nan_mask")
            columns.append(mask.tolist())
        row = f"({self._rank}{', ?' * len(names)})"
        statement = f"INSERT OR IGNORE INTO {table} (rank, {', '.join(names)}) VALUES {row}"
        whole = len(ids) - len(ids) % _ROWS_OF_INSERT
        cells = numpy.empty((whole, len(names)), object)
        for i, column in enumerate(columns):
            cells[:, i] = column[:whole]
        groups = cells.reshape(-1, _ROWS_OF_INSERT * len(names)).tolist()
        self._database.run_many(statement + f", {row}" * (_ROWS_OF_INSERT - 1), groups)
        self._database.run_many(statement, zip(*(column[whole:] for column in columns)))

    def _note_tensors(self, values: Values, ids: Any) -> None:
        """A row of target_tensors for each change of a target's tensor."""
        last = self._tensors_of_kind.get(self._kind, numpy.zeros(1024, numpy.int64))
        while len(last) <= ids.max():
            last = numpy.append(last, numpy.zeros_like(last))
        self._tensors_of_kind[self._kind] = last
        if (last[ids] == values.tensors).all():
            return
        order = numpy.argsort(ids, kind="stable")
        sorted_ids, sorted_tensors = ids[order], values.tensors[order]
        before = last[sorted_ids]
        same = numpy.flatnonzero(sorted_ids[1:] == sorted_ids[:-1]) + 1
        before[same] = sorted_tensors[same - 1]
        changed = numpy.sort(order[before != sorted_tensors])
        last[ids] = values.tensors
        metric = metric_id_of(self._kind)
        self._database.run_many(
            "INSERT OR REPLACE INTO target_tensors VALUES (?, ?, ?, ?, CAST(? AS TEXT), CAST(? AS TEXT))",
            (
                (metric, id, self._rank, step, *self._tensors.texts(tensor))
                for id, step, tensor in zip(
                    ids[changed].tolist(), values.steps[changed].tolist(), values.tensors[changed].tolist()
                )
            ),
        )

    def finish(self) -> None:
        low, high = self._steps
        if high < 0:
            return
        for name, number, how in (
            ("max_rank", self._rank, "max"),
            ("min_step", low, "min"),
            ("max_step", high, "max"),
        ):
            self._database.run(
                "INSERT INTO global_stats VALUES (?, ?) ON CONFLICT (stat_name) DO UPDATE SET "
                f"stat_value = {how}(stat_value, excluded.stat_value)",
                (name, number),
            )
