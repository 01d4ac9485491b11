# SPDX-License-Identifier: Apache-2.0
"""Finds the databases of a job's ranks, and reads each a page of rows at a time: no lock is held between
pages, so a slow reader never holds up the rank that writes (FORMAT.md, "SQLite"). Finds Parquet files too."""
import contextlib
import json
import os
import re
import sqlite3
import sys
import threading
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any, Iterator, NamedTuple, Optional, Sequence

from gradmon_read.vocabulary import COLUMN_ORDER, KINDS, KINDS_WITH_MICRO_STEPS, STATS

FILE = "monitor_metrics.db"
APPLICATION_ID = 0x67726D6E  # "grmn"
SCHEMA_VERSION = 1
LAST_STEP = 2**63 - 1

_PAGE_ROWS = 2048
_LOCKED_AT_MOST = 10.0  # s; a rank locks its database for milliseconds
_PARTITION = re.compile(r"metric_(\d+)_step_(\d+)_(\d+)")
_TABLES = {"monitoring_metrics", "metric_stats", "monitoring_targets"}


class RankDatabaseError(Exception):
    """One sentence that names the file."""


class Partition(NamedTuple):
    """A table: the rows of one metric in some steps."""

    table: str
    first: int
    last: int


class Metric(NamedTuple):
    id: int
    name: str
    stats: "list[str]"  # in the order of columns
    partitions: "list[Partition]"  # ascending by step


def nan_bit(stat: str) -> int:
    return STATS.index(stat) if stat in STATS else 63


def sql_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def sql_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


