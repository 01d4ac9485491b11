# SPDX-License-Identifier: Apache-2.0
"""The rows in the database of a rank, as Arrow tables like those of its CSV files. Needs pyarrow."""
import contextlib
from pathlib import Path
from typing import Any, Iterable, Iterator

import numpy
import pyarrow
from pyarrow import compute

from gradmon_read.csv_tables import KindFile
from gradmon_read.listing import Problems
from gradmon_read.rank_database import FILE, LAST_STEP, Metric, Partition, RankDatabase, RankDatabaseError
from gradmon_read.rank_database import nan_bit
from gradmon_read.runs import parse_rank_directory
from gradmon_read.vocabulary import KINDS, ROW_KINDS, stats_of


def kinds_in(directory: Path, problems: Problems) -> "dict[str, list[KindFile]]":
    """The tables of the database of a rank by kind, each as a file with its first and last step. A metric
    that this version does not know is a problem."""
    path = directory / FILE
    if not path.exists():
        return {}
    found = {}
    try:
        with contextlib.closing(RankDatabase(path)) as database:
            for metric in database.metrics:
                is_known = metric.name in KINDS and KINDS.index(metric.name) + 1 == metric.id
                of_kind = stats_of(metric.name) if is_known else []
                unknown = [
                    f'statistic "{stat}" of {metric.name}' for stat in metric.stats if stat not in of_kind
                ]
                if is_known:
                    found[metric.name] = [KindFile(part[1], 0, part[2], path) for part in metric.partitions]
                else:
                    unknown = [f'metric "{metric.name}" with the id {metric.id}']
                for what in unknown:
                    text = (
                        f"found the {what}; expected one that this version of gradmon knows; it is left out"
                    )
                    problems.add(path, 0, text)
    except RankDatabaseError as error:
        problems.add(path, 0, str(error).removeprefix(f"{path}: "))
    return {kind: found[kind] for kind in ROW_KINDS if found.get(kind)}


def tables(kind: str, file: KindFile, problems: Problems) -> "Iterator[pyarrow.Table]":
    """The rows of one table, a page at a time, as CsvFile.tables() has them; `line` is 0. Rows of another
    rank than the directory's are problems."""
    name = parse_rank_directory(file.path.parent.name)
    table_name = ""
    try:
        with contextlib.closing(RankDatabase(file.path)) as database:
            (metric,) = (metric for metric in database.metrics if metric.name == kind)
            (partition,) = (part for part in metric.partitions if part.first == file.first_step)
            table_name = partition.table
            stats = [stat for stat in metric.stats if stat in stats_of(kind)]
            for rank, count, table in pages(database, metric, partition, stats):
                good = numpy.zeros(table.num_rows, bool)
                for stat in stats if name is None or rank == name.rank else ():
                    good |= table[stat].is_valid().to_numpy()
                for _ in range(count - good.sum()):
                    problems.add(file.path, 0, f"a row of {partition.table} without rank, target or value")
                if good.any():
                    yield table if good.all() else table.filter(pyarrow.array(good))
    except (RankDatabaseError, pyarrow.ArrowException, TypeError, ValueError) as error:
        rest = f"; the rest of {table_name} is left out" if table_name else ""
        problems.add(file.path, 0, str(error).removeprefix(f"{file.path}: ") + rest)


def pages(
    database: RankDatabase,
    metric: Metric,
    partition: Partition,
    stats: "list[str]",
    first: int = 0,
    last: int = LAST_STEP,
) -> "Iterator[tuple[int, int, pyarrow.Table]]":
    """The rows of a partition within the steps, a page at a time: the rank, the number of rows, and those
    with a step and a target, as CsvFile.tables() has them. A NaN is NULL in the database, with its bit set.
    """
    tensors = _Tensors(database.tensors(metric))
    micro = metric.name in database.kinds_with_micro_steps()
    for rank, rows in database.pages(metric, partition, stats, first, last):
        good = [(row, target) for row in rows if (target := database.target(row[1])) and _is_step(row[0])]
        steps, ids, masks, *columns = zip(*(row for row, _ in good)) if good else ((),) * (3 + len(stats))
        names, stages, micro_steps = zip(*(target for _, target in good)) if good else ((),) * 3
        made = {
            "line": pyarrow.nulls(len(good), pyarrow.int64()).fill_null(0),
            "step": pyarrow.array(steps, pyarrow.int64()),
            "vpp_stage": pyarrow.array(stages, pyarrow.int64()),
            "name": pyarrow.array(names, pyarrow.string()).cast(pyarrow.binary()).dictionary_encode(),
        }
        if micro:
            made["micro_step"] = pyarrow.array(micro_steps, pyarrow.int64())
        for name in ("vpp_stage", "micro_step"):
            if name in made:
                made[name] = made[name].cast(pyarrow.int32())
        made.update(tensors.columns(rank, ids, steps))
        nans = numpy.array(masks, dtype="int64")
        for stat, column in zip(stats, columns):
            is_nan = pyarrow.array(nans >> nan_bit(stat) & 1 == 1)
            made[stat] = compute.if_else(is_nan, float("nan"), _numbers(column))
        yield rank, len(rows), pyarrow.table(made)


def _is_step(step: Any) -> bool:
    return isinstance(step, int) and step >= 0


class _Tensors:
    """The shapes and data types of targets, from a step on."""

    def __init__(self, notes: "list[tuple[int, int, int, str, str]]") -> None:
        """Rank, target id, step, shape and data type."""
        self._of_rank: "dict[int, tuple[Any, Any, Any, list[Any]]]" = {}
        by_rank: "dict[int, list[Any]]" = {}
        for rank, *note in notes:
            by_rank.setdefault(rank, []).append(note)
        for rank, of_rank in by_rank.items():
            ids, steps, *texts = zip((-1, -1, "", ""), *sorted(of_rank))
            all_steps = numpy.unique(numpy.array(steps, "int64"))
            places = _places(ids, steps, all_steps)
            encoded = [pyarrow.array(column, pyarrow.string()).cast(pyarrow.binary()) for column in texts]
            self._of_rank[rank] = numpy.array(ids), all_steps, places, encoded

    def columns(self, rank: int, ids: Any, steps: Any) -> "dict[str, pyarrow.Array]":
        """The columns shape and dtype of a page; empty where they are unknown."""
        if rank not in self._of_rank:
            return {}
        noted, all_steps, places, texts = self._of_rank[rank]
        row = numpy.searchsorted(places, _places(ids, steps, all_steps), "right") - 1
        row[noted[row] != ids] = 0
        columns = [column.take(pyarrow.array(row)).dictionary_encode() for column in texts]
        return dict(zip(("shape", "dtype"), columns))


def _places(ids: Any, steps: Any, all_steps: Any) -> Any:
    """Numbers that ascend by target id, then by step."""
    step = numpy.searchsorted(all_steps, numpy.array(steps, "int64"), "right")
    return numpy.array(ids, "int64") * (len(all_steps) + 1) + step


def _numbers(column: "Iterable[Any]") -> Any:
    """Anything but a number is as missing."""
    try:
        return pyarrow.array(column, pyarrow.float64())
    except (pyarrow.ArrowException, TypeError):
        numbers = [float(cell) if isinstance(cell, (int, float)) else None for cell in column]
        return pyarrow.array(numbers, pyarrow.float64())
