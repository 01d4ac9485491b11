# SPDX-License-Identifier: Apache-2.0
"""An Arrow dataset of parts that are read when a filter needs them. Needs pyarrow."""
import re
from concurrent.futures import Future
from functools import partial
from typing import Any, Callable, Iterator, NamedTuple, Optional, Sequence

import numpy
import pyarrow
import pyarrow.dataset
from pyarrow.dataset import field

from gradmon_read.small_files import read_ahead
from gradmon_read.vocabulary import BINS, FIELDS

SCHEMA = pyarrow.schema(
    [
        *(("run", "string"), ("rank", "int64"), ("step", "int64"), ("micro_step", "int64")),
        *(("kind", "string"), ("name", "string"), ("op", "string"), ("value", "float64")),
        ("vpp_stage", "int64"),
    ]
)
VALUES = {*FIELDS, *BINS}  # the statistics: columns of Part.tables()
_FORMAT = pyarrow.dataset.ParquetFileFormat()
_NOWHERE = pyarrow.fs.LocalFileSystem()


def possible(known: "list[Any]", filter: Any) -> "list[int]":
    """The indices of the parts that can have rows of the filter. `known`: what is true of all rows of each
    part. Arrow decides it; the files of its fragments do not exist."""
    if filter is None:
        return list(range(len(known)))
    parts = [
        _FORMAT.make_fragment(str(i), _NOWHERE, partition_expression=each) for i, each in enumerate(known)
    ]
    whole = pyarrow.dataset.FileSystemDataset(parts, SCHEMA, _FORMAT, _NOWHERE)
    return sorted(int(part.path) for part in whole.get_fragments(filter=filter))


class Scan:
    """One reading of a dataset. Remembers which names and statistics its filter can want."""

    def __init__(self, filter: Any, patterns: "Sequence[re.Pattern[str]]" = ()) -> None:
        """`patterns`: each is searched in the names of wanted rows."""
        self.filter = filter
        self._patterns = patterns
        self._asks_for_names = bool(patterns) or "name" in str(filter)  # otherwise all are wanted
        self._names: "dict[tuple[str, str], bool]" = {}
        self._last: "Optional[tuple[str, Any, Any]]" = None  # kind, names and answer of names()

    def wanted(self, known: "list[Any]") -> "list[int]":
        return possible(known, self.filter)

    def ops(self, kind: str, ops: "list[str]") -> "list[str]":
        of_kind = field("kind") == kind
        return [ops[i] for i in self.wanted([of_kind & (field("op") == op) for op in ops])]

    def names(self, kind: str, names: pyarrow.Array) -> "Optional[pyarrow.BooleanArray]":
        """Returns a flag for each name (strings or bytes, each once): it can have rows of the filter. None:
        all can."""
        if not self._asks_for_names:
            return None
        if self._last is not None and self._last[0] == kind and self._last[1].equals(names):
            return self._last[2]
        texts = strings(names).to_pylist()
        new = [name for name in texts if (kind, name) not in self._names]
        self._names.update({(kind, name): False for name in new})
        new = [name for name in new if all(pattern.search(name) for pattern in self._patterns)]
        found = self.wanted([(field("kind") == kind) & (field("name") == name) for name in new])
        self._names.update({(kind, new[i]): True for i in found})
        wanted = [self._names[kind, name] for name in texts]
        self._last = (kind, names, None if all(wanted) else pyarrow.array(wanted, pyarrow.bool_()))
        return self._last[2]


def strings(texts: pyarrow.Array) -> pyarrow.Array:
    """Bytes as strings; those that are no UTF-8 with backslashes."""
    try:
        return texts.cast(pyarrow.string())
    except pyarrow.ArrowInvalid:
        return pyarrow.array([text.decode("utf-8", "backslashreplace") for text in texts.to_pylist()])


class Place(NamedTuple):
    """The run, rank and kind of all rows of a table."""

    run: str  # 8 hex digits; "": unknown
    rank: int
    kind: str


