# SPDX-License-Identifier: Apache-2.0
"""The rows of runs, lazily: as an Arrow dataset, a DuckDB relation, a pandas or a Polars frame. Needs
pyarrow."""
import contextlib
import json
import operator
import os
import re
import warnings
from bisect import bisect_left
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Collection, Iterable, Iterator, NamedTuple, Optional
from typing import Sequence, Union

import numpy
import pyarrow
import pyarrow.dataset
from pyarrow import compute, parquet
from pyarrow.dataset import field

from gradmon_read.command_line import CommandError
from gradmon_read.csv_tables import CsvFile, KindFile, Together, groups, kind_files_in, read_ahead
from gradmon_read.csv_tables import read_together
from gradmon_read.event_rows import converted_ranks, converted_tag, event_files, event_tables
from gradmon_read.event_rows import rank_event_files, tag_of
from gradmon_read.kind_rows import database_pages
from gradmon_read.listing import Problems
from gradmon_read.rank_database import FILE, Partition, RankDatabase, RankDatabaseError, RankFile
from gradmon_read.rank_database import StoredFile, rank_file, stored_files
from gradmon_read.runs import Run, directory_name, find_run, id_of_run_file, parse_rank_directory, runs_in
from gradmon_read.vocabulary import ALERT_COLUMNS, BINS, FIELDS, HISTOGRAM_KINDS, KINDS

if TYPE_CHECKING:
    from pandas import DataFrame
    from polars import LazyFrame

AnyPath = Union[str, "os.PathLike[str]"]
Names = Union[str, Collection[str], "re.Pattern[str]"]

_MOST_BYTES_OF_LINES = 128 << 20

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


def _known(steps: "Optional[tuple[int, int]]" = None, **values: Any) -> Any:
    """An expression that is true of the rows with these values, in a range of steps."""
    conditions = [field(name) == value for name, value in values.items()]
    if steps:
        conditions += [field("step") >= steps[0], field("step") <= steps[1]]
    return reduce(operator.and_, conditions) if conditions else compute.scalar(True)


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
        return [ops[i] for i in self.wanted([_known(kind=kind, op=op) for op in ops])]

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
        found = self.wanted([_known(kind=kind, name=name) for name in new])
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
        parts = ((index, self._parts[index]) for index in scan.wanted([part.known for part in self._parts]))
        items = (((index, part), part.ahead and partial(part.ahead, scan)) for index, part in parts)
        for (index, part), ahead in read_ahead(items):
            if index in self.errors:
                continue
            try:
                for place, table in part.tables(scan, *([ahead.result()] if ahead else [])):
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


_Placed = tuple[Place, pyarrow.Table]


