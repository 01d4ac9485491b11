# SPDX-License-Identifier: Apache-2.0
"""Reads the rows of a job into one table."""
import io
import os
import re
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Collection, NamedTuple, Optional, Union

if TYPE_CHECKING:
    import pandas

COLUMNS = ["rank", "step", "micro_step", "kind", "name", "op", "value", "vpp_stage"]

_RUN = re.compile(r"(?P<time>[A-Z][a-z]{2}\d\d_\d\d-\d\d-\d\d)-rank(?P<rank>\d+)-(?P<run>[0-9a-f]{8})$")
_FILE = re.compile(r"(?P<kind>[a-z_]+?)_(?P<first>\d+)-(?P<last>\d+)(\.r\d+)?\.csv$")
_NO_NUMBERS = ["vpp_stage", "name", "step", "micro_step", "shape", "dtype"]

Names = Union[str, Collection[str], "re.Pattern[str]"]


def load(
    path: Union[str, "os.PathLike[str]"],
    run: Optional[str] = None,
    *,
    kind: Union[str, Collection[str], None] = None,
    steps: Union[int, Collection[int], None] = None,
    ranks: Union[int, Collection[int], None] = None,
    names: Optional[Names] = None,
) -> "pandas.DataFrame":
    """Reads the rows of a job into one table, with one value per row.

    Reads only the files that can have the wanted rows.

    Parameters
    ----------
    path : str or path-like
        The job's output directory, or the directory of one rank in it.
    run : str, optional
        The 8 hex digits of one run. Default: the run written to last.
    kind : str or collection of str, optional
        Prefixes of the files: "grad_reduced". Default: all.
    steps : int or collection of int, optional
        Step numbers, for example ``range(1000, 2000)``. Default: all.
    ranks : int or collection of int, optional
        Default: all.
    names : str, collection of str or compiled pattern, optional
        Names as in the files, or a pattern that is searched in them. Default: all.

    Returns
    -------
    pandas.DataFrame
        Columns rank, step, micro_step (missing where a row is of the whole step), kind, name, op
        (the CSV column: norm, mg_direction, ...), value and vpp_stage. A value is NaN where NaN was
        measured; a value that was not measured has no row. Sorted by step, then as written.

    Raises
    ------
    FileNotFoundError
        If there is no run.
    ValueError
        If a file cannot be read; the message names the file.

    Notes
    -----
    Needs pandas. A last line that is still being written is left out.

    Examples
    --------
    >>> rows = gradmon.load("monitor_output", kind="grad_reduced", steps=range(1000, 2000))
    >>> rows[rows["op"] == "norm"].groupby("name")["value"].max()
    """
    import pandas

    wanted_kinds, wanted_steps, wanted_ranks = _collection(kind), _collection(steps), _collection(ranks)
    groups: "dict[tuple[str, bytes], list[_File]]" = defaultdict(list)
    number = 0
    for directory, rank in _ranks(Path(path), run):
        if wanted_ranks is not None and rank not in wanted_ranks:
            continue
        for file, of_kind, first, last in _files(directory):
            if wanted_kinds is not None and of_kind not in wanted_kinds:
                continue
            if wanted_steps is not None and not _meets(wanted_steps, first, last):
                continue
            header, _, body = file.read_bytes().partition(b"\n")
            groups[of_kind, header].append(_File(file, rank, number, body[: body.rfind(b"\n") + 1]))
            number += 1
    tables = [_table(header, files, of_kind) for (of_kind, header), files in groups.items()]
    if not tables:
        return pandas.DataFrame(columns=COLUMNS)
    table = pandas.concat(tables, ignore_index=True) if len(tables) > 1 else tables[0]
    if wanted_steps is not None:
        table = table[table["step"].isin(wanted_steps)]
    if names is not None:
        table = table[_named(table["name"], names)]
    return table.sort_values(["step", "file"], kind="stable", ignore_index=True)[COLUMNS]


class _File(NamedTuple):
    path: Path
    rank: int
    number: int  # in reading order
    body: bytes  # the whole lines after the header


def _collection(value: Any) -> "Optional[Collection[Any]]":
    return [value] if isinstance(value, (str, int)) else value


def _meets(steps: "Collection[int]", first: int, last: int) -> bool:
    if isinstance(steps, range):
        return bool(steps) and min(steps) <= last and max(steps) >= first
    return any(first <= step <= last for step in steps)


def _named(column: "pandas.Series[str]", names: Names) -> Any:
    if isinstance(names, re.Pattern):
        found = {name for name in column.unique() if names.search(name)}
    else:
        found = {names} if isinstance(names, str) else set(names)
    return column.isin(found)


def _ranks(path: Path, run: Optional[str]) -> "list[tuple[Path, int]]":
    own = _RUN.search(path.name)
    if own:
        return [(path, int(own["rank"]))]
    found = [
        (directory, match) for directory in sorted(path.iterdir()) if (match := _RUN.search(directory.name))
    ]
    if run is None and found:
        run = max(found, key=lambda item: item[0].stat().st_mtime)[1]["run"]
    ranks = [(directory, int(match["rank"])) for directory, match in found if match["run"] == run]
    if not ranks:
        raise FileNotFoundError(f"{path}: no run{'' if run is None else ' ' + run} of gradmon's in it")
    return sorted(ranks, key=lambda item: item[1])


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
            "file": numpy.repeat([file.number for file in files], rows)[row],
        }
    )


def _rows(body: bytes) -> int:
    """Number of rows: line ends within quotes do not count."""
    if b'"' not in body:
        return body.count(b"\n")
    return sum(part.count(b"\n") for part in body.split(b'"')[::2])
