# SPDX-License-Identifier: Apache-2.0
"""Reads CSV files."""
import codecs
import csv
import io
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, NamedTuple, Optional

from gradmon.forms.rows import PLACE, Choice, RankDirectory, empty_table

if TYPE_CHECKING:
    import pandas

_FILE = re.compile(r"(?P<kind>[a-z_]+?)_(?P<first>\d+)-(?P<last>\d+)(\.r\d+)?\.csv$")
_NO_NUMBERS = ["vpp_stage", "name", "step", "micro_step", "shape", "dtype"]
# Older releases of msprobe: other titles of the name, and the values of a module's parts in one row.
_NAMES = ["param_name", "module_name"]
_OF_PART = re.compile(r"(?P<part>input|output)(_grad)?\.(?P<op>.+)")
_BEYOND = "beyond the header"


def has_rows(directory: Path) -> bool:
    """Returns True if the directory of a rank has CSV files."""
    return any(_FILE.search(name) for name in os.listdir(directory))


def read(directories: "Iterable[RankDirectory]", choice: Choice) -> "pandas.DataFrame":
    """The rows of the directories, with PLACE. Reads only the files that can have wanted rows."""
    import pandas

    groups: "dict[tuple[str, tuple[str, ...]], _Group]" = {}
    number = 0
    for directory in directories:
        for name, kind, first, last in _files(directory.path):
            if not choice.has_kind(kind) or not choice.meets(first, last):
                continue
            file = directory.path / name
            header, body = _header_and_rows(file)
            group = groups.setdefault((kind, header), _Group(kind, header))
            group.add(file, directory.rank, number, body)
            number += 1
    tables = []
    while groups:  # frees each group's text before the next is parsed
        tables.append(_table(groups.pop(next(iter(groups)))))
    if not tables:
        return empty_table()
    return pandas.concat(tables, ignore_index=True) if len(tables) > 1 else tables[0]


def _header_and_rows(file: Path) -> "tuple[tuple[str, ...], bytes]":
    """The titles, and the whole lines after them. A file with a byte order mark or "\\r" in its first line
    was saved by a spreadsheet: its last line needs no line end."""
    header, _, body = file.read_bytes().partition(b"\n")
    saved_again = header.startswith(codecs.BOM_UTF8) or header.endswith(b"\r")
    whole = body if saved_again else body[: body.rfind(b"\n") + 1]
    try:
        titles: "list[str]" = next(csv.reader([header.decode("utf-8-sig").rstrip("\r")]), [])
    except (ValueError, csv.Error) as error:
        raise ValueError(f"{file}: {error}") from error
    columns = tuple("name" if title in _NAMES else title for title in titles)
    return columns, whole + b"\n" if whole and not whole.endswith(b"\n") else whole


class _File(NamedTuple):
    path: Path
    rank: int
    number: int  # in reading order
    size: int  # of the whole lines after the header


class _Group:
    """Files of a kind that have the same header."""

    def __init__(self, kind: str, header: "tuple[str, ...]") -> None:
        self.kind, self.header = kind, header
        self.files: "list[_File]" = []
        self.lines: "list[int]" = []  # line ends of each file
        self._text = io.BytesIO()

    def add(self, path: Path, rank: int, number: int, body: bytes) -> None:
        self._text.write(body)
        self.files.append(_File(path, rank, number, len(body)))
        self.lines.append(body.count(b"\n"))

    def text(self) -> bytes:
        """The whole lines of all files."""
        return self._text.getvalue()

    def split(self) -> "Iterator[_Group]":
        """The files one by one."""
        text = memoryview(self.text())
        begin = 0
        for file in self.files:
            alone = _Group(self.kind, self.header)
            alone.add(file.path, file.rank, file.number, bytes(text[begin : begin + file.size]))
            begin += file.size
            yield alone

    def rows(self, found: int) -> "list[int]":
        """The number of rows of each file, of `found` in all."""
        if sum(self.lines) == found:
            return self.lines
        # Line ends that are not in quotes.
        rows = [sum(p.count(b"\n") for p in one.text().split(b'"')[::2]) for one in self.split()]
        if sum(rows) != found:
            raise ValueError(f"{found} rows in {sum(rows)} lines")
        return rows


def _files(directory: Path) -> "list[tuple[str, str, int, int]]":
    """Names of the CSV files with their kind, first and last step, by kind and first step."""
    found = [
        (name, match["kind"], int(match["first"]), int(match["last"]))
        for name in os.listdir(directory)
        if (match := _FILE.search(name))
    ]
    return sorted(found, key=lambda file: (file[1], file[2], file[0]))


