# SPDX-License-Identifier: Apache-2.0
"""gradmonctl convert trend: the database that msprobe's TensorBoard plug-in TrendVis shows (msprobe 26.2,
"monitor_data.trend.db"). Needs pyarrow."""
import argparse
import math
import sqlite3
from pathlib import Path
from typing import Any

import numpy

from gradmon_read.command_line import CommandError
from gradmon_read.conversion import NOTHING, Meter, RankRows, Task, converted, request_of
from gradmon_read.csv_tables import text_of
from gradmon_read.kind_rows import Batch
from gradmon_read.listing import Problems

FILE = "monitor_data.trend.db"
# The plug-in refuses other statistics.
STATS = ["norm", "min", "max", "zeros", "nans", "mean", "entropy", "softmax_max", "sr", "kernel_norm"]
INFINITE = 1e9 + 1  # as msprobe writes an infinity, which JSON lacks
_TABLES = f"""
CREATE TABLE monitoring_targets (target_id INTEGER PRIMARY KEY AUTOINCREMENT, target_name TEXT NOT NULL,
  vpp_stage INTEGER NOT NULL, micro_step INTEGER NOT NULL DEFAULT 0,
  UNIQUE(target_name, vpp_stage, micro_step));
CREATE TABLE monitoring_metrics (metric_id INTEGER PRIMARY KEY AUTOINCREMENT,
  metric_name TEXT UNIQUE NOT NULL);
CREATE TABLE monitoring_tags (tag_id INTEGER PRIMARY KEY AUTOINCREMENT, tag_name TEXT NOT NULL,
  category TEXT NOT NULL, metric_id INTEGER NOT NULL, UNIQUE(tag_name, category, metric_id));
CREATE TABLE tag_target_mapping (tag_id INTEGER NOT NULL, target_id INTEGER NOT NULL,
  PRIMARY KEY (tag_id, target_id));
CREATE TABLE trend_data (rank INTEGER NOT NULL, step INTEGER NOT NULL, target_id INTEGER NOT NULL,
  metric_id INTEGER NOT NULL, {", ".join(f"{stat} REAL DEFAULT NULL" for stat in STATS)},
  PRIMARY KEY (rank, step, target_id, metric_id)) WITHOUT ROWID;
"""


_COLUMNS = {
    "metrics": "metric_name",
    "targets": "target_name, vpp_stage, micro_step",
    "tags": "tag_name, category, metric_id",
}


def write_trend(tasks: "list[Task]", path: Path, meter: Meter, problems: Problems) -> None:
    """Makes the database. Raises CommandError, Interrupted."""
    try:
        database = sqlite3.connect(path, isolation_level=None)
        try:
            database.executescript(f"PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;{_TABLES}BEGIN")
            writer = _Writer(database)
            for task in tasks:
                for batch in (rows := task.rows(meter, problems)):
                    writer.add(task, rows, batch)
            writer.finish()
            database.execute("COMMIT")
        finally:
            database.close()
    except sqlite3.Error as error:
        raise CommandError(f"cannot write {path}: {error}") from None


class _Writer:
    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self._ids: "dict[str, dict[tuple[Any, ...], int]]" = {table: {} for table in _COLUMNS}
        self._stats: "dict[str, set[str]]" = {}  # by kind
        self._tagged: "set[tuple[int, int]]" = set()  # target, metric
        self._last_rank = self._last_step = 0
        self._first_step = -1

    def add(self, task: Task, rows: RankRows, batch: Batch) -> None:
        stats = [stat for stat in STATS if stat in batch.values]
        if not stats:
            return
        metric = self._id("metrics", task.kind)
        steps = batch.step.tolist()
        known = {
            number: self._target(text_of(name), stage, max(micro_step, 0), metric)
            for number in numpy.unique(batch.name).tolist()
            for stage, name, micro_step in [rows.target(number)]
        }
        ids = map(known.__getitem__, batch.name.tolist())
        columns = [map(_value, batch.cells(stat)) for stat in stats]
        rank = task.rank.rank
        cells = ((rank, step, id, metric, *values) for step, id, *values in zip(steps, ids, *columns))
        self._database.executemany(
            f"INSERT INTO trend_data (rank, step, target_id, metric_id, {', '.join(stats)}) "
            f"VALUES ({', '.join('?' * (4 + len(stats)))})",
            cells,
        )
        self._stats.setdefault(task.kind, set()).update(stats)
        self._last_rank = max(self._last_rank, rank)
        self._last_step = max(self._last_step, max(steps))
        self._first_step = min(steps) if self._first_step < 0 else min(self._first_step, min(steps))

    def finish(self) -> None:
        """The plug-in takes the metrics and their statistics from the columns of global_stats."""
        kinds = [kind for (kind,) in self._ids["metrics"]]
        columns = ", ".join(
            ["min_step INTEGER", "max_step INTEGER", "max_rank INTEGER", *(f"{kind} TEXT" for kind in kinds)]
        )
        self._database.execute(f"CREATE TABLE global_stats ({columns})")
        texts = [",".join(stat for stat in STATS if stat in self._stats[kind]) for kind in kinds]
        row = [max(self._first_step, 0), self._last_step, self._last_rank, *texts]
        self._database.execute(f"INSERT INTO global_stats VALUES ({', '.join('?' * len(row))})", row)

    def _id(self, table: str, *key: Any) -> int:
        """The number of a row, which is made if it is new."""
        known = self._ids[table]
        if key not in known:
            known[key] = len(known) + 1
            places = ", ".join("?" * len(key))
            columns = _COLUMNS[table]
            self._database.execute(f"INSERT INTO monitoring_{table} ({columns}) VALUES ({places})", key)
        return known[key]

    def _target(self, name: str, stage: int, micro_step: int, metric: int) -> int:
        target = self._id("targets", _storable(name), stage, micro_step)
        if (target, metric) not in self._tagged:
            self._tagged.add((target, metric))
            for tag, category in tags_of(name):
                row = (self._id("tags", _storable(tag), category, metric), target)
                self._database.execute("INSERT OR IGNORE INTO tag_target_mapping VALUES (?, ?)", row)
        return target


def _storable(text: str) -> str:
    """SQLite takes no lone surrogates."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _value(value: Any) -> Any:
    return (
        value if value is None or math.isfinite(value) or value != value else math.copysign(INFINITE, value)
    )


def tags_of(name: str) -> "set[tuple[str, str]]":
    """The words by which the plug-in selects targets: the parts of a name, and a layer with its number.
    "layers.3.fc.weight": layers, layers.3 (a layer), fc, weight."""
    parts = name.split(".")
    modules = {(part, "module") for part in parts if not part.isdigit()}
    layers = {
        (f"{before}.{part}", "layer")
        for before, part in zip(parts, parts[1:])
        if part.isdigit() and not before.isdigit()
    }
    return modules | layers


def perform(arguments: argparse.Namespace) -> int:
    return converted(request_of(arguments), Path(arguments.o), NOTHING, write_trend)