class Part(NamedTuple):
    """Rows of one file.

    `tables` gives them a table at a time: `step`, `micro_step`, `vpp_stage` (int64; micro_step is null where
    a row is of the whole step), `name` (a string), if known `shape` and `dtype` (strings), and the statistics
    by name (float64; null: not measured). It may give more rows than the scan wants, and no statistic that it
    does not want.
    """

    known: Any  # an expression that is true of all its rows
    tables: "Callable[..., Iterator[tuple[Place, pyarrow.Table]]]"  # of a Scan, and of what `ahead` has given
    ahead: "Optional[Callable[[Scan], Any]]" = None  # the work that any thread can do before


class PartsDataset(pyarrow.dataset.InMemoryDataset):  # type: ignore[misc]
    """Opens a part when it is read, and only the parts that a filter needs. Several scans may run at once."""

    def __init__(
        self, parts: "list[Part]", filter: Any = None, patterns: "Sequence[re.Pattern[str]]" = ()
    ) -> None:
        """`filter` and `patterns`, of names, apply to every scan."""
        super().__init__([], schema=SCHEMA)
        self._parts, self._filter, self._patterns = parts, filter, patterns
        self.errors: "dict[int, str]" = {}  # by index of the part: why it was not read, or not to its end

    def scanner(self, columns: Any = None, filter: Any = None, **options: Any) -> Any:
        both = [each for each in (self._filter, filter) if each is not None]
        condition = both[0] & both[1] if len(both) == 2 else both[0] if both else None
        batches = (rows_of(*found) for found in self.tables(condition))
        return pyarrow.dataset.Scanner.from_batches(
            batches, schema=SCHEMA, columns=columns, filter=condition, **options
        )

    def tables(self, filter: Any = None) -> "Iterator[tuple[Place, pyarrow.Table]]":
        """As Part.tables(), of all parts that the filter needs."""
        scan = Scan(filter, self._patterns)
        indices = scan.wanted([part.known for part in self._parts])
        for index, ahead in read_ahead((index, self._ahead_of(index, scan)) for index in indices):
            yield from self._of_part(scan, index, [ahead] if ahead else [])

    def _ahead_of(self, index: int, scan: Scan) -> "Optional[Callable[[], Any]]":
        ahead = self._parts[index].ahead
        return None if ahead is None else partial(ahead, scan)

    def _of_part(
        self, scan: Scan, index: int, ahead: "list[Future[Any]]"
    ) -> "Iterator[tuple[Place, pyarrow.Table]]":
        if index in self.errors:
            return
        try:
            for place, table in self._parts[index].tables(scan, *(done.result() for done in ahead)):
                yield place, self._with_names(scan, place, table)
        except (pyarrow.ArrowException, OSError, TypeError, ValueError) as error:
            self.errors[index] = str(error)

    def _with_names(self, scan: Scan, place: Place, table: pyarrow.Table) -> pyarrow.Table:
        """The rows with names that the patterns are found in."""
        if not self._patterns:
            return table
        encoded = table["name"].combine_chunks().dictionary_encode()
        wanted = scan.names(place.kind, encoded.dictionary)
        return table if wanted is None else table.filter(wanted.take(encoded.indices))


def rows_of(place: Place, table: pyarrow.Table) -> pyarrow.RecordBatch:
    """A row of SCHEMA for each value that was measured, in the order of the table's rows."""
    ops = [name for name in table.column_names if name in VALUES]
    numbers = numpy.empty((table.num_rows, len(ops)))
    measured = numpy.empty(numbers.shape, dtype=bool)
    for i, op in enumerate(ops):
        column = table[op].combine_chunks()
        numbers[:, i] = column.to_numpy(zero_copy_only=False)
        measured[:, i] = column.is_valid().to_numpy(zero_copy_only=False)
    row, op = numpy.nonzero(measured)
    none = numpy.zeros(len(row), dtype="int64")
    found = {
        "run": pyarrow.array([place.run]).take(none),
        "rank": pyarrow.array(numpy.full(len(row), place.rank, dtype="int64")),
        "kind": pyarrow.array([place.kind]).take(none),
        "op": pyarrow.array(ops, pyarrow.string()).take(op),
        "value": pyarrow.array(numbers[row, op]),
    }
    for name in ("step", "micro_step", "name", "vpp_stage"):
        found[name] = table[name].combine_chunks().take(row)
    return pyarrow.record_batch([found[name] for name in SCHEMA.names], schema=SCHEMA)