class Rows:
    """The rows of one or more runs. Reads a file when its rows are asked for, and only the files, columns and
    names that the filters need. Any thread; each call opens the files anew.

    Columns of every form: run (8 hex digits; "" if unknown), rank, step, micro_step (null where a row is of
    the whole step), kind, name, op (the statistic: norm, mg_direction, ...), value, vpp_stage. One value a
    row. A value is NaN where NaN was measured; a value that was not measured has no row. A rank's rows of a
    kind are in the order of steps; those of different files are not sorted.
    """

    def __init__(
        self,
        parts: "list[Part]",
        problems: Problems,
        filter: Any = None,
        patterns: "tuple[re.Pattern[str], ...]" = (),
    ) -> None:
        self._parts, self._filter, self._patterns = parts, filter, patterns
        self.problems = problems  # rows of CSV files that could not be read, so far

    def where(
        self,
        *,
        kind: "Union[str, Collection[str], None]" = None,
        op: "Union[str, Collection[str], None]" = None,
        steps: "Union[int, Collection[int], None]" = None,
        ranks: "Union[int, Collection[int], None]" = None,
        names: "Optional[Names]" = None,
    ) -> "Rows":
        """The rows that meet all conditions.

        Parameters
        ----------
        kind, op : str or collection of str, optional
            "grad_reduced"; "norm".
        steps, ranks : int or collection of int, optional
            For example ``range(1000, 2000)``.
        names : str, collection of str or compiled pattern, optional
            Names as in the files, or a pattern that is searched in them.
        """
        conditions = [] if self._filter is None else [self._filter]
        for column, wanted in (("kind", kind), ("op", op), ("step", steps), ("rank", ranks)):
            if wanted is not None:
                conditions.append(_is_one_of(column, wanted))
        patterns = self._patterns
        if isinstance(names, re.Pattern):
            patterns += (names,)
        elif names is not None:
            conditions.append(_is_one_of("name", names))
        joined = reduce(operator.and_, conditions) if conditions else None
        return Rows(self._parts, self.problems, joined, patterns)

    def dataset(self) -> pyarrow.dataset.Dataset:
        """An Arrow dataset: ``scanner(columns=, filter=)``, ``to_table()``, ``to_batches()``. A file that
        cannot be read has no rows, and is in its `errors`."""
        return PartsDataset(self._parts, self._filter, self._patterns)

    def relation(self, connection: Any = None) -> Any:
        """A DuckDB relation; DuckDB asks for the columns and rows that a query needs. `connection`: default,
        a new one."""
        import duckdb

        return (connection or duckdb.connect()).from_arrow(self.dataset())

    def table(self, columns: "Optional[list[str]]" = None) -> pyarrow.Table:
        """All rows in memory, 60 to 100 bytes each. Raises ValueError if a file cannot be read; warns of rows
        of CSV files that cannot be read."""
        dataset = self.dataset()
        before = self.problems.count
        found = dataset.to_table(columns=columns)
        if dataset.errors:
            raise ValueError(next(iter(dataset.errors.values())))
        if self.problems.count > before:
            warnings.warn("; ".join(self.problems.messages()), stacklevel=2)
        return found

    def pandas(self, columns: "Optional[list[str]]" = None) -> "DataFrame":
        """As table(); micro_step is Int64."""
        import pandas

        found = self.table(columns)
        place = found.schema.get_field_index("micro_step")
        micro_step = None if place < 0 else pandas.Int64Dtype().__from_arrow__(found.column(place))
        others = found if place < 0 else found.remove_column(place)
        del found
        # Each column is freed as it is copied.
        frame = others.to_pandas(split_blocks=True, self_destruct=True)
        if micro_step is not None:
            frame.insert(place, "micro_step", micro_step)
        return frame

    def polars(self) -> "LazyFrame":
        """A lazy frame of Polars, which asks for the columns and rows that it needs."""
        import polars

        return polars.scan_pyarrow_dataset(self.dataset())


def open(path: "Union[AnyPath, Iterable[AnyPath]]", run: Optional[str] = None) -> Rows:
    """Opens the rows of a run, or of several, of any size and number of ranks, without reading them.

    Parameters
    ----------
    path : path or iterable of paths
        The job's output directory, the directory of one rank in it, a database, or the output of
        ``gradmonctl convert``: a Parquet dataset, a database or event files. Output of msprobe is read
        likewise. If a run has several forms, the first is read: CSV, SQLite, event files; histograms are
        in event files alone.
    run : str, optional
        The 8 hex digits of a run in each output directory. Default: the newest.

    Raises
    ------
    FileNotFoundError
        If there is no such path, or it has no rows of gradmon or msprobe.
    ImportError
        If google-crc32c is missing, for event files.

    Examples
    --------
    >>> rows = gradmon.open("monitor_output")
    >>> rows.where(kind="grad_reduced", op="norm", steps=range(1000, 2000)).pandas()
    >>> rows.relation().filter("kind = 'actv'").aggregate("name, max(value)", "name")
    """
    places = [path] if isinstance(path, (str, os.PathLike)) else list(path)
    try:
        found = find_sources([Path(place) for place in places], run)
    except CommandError as error:
        raise FileNotFoundError(str(error)) from None
    return Rows(found.parts + found.histograms, found.problems)


class Sources(NamedTuple):
    """The rows at some places, not read yet."""

    parts: "list[Part]"
    histograms: "list[Part]"  # in event files beside the parts
    places: "list[tuple[str, Optional[int], Path]]"  # run, rank and path of each file or rank's directory
    notes: "list[str]"  # which of several runs is read
    problems: Problems

    def ranks(self) -> pyarrow.Table:
        schema = pyarrow.schema([("run", "string"), ("rank", "int64"), ("path", "string")])
        rows = [{"run": run, "rank": rank, "path": str(path)} for run, rank, path in self.places]
        return pyarrow.Table.from_pylist(rows, schema)

    def alerts(self) -> pyarrow.Table:
        """The alerts of the runs (ALERTS.md)."""
        found: "dict[Path, None]" = {}
        for directory in dict.fromkeys(path if path.is_dir() else path.parent for _, _, path in self.places):
            if epoch := _epoch_of(directory):
                found.setdefault(directory.parent / ".gradmon" / epoch / "alerts.jsonl")
        alerts = [(file, alert) for file in found for alert in _json_lines(file)]
        # The rotation of a file repeats the first alerts.
        rows = {(file, str(alert.get("number", i))): alert for i, (file, alert) in enumerate(alerts)}
        columns = {
            name: [_of_type(alert.get(name), type) for alert in rows.values()]
            for name, type in zip(_ALERT.names, _ALERT.types)
        }
        return pyarrow.table(columns, schema=_ALERT)


