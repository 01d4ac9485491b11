# SPDX-License-Identifier: Apache-2.0
"""Runs commands of gradmon_read, and makes databases as ranks write them (FORMAT.md, "SQLite")."""
import contextlib
import os
import sqlite3
from pathlib import Path
from typing import Any, NamedTuple, Optional, Sequence

import pytest
from gradmon_read.__main__ import main
from gradmon_read.rank_database import APPLICATION_ID, FILE

GOLDEN = Path(__file__).with_name("golden")
GRADMONCTL = str(Path(os.environ["GRADMON_BIN"]) / "gradmonctl")


class Answer(NamedTuple):
    code: int
    out: str
    err: str


class Commands:
    """Commands in this process: most tests need no process of their own."""

    def __init__(self, capture: "pytest.CaptureFixture[str]") -> None:
        self._capture = capture

    def __call__(self, *words: "str | os.PathLike[str]") -> Answer:
        self._capture.readouterr()
        code = main([os.fspath(word) for word in words])
        captured = self._capture.readouterr()
        return Answer(code, captured.out, captured.err)


def golden_difference(name: str, now: str) -> str:
    """Empty if the text is that of the golden file."""
    path = GOLDEN / name
    if "GRADMON_WRITE_GOLDEN" in os.environ:
        path.write_text(now)
    return "" if path.read_text() == now else f"{path} differs; now:\n{now}"


TABLES = """
CREATE TABLE monitoring_targets (target_id INTEGER PRIMARY KEY, target_name TEXT NOT NULL,
  vpp_stage INTEGER NOT NULL, micro_step INTEGER NOT NULL DEFAULT 0);
CREATE TABLE monitoring_metrics (metric_id INTEGER PRIMARY KEY, metric_name TEXT NOT NULL UNIQUE);
CREATE TABLE metric_stats (metric_id INTEGER NOT NULL, stat_name TEXT NOT NULL);
INSERT INTO monitoring_metrics VALUES (4, 'grad_reduced');
INSERT INTO metric_stats VALUES (4, 'max'), (4, 'norm');
PRAGMA user_version = 1;
"""
PARTITION = (
    "CREATE TABLE IF NOT EXISTS {} (rank INTEGER NOT NULL, step INTEGER NOT NULL, target_id INTEGER, "
    "norm REAL, max REAL, nan_mask INTEGER NOT NULL, PRIMARY KEY (rank, step, target_id)) WITHOUT ROWID"
)


class RankWriter:
    """One rank of a run, which writes its database: rows of grad_reduced."""

    def __init__(self, output_dir: Path, rank: int, run: str = "8c0ffee0", journal: str = "delete") -> None:
        self.directory = output_dir / f"Nov24_08-30-12-rank{rank}-{run}"
        self.directory.mkdir(parents=True)
        self.file = self.directory / FILE
        self._rank = rank
        self._targets: "dict[str, int]" = {}
        self._database = sqlite3.connect(self.file, isolation_level=None, check_same_thread=False)
        self._database.execute("PRAGMA synchronous = OFF")
        self._database.execute(f"PRAGMA journal_mode = {journal}")
        self._database.executescript(f"PRAGMA application_id = {APPLICATION_ID};{TABLES}")

    def write(self, step: int, targets: "Sequence[str]", values: "dict[str, list[float]]" = {}) -> None:
        """Norm and maximum of each target, by default step + rank / 100 and 1."""
        run = self._database.execute
        table = f"metric_4_step_{step // 500 * 500}_{step // 500 * 500 + 499}"
        run("BEGIN IMMEDIATE")
        run(PARTITION.format(table))
        for target in targets:
            if target not in self._targets:
                self._targets[target] = len(self._targets) + 1
                run("INSERT INTO monitoring_targets VALUES (?, ?, 0, 0)", (self._targets[target], target))
        rows = []
        for target in targets:
            found = values.get(target, [step + self._rank / 100, 1.0])
            mask = sum(1 << bit for bit, value in zip((0, 2), found) if value != value)
            rows.append((self._rank, step, self._targets[target], *found, mask))  # SQLite has no NaN
        self._database.executemany(f"INSERT INTO {table} VALUES (?, ?, ?, ?, ?, ?)", rows)
        run("COMMIT")

    def close(self) -> None:
        self._database.close()


def change(file: Path, statements: str) -> None:
    """Changes a database as no rank does."""
    with contextlib.closing(sqlite3.connect(file)) as database:
        database.executescript(statements)


def without(text: str, path: Any, name: Optional[str] = None) -> str:
    return text.replace(str(path), name or "")
