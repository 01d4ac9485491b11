# SPDX-License-Identifier: Apache-2.0
"""The rows of one kind and rank, from all its CSV files or else its database, in batches of bounded size.
Needs pyarrow."""
import contextlib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generator, Iterable, Iterator, NamedTuple, Optional

import numpy
import pyarrow
from pyarrow import compute

from gradmon_read.csv_tables import CsvFile, KindFile, groups, kind_files_in, read_ahead
from gradmon_read.csv_tables import read_together, text_of
from gradmon_read.listing import Problems
from gradmon_read.rank_database import FILE, LAST_STEP, Metric, Partition, RankDatabase, RankDatabaseError
from gradmon_read.rank_database import nan_bit
from gradmon_read.runs import Run, parse_rank_directory
from gradmon_read.vocabulary import FIELDS, KINDS, ROW_KINDS, stats_of

if TYPE_CHECKING:
    from gradmon_read.conversion import Meter


def each_kind(run: Run, problems: Problems) -> "Iterator[tuple[int, str, list[KindFile]]]":
    """Rank, kind and files, rank by rank."""
    for directory in run.ranks:
        kinds = kind_files_in(directory.path, problems) or database_kinds(directory.path, problems)
        for kind, files in kinds.items():
            yield directory.rank, kind, files


def files_of_steps(files: "list[KindFile]", first: int, last: int) -> "list[KindFile]":
    """The files that may have rows of the steps from `first` to `last`."""
    return [file for file in files if file.first_step <= last and file.last_step >= first]


class Names:
    """Small numbers for the names of parameters and modules, with their model chunk: 0, 1, 2 ... in the order
    of first sight. Bounded."""

    MOST = 1_000_000
    MOST_BYTES = 128 << 20

    def __init__(self, most: Optional[int] = None, too_many: str = "more than a million names") -> None:
        self.all: "list[tuple[int, bytes]]" = []  # by number: vpp_stage and name
        self.too_many = too_many  # why a row without a number is left out
        self._most = self.MOST if most is None else most
        self._numbers: "dict[tuple[int, bytes], int]" = {}
        self._bytes = 0
        self._last: "dict[int, tuple[list[bytes], Any]]" = {}  # of each stage: names, and their numbers

    def number(self, stage: int, name: bytes) -> int:
        """Returns -1 if the name is new and there are too many."""
        found = self._numbers.get((stage, name))
        if found is not None:
            return found
        if len(self.all) >= self._most or self._bytes + len(name) > self.MOST_BYTES:
            return -1
        self._bytes += len(name)
        self.all.append((stage, name))
        return self._numbers.setdefault((stage, name), len(self.all) - 1)

    def numbers(self, stage: Any, index: Any, names: "list[bytes]") -> Any:
        """The numbers of rows, given their stages and their indices in `names`."""
        if stage.min() == stage.max():
            one = int(stage[0])
            known, numbers = self._last.get(one, ([], None))
            if known != names:  # batches after each other have the same names
                numbers = numpy.array([self.number(one, name) for name in names], "int64")
                self._last[one] = names, numbers
            return numbers[index]
        pairs, first, row = numpy.unique(
            numpy.stack([stage, index], 1), axis=0, return_index=True, return_inverse=True
        )
        numbers = numpy.empty(len(pairs), "int64")
        for i in numpy.argsort(first):
            numbers[i] = self.number(int(pairs[i, 0]), names[pairs[i, 1]])
        return numbers[row.reshape(-1)]

    def name(self, number: int) -> str:
        return text_of(self.all[number][1])

    def label(self, number: int) -> str:
        """ "1:fc1.weight"; for stage 0 the name alone."""
        stage = self.all[number][0]
        return f"{stage}:{self.name(number)}" if stage else self.name(number)


