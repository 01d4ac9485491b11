# SPDX-License-Identifier: Apache-2.0
"""Heat maps: layer over step, or bin of a histogram over step. Needs pyarrow."""
import math
import re
from typing import Any, Iterator, NamedTuple, Optional

import numpy

from gradmon_read.command_line import CommandError
from gradmon_read.csv_tables import Problems
from gradmon_read.event_records import EventFileError
from gradmon_read.event_rows import events, rank_event_files, tag_of
from gradmon_read.kind_rows import Batch, KindReader, Names, each_kind
from gradmon_read.listing import printable
from gradmon_read.run_report import layer_text
from gradmon_read.runs import RankDirectory, Run
from gradmon_read.vocabulary import BINS, FIELDS, HISTOGRAM_KINDS, ROW_KINDS

MISSING = -1  # a cell without a value: values are magnitudes

_BINS = len(BINS)  # of a histogram, over [-1, 1]
_MOST_ROWS, _MOST_COLUMNS = 256, 512
_MOST_CELLS = 32 << 20  # of 4 bytes: more layers than this get fewer columns
_MOST_NAMED = 3  # parameters in a message


class HeatMap(NamedTuple):
    """Values over layers and steps."""

    title: str
    rows: "list[str]"  # labels, from the top
    first_steps: "list[int]"  # of each column, ascending
    last_step: int
    cells: Any  # float32, row by row: magnitudes, infinite, NaN or MISSING