_ALERT = pyarrow.schema(list(ALERT_COLUMNS.items()))


def _of_type(value: Any, type: pyarrow.DataType) -> Any:
    """None for a value of another type. Values that are not finite are texts in JSON."""
    if value is None or type == pyarrow.string():
        return None if value is None else str(value)
    try:
        return float(value) if type == pyarrow.float64() else int(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _epoch_of(directory: Path) -> str:
    """The launch that wrote there last."""
    epoch = ""
    for line in _json_lines(directory / "switches.jsonl"):
        epoch = Path(str(line.get("epoch", epoch))).name
    return epoch


def _json_lines(file: Path) -> "Iterator[dict[str, Any]]":
    """The objects of a file and of its last rotation; what is none is left out."""
    for path in (file.with_name(file.name + ".1"), file):
        if not path.is_file():
            continue
        with path.open("rb") as opened:
            lines = opened.read(_MOST_BYTES_OF_LINES).splitlines()
        for line in lines:
            try:
                found = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(found, dict):
                yield found


FORMS = ["csv", "sqlite", "tensorboard"]


def find_sources(places: "list[Path]", run: Optional[str], form: Optional[str] = None) -> Sources:
    """The rows at the places: see open(). `form`: one of FORMS, of a run; default: the first that is there.
    Raises CommandError."""
    sources = Sources([], [], [], [], Problems())
    for place in places:
        if not place.exists():
            raise CommandError(f"{place}: No such file or directory")
        # A rank's directory with a database may have another form, too.
        is_rank = parse_rank_directory(directory_name(place)) is not None
        is_database = not id_of_run_file(place.name) if place.is_file() else (place / FILE).is_file()
        if stored := stored_files(place):
            _add_stored(sources, stored)
        elif is_database and (place.is_file() or not is_rank):
            _add_databases(sources, [rank_file(place)])
        elif not _add_converted(sources, place):
            _add_run(sources, place, run, form)
    return sources


def _add_run(sources: Sources, place: Path, run: Optional[str], form: Optional[str]) -> None:
    """Adds the first form that a rank of the run has, and the histograms in event files."""
    runs = runs_in(place, sources.problems) if place.is_dir() else []
    chosen = find_run(place, run or "", sources.problems)
    csv = {path: kind_files_in(path, sources.problems) for _, path in chosen.ranks}
    has_csv = form in (None, "csv") and any(csv.values())
    has_databases = form in (None, "sqlite") and any((path / FILE).is_file() for _, path in chosen.ranks)
    events = {path: rank_event_files(path, sources.problems) for _, path in chosen.ranks}
    has_events = form in (None, "tensorboard") and any(events.values())
    if form is not None and not (has_csv or has_databases or has_events):
        raise CommandError(f"{place}: the run has no files of the form {form}")
    if not has_csv and (has_databases or not has_events):
        _add_databases(sources, _databases_of(sources, runs or [chosen], place, run))
    elif run is None and len(runs) > 1:
        sources.notes.append(_newest(chosen.id, len(runs), place))
    for rank, directory in chosen.ranks:
        if has_csv or not has_databases:
            sources.places.append((chosen.id, rank, directory))
        if has_csv:
            sources.parts.extend(_csv_parts(Place(chosen.id, rank, ""), csv[directory], sources.problems))
        if has_events:
            has_other = has_csv or has_databases
            kinds = HISTOGRAM_KINDS if has_other else KINDS
            known = _known(run=chosen.id, rank=rank) & field("kind").isin(kinds)
            for file in events[directory]:
                part = Part(known, partial(_event_tables, Place(chosen.id, rank, ""), file, kinds))
                (sources.histograms if has_other else sources.parts).append(part)


def _add_converted(sources: Sources, place: Path) -> bool:
    """Adds the event files that `gradmonctl convert csv2tb` has made; False if there are none."""
    found = converted_ranks(place) if place.is_dir() else []
    for rank, kind, directory in found:
        for file in event_files(directory):
            tables = partial(_event_tables, Place("", rank, kind), file, None)
            sources.parts.append(Part(_known(rank=rank, kind=kind), tables))
    sources.places.extend(("", rank, directory) for rank, _, directory in found)
    return bool(found)


def _event_tables(of: Place, file: Path, kinds: "Optional[list[str]]", scan: Scan) -> "Iterator[_Placed]":
    """The rows of these kinds in the event file of a rank. None: in a file that `gradmonctl convert csv2tb`
    has made, of the kind of the place."""
    meaning = partial(converted_tag, of.kind) if kinds is None else partial(tag_of, rank=of.rank)
    for kind, table in event_tables(file, meaning, scan.ops):
        if kinds is None or kind in kinds:
            yield of._replace(kind=kind), table


def _csv_parts(of: Place, kinds: "dict[str, list[KindFile]]", problems: Problems) -> "Iterator[Part]":
    """`of`: the run and the rank."""
    for kind, files in kinds.items():
        place = of._replace(kind=kind)
        for group in groups(files):
            steps = group.files[0].first_step, max(file.last_step for file in group.files)
            ahead = partial(_together, kind, group.files) if group.is_small else None
            read = partial(_csv_tables, place, group.files, problems)
            yield Part(_known(steps, **place._asdict()), read, ahead)


def _newest(run: str, known: int, place: Path) -> str:
    return f"showing run {run}, the newest of {known} in {place}; --run chooses another"


def _databases_of(
    sources: Sources, runs: "list[Run]", place: Path, chosen: Optional[str]
) -> "list[RankFile]":
    """The databases of the chosen run, by default of the one that was written last."""
    files = [RankFile(path / FILE, rank, run.id) for run in runs for rank, path in run.ranks]
    times: "dict[str, int]" = {}
    for file in (files := [file for file in files if file.path.is_file()]):
        times[file.run_id] = max(times.get(file.run_id, 0), file.path.stat().st_mtime_ns)
    if not times:
        raise CommandError(
            f"{place}: found no {FILE} here or in a directory such as Nov24_08-30-12-rank0-8c0ffee0; "
            'expected the output directory of a job with "format": "sqlite"'
        )
    known = sorted(times, key=lambda run: (-times[run], run))
    newest = chosen or known[0]
    if newest not in known:
        raise CommandError(f"{place}: found no run {newest}; expected one of {', '.join(known)}")
    if chosen is None and len(known) > 1:
        sources.notes.append(_newest(newest, len(known), place))
    return [file for file in files if file.run_id == newest]


def _add_databases(sources: Sources, files: "list[RankFile]") -> None:
    """Their rows are by metric, step and target."""
    for file in files:
        known = _known() if file.rank is None else _known(rank=file.rank)
        sources.parts.append(Part(known, partial(_database_tables, file.path, file.run_id)))
        sources.places.append((file.run_id, file.rank, file.path))


def _add_stored(sources: Sources, files: "list[StoredFile]") -> None:
    for file in files:
        of_file = Place("", file.rank, file.kind)
        sources.parts.append(Part(_known(**of_file._asdict()), partial(_stored_tables, of_file, file.path)))
    sources.places.extend(dict.fromkeys(("", file.rank, file.path.parents[2]) for file in files))


def _is_one_of(column: str, wanted: Any) -> Any:
    if isinstance(wanted, range) and wanted.step == 1:
        return (field(column) >= wanted.start) & (field(column) < wanted.stop)
    several = not isinstance(wanted, str) and hasattr(wanted, "__iter__")
    values = list(wanted) if several else [wanted]
    return field(column).isin(pyarrow.array(values, SCHEMA.field(column).type))


def _needed(kind: str, files: "list[KindFile]", scan: Scan) -> "tuple[list[KindFile], list[str]]":
    """The files and the statistics that the scan needs."""
    known = [_known((file.first_step, file.last_step), kind=kind) for file in files]
    ops = scan.ops(kind, FIELDS)
    return ([files[i] for i in scan.wanted(known)] if ops else []), ops


def _together(kind: str, files: "list[KindFile]", scan: Scan) -> "Optional[Together]":
    needed, ops = _needed(kind, files, scan)
    return read_together(needed, ops) if needed else None


def _csv_tables(
    place: Place, files: "list[KindFile]", problems: Problems, scan: Scan, found: "Optional[Together]" = None
) -> "Iterator[_Placed]":
    if found is not None:
        yield from _chosen(place, found.table, scan)
        return
    needed, ops = _needed(place.kind, files, scan)
    for file in needed:
        for table in CsvFile(file.path, problems).tables(ops):
            yield from _chosen(place, table, scan)


def _ops_in(names: "Iterable[str]") -> "list[str]":
    return [name for name in names if name in VALUES]


def _chosen(place: Place, table: pyarrow.Table, scan: Scan) -> "Iterator[_Placed]":
    """The wanted names and statistics of a table with the columns of a CSV file, whose texts are
    dictionaries, as Part.tables() has it."""
    ops = scan.ops(place.kind, _ops_in(table.column_names))
    if not ops:
        return
    encoded = table["name"].combine_chunks()
    wanted = scan.names(place.kind, encoded.dictionary)
    if wanted is not None:
        table = table.filter(wanted.take(encoded.indices))
        encoded = table["name"].combine_chunks()
    if not table.num_rows:
        return
    nulls = pyarrow.nulls(table.num_rows, "int64")
    has = set(table.column_names)
    columns: "dict[str, Any]" = {
        "step": table["step"],
        "micro_step": table["micro_step"].cast("int64") if "micro_step" in has else nulls,
        "vpp_stage": table["vpp_stage"].cast("int64") if "vpp_stage" in has else nulls.fill_null(0),
        "name": strings(encoded.dictionary).take(encoded.indices),
        **{op: table[op] for op in ops},
    }
    yield place, pyarrow.table(columns)


def _stored_tables(place: Place, path: Path, scan: Scan) -> "Iterator[_Placed]":
    with parquet.ParquetFile(path, read_dictionary=["name"]) as file:
        ops = scan.ops(place.kind, _ops_in(file.schema_arrow.names))
        columns = ["name", "step", "micro_step", "vpp_stage", *ops]
        of_kind = field("kind") == place.kind
        known = [of_kind & _range_of(file, group) for group in range(file.num_row_groups)]
        groups = scan.wanted(known) if ops else []
        for batch in file.iter_batches(row_groups=groups, columns=columns) if groups else ():
            yield from _chosen(place, pyarrow.Table.from_batches([batch]), scan)


def _range_of(file: parquet.ParquetFile, group: int) -> Any:
    """The range of names and steps in a row group, by its statistics."""
    found = compute.scalar(True)
    places = {name: i for i, name in enumerate(file.schema_arrow.names)}
    for name in ("name", "step"):
        statistics = file.metadata.row_group(group).column(places[name]).statistics
        if statistics is not None and statistics.has_min_max:
            found = (field(name) >= statistics.min) & (field(name) <= statistics.max) & found
    return found


def _database_tables(path: Path, run: str, scan: Scan) -> "Iterator[_Placed]":
    try:
        with contextlib.closing(RankDatabase(path)) as database:
            for metric in database.metrics:
                stats = scan.ops(metric.name, metric.stats)
                known = [_known((each.first, each.last), kind=metric.name) for each in metric.partitions]
                for i in scan.wanted(known) if stats else ():
                    bounds = _steps(metric.name, metric.partitions[i], scan.filter)
                    for rank, _, table in database_pages(
                        database, metric, metric.partitions[i], stats, *bounds
                    ):
                        yield from _chosen(Place(run, rank, metric.name), table, scan)
    except RankDatabaseError as error:
        raise ValueError(str(error)) from error


def _steps(kind: str, partition: Partition, filter: Any) -> "tuple[int, int]":
    """The first and the last step of a partition that the filter can want, found by halving."""

    def wanted(first: int, last: int) -> bool:
        return bool(possible([_known((first, last), kind=kind)], filter))

    first, last = partition.first, partition.last
    if filter is None or (wanted(first, first) and wanted(last, last)):
        return first, last
    low = first + bisect_left(range(last - first), True, key=lambda more: wanted(first, first + more))
    less = bisect_left(range(last - low), True, key=lambda less: wanted(last - less, last))
    return low, last - less