def grown(array: Any, size: int) -> Any:
    """With at least so many elements: new ones are as the last one, which is unused."""
    more = max(size + 1 - len(array), 0)
    if not more:
        return array
    return numpy.concatenate([array, numpy.repeat(array[-1:], max(more, len(array)), axis=0)])


class ReadFile(NamedTuple):
    path: str
    written: float = 0.0  # the time of the last write, in seconds since 1970; 0: of a database
    start: int = 0  # as KindFile.start


class Batch(NamedTuple):
    """Rows of one kind and rank, as arrays of equal length. At least one row.

    step, name, stage : integers; `name` is a number of Names.
    micro_step : int32, -1 where the file has no such column.
    line : of the row in its file, from 1.
    place : among the rows of its step in the file, from 0.
    file, shape, dtype : the index of each row in `files`, `shapes`, `dtypes`.
    values : by field, float64. absent : by field, True where there is no value, if anywhere.
    """

    step: Any
    name: Any
    stage: Any
    micro_step: Any
    line: Any
    place: Any
    file: Any
    shape: Any
    dtype: Any
    values: "dict[str, Any]"
    absent: "dict[str, Any]"
    files: "list[ReadFile]"
    shapes: "list[bytes]"
    dtypes: "list[bytes]"

    @property
    def rows(self) -> int:
        return len(self.step)

    def take(self, which: Any) -> "Batch":
        """The rows that an array or a slice chooses."""
        return self._replace(
            **{field: getattr(self, field)[which] for field in self._fields[:9]},
            values={field: column[which] for field, column in self.values.items()},
            absent={field: column[which] for field, column in self.absent.items()},
        )

    def has(self, field: str) -> Any:
        """True where a field has a value: an array."""
        if field not in self.values:
            return numpy.zeros(self.rows, bool)
        return ~self.absent[field] if field in self.absent else numpy.ones(self.rows, bool)

    def cells(self, field: str) -> "list[Optional[float]]":
        """The values of a field; None where there is none."""
        if field not in self.values:
            return [None] * self.rows
        cells: "list[Optional[float]]" = self.values[field].tolist()
        for i in numpy.flatnonzero(self.absent[field]) if field in self.absent else ():
            cells[i] = None
        return cells


def concatenated(batches: "list[Batch]") -> Batch:
    """The rows of several batches, one after the other."""
    if len(batches) == 1:
        return batches[0]
    columns = {
        name: numpy.concatenate([getattr(batch, name) for batch in batches]) for name in Batch._fields[:6]
    }
    lists: "dict[str, list[Any]]" = {"files": [], "shapes": [], "dtypes": []}
    for name, texts in lists.items():
        parts = []
        for batch in batches:
            parts.append(getattr(batch, name[:-1]) + len(texts))
            texts += getattr(batch, name)
        columns[name[:-1]] = numpy.concatenate(parts)
    values, absent = {}, {}
    for field in dict.fromkeys(field for batch in batches for field in batch.values):
        parts = [batch.values.get(field, numpy.zeros(batch.rows)) for batch in batches]
        values[field] = numpy.concatenate(parts)
        missing = ~numpy.concatenate([batch.has(field) for batch in batches])
        if missing.any():
            absent[field] = missing
    return Batch(**columns, values=values, absent=absent, **lists)