class HeatMapBuilder:
    """Collects values for a HeatMap of a bounded size. If several values fall into one cell, the cell shows
    the largest magnitude; NaN counts as larger than all others."""

    def __init__(self, most_rows: int = _MOST_ROWS, most_columns: int = _MOST_COLUMNS) -> None:
        """At least 2 columns and 1 row."""
        self._most_rows = most_rows
        self._columns = most_columns
        self._cells = numpy.full((0, most_columns), MISSING, "float32")
        self._width_log = 0  # a column has 2^_width_log steps
        self._least = self._most = -1  # step / width of the first and last value; -1: no value
        self._last_step = 0

    @property
    def has_values(self) -> bool:
        return self._least >= 0

    def add(self, row: Any, step: Any, value: Any) -> None:
        """Arrays of equal length. Rows from 0; all that were added stay in memory. Steps in any order."""
        if not len(row):
            return
        self._make_room(int(step.min()), int(step.max()))
        rows = int(row.max()) + 1
        while self._columns > 2 and rows * self._columns > _MOST_CELLS:
            self.limit_columns(self._columns // 2)
        if rows > len(self._cells):
            rows = max(rows, min(2 * len(self._cells), _MOST_CELLS // self._columns))
            cells = numpy.full((rows, self._columns), MISSING, "float32")
            cells[: len(self._cells)] = self._cells
            self._cells = cells
        size = numpy.abs(value)
        largest = numpy.finfo("float32").max  # a number beyond the range of float is not infinite
        size = numpy.where(numpy.isfinite(size), numpy.minimum(size, largest), size).astype("float32")
        numpy.maximum.at(self._cells, (row, (step >> self._width_log) - self._least), size)
        self._last_step = max(self._last_step, int(step.max()))

    def limit_columns(self, columns: int) -> None:
        """Uses fewer columns from now on, at least 2: less memory for more rows."""
        self._move_cells(columns, self._least, self._most)

    def _make_room(self, first: int, last: int) -> None:
        first, last = first >> self._width_log, last >> self._width_log
        if self._least < 0:
            self._least, self._most = first, first
        if first < self._least or last > self._most:
            self._move_cells(self._columns, min(self._least, first), max(self._most, last))

    def _move_cells(self, columns: int, least: int, most: int) -> None:
        """Makes columns of twice as many steps until those from `least` to `most` are few enough."""
        doublings = 0
        while (most >> doublings) - (least >> doublings) >= columns:
            doublings += 1
        base = least >> doublings
        moved = numpy.full((len(self._cells), columns), MISSING, "float32")
        for column in range(self._most - self._least + 1 if self._least >= 0 else 0):
            to = ((self._least + column) >> doublings) - base
            numpy.maximum(moved[:, to], self._cells[:, column], out=moved[:, to])
        self._cells, self._columns = moved, columns
        self._width_log += doublings
        self._least, self._most = base, most >> doublings

    def build(self, title: str, labels: "list[str]") -> HeatMap:
        """`labels`: of all rows. If rows exceed the limit, draws neighbours as one row, with the label of the
        first. Skips rows and columns without a value."""
        has = self._cells != MISSING
        rows, columns = numpy.flatnonzero(has.any(axis=1)), numpy.flatnonzero(has.any(axis=0))
        together = -(-len(rows) // self._most_rows)
        begins = numpy.arange(0, len(rows), together)
        cells = numpy.maximum.reduceat(self._cells[numpy.ix_(rows, columns)], begins, axis=0)
        steps = [(self._least + int(column)) << self._width_log for column in columns]
        return HeatMap(title, [labels[row] for row in rows[begins]], steps, self._last_step, cells)


class HeatMapRequest(NamedTuple):
    kind: Optional[str]  # None: grad_reduced, else the run's first kind
    field: Optional[str]  # None: norm, else the first field present
    target: str  # "": all layers
    rank: Optional[int]  # None: all ranks


def is_target(target: str, name: str) -> bool:
    """Returns True if a target names the layer: by its whole name, or by the name of a module above it; with
    "*" (any text) and "?" (one character), by a pattern for the whole name."""
    if not set("*?") & set(target):
        return name == target or name.startswith(target + ".")
    parts = (
        ".*" if part == "*" else "." if part == "?" else re.escape(part)
        for part in re.split(r"([*?])", target)
    )
    return re.fullmatch("".join(parts), name, re.DOTALL) is not None


def heat_map_of(run: Run, request: HeatMapRequest, problems: Problems) -> HeatMap:
    """Layer over step, from the CSV files of the run. Raises CommandError, which names the kinds or layers
    that exist instead."""
    kinds = {kind for _, kind, _ in each_kind(run, Problems())}
    if not kinds:
        raise CommandError("there are no CSV files of gradmon in the run")
    present = [kind for kind in ROW_KINDS if kind in kinds]
    kind = request.kind or ("grad_reduced" if "grad_reduced" in kinds else present[0])
    if kind not in kinds:
        raise CommandError(f"there are no files of {kind}; there are: {', '.join(present)}")
    reader = KindReader(problems)
    collector = _Collector(request, reader.names)
    ranks = set()
    for rank, one, files in each_kind(run, problems):
        if one == kind and request.rank in (None, rank):
            ranks.add(rank)
            for batch in reader.batches(kind, files):
                collector.add(batch)
    if not ranks:
        raise CommandError(f"there is no rank {request.rank or 0} in the run")
    return collector.build(kind, f"{_ranks_text(ranks)}, run {printable(run.id)}")


def _ranks_text(ranks: "set[int]") -> str:
    return f"rank {min(ranks)}" if len(ranks) == 1 else f"largest of {len(ranks)} ranks"


class _Collector:
    """Collects the values of one kind."""

    def __init__(self, request: HeatMapRequest, names: Names) -> None:
        self._request, self._names = request, names
        self._builder = HeatMapBuilder()
        self._field = request.field
        self._rows = 0
        self._fields: "set[str]" = set()  # with values, of the wanted layers
        self._is_wanted = numpy.zeros(0, bool)  # by number of the name

    def add(self, batch: Batch) -> None:
        self._rows += batch.rows
        wanted = self._wanted(batch)
        present = [field for field in FIELDS if (batch.has(field) & wanted).any()]
        self._fields.update(present)
        if self._field is None and present:
            self._field = _first_field(batch, wanted, present)
        if self._field in present:
            rows = numpy.flatnonzero(batch.has(self._field) & wanted)
            self._builder.add(batch.name[rows], batch.step[rows], batch.values[self._field][rows])

    def _wanted(self, batch: Batch) -> Any:
        if not self._request.target:
            return numpy.ones(batch.rows, bool)
        new = range(len(self._is_wanted), len(self._names.all))
        more = [is_target(self._request.target, self._names.name(number)) for number in new]
        self._is_wanted = numpy.append(self._is_wanted, numpy.array(more, bool))
        return self._is_wanted[batch.name]

    def build(self, kind: str, of: str) -> HeatMap:
        if not self._builder.has_values:
            raise CommandError(self._why_nothing(kind))
        labels = [
            printable(layer_text(stage, self._names.name(i))) for i, (stage, _) in enumerate(self._names.all)
        ]
        return self._builder.build(f"{self._field} of {kind}, {of}", labels)

    def _why_nothing(self, kind: str) -> str:
        if self._rows == 0:
            return f"there are no rows of {kind}"
        if not self._fields:
            return f"no layer matches --target {self._request.target}, of {self._rows} rows"
        there = ", ".join(field for field in FIELDS if field in self._fields)
        return f"{kind} has no values of --op {self._field}; it has {there}"


def _first_field(batch: Batch, wanted: Any, present: "list[str]") -> str:
    """The norm, or else the first field, of the first row that has any."""
    firsts = {field: int(numpy.argmax(batch.has(field) & wanted)) for field in present}
    of_row = [field for field in present if firsts[field] == min(firsts.values())]
    return "norm" if "norm" in of_row else of_row[0]


class Histogram(NamedTuple):
    """A histogram of a parameter, as gradmon writes it for TensorBoard."""

    step: int
    vpp_stage: int
    name: str
    rank: int
    kind: str
    counts: "list[float]"  # of _BINS bins, finite, at least 0


def histogram_map_of(run: Run, request: HeatMapRequest, problems: Problems) -> HeatMap:
    """Bins over steps: the number of values of one parameter's update or ratio in each of the 30 bins, the
    bin of 1 at the top. With several ranks, or several steps in a column, a cell shows the largest number.
    `request.kind` is a histogram's; `request.target` must fit one parameter alone. Raises
    CommandError, which names the histograms that exist instead."""
    builder = HeatMapBuilder(_BINS)
    names, ranks = set(), set()
    count = 0
    for directory in run.ranks:
        for row in histograms_in(directory, problems):
            if row.kind != request.kind or request.rank not in (None, row.rank):
                continue
            count += 1
            if not request.target or is_target(request.target, row.name):
                names.add(layer_text(row.vpp_stage, row.name))
                ranks.add(row.rank)
                bins = numpy.arange(_BINS)
                builder.add(_BINS - 1 - bins, numpy.full(_BINS, row.step), numpy.array(row.counts))
    kind = request.kind
    if count == 0:
        raise CommandError(
            f'there are no histograms of {kind}; "ur_distribution": true with "format": "tensorboard" makes '
            "them"
        )
    if not names:
        raise CommandError(f"no parameter matches --target {request.target}, of {count} histograms")
    if len(names) > 1:
        named = ", ".join(sorted(names)[:_MOST_NAMED]) + (", ..." if len(names) > _MOST_NAMED else "")
        raise CommandError(
            f"the histograms of {kind} are of {len(names)} parameters ({named}): name one with --target"
        )
    of = f"{printable(min(names))}, {_ranks_text(ranks)}, run {printable(run.id)}"
    lower = [2 * (_BINS - 1 - row) / _BINS - 1 for row in range(_BINS)]
    labels = [f"{least:.2f} to {least + 2 / _BINS:.2f}" for least in lower]
    return builder.build(f"values of {kind} of {of}", labels)


def histograms_in(directory: RankDirectory, problems: Problems) -> "Iterator[Histogram]":
    """The histograms in the event files of a rank, in the order of writing. `rank` is the directory's, unless
    the tag names one."""
    for file in rank_event_files(directory.path, problems):
        try:
            for step, values in events(file):
                for raw, _, counts in values:
                    tag = tag_of(raw.decode("utf-8", "surrogateescape"))
                    if counts is None or tag.kind not in HISTOGRAM_KINDS:
                        continue
                    rank = directory.rank if tag.rank is None else tag.rank
                    if all(0 <= count < math.inf for count in counts):
                        yield Histogram(step, tag.vpp_stage, tag.name, rank, tag.kind, counts)
        except (OSError, EventFileError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            problems.add(file, 0, f"{why}; the rest of the file is left out")
