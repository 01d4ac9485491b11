# SPDX-License-Identifier: Apache-2.0
"""An SQLite database from CSV files. Needs pyarrow."""
import queue
import re
import sqlite3
import threading
from pathlib import Path
from typing import Any, Iterable, Iterator, Optional

import numpy

from gradmon_read.command_line import CommandError
from gradmon_read.conversion import Meter, make_directories
from gradmon_read.csv_tables import Problems, numbers_of, validity
from gradmon_read.metrics_database import NewDatabase, PartWriter, Scopes, Tensors, Values, stats_of
from gradmon_read.rank_rows import RankRows, Rows, Task
from gradmon_read.runs import is_format_1, json_text, read_json
from gradmon_read.vocabulary import KINDS, KINDS_WITH_MICRO_STEPS, OPS

_MOST_SCOPES_BYTES = 256 << 20
_TARGET = re.compile(r"(\d{1,9}):(.*)", re.ASCII | re.DOTALL)


def stored_scopes(directories: "list[Path]", problems: Problems) -> Scopes:
    """The contents of one rank's scopes.json files. If several have a target and kind, the last one counts.
    A directory without the file is no problem."""
    scopes: Scopes = {}
    for file in [directory / "scopes.json" for directory in directories]:
        if not file.exists():
            continue
        try:
            value = read_json(file, _MOST_SCOPES_BYTES)
            targets = value.get("targets") if is_format_1(value) else None
            if not isinstance(targets, dict):
                raise ValueError("")
        except ValueError as error:
            text = str(error) or 'expected a JSON object with "format": 1 and "targets"'
            problems.add(file, 0, f"{text}; target_scope lacks what it has")
            continue
        for name, kinds in targets.items():
            target = _TARGET.fullmatch(name)
            for kind, scope in kinds.items() if target and isinstance(kinds, dict) else ():
                label = scope.get("scope") if isinstance(scope, dict) else None
                if target and kind in KINDS and isinstance(label, str):
                    others = sorted(item for item in scope.items() if item[0] != "scope")
                    encoded = target[2].encode("utf-8", "replace")
                    scopes[(kind, int(target[1]), encoded)] = json_text({"scope": label, **dict(others)})
    return scopes