class KindReader:
    """Reads the rows of kinds. One thread calls it; others parse."""

    def __init__(
        self, problems: Problems, names: Optional[Names] = None, meter: "Optional[Meter]" = None
    ) -> None:
        """`meter`: counts the bytes read."""
        self.names = names or Names()
        self.problems = problems
        self._meter = meter

    def batches(self, kind: str, files: "list[KindFile]") -> "Generator[Batch, None, None]":
        """Rows with ascending steps if they ascend in each file. `files`: as of each_kind()."""
        work = (
            (group, partial(read_together, group.files) if group.is_small else None)
            for group in groups(files)
        )
        for group, future in read_ahead(work):
            found = future.result() if future is not None else None
            if found is not None:
                self._count(found.bytes_read)
                read = [
                    ReadFile(str(file.path), written, file.start)
                    for file, written in zip(group.files, found.written)
                ]
                yield from self._batch(found.table, found.file, read)
            elif group.is_small or len(group.files) == 1:
                for file in group.files:
                    yield from self._batches_of(kind, file)
            else:
                yield from _merged([self._batches_of(kind, file) for file in group.files])

    def _count(self, bytes_read: int) -> None:
        if self._meter is not None:
            self._meter.add(bytes=bytes_read)

    def _batch(self, table: Any, file: Any, files: "list[ReadFile]") -> "Iterator[Batch]":
        columns = {title: table[title].combine_chunks() for title in table.column_names}
        none = numpy.zeros(len(table), "int32")
        texts = {title: (none, [b""]) for title in ("name", "shape", "dtype")}
        for title in texts.keys() & columns.keys():
            texts[title] = columns[title].indices.to_numpy(False), columns[title].dictionary.to_pylist()
        step = columns["step"].to_numpy(False)
        stage = columns["vpp_stage"].to_numpy(False) if "vpp_stage" in columns else none
        count = numpy.arange(len(table))
        begins = numpy.ones(len(table), bool)
        begins[1:] = (step[1:] != step[:-1]) | (file[1:] != file[:-1])
        numbers = {field: columns[field] for field in FIELDS if field in columns}
        batch = Batch(
            step=step,
            name=self.names.numbers(stage, *texts["name"]),
            stage=stage,
            micro_step=columns["micro_step"].to_numpy(False) if "micro_step" in columns else none - 1,
            line=columns["line"].to_numpy(False),
            place=count - numpy.maximum.accumulate(numpy.where(begins, count, 0)),
            file=file,
            shape=texts["shape"][0],
            dtype=texts["dtype"][0],
            values={field: column.to_numpy(False) for field, column in numbers.items()},
            absent={
                field: column.is_null().to_numpy(False)
                for field, column in numbers.items()
                if column.null_count
            },
            files=files,
            shapes=texts["shape"][1],
            dtypes=texts["dtype"][1],
        )
        without = numpy.flatnonzero(batch.name < 0)
        for i in without:
            text = f"{self.names.too_many}; the row is left out"
            self.problems.add(batch.files[batch.file[i]].path, int(batch.line[i]), text)
        if len(without) < batch.rows:
            yield batch.take(batch.name >= 0) if len(without) else batch

    def _batches_of(self, kind: str, file: KindFile) -> "Iterator[Batch]":
        """The rows of one file of any size and content."""
        place, last, read = 0, -1, 0
        csv = CsvFile(file.path, self.problems)
        is_database = file.path.name == FILE
        for table in database_tables(kind, file, self.problems) if is_database else csv.tables():
            self._count(csv.bytes_read - read)
            read = csv.bytes_read
            index = numpy.zeros(len(table), "int32")
            for batch in self._batch(table, index, [ReadFile(str(file.path), csv.written, file.start)]):
                if place and batch.step[0] == last:
                    begins = numpy.flatnonzero(batch.step != last)
                    batch.place[: begins[0] if len(begins) else None] += place
                yield batch
                place, last = int(batch.place[-1]) + 1, int(batch.step[-1])
        self._count(csv.bytes_read - read)