class RankDatabase:
    """An open database; may be one that a rank is writing. One thread at a time."""

    def __init__(self, path: Path) -> None:
        """Raises RankDatabaseError. A database whose rank has not made the tables yet has no metrics."""
        self.path = path
        self.metrics: "list[Metric]" = []
        self._targets: "dict[int, tuple[str, int, int]]" = {}
        self._last_target = -(2**63)
        self._identity = _enter(path)
        try:
            self._database = _opened(path)
            self._read_metrics()
        except sqlite3.Error as error:
            _leave(self._identity)
            raise self._described(error) from error

    def close(self) -> None:
        self._database.close()
        _leave(self._identity)

    def _described(self, error: sqlite3.Error) -> RankDatabaseError:
        return RankDatabaseError(f"{self.path}: {error}; expected a database that gradmon writes")

    def _read_metrics(self) -> None:
        ask = self._database.execute
        ask("BEGIN")
        # Tables, not views: a view may never end.
        tables = {name for name, kind in ask("SELECT name, type FROM sqlite_schema") if kind == "table"}
        application = ask("PRAGMA application_id").fetchone()[0]
        version = ask("PRAGMA user_version").fetchone()[0]
        if not tables and application == 0:
            ask("COMMIT")
            return
        if application != APPLICATION_ID or version != SCHEMA_VERSION or not _TABLES <= tables:
            self.close()
            raise RankDatabaseError(
                f"{self.path}: found another database; expected one of gradmon's, schema version "
                f"{SCHEMA_VERSION}"
            )
        stats: "dict[int, list[str]]" = {}
        for metric, stat in ask("SELECT metric_id, stat_name FROM metric_stats"):
            stats.setdefault(metric, []).append(str(stat))
        partitions: "dict[int, list[Partition]]" = {}
        for match in filter(None, map(_PARTITION.fullmatch, map(str, tables))):
            partition = Partition(match[0], int(match[2]), int(match[3]))
            partitions.setdefault(int(match[1]), []).append(partition)
        for metric, name in sorted(ask("SELECT metric_id, metric_name FROM monitoring_metrics")):
            columns = sorted(
                stats.get(metric, []), key=lambda stat: ([*COLUMN_ORDER, stat].index(stat), stat)
            )
            ordered = sorted(partitions.get(metric, []), key=lambda each: each.first)
            self.metrics.append(Metric(metric, str(name), columns, ordered))
        ask("COMMIT")

    def _paged(
        self, table: str, key: str, others: str, after: "tuple[int, ...]", where: str = "TRUE", *bound: Any
    ) -> "Iterator[list[tuple[Any, ...]]]":
        """Pages of the columns KEY and OTHERS, by KEY, of rows after a key; each a transaction of its own."""
        query = f"SELECT {key}, {others} FROM {table} WHERE {where} AND ({key}) > "
        query += f"({', '.join('?' * len(after))}) ORDER BY {key} LIMIT {_PAGE_ROWS}"
        while rows := self._database.execute(query, (*bound, *after)).fetchall():
            yield rows
            after = rows[-1][: len(after)]

    def kinds_with_micro_steps(self) -> "set[str]":
        """The kinds whose rows are each of one micro step."""
        found = set(KINDS_WITH_MICRO_STEPS)
        for metric in self.metrics:
            tensors = [] if metric.name in found else self.tensors(metric)
            if any((self.target(target) or ("", 0, 0))[2] for _, target, *_ in tensors):
                found.add(metric.name)
        return found

    def tensors(self, metric: Metric) -> "list[tuple[int, int, int, str, str]]":
        """Rank, target id, step, and the shape and data type from this step on."""
        where = f"metric_id = {metric.id} AND typeof(rank) || typeof(target_id) || typeof(step) = "
        where += f"'{'integer' * 3}'"
        others = "CAST(shape AS TEXT), CAST(dtype AS TEXT)"
        with contextlib.suppress(sqlite3.Error):  # the rank has not made the tables yet
            pages = self._paged("target_tensors", "target_id, rank, step", others, (-1, -1, -1), where)
            rows = chain.from_iterable(pages)
            return [(rank, target, step, shape, dtype) for target, rank, step, shape, dtype in rows]
        return []

    def scopes(self) -> "dict[int, dict[str, dict[str, Any]]]":
        """By rank, target ("0:fc1.weight") and kind: how the rank's tensor is a part of a whole one."""
        found: "dict[int, dict[str, dict[str, Any]]]" = {}
        kinds = {metric.id: metric.name for metric in self.metrics}
        with contextlib.suppress(sqlite3.Error):  # the rank has not made the tables yet
            pages = self._paged("target_scope", "metric_id, target_id, rank", "detail", (-1, -1, -1))
            for metric, id, rank, detail in chain.from_iterable(pages):
                target = self.target(id)
                if target and metric in kinds:
                    of_target = found.setdefault(rank, {}).setdefault(f"{target[1]}:{target[0]}", {})
                    of_target[kinds[metric]] = json.loads(detail)
        return found

    def target(self, id: int) -> "Optional[tuple[str, int, int]]":
        """Its name, vpp_stage and micro_step; None if the database has no such target."""
        if id not in self._targets:
            others = "target_name, vpp_stage, micro_step"
            try:
                pages = self._paged("monitoring_targets", "target_id", others, (self._last_target,))
                for row in chain.from_iterable(pages):
                    self._last_target = row[0]
                    self._targets[row[0]] = (str(row[1]), row[2], row[3])
            except sqlite3.Error as error:
                raise self._described(error) from error
        return self._targets.get(id)

    def pages(
        self,
        metric: Metric,
        partition: Partition,
        stats: Sequence[str],
        first: int = 0,
        last: int = LAST_STEP,
    ) -> "Iterator[tuple[int, list[tuple[Any, ...]]]]":
        """Pages of a partition within the steps: the rank, and rows (step, target id, nan_mask, STATS…)."""
        columns = ", ".join(["nan_mask", *(f"t.{sql_name(stat)}" for stat in stats)])
        next_rank = f"SELECT rank FROM {partition.table} WHERE rank > ? ORDER BY rank LIMIT 1"
        table, where, begin = f"{partition.table} AS t", "rank = ? AND step <= ?", (first, -(2**63))
        rank = -1
        try:
            while found := self._database.execute(next_rank, (rank,)).fetchone():
                rank = found[0]
                for rows in self._paged(table, "step, target_id", columns, begin, where, rank, last):
                    yield rank, rows
        except sqlite3.Error as error:
            raise self._described(error) from error


