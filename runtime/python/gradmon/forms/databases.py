# SPDX-License-Identifier: Apache-2.0
"""Reads SQLite databases: monitor_metrics.db of a rank, and those that `gradmonctl convert` makes."""
import json
import os
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterable, Sequence
from urllib.parse import quote

from gradmon.forms.rows import KINDS_WITH_MICRO_STEPS, Choice, RankDirectory, table_of

if TYPE_CHECKING:
    import pandas

FILE = "monitor_metrics.db"

_APPLICATION, _VERSION = 0x67726D6E, 1  # FORMAT.md
_WAIT_S = 10.0  # for a lock of the writer
_MOST_STEPS_BY_NAME = 500  # in a condition of SQL
# A database does not say of grad_unreduced whether its rows are of micro steps.
_KINDS_WITH_MORE_MICRO_STEPS = """SELECT DISTINCT metric_name FROM target_tensors
    JOIN monitoring_targets USING (target_id) JOIN monitoring_metrics USING (metric_id)
    WHERE micro_step > 0"""
_SCOPES = """SELECT rank, vpp_stage, target_name, metric_name, detail FROM target_scope
    JOIN monitoring_targets USING (target_id) JOIN monitoring_metrics USING (metric_id) ORDER BY micro_step"""


def has_rows(directory: Path) -> bool:
    """Returns True if the directory of a rank has a database."""
    return (directory / FILE).exists()


def read(directories: "Iterable[RankDirectory]", choice: Choice) -> "pandas.DataFrame":
    """As read_files(), of the directories that have a database."""
    return read_files([each.path / FILE for each in directories if has_rows(each.path)], choice)


def read_files(paths: "Iterable[Path]", choice: Choice) -> "pandas.DataFrame":
    """The rows of the databases, with PLACE. Within a step in the order of kinds and targets.

    Raises ValueError if a file is no database of gradmon's, or is open in this process."""
    rows: "list[tuple[Any, ...]]" = []
    for path in paths:
        rows.extend(_rows(path, choice))
    return table_of(rows)


def scopes(path: Path) -> "dict[int, dict[str, dict[str, Any]]]":
    """The scopes by rank, target ("0:fc1.weight") and kind. Raises ValueError as read_files()."""
    found: "dict[int, dict[str, dict[str, Any]]]" = {}
    for rank, stage, name, kind, detail in _fetched(path, _SCOPES):
        found.setdefault(rank, {}).setdefault(f"{stage}:{name}", {})[kind] = json.loads(detail)
    return found


def _rows(path: Path, choice: Choice) -> "list[tuple[Any, ...]]":
    query, values = _query(choice)
    found = _fetched(path, query, values)
    micro = KINDS_WITH_MICRO_STEPS | {kind for (kind,) in _fetched(path, _KINDS_WITH_MORE_MICRO_STEPS)}
    nan = float("nan")
    return [
        (
            rank,
            step,
            micro_step if kind in micro else None,
            kind,
            name,
            op,
            nan if value is None else value,
            stage,
        )
        for rank, step, micro_step, kind, name, op, value, stage in found
    ]


def _fetched(path: Path, query: str, values: "Sequence[Any]" = ()) -> "list[tuple[Any, ...]]":
    _refuse_own(path)
    try:
        database = sqlite3.connect(_uri(path), uri=True, timeout=_WAIT_S)
        try:
            _check(path, database)
            return database.execute(query, values).fetchall()
        finally:
            database.close()
    except sqlite3.Error as error:
        raise ValueError(f"{path}: {error}") from error


def _query(choice: Choice) -> "tuple[str, list[Any]]":
    conditions, values = [], []
    for column, wanted in (("metric", choice.kinds), ("rank", choice.ranks), ("step", choice.steps)):
        if wanted is None or len(wanted) > _MOST_STEPS_BY_NAME:
            continue
        conditions.append(f"{column} IN ({', '.join('?' * len(wanted))})")
        values += list(wanted)
    if choice.steps:
        conditions.append("step BETWEEN ? AND ?")
        values += [min(choice.steps), max(choice.steps)]
    where = " WHERE " + " AND ".join(conditions) if conditions else ""
    columns = "rank, step, micro_step, metric, target, op, value, vpp_stage"
    return f"SELECT {columns} FROM v_metrics{where}", values


def _check(path: Path, database: sqlite3.Connection) -> None:
    found = [database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
    if found != [_APPLICATION, _VERSION]:
        raise ValueError(
            f"{path}: application_id {found[0]}, user_version {found[1]}; expected a database of gradmon's: "
            f"{_APPLICATION}, {_VERSION}"
        )


def _refuse_own(path: Path) -> None:
    """Opening and closing a file drops all locks that this process has on it, those of the writer too: the
    extension has an SQLite of its own, which does not know of Python's."""
    wanted = path.stat()
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            found = os.stat(f"/proc/self/fd/{descriptor}")
        except OSError:  # closed meanwhile
            continue
        if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino):
            raise ValueError(
                f"{path}: this process has it open, as its monitor does until stop(); read it from another "
                "process, or after stop()"
            )


def _uri(path: Path) -> str:
    """To open it read-only. If the file of its write-ahead log is missing, it is complete and no process uses
    it: it is opened as immutable, so that SQLite makes no files beside it."""
    with path.open("rb") as file:
        header = file.read(20)
    closed = header[18:20] == b"\2\2" and not path.with_name(path.name + "-wal").exists()
    return f"file:{quote(str(path.absolute()))}?mode=ro{'&immutable=1' if closed else ''}"