class RowSource:
    """The rows of a file that are not merged yet. Their keys ascend: the greatest step so far, so that a row
    of an earlier step comes right after the row before it."""

    def __init__(self, batches: "Iterator[Batch]") -> None:
        self._batches = batches
        self.batch: Optional[Batch] = None
        self.keys = numpy.zeros(0, "int64")
        self.is_ended = False
        self._greatest = -1

    def fill(self) -> None:
        more = next(self._batches, None)
        if more is None:
            self.is_ended = True
            return
        keys = numpy.maximum(numpy.maximum.accumulate(more.step), self._greatest)
        self._greatest = int(keys[-1])
        self.batch = concatenated([self.batch, more]) if self.batch else more
        self.keys = numpy.concatenate([self.keys, keys])

    def take(self, below: "Optional[int]") -> "Optional[tuple[Batch, Any]]":
        """The rows whose keys are below a step, or all; and their keys."""
        if self.batch is None:
            return None
        count = self.batch.rows if below is None else int(numpy.searchsorted(self.keys, below))
        taken = self.batch.take(slice(0, count)), self.keys[:count]
        self.batch = self.batch.take(slice(count, None)) if count < self.batch.rows else None
        self.keys = self.keys[count:]
        return taken if count else None


def aligned(sources: "list[RowSource]") -> "Iterator[list[Optional[tuple[Batch, Any]]]]":
    """The rows of each source, and their keys, of the same steps: again and again whole steps, ascending."""
    while True:
        for source in sources:
            if source.batch is None and not source.is_ended:
                source.fill()
        ends = [int(source.keys[-1]) for source in sources if source.batch and not source.is_ended]
        below = min(ends) if ends else None
        taken = [source.take(below) for source in sources]
        if any(taken):
            yield taken
        elif not ends:
            return
        else:
            for source in sources:
                if source.batch and not source.is_ended and source.keys[-1] == below:
                    source.fill()


def _merged(files: "list[Iterator[Batch]]") -> "Iterator[Batch]":
    """Rows by step; of the same step by file."""
    for taken in aligned([RowSource(file) for file in files]):
        found = [each for each in taken if each]
        order = numpy.argsort(numpy.concatenate([keys for _, keys in found]), kind="stable")
        yield concatenated([batch for batch, _ in found]).take(order)


def database_kinds(directory: Path, problems: Problems) -> "dict[str, list[KindFile]]":
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
                what = [
                    f'statistic "{stat}" of {metric.name}' for stat in metric.stats if stat not in of_kind
                ]
                if is_known:
                    found[metric.name] = [KindFile(part[1], 0, part[2], path) for part in metric.partitions]
                else:
                    what = [f'metric "{metric.name}" with the id {metric.id}']
                for one in what:
                    expected = "expected one that this version of gradmon knows; it is left out"
                    problems.add(path, 0, f"found the {one}; {expected}")
    except RankDatabaseError as error:
        problems.add(path, 0, str(error).removeprefix(f"{path}: "))
    return {kind: found[kind] for kind in ROW_KINDS if found.get(kind)}


def database_tables(kind: str, file: KindFile, problems: Problems) -> "Iterator[pyarrow.Table]":
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
            for rank, count, table in database_pages(database, metric, partition, stats):
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


def database_pages(
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
            "name": pyarrow.array(names, pyarrow.string()).cast(pyarrow.binary()).dictionary_encode(),
        }
        for name, column in [("vpp_stage", stages), *([("micro_step", micro_steps)] if micro else [])]:
            made[name] = pyarrow.array(column, pyarrow.int64()).cast(pyarrow.int32())
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
            places = _target_places(ids, steps, all_steps)
            encoded = [pyarrow.array(column, pyarrow.string()).cast(pyarrow.binary()) for column in texts]
            self._of_rank[rank] = numpy.array(ids), all_steps, places, encoded

    def columns(self, rank: int, ids: Any, steps: Any) -> "dict[str, pyarrow.Array]":
        """The columns shape and dtype of a page; empty where they are unknown."""
        if rank not in self._of_rank:
            return {}
        noted, all_steps, places, texts = self._of_rank[rank]
        row = numpy.searchsorted(places, _target_places(ids, steps, all_steps), "right") - 1
        row[noted[row] != ids] = 0
        columns = [column.take(pyarrow.array(row)).dictionary_encode() for column in texts]
        return dict(zip(("shape", "dtype"), columns))


def _target_places(ids: Any, steps: Any, all_steps: Any) -> Any:
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