_open_lock = threading.Lock()
_open_here: "Counter[tuple[int, int]]" = Counter()  # databases by device and inode; under _open_lock


def _enter(path: Path) -> "tuple[int, int]":
    """Refuses a database that a monitor of this process has open: the extension has an SQLite of its own,
    which does not know of Python's, and when a file is closed, the system drops all locks that the process
    has on it, those of the writer too."""
    try:
        status = os.stat(path)
    except OSError as error:
        raise RankDatabaseError(f"{path}: {error.strerror}") from None
    identity = (status.st_dev, status.st_ino)
    with _open_lock:
        has_monitor = "gradmon._gradmon" in sys.modules
        if has_monitor and not _open_here[identity] and identity in _open_files():
            raise RankDatabaseError(
                f"{path}: this process has it open, as its monitor does until stop(); read it from another "
                "process, or after stop()"
            )
        _open_here[identity] += 1
    return identity


def _leave(identity: "tuple[int, int]") -> None:
    with _open_lock:
        _open_here[identity] -= 1


def _open_files() -> "set[tuple[int, int]]":
    """None where the system does not tell."""
    found = set()
    for descriptor in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():
        with contextlib.suppress(OSError):  # closed meanwhile
            status = os.stat(f"/proc/self/fd/{descriptor}")
            found.add((status.st_dev, status.st_ino))
    return found


def _opened(path: Path) -> sqlite3.Connection:
    """Prefers a connection that may write: only such a one can roll back the last step of a killed rank."""
    try:
        return _opened_as(path, "mode=rw")
    except sqlite3.Error as error:
        with contextlib.suppress(sqlite3.Error):
            return _opened_as(path, "mode=ro")
        # This user may not write to the directory: the database of an earlier gradmon, with a write-ahead
        # log, needs a file there. Without its journal a killed rank's database is wrong.
        journals = [f"{path}{end}" for end in ("-wal", "-journal")]
        if not any(os.path.exists(journal) and os.path.getsize(journal) for journal in journals):
            with contextlib.suppress(sqlite3.Error):
                return _opened_as(path, "mode=ro&immutable=1")
        raise error


def _opened_as(path: Path, access: str) -> sqlite3.Connection:
    """Reads the first page, so that an unreadable database fails here."""
    uri = f"{Path(os.path.abspath(path)).as_uri()}?{access}"
    database = sqlite3.connect(
        uri, uri=True, timeout=_LOCKED_AT_MOST, isolation_level=None, check_same_thread=False
    )
    try:
        database.text_factory = _text
        database.execute("PRAGMA trusted_schema = OFF")
        database.execute("PRAGMA query_only = ON")
        database.execute("SELECT count(*) FROM sqlite_schema")
    except sqlite3.Error:
        database.close()
        raise
    return database


# People put words before the name of a directory.
_RUN = re.compile(r"[A-Z][a-z]{2}\d\d_\d\d-\d\d-\d\d-rank(\d+)-([0-9a-f]{8})$")


class RankFile(NamedTuple):
    """The database of one rank and run."""

    path: Path
    rank: Optional[int]  # None: not in the name of its directory
    run_id: str  # "": not in the name


def rank_file(place: Path) -> RankFile:
    """A database, or the one in a directory."""
    path = place / FILE if place.is_dir() else place
    name = _RUN.search(os.path.dirname(os.path.abspath(path)))
    return RankFile(path, int(name[1]), name[2]) if name else RankFile(path, None, "")


_STORED = re.compile(r"kind=([a-z_]+)/rank=(\d+)/[^/]*\.parquet")


class StoredFile(NamedTuple):
    """A file of a Parquet dataset."""

    path: Path
    kind: str
    rank: int


def stored_files(place: Path) -> "list[StoredFile]":
    """The files of the dataset at a place, or in its directory rows."""
    dataset = place / "rows" if (place / "rows").is_dir() else place
    files = []
    for path in sorted(dataset.glob("kind=*/rank=*/*.parquet")):
        match = _STORED.fullmatch(path.relative_to(dataset).as_posix())
        if match and match[1] in KINDS:
            files.append(StoredFile(path, match[1], int(match[2])))
    return files
