# SPDX-License-Identifier: Apache-2.0
"""The CSV files of a rank, in order, and their rows as Arrow tables. The types of all columns are given: an
engine that guesses them is wrong about `inf`, `nan` and late fractions. Needs pyarrow.

Arrow reads a block whose rows are regular. Any other block is read row by row, which finds the line of each
error. Rows are split like Python's csv module does: cells in double quotes may contain commas, line ends and
doubled quotes. A job may write a file a step: small files are parsed together."""
import contextlib
import ctypes
import os
import re
import sys
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any, Callable, Collection, Iterable, Iterator, NamedTuple, Optional, Sequence, TypeVar

import numpy
import pyarrow
import pyarrow.csv
from pyarrow import compute

from gradmon_read.command_line import open_regular, require
from gradmon_read.listing import Problems
from gradmon_read.vocabulary import FIELDS, ROW_KINDS

BLOCK = 1 << 20  # bytes; the longest row, too
_PART = 1 << 14  # bytes
_MOST_CELLS = 64
_SHOWN_BYTES = 40  # of a cell in a message
_INT32 = 2**31 - 1
_INT64 = 2**63 - 1
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class KindFile(NamedTuple):
    """ "grad_reduced_0-99.r7.csv", or the same with ".zst" behind it: compressed"""

    first_step: int
    revision: int  # 0: none in the name
    last_step: int
    path: Path
    start: int = 0  # of the job that wrote it; of those that are read together, the first is 0


_KIND_FILE = re.compile(rf"({'|'.join(ROW_KINDS)})_(\d+)-(\d+)(?:\.r(\d+))?\.csv(?:\.zst)?", re.ASCII)


def parse_kind_file(path: Path) -> "Optional[tuple[str, KindFile]]":
    """The kind and the meaning of the name; None for another name."""
    match = _KIND_FILE.fullmatch(path.name)
    if match is None:
        return None
    file = KindFile(int(match[2]), int(match[4] or 0), int(match[3]), path)
    fits = file.first_step <= file.last_step <= _INT64 and file.revision < 2**64
    return (match[1], file) if fits else None


def kind_files_in(directory: Path, problems: Problems) -> "dict[str, list[KindFile]]":
    """The CSV files in the directory of a rank, by kind in the order of ROW_KINDS; ascending by first step,
    then by revision."""
    files: "dict[str, list[KindFile]]" = {}
    try:
        for entry in directory.iterdir():
            found = parse_kind_file(entry)
            if found:
                files.setdefault(found[0], []).append(found[1])
    except OSError as error:
        problems.add(directory, 0, f"cannot read all files: {directory}: {error.strerror}")
    return {kind: sorted(files[kind]) for kind in ROW_KINDS if kind in files}


class _Column(NamedTuple):
    role: str  # "name", "step", ..., "number"; "": the column is skipped
    field: str  # of a number: "norm"
    part: str  # of a number: its part of the module, "input"; "": the row is of one
    title: str


_ROLES = {"param_name": "name", "module_name": "name"}
_ROLES.update({role: role for role in ("vpp_stage", "name", "step", "micro_step", "shape", "dtype")})
# Older releases of msprobe: the row of a module has "input.norm" and "output.norm".
_PARTS = {"input.": "input", "output.": "output", "input_grad.": "input", "output_grad.": "output"}
_LIMITS = {"step": _INT64, "vpp_stage": _INT32, "micro_step": _INT32}
_TEXT = pyarrow.dictionary(pyarrow.int32(), pyarrow.binary())
_TYPES = {
    **{"vpp_stage": pyarrow.int32(), "step": pyarrow.int64(), "micro_step": pyarrow.int32()},
    **{"name": _TEXT, "shape": _TEXT, "dtype": _TEXT},
    **{field: pyarrow.float64() for field in FIELDS},
}