def _table(group: _Group) -> "pandas.DataFrame":
    """Parses files with the same header in one pass. If that fails, parses each file alone, so that the
    error names the faulty file."""
    try:
        return _parsed(group)
    except (ValueError, KeyError) as error:
        if len(group.files) == 1:
            raise ValueError(f"{group.files[0].path}: {error}") from error
    for alone in group.split():
        _table(alone)
    where = group.files[0].path.parent.parent
    raise ValueError(f"{where}: the {group.kind} files cannot be read together")


def _parsed(group: _Group) -> "pandas.DataFrame":
    import numpy
    import pandas

    columns = list(group.header)
    ops = [column for column in columns if column not in _NO_NUMBERS]
    missing = [column for column in ("name", "step") if column not in columns]
    if missing or len(set(columns)) < len(columns):
        found = ", ".join(columns)[:200]
        raise ValueError(f"found the columns {found!r}; expected a name and a step, and none twice")
    wide, measured = _wide(group.text(), columns, ops)
    rows = group.rows(len(wide))
    cells = wide[ops].to_numpy()
    if measured is None:  # every cell has a value

        def each(values: Any) -> Any:
            return numpy.repeat(values, len(ops))

        of_op = numpy.tile(numpy.arange(len(ops)), len(wide))
        value = cells.ravel()
    else:
        row, of_op = numpy.nonzero(measured(cells))

        def each(values: Any) -> Any:
            return values[row]

        value = cells[row, of_op].astype("float64")
    del cells
    name = each(wide["name"].to_numpy())
    of_parts = [_OF_PART.fullmatch(column) for column in ops]
    if any(of_parts):
        parts = ["." + match["part"] if match else "" for match in of_parts]
        name = name + numpy.array(parts, dtype=object)[of_op]
    titles = [match["op"] if match else column for match, column in zip(of_parts, ops)]
    op = numpy.array(titles, dtype=object)[of_op]
    del of_op

    def of_files(values: "list[int]") -> Any:
        return each(numpy.repeat(numpy.array(values, dtype="int64"), rows))

    stages = (
        wide["vpp_stage"] if "vpp_stage" in wide else pandas.Series(numpy.zeros(len(wide), dtype="int64"))
    )
    table = {
        "rank": of_files([file.rank for file in group.files]),
        "step": each(wide["step"].to_numpy()),
        "micro_step": _micro_steps(
            each(wide["micro_step"].to_numpy()) if "micro_step" in wide else len(value)
        ),
        "kind": numpy.full(len(value), group.kind, dtype=object),
        "name": name,
        "op": op,
        "value": value,
        "vpp_stage": each(stages.to_numpy()),
        PLACE: of_files([file.number for file in group.files]),
    }
    return pandas.DataFrame(table, copy=False)


def _wide(
    text: bytes, columns: "list[str]", ops: "list[str]"
) -> "tuple[pandas.DataFrame, Optional[Callable[[Any], Any]]]":
    """The rows unchanged, and a function that finds cells with a value in an array; None: all have one."""
    import numpy
    import pandas

    empties = b",," in text or (columns[-1] in ops and (b",\n" in text or b",\r" in text))
    as_texts = empties and b"nan" in text  # slower, but an empty cell differs from "nan"
    types: "dict[str, Any]" = {"name": str, "step": "int64", "vpp_stage": "int64"}
    types.update({op: str if as_texts else "float64" for op in ops})
    names = [*columns, _BEYOND]  # pandas would cut off the cells of a row that is too long
    wide = pandas.read_csv(
        io.BytesIO(b",".join([b"x"] * len(names)) + b"\n" + text),
        header=0,
        names=names,
        index_col=False,
        dtype={column: types[column] for column in columns if column in types},
        usecols=[column for column in names if column not in ("shape", "dtype")],
        keep_default_na=False,
        na_values={
            "micro_step": [""],
            _BEYOND: [""],
            **({} if as_texts else {op: ["" if empties else "nan"] for op in ops}),
        },
        float_precision="round_trip",
    )
    long = wide.pop(_BEYOND).notna()
    if long.any():
        raise ValueError(f"row {int(long.argmax()) + 1}: expected {len(columns)} cells as in the header")
    if as_texts:
        return wide, lambda cells: cells != ""
    return wide, (lambda cells: ~numpy.isnan(cells)) if empties else None


def _micro_steps(values: Any) -> Any:
    """As pandas' Int64. `values`: an array, or the number of rows that have none."""
    import numpy
    import pandas

    if not isinstance(values, int):
        return pandas.array(values, dtype="Int64")
    return pandas.arrays.IntegerArray(numpy.ones(values, dtype="int64"), numpy.ones(values, dtype=bool))