class CsvWriter:
    """Writes the CSV rows of one kind and rank into a database."""

    def __init__(self, kind: str, rows: RankRows, writer: PartWriter, tensors: Tensors) -> None:
        self._kind = kind
        self._rows = rows
        self._writer = writer
        self._tensors = tensors
        self._own = stats_of(kind, [])
        self._has_ops = stats_of(kind, OPS) != self._own
        self._ops: "list[str]" = []  # that a row has had so far
        self._has_micro_step = kind in KINDS_WITH_MICRO_STEPS
        writer.begin_kind(kind)

    def write(self, part: Rows, wanted: Any = None) -> int:
        """Writes the wanted rows, by default all. Adds columns to the tables at the first row that has them.
        Returns the number of new rows."""
        fields = part.fields()
        columns: "dict[str, tuple[Any, Any]]" = {}
        for stat in stats_of(self._kind, [op for op in OPS if op in fields]):
            if stat in fields:
                valid = validity(fields[stat]) if fields[stat].null_count else None
                columns[stat] = (numbers_of(fields[stat]), valid)
        values = Values(part.column("step", 0), part.key, self._tensor_ids(part), columns)
        begins = self._new_columns(part, columns)
        written = 0
        ends = [*list(begins)[1:], len(part.key)]
        for first, last in zip(begins, ends):
            for column in begins[first]:
                if column == "micro_step":
                    self._has_micro_step = True
                    self._writer.begin_keys()
                else:
                    self._ops.append(column)
            if last > first:
                rows = slice(first, last)
                chosen = values.chosen(rows) if wanted is None else values.chosen(rows).chosen(wanted[rows])
                written += self._write(chosen) if len(chosen.steps) else 0
        return written

    def _new_columns(self, part: Rows, columns: "dict[str, tuple[Any, Any]]") -> "dict[int, list[str]]":
        """Columns that the tables do not have yet, by the first row that has them; 0 is among the rows."""
        begins: "dict[int, list[str]]" = {0: []}
        if (
            self._kind == "grad_unreduced"
            and not self._has_micro_step
            and "micro_step" in part.batch.schema.names
        ):
            begins[0].append("micro_step")
        for op in OPS:
            if self._has_ops and op in columns and op not in self._ops:
                valid = columns[op][1]
                if valid is None or valid.any():
                    begins.setdefault(0 if valid is None else int(valid.argmax()), []).append(op)
        return dict(sorted(begins.items()))

    def _write(self, values: Values) -> int:
        def target_of(key: int) -> "tuple[bytes, int, int]":
            target, micro_step = self._rows.meaning_of(key)
            return target.name, target.vpp_stage, max(micro_step, 0) if self._has_micro_step else 0

        stats = stats_of(self._kind, self._ops)
        known = values._replace(
            columns={stat: values.columns[stat] for stat in stats if stat in values.columns}
        )
        return self._writer.write(known, stats, target_of)

    def _tensor_ids(self, part: Rows) -> Any:
        """The number of the shape and the data type, by row."""
        (shapes, shape), (dtypes, dtype) = part.texts("shape"), part.texts("dtype")
        pair = shape.astype(numpy.int64) * len(dtypes) + dtype
        pairs = numpy.unique(pair) if (pair != pair[0]).any() else pair[:1]
        texts = [divmod(one, len(dtypes)) for one in pairs.tolist()]
        ids = numpy.array([self._tensors.id_of(shapes[i], dtypes[j]) for i, j in texts])
        return ids[numpy.searchsorted(pairs, pair)]


def write_database(
    tasks: "list[Task]",
    path: Path,
    meter: Meter,
    problems: Problems,
    steps: int,
    processes: int,
    name: Optional[str] = None,
) -> None:
    """Makes the database `path`; with a name, the directory `path` and the database in it. `steps`: of one
    table. The result is the same with any number of processes: more than one reads ahead on a thread. Raises
    CommandError, which names the file, and Interrupted."""
    if name:
        make_directories(path)
        path = path / name
    try:
        database = NewDatabase(path, steps)
        scopes: Scopes = {}
        for i, task in enumerate(tasks):
            if i == 0 or tasks[i - 1].rank != task.rank:
                scopes = stored_scopes(task.rank.starts, problems)
            tensors = Tensors()
            rows = RankRows(task.files(Problems()), meter, problems)  # problems of the directories are known
            writer = PartWriter(database, task.rank.rank, scopes, tensors)
            of_kind = CsvWriter(task.kind, rows, writer, tensors)
            parts: "Iterable[Rows]" = rows
            if processes > 1:
                parts = _ahead(rows)
            for part in parts:
                of_kind.write(part)
            writer.finish()
        database.finish()
    except (sqlite3.Error, OSError) as error:
        raise CommandError(f"{path}: {getattr(error, 'strerror', None) or error}") from None


def _ahead(rows: "Iterable[Rows]") -> "Iterator[Rows]":
    """Reads on another thread, a few parts ahead."""
    waiting: "queue.Queue[Any]" = queue.Queue(4)
    stop = threading.Event()

    def put(part: Any) -> None:
        while not stop.is_set():
            try:
                return waiting.put(part, timeout=0.05)
            except queue.Full:
                continue

    def read() -> None:
        try:
            for part in rows:
                put(part)
                if stop.is_set():
                    return
            put(None)
        except BaseException as error:  # raised below
            put(error)

    thread = threading.Thread(target=read, name="gradmon-convert")
    thread.start()
    try:
        while (part := waiting.get()) is not None:
            if isinstance(part, BaseException):
                raise part
            yield part
    finally:
        stop.set()
        thread.join()
