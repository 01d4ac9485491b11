# SPDX-License-Identifier: Apache-2.0
"""The rows in the database of a rank, as Arrow tables like those of its CSV files. Needs pyarrow."""
import contextlib
import math
from pathlib import Path
from typing import Any, Iterator

import numpy
import pyarrow

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
                yield _table(database, kind, stats, rows)
    except (RankDatabaseError, pyarrow.ArrowException, TypeError, ValueError) as error:
        problems.add(file.path, 0, str(error).removeprefix(f"{file.path}: "))


def _table(
    database: RankDatabase, kind: str, stats: "list[str]", rows: "list[tuple[Any, ...]]"
) -> pyarrow.Table:
    """A NaN is NULL in the database, with its bit set; a value that was not measured has none."""
    steps, ids, masks, *columns = zip(*rows)
    targets = [database.target(id) or ("", 0, 0) for id in ids]
    names, stages, micro_steps = zip(*targets)
    nans = numpy.array(masks, "int64")
    made = {
        "line": integers([0] * len(rows)),
        "step": integers(steps),
        "vpp_stage": pyarrow.array(stages, pyarrow.int32()),
        "name": pyarrow.array([name.encode() for name in names]).dictionary_encode(),
    }
    if kind in KINDS_WITH_MICRO_STEPS:
        made["micro_step"] = pyarrow.array(micro_steps, pyarrow.int32())
    for stat, column in zip(stats, columns):
        is_nan = (nans >> nan_bit(stat) & 1).tolist()
        numbers = [
            float(value) if isinstance(value, (int, float)) else math.nan if nan else None
            for value, nan in zip(column, is_nan)
        ]
        made[stat] = pyarrow.array(numbers, pyarrow.float64())
    return pyarrow.table(made)