def text_of(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _shown(cell: bytes) -> str:
    return f'"{text_of(cell[:_SHOWN_BYTES])}{"..." if len(cell) > _SHOWN_BYTES else ""}"'


def _column_of(title: bytes) -> _Column:
    text = text_of(title)
    prefix = next((prefix for prefix in _PARTS if text.startswith(prefix)), "")
    field = text[len(prefix) :]
    role = "number" if field in FIELDS else _ROLES.get(text, "")
    if role != "number":
        field = ""
    return _Column(role, field, _PARTS.get(prefix, ""), text_of(title[:_SHOWN_BYTES]))


class Header:
    """The columns of a file. Raises ValueError: the titles are no header of gradmon or msprobe."""

    def __init__(self, titles: "list[bytes]") -> None:
        self.columns: "list[_Column]" = []
        for title in titles:
            if b"\r" in title:
                raise ValueError(f"found a carriage return in the title {_shown(title)}; expected line ends")
            column = _column_of(title)
            same = column.role and column[:3] in [other[:3] for other in self.columns if other.role]
            if titles.count(title) > 1 or same:
                raise ValueError(f"the title {_shown(title)} is there twice")
            self.columns.append(column)
        if not self.is_header(titles):
            raise ValueError(
                f"found {_shown(titles[0])} at the beginning; expected a header with the titles "
                '"name" and "step"'
            )
        numbers = [column.part for column in self.columns if column.role == "number"]
        self.parts = list(dict.fromkeys(numbers)) or [""]  # one row for each
        self.titles = [
            column.field if column.role == "number" else column.role or f"#{i}"
            for i, column in enumerate(self.columns)
        ]
        self.used = [title for title in dict.fromkeys(self.titles) if not title.startswith("#")]

    @staticmethod
    def is_header(cells: "list[bytes]") -> bool:
        """For files that were joined."""
        return {"name", "step"} <= {_column_of(cell).role for cell in cells}

    def rows_of(self, cells: "list[bytes]") -> "Iterator[dict[str, Any]]":
        """The values by title. Raises ValueError with the found and the expected value; rows before stay."""
        if len(cells) != len(self.columns):
            raise ValueError(f"found {len(cells)} cells; expected {len(self.columns)} as in the header")
        for part in self.parts:
            row: "dict[str, Any]" = {}
            for cell, column in zip(cells, self.columns):
                if column.role == "number" and column.part == part:
                    row[column.field] = _number(cell, column)
                elif column.role in _LIMITS:
                    row[column.role] = _whole(cell, column)
                elif column.role and column.role != "number":
                    row[column.role] = cell
            if part:
                row["name"] += b"." + part.encode()
            yield row

    def table_of(self, rows: "list[dict[str, Any]]") -> "pyarrow.Table":
        columns: "dict[str, Any]" = {}
        for title in self.used:
            cells = [row.get(title) for row in rows]
            is_text = _TYPES[title] == _TEXT
            array = pyarrow.array(cells, pyarrow.binary() if is_text else _TYPES[title])
            columns[title] = array.dictionary_encode() if is_text else array
        return pyarrow.table(columns)


@lru_cache(64)
def _cached_header(titles: "tuple[bytes, ...]") -> Header:
    """Raises ValueError. A job may have a million files."""
    return Header(list(titles))


_NUMBER = re.compile(rb"[ \t]*[+-]?(?:nan|inf|infinity|(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)[ \t]*", re.I)
_WHOLE = re.compile(rb"[ \t]*(-?\d+)(?:\.0)?[ \t]*")
_OVERFLOW = re.compile(rb"[eE]\+?\d{3}|\d{300}")


def _number(cell: bytes, column: _Column) -> Optional[float]:
    if not cell:
        return None
    if _NUMBER.fullmatch(cell):
        number = float(cell)
        if abs(number) != float("inf") or b"n" in cell.lower():
            return number
    elif cell in (b"True", b"False"):
        return float(cell == b"True")
    raise ValueError(f"found {_shown(cell)} in the column {column.title}; expected a number")


def _whole(cell: bytes, column: _Column) -> int:
    if not cell and column.role == "vpp_stage":
        return 0
    match = _WHOLE.fullmatch(cell)
    if match is None or len(match[1]) > 400 or not 0 <= int(match[1]) <= _LIMITS[column.role]:
        raise ValueError(f"found {_shown(cell)} in the column {column.title}; expected a whole number")
    return int(match[1])


_QUOTED = re.compile(rb'"([^"]*(?:""[^"]*)*)"(?!")')
_PLAIN = re.compile(rb"[^,\n]*")


class _Row(NamedTuple):
    """A row of a text. `problem`: why it is none; its cells and `end` mean nothing then."""

    cells: "list[bytes]"
    end: int  # behind its line end
    lines: int
    problem: str


def _row_at(data: bytes, at: int) -> Optional[_Row]:
    """None: the row goes on behind the data."""
    cells: "list[bytes]" = []
    lines = 1
    while True:
        if len(cells) == _MOST_CELLS:
            return _Row(cells, at, lines, "more than 64 cells")
        if data[at : at + 1] == b'"':
            quoted = _QUOTED.match(data, at)
            if quoted is None or data[quoted.end() :] in (b"", b"\r"):
                return None
            at = quoted.end() + (data[quoted.end() : quoted.end() + 2] == b"\r\n")
            lines += quoted[1].count(b"\n")
            cells.append(quoted[1].replace(b'""', b'"'))
            if data[at : at + 1] not in (b",", b"\n"):
                problem = "text after a quoted cell; expected a comma or a line end"
                return _Row(cells, at, lines, problem)
        else:
            plain = _PLAIN.match(data, at)
            assert plain is not None
            at = plain.end()
            if at == len(data):
                return None
            cut = data[at] == 10 and plain[0].endswith(b"\r")
            cells.append(plain[0][:-1] if cut else plain[0])
        at += 1
        if data[at - 1] == 10:
            return _Row(cells, at, lines, "")


def line_ends(lines: "bytes | memoryview") -> int:
    """Counts faster than bytes.count()."""
    return int(numpy.count_nonzero(numpy.frombuffer(lines, numpy.uint8) == 10))


def _is_regular(lines: bytes) -> bool:
    """True if each quote opens or closes a whole cell, each "\\r" is before a line end, and no number is
    hexadecimal."""
    if b"\r" in lines and lines.count(b"\r") != lines.count(b"\r\n") or lines.startswith(_BYTE_ORDER_MARK):
        return False
    if b"x" in lines and b"0x" in lines or b"X" in lines and b"0X" in lines:
        return False
    data = numpy.frombuffer(lines, numpy.uint8)
    quotes = _places(data == 34)
    if len(quotes) % 2:
        return False
    before, behind = data[quotes[::2] - 1], data[quotes[1::2] + 1]
    return bool(
        ((before == 44) | (before == 10)).all() and ((behind == 44) | (behind == 10) | (behind == 13)).all()
    )


def _places(mask: Any) -> Any:
    """As numpy.flatnonzero(), faster where few are True."""
    whole = len(mask) // 8 * 8
    words = numpy.flatnonzero(mask[:whole].view(numpy.uint64) != 0)
    found = numpy.flatnonzero(mask[:whole].reshape(-1, 8)[words])
    return numpy.concatenate([words[found >> 3] * 8 + (found & 7), numpy.flatnonzero(mask[whole:]) + whole])


def _has_sound_numbers(table: "pyarrow.Table", lines: bytes) -> bool:
    """False if a number may be none for _number() and _whole()."""
    for name in table.column_names:
        column = table[name]
        if name in ("step", "micro_step") and column.null_count:
            return False
        if name in _LIMITS and column.length() and (pyarrow.compute.min(column).as_py() or 0) < 0:
            return False
        if name in FIELDS and numpy.isinf(column.to_numpy()).any():
            return _OVERFLOW.search(lines) is None
    return True


@lru_cache(64)
def header_of(line: bytes) -> Optional[Header]:
    """The header in the first line of a file, without its end; None if only CsvFile can read the file."""
    row = _row_at(line + b"\n", 0)
    if row is None or row.problem or line.endswith(b"\r") or line.startswith(_BYTE_ORDER_MARK):
        return None
    try:
        return Header(row.cells)
    except ValueError:
        return None


def regular_table(
    lines: bytes,
    header: Header,
    first_line: int,
    columns: "Optional[Collection[str]]" = None,
    count: Optional[int] = None,
) -> "Optional[pyarrow.Table]":
    """The rows of whole lines as CsvFile.tables() has them, by Arrow; None if Arrow might read them
    differently. `columns`: texts and FIELDS that are wanted, by default all. `count`: of the lines, if known.
    Any thread."""
    if not lines or header.parts != [""] or not _is_regular(lines):
        return None
    used = header.used
    if columns is not None:
        wanted = {*_LIMITS, "name", "shape", *columns}  # a row with the shape "nan" has no values
        used = [name for name in used if name in wanted]
    try:
        table = pyarrow.csv.read_csv(
            pyarrow.BufferReader(lines),
            read_options=pyarrow.csv.ReadOptions(
                use_threads=False, block_size=len(lines) + 1, column_names=header.titles
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                check_utf8=False,
                null_values=[""],
                strings_can_be_null=False,
                include_columns=used,
                column_types=_TYPES,
            ),
        )
    except pyarrow.ArrowException:
        return None
    if table.num_rows != (line_ends(lines) if count is None else count) or not _has_sound_numbers(
        table, lines
    ):
        return None
    return _completed(table, numpy.arange(first_line, first_line + table.num_rows))


class Decompressed:
    """A file of the text of zstd frames, the last of which may be torn. `source`: bytes, or something with
    read(). Reading raises ValueError where something else follows. Needs zstandard for it."""

    def __init__(self, source: Any) -> None:
        zstandard = require("zstandard", "a compressed CSV file")
        decompressor = zstandard.ZstdDecompressor(max_window_size=1 << 27)
        self._reader = decompressor.stream_reader(source, read_across_frames=True)
        self._error = zstandard.ZstdError
        self._why = ""

    def read(self, size: int) -> bytes:
        """In small parts: a part with an error is lost."""
        parts: "list[bytes]" = []
        while size > 0 and not self._why and (not parts or parts[-1]):
            try:
                parts.append(self._reader.read(min(size, _PART)))
                size -= len(parts[-1])
            except self._error as error:
                self._why = str(error)
        if self._why and not any(parts):
            raise ValueError(f"{self._why}; expected zstd frames")
        return b"".join(parts)


class CsvFile:
    """One CSV file, to which a running job may be appending; it is opened anew for each block, so that a
    reader of many files holds no descriptors. Unreadable rows are `problems`; a torn last row is skipped in
    silence."""

    def __init__(self, path: Path, problems: Problems) -> None:
        self.path = path
        self.written = 0.0  # the time of the last write, in seconds since 1970
        self.bytes_read = 0
        self._problems = problems
        self._identity: "Optional[tuple[int, int]]" = None
        self._header: Header
        self._data = b""  # read, but not split
        self._at = 0  # the next row in the data
        self._line = 1  # of the next row
        self._ended = False  # nothing follows the data
        self._text: Any = Decompressed(self) if path.suffix == ".zst" else self
        self._is_begun = False
        self._in_skipped_line = False
        self._saved_again = False  # by a spreadsheet: the last row needs no line end

    def tables(self, columns: "Optional[Collection[str]]" = None) -> "Iterator[pyarrow.Table]":
        """The rows, a block at a time, in order: `line` (int64), `step` (int64), `name` (a dictionary of
        bytes); if the file has them `vpp_stage`, `micro_step` (int32), `shape`, `dtype` (as `name`), and
        FIELDS (float64; null: no value). A row of msprobe without a tensor (shape "nan") has no values.

        `columns`: texts and FIELDS that are wanted, by default all; there may be more.
        Never waits for a FIFO. A file that cannot be opened is a problem, and has no rows."""
        if not self._fill() or not self._take_header():
            return
        while True:
            self._data = self._data[self._at :]
            self._at = 0
            if not self._fill():
                return
            lines = self._data[: self._data.rfind(b"\n") + 1]
            table = regular_table(lines, self._header, self._line, columns)
            if table is not None:
                self._at = len(lines)
                self._line += table.num_rows
                yield table
            yield from self._irregular_tables()
            if self._ended:
                return

    def read(self, size: int) -> bytes:
        """The next bytes of the file; b"" at the end and after an error, which is a problem."""
        file = None
        try:
            file = open_regular(self.path)
            status = os.fstat(file.fileno())
            identity = (status.st_dev, status.st_ino)
            if self._identity is not None and self._identity != identity:
                raise OSError(0, "was removed or replaced while it was read; the rest is left out")
            seconds, nanoseconds = divmod(status.st_mtime_ns, 10**9)
            self._identity, self.written = identity, self.written or seconds + 1e-9 * nanoseconds
            found = os.pread(file.fileno(), size, self.bytes_read)
            self.bytes_read += len(found)
            return found
        except OSError as error:
            what = f"cannot {'read' if file else 'open'}: " if error.errno else ""
            self._problems.add(self.path, 0, f"{what}{error.strerror}")
        finally:
            if file is not None:
                file.close()
        return b""

    def _fill(self) -> bool:
        """Reads until the data are a block, or the file ends. Returns False without a file."""
        while not self._ended and len(self._data) < BLOCK:
            try:
                more = self._text.read(BLOCK - len(self._data))
            except ValueError as error:
                self._problems.add(self.path, 0, f"{error}; the rest is left out")
                more = b""
            if self._identity is None:
                return False
            self._ended = not more
            if not self._is_begun:
                self._is_begun = True
                self._saved_again = more.startswith(_BYTE_ORDER_MARK) or more.split(b"\n", 1)[0].endswith(
                    b"\r"
                )
                more = more[3:] if more.startswith(_BYTE_ORDER_MARK) else more
            if self._in_skipped_line:
                behind = more.find(b"\n") + 1
                self._in_skipped_line = behind == 0
                more = more[behind:] if behind else b""
            self._data = self._data + more if self._data else more
        if self._ended and self._saved_again and self._data and not self._data.endswith(b"\n"):
            self._data += b"\n"
        return True

    def _take_header(self) -> bool:
        row = _row_at(self._data, 0)
        problem = self._unfinished() if row is None else row.problem
        try:
            if problem:
                raise ValueError(problem)
            if row is None:
                text = 'no whole line; expected a header with the titles "name" and "step"'
                self._problems.add(self.path, 1, text)
                return False
            self._header = _cached_header(tuple(row.cells))
        except ValueError as error:
            self._problems.add(self.path, 1, f"{error}; the file is left out")
            return False
        self._at = row.end
        self._line += row.lines
        return True

    def _unfinished(self) -> str:
        """The reason why a row that does not end in the data is none; "" if it may go on, or is torn."""
        if not self._ended:
            return "longer than 1 MiB" if len(self._data) - self._at >= BLOCK else ""
        if b"\n" in self._data[self._at :]:
            return "a quoted cell does not end; expected a second quote"
        self._at = len(self._data)
        return ""

    def _next_row(self) -> "Optional[tuple[int, list[bytes]]]":
        """Takes the next row: its line and cells. None: it is not all in the data."""
        while True:
            row = _row_at(self._data, self._at)
            problem = self._unfinished() if row is None else row.problem
            line = self._line
            if problem:
                self._problems.add(self.path, line, f"{problem}; the row is left out")
                behind = self._data.find(b"\n", self._at) + 1
                self._in_skipped_line = behind == 0
                self._at = behind or len(self._data)
                self._line += 1
            elif row is None:
                return None
            else:
                self._at = row.end
                self._line += row.lines
                return line, row.cells

    def _irregular_tables(self) -> "Iterator[pyarrow.Table]":
        """The rows of the data, one by one; leaves one that is not all there."""
        lines: "list[int]" = []
        rows: "list[dict[str, Any]]" = []
        while found := self._next_row():
            line, cells = found
            if cells == [b""]:
                continue
            try:
                for row in self._header.rows_of(cells):
                    rows.append(row)
                    lines.append(line)
            except ValueError as error:
                if not Header.is_header(cells):
                    self._problems.add(self.path, line, f"{error}; the row is left out")
                    continue
                if rows:
                    yield _completed(self._header.table_of(rows), lines)
                lines, rows = [], []
                with contextlib.suppress(ValueError):
                    self._header = _cached_header(tuple(cells))
        if rows:
            yield _completed(self._header.table_of(rows), lines)


def _completed(table: "pyarrow.Table", lines: Any) -> "pyarrow.Table":
    """With the lines, and without the values of rows that have no tensor."""
    replaced: "dict[str, Any]" = {}
    if "vpp_stage" in table.column_names and table["vpp_stage"].null_count:
        replaced["vpp_stage"] = table["vpp_stage"].fill_null(0)
    if "shape" in table.column_names:
        shape = table["shape"].combine_chunks()
        shapes = shape.dictionary.to_pylist()
        if b"nan" in shapes:
            absent = compute.equal(shape.indices, shapes.index(b"nan"))
            for name in set(table.column_names) & set(FIELDS):
                replaced[name] = compute.if_else(absent, None, table[name])
    for name, column in replaced.items():
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return table.append_column("line", pyarrow.array(lines, pyarrow.int64()))


_TOGETHER = 8 << 20  # bytes of files that are parsed at a time
_AHEAD = 2  # items whose work is done while one is used
_THREADS = 2
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_SMALL = 4 << 20  # bytes
_LIKELY_RATIO = 8  # of text to compressed bytes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameters of mallopt()


class Group(NamedTuple):
    """Files that may be parsed together, or that have common steps."""

    files: "list[KindFile]"
    is_small: bool


class Together(NamedTuple):
    """The rows of several files, in order, as CsvFile.tables() has them."""

    table: pyarrow.Table
    file: Any  # the index of each row's file; int32
    written: Any  # the time of the last write to each file, in seconds since 1970
    bytes_read: int


def keep_freed_memory() -> None:
    """For a process that does nothing else: arrays of megabytes come and go, and keeping their memory saves a
    fifth of the time."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, 256 << 20)
        mallopt(_MMAP_THRESHOLD, 128 << 20)
        pyarrow.set_memory_pool(pyarrow.system_memory_pool())


def read_ahead(
    items: "Iterable[tuple[_Item, Optional[Callable[[], _Result]]]]",
) -> "Iterator[tuple[_Item, Optional[Future[_Result]]]]":
    """Each item with what its work gives, in order. Two threads do the work of the next items meanwhile."""
    waiting: "deque[tuple[_Item, Optional[Future[_Result]]]]" = deque()
    with ThreadPoolExecutor(_THREADS) as pool:
        for item, work in items:
            waiting.append((item, pool.submit(work) if work else None))
            if len(waiting) > _AHEAD:
                yield waiting.popleft()
        yield from waiting


def groups(files: "Sequence[KindFile]") -> "Iterator[Group]":
    """Neighbours without common steps, as many small ones together as one block has, if all are as large as
    the first; files with common steps, as far as they overlap. `files`: ascending by first step."""
    together: "list[KindFile]" = []
    most = i = 0
    while i < len(files):
        end, last = i + 1, files[i].last_step
        while end < len(files) and files[end].first_step <= last:
            last = max(last, files[end].last_step)
            end += 1
        if together and (end > i + 1 or len(together) == most):
            yield Group(together, True)
            together = []
        if not together:
            size = _size(files[i])
            most = _TOGETHER // size
        if end == i + 1 and size < _SMALL:
            together.append(files[i])
        else:
            yield Group(list(files[i:end]), False)
        i = end
    if together:
        yield Group(together, True)


def _size(file: KindFile) -> int:
    try:
        size = os.stat(file.path).st_size * (_LIKELY_RATIO if file.path.suffix == ".zst" else 1)
        return max(size, _TOGETHER >> 12)
    except OSError:
        return _SMALL


def read_together(
    files: "Sequence[KindFile]", columns: "Optional[Collection[str]]" = None
) -> "Optional[Together]":
    """The rows of small files with one header; None if the files must be read one by one. `columns`: as
    regular_table() has it. Any thread."""
    header: Optional[bytes] = None
    texts, lines, written, size = [], [], [], 0
    for file in files:
        try:
            content, time = _content(file.path)
        except (OSError, ValueError):
            return None
        header = content[: content.find(b"\n") + 1] if header is None else header
        texts.append(memoryview(content)[len(header) : content.rfind(b"\n") + 1])
        lines.append(line_ends(texts[-1]))
        written.append(time)
        size += len(content)
        if not header or not content.startswith(header) or size > 4 * _TOGETHER:
            return None
    titles = header_of(header[:-1]) if header else None
    whole = b"".join(texts)
    table = regular_table(whole, titles, 1, columns, sum(lines)) if titles else None
    if table is None:
        return None
    index = numpy.repeat(numpy.arange(len(files), dtype="int32"), lines)
    before = numpy.cumsum([0, *lines[:-1]])  # rows of the files before each
    line = table["line"].to_numpy() - before[index] + 1
    place = table.column_names.index("line")
    return Together(table.set_column(place, "line", pyarrow.array(line)), index, numpy.array(written), size)


def _content(path: Path) -> "tuple[bytes, float]":
    """And the time of the last write. Never waits for a FIFO. Raises OSError for what is no small file."""
    with open_regular(path, 2 * _SMALL) as file:
        status = os.fstat(file.fileno())
        content = file.read(status.st_size)  # a job may be appending to it
    if path.suffix == ".zst":
        content = Decompressed(content).read(4 * _TOGETHER + 1)
    seconds, nanoseconds = divmod(status.st_mtime_ns, 10**9)
    return content, seconds + 1e-9 * nanoseconds
