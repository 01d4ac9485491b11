# SPDX-License-Identifier: Apache-2.0
"""All values in the databases of all ranks, as an Arrow dataset. Opens a database when it is read, and reads
only what the filter asks for. Needs pyarrow."""
import contextlib
from typing import Any, Iterable, Iterator

import numpy
import pyarrow
import pyarrow.dataset
from pyarrow.dataset import field

from gradmon_read.rank_database import Partition, RankDatabase, RankDatabaseError, RankFile, nan_bit

SCHEMA = pyarrow.schema(
    [
        *(("rank", "int64"), ("step", "int64"), ("metric", "string"), ("target", "string")),
        *(("vpp_stage", "int64"), ("micro_step", "int64"), ("op", "string"), ("value", "float64")),
    ]
)


class MetricValues(pyarrow.dataset.InMemoryDataset):  # type: ignore[misc]
    """Rows by rank, metric, step and target. Several scans may run at a time."""

    def __init__(self, files: "list[RankFile]") -> None:
        super().__init__([], schema=SCHEMA)
        self.files = files
        self.errors: "dict[int, str]" = {}  # by index of the file: why it was not read, or not to its end

    def scanner(self, columns: Any = None, filter: Any = None, **options: Any) -> Any:
        batches = self._batches(filter)
        return pyarrow.dataset.Scanner.from_batches(
            batches, schema=SCHEMA, columns=columns, filter=filter, **options
        )

    def _batches(self, filter: Any) -> "Iterator[pyarrow.RecordBatch]":
        known = [field("rank") == file.rank if file.rank is not None else _ANY for file in self.files]
        for index in _possible(known, filter):
            if index in self.errors:
                continue
            try:
                with contextlib.closing(RankDatabase(self.files[index].path)) as database:
                    yield from _values(database, filter)
            except (RankDatabaseError, pyarrow.ArrowException, OSError, TypeError, ValueError) as error:
                self.errors[index] = str(error)


_ANY = pyarrow.scalar(True)
_FORMAT = pyarrow.dataset.ParquetFileFormat()
_NOWHERE = pyarrow.fs.LocalFileSystem()


def _possible(known: "list[Any]", filter: Any) -> "list[int]":
    """The indexes of the parts that can have rows of the filter, of what is known of each part's rows. Arrow
    decides it; the files of its fragments do not exist."""
    if filter is None:
        return list(range(len(known)))
    parts = [
        _FORMAT.make_fragment(str(i), _NOWHERE, partition_expression=each) for i, each in enumerate(known)
    ]
    whole = pyarrow.dataset.FileSystemDataset(parts, SCHEMA, _FORMAT, _NOWHERE)
    return sorted(int(part.path) for part in whole.get_fragments(filter=filter))


def _values(database: RankDatabase, filter: Any) -> "Iterator[pyarrow.RecordBatch]":
    for metric in database.metrics:
        of_metric = field("metric") == metric.name
        known = [
            of_metric & (field("step") >= each.first) & (field("step") <= each.last)
            for each in metric.partitions
        ]
        stats = [of_metric & (field("op") == stat) for stat in metric.stats]
        wanted = [metric.stats[i] for i in _possible(stats, filter)]
        for i in _possible(known, filter) if wanted else ():
            steps = _steps(of_metric, metric.partitions[i], filter)
            for rank, rows in database.pages(metric, metric.partitions[i], wanted, *steps):
                yield _batch(database, metric.name, wanted, rank, rows)


def _steps(of_metric: Any, partition: Partition, filter: Any) -> "tuple[int, int]":
    """The first and the last step of a partition that the filter can want, found by halving."""

    def wanted(first: int, last: int) -> bool:
        return bool(_possible([of_metric & (field("step") >= first) & (field("step") <= last)], filter))

    first, last = partition.first, partition.last
    if filter is None or (wanted(first, first) and wanted(last, last)):
        return first, last
    low, high = first, last
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if wanted(low, middle) else (middle + 1, high)
    first, high = low, last
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if wanted(middle, high) else (low, middle - 1)
    return first, high


def _batch(
    database: RankDatabase, metric: str, stats: "list[str]", rank: int, rows: "list[tuple[Any, ...]]"
) -> pyarrow.RecordBatch:
    """Values that were not measured have no row; a NaN is NULL in the database, with its bit set."""
    steps, ids, masks, *columns = zip(*rows)
    targets = [database.target(id) for id in ids]
    nans = numpy.array(masks, dtype="int64")
    values = numpy.empty((len(rows), len(stats)))
    measured = numpy.empty(values.shape, dtype=bool)
    for i, (stat, column) in enumerate(zip(stats, columns)):
        found = _numbers(column)
        values[:, i] = found.to_numpy(zero_copy_only=False)
        measured[:, i] = found.is_valid().to_numpy(zero_copy_only=False) | (nans >> nan_bit(stat) & 1 == 1)
    measured &= numpy.array([target is not None for target in targets])[:, None]
    row, stat = numpy.nonzero(measured)
    known = [target or ("", 0, 0) for target in targets]
    names, stages, micro_steps = zip(*known)
    return pyarrow.record_batch(
        [
            pyarrow.array(numpy.full(len(row), rank, dtype="int64")),
            pyarrow.array(numpy.array(steps, dtype="int64")[row]),
            pyarrow.array([metric]).take(numpy.zeros(len(row), dtype="int64")),
            pyarrow.array(names).take(row),
            pyarrow.array(numpy.array(stages, dtype="int64")[row]),
            pyarrow.array(numpy.array(micro_steps, dtype="int64")[row]),
            pyarrow.array(stats).take(stat),
            pyarrow.array(values[row, stat]),
        ],
        schema=SCHEMA,
    )


def _numbers(column: "Iterable[Any]") -> Any:
    """Anything but a number is as missing."""
    try:
        return pyarrow.array(column, pyarrow.float64())
    except (pyarrow.ArrowException, TypeError):
        numbers = [float(cell) if isinstance(cell, (int, float)) else None for cell in column]
        return pyarrow.array(numbers, pyarrow.float64())
