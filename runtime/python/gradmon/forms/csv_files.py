# SPDX-License-Identifier: Apache-2.0
"""Reads CSV files."""
import io
import re
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Iterable, NamedTuple

from gradmon.forms.rows import PLACE, Choice, RankDirectory, empty_table

if TYPE_CHECKING:
    import pandas

_FILE = re.compile(r"(?P<kind>[a-z_]+?)_(?P<first>\d+)-(?P<last>\d+)(\.r\d+)?\.csv$")
_NO_NUMBERS = ["vpp_stage", "name", "step", "micro_step", "shape", "dtype"]


def has_rows(directory: Path) -> bool:
    """Whether the directory of a rank has CSV files."""
    return any(_FILE.search(file.name) for file in directory.iterdir())


def read(directories: "Iterable[RankDirectory]", choice: Choice) -> "pandas.DataFrame":
    """The rows of the directories, with PLACE. Reads only the files that can have wanted rows."""
    import pandas

    groups: "dict[tuple[str, bytes], list[_File]]" = defaultdict(list)
    number = 0
    for directory in directories:
        for file, kind, first, last in _files(directory.path):
            if not choice.has_kind(kind) or not choice.meets(first, last):
                continue
            header, _, body = file.read_bytes().partition(b"\n")
            whole_lines = body[: body.rfind(b"\n") + 1]
            groups[kind, header].append(_File(file, directory.rank, number, whole_lines))
            number += 1
    tables = [_table(header, files, kind) for (kind, header), files in groups.items()]
    if not tables:
        return empty_table()
    return pandas.concat(tables, ignore_index=True) if len(tables) > 1 else tables[0]


class _File(NamedTuple):
    path: Path
    rank: int
    number: int  # in reading order
    body: bytes  # the whole lines after the header


def _files(directory: Path) -> "list[tuple[Path, str, int, int]]":
    return [
        (file, match["kind"], int(match["first"]), int(match["last"]))
        for file in sorted(directory.iterdir())
        if (match := _FILE.search(file.name))
    ]


def _table(header: bytes, files: "list[_File]", kind: str) -> "pandas.DataFrame":
    """Parses files with the same header in one pass. If that fails, parses each file alone, so that the
    error names the faulty file."""
    try:
        return _parsed(header, files, kind)
    except (ValueError, KeyError) as error:
        if len(files) == 1:
            raise ValueError(f"{files[0].path}: {error}") from error
    for file in files:
        _table(header, [file], kind)
    raise ValueError(f"{files[0].path.parent.parent}: the {kind} files cannot be read together")


def _parsed(header: bytes, files: "list[_File]", kind: str) -> "pandas.DataFrame":
    import numpy
    import pandas

    body = b"".join(file.body for file in files)
    columns = header.decode().rstrip("\r").split(",")
    ops = [column for column in columns if column not in _NO_NUMBERS]
    missing = [column for column in ("name", "step") if column not in columns]
    if missing:
        raise KeyError(f"no column {missing[0]}")
    told_apart = b"nan" in body  # tells an empty cell from "nan"; slower
    types: "dict[str, Any]" = {"name": str, "step": "int64", "vpp_stage": "int64", "shape": str, "dtype": str}
    types.update({op: str if told_apart else "float64" for op in ops})
    wide = pandas.read_csv(
        io.BytesIO(body),
        header=None,
        names=columns,
        index_col=False,
        dtype={column: types[column] for column in columns if column in types},
        usecols=[column for column in columns if column not in ("shape", "dtype")],
        keep_default_na=False,
        na_values={column: [""] for column in [*([] if told_apart else ops), "micro_step"]},
        float_precision="round_trip",
    )
    rows = [_rows(file.body) for file in files]
    if sum(rows) != len(wide):
        raise ValueError(f"{len(wide)} rows in {sum(rows)} lines")
    cells = wide[ops].to_numpy()
    measured = cells != "" if told_apart else ~numpy.isnan(cells)
    row, op = numpy.nonzero(measured)

    def each(column: str, otherwise: Callable[[], Any]) -> Any:
        return wide[column].to_numpy()[row] if column in wide else otherwise()

    return pandas.DataFrame(
        {
            "rank": numpy.repeat([file.rank for file in files], rows)[row],
            "step": each("step", lambda: None),
            "micro_step": pandas.array(
                each("micro_step", lambda: numpy.full(len(row), numpy.nan)), dtype="Int64"
            ),
            "kind": kind,
            "name": each("name", lambda: None),
            "op": numpy.array(ops, dtype=object)[op],
            "value": cells[measured].astype("float64"),
            "vpp_stage": each("vpp_stage", lambda: numpy.zeros(len(row), dtype="int64")),
            PLACE: numpy.repeat([file.number for file in files], rows)[row],
        }
    )


def _rows(body: bytes) -> int:
    """Number of rows: line ends within quotes do not count."""
    if b'"' not in body:
        return body.count(b"\n")
    return sum(part.count(b"\n") for part in body.split(b'"')[::2])
