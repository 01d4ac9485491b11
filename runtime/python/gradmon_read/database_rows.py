# SPDX-License-Identifier: Apache-2.0
"""The rows in the database of a rank, as Arrow tables like those of its CSV files. Needs pyarrow."""
import contextlib
from pathlib import Path
from typing import Any, Iterable, Iterator

import numpy
import pyarrow
from pyarrow import compute

from gradmon_read.csv_tables import KindFile, Problems, integers
from gradmon_read.rank_database import FILE, RankDatabase, RankDatabaseError, nan_bit
from gradmon_read.vocabulary import FIELDS, KINDS_WITH_MICRO_STEPS, ROW_KINDS


def kinds_in(directory: Path, problems: Problems) -> "dict[str, list[KindFile]]":
    """The tables of the database of a rank by kind, each as a file with its first and last step."""
    path = directory / FILE
    if not path.exists():
        return {}
    try:
        with contextlib.closing(RankDatabase(path)) as database:
            found = {metric.name: metric.partitions for metric in database.metrics}
    except RankDatabaseError as error:
        problems.add(path, 0, str(error).removeprefix(f"{path}: "))
        return {}
    return {
        kind: [KindFile(part.first, 0, part.last, path) for part in found[kind]]
        for kind in ROW_KINDS
        if found.get(kind)
    }


def tables(kind: str, file: KindFile, problems: Problems) -> "Iterator[pyarrow.Table]":
    """The rows of one table, a page at a time, as CsvFile.tables() has them; `line` is 0."""
    try:
        with contextlib.closing(RankDatabase(file.path)) as database:
            (metric,) = (metric for metric in database.metrics if metric.name == kind)
            (partition,) = (part for part in metric.partitions if part.first == file.first_step)
            stats = [stat for stat in metric.stats if stat in FIELDS]
            for _, rows in database.pages(metric, partition, stats):
                table = _table(database, kind, stats, rows)
                if table.num_rows:
                    yield table
    except (RankDatabaseError, pyarrow.ArrowException, TypeError, ValueError) as error:
        problems.add(file.path, 0, str(error).removeprefix(f"{file.path}: "))


def _table(
    database: RankDatabase, kind: str, stats: "list[str]", rows: "list[tuple[Any, ...]]"
) -> pyarrow.Table:
    found = page_table(database, stats, rows)
    made = {
        "line": integers([0] * len(found)),
        "step": found["step"],
        "vpp_stage": found["vpp_stage"].cast(pyarrow.int32()),
        "name": found["name"].cast(pyarrow.binary()).dictionary_encode(),
    }
    if kind in KINDS_WITH_MICRO_STEPS:
        made["micro_step"] = found["micro_step"].cast(pyarrow.int32())
    return pyarrow.table({**made, **{stat: found[stat] for stat in stats}})


def page_table(database: RankDatabase, stats: "list[str]", rows: "list[tuple[Any, ...]]") -> pyarrow.Table:
    """The rows of a page whose target is known: step, vpp_stage, micro_step (int64), name (a string), and the
    statistics (float64; null: not measured). A NaN is NULL in the database, with its bit set."""
    known = [(row, target) for row in rows if (target := database.target(row[1])) is not None]
    steps, _, masks, *columns = zip(*(row for row, _ in known)) if known else ((),) * (3 + len(stats))
    names, stages, micro_steps = zip(*(target for _, target in known)) if known else ((),) * 3
    nans = numpy.array(masks, dtype="int64")
    values = {}
    for stat, column in zip(stats, columns):
        is_nan = pyarrow.array(nans >> nan_bit(stat) & 1 == 1)
        values[stat] = compute.if_else(is_nan, float("nan"), _numbers(column))
    whole = {"step": steps, "vpp_stage": stages, "micro_step": micro_steps}
    found = {name: pyarrow.array(column, pyarrow.int64()) for name, column in whole.items()}
    return pyarrow.table({**found, "name": pyarrow.array(names, pyarrow.string()), **values})


def _numbers(column: "Iterable[Any]") -> Any:
    """Anything but a number is as missing."""
    try:
        return pyarrow.array(column, pyarrow.float64())
    except (pyarrow.ArrowException, TypeError):
        numbers = [float(cell) if isinstance(cell, (int, float)) else None for cell in column]
        return pyarrow.array(numbers, pyarrow.float64())
