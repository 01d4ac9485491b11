# SPDX-License-Identifier: Apache-2.0
"""What a job has written, as one table."""
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Optional, Union

if TYPE_CHECKING:
    import pandas

COLUMNS = ["rank", "step", "micro_step", "kind", "name", "op", "value", "vpp_stage"]

_RUN = re.compile(r"(?P<time>[A-Z][a-z]{2}\d\d_\d\d-\d\d-\d\d)-rank(?P<rank>\d+)-(?P<run>[0-9a-f]{8})$")
_FILE = re.compile(r"(?P<kind>[a-z_]+?)_\d+-\d+(\.r\d+)?\.csv$")
_PLACE = ["vpp_stage", "name", "step", "micro_step"]  # of a row; shape and dtype are no numbers


def load(path: Union[str, "os.PathLike[str]"], run: Optional[str] = None) -> "pandas.DataFrame":
    """All rows of a job, one value a row.

    path: the job's output directory, or one rank's directory in it. run: the 8 hex
    digits of one of its runs; without it the one written to last.

    Columns: rank, step, micro_step (missing where a row is of the whole step), kind
    (the file's prefix), name, op (the CSV column: norm, mg_direction, …), value (NaN
    where that was measured; what was not measured has no row), vpp_stage. Sorted by
    step, then as it was written.

    Raises FileNotFoundError where there is no run, ValueError, with the file, for one
    that cannot be read. Needs pandas.
    """
    import pandas

    tables = [
        _table(file, int(rank), kind)
        for directory, rank in _ranks(Path(path), run)
        for file, kind in _files(directory)
    ]
    if not tables:
        return pandas.DataFrame(columns=COLUMNS)
    return pandas.concat(tables, ignore_index=True).sort_values("step", kind="stable", ignore_index=True)


def _ranks(path: Path, run: Optional[str]) -> "list[tuple[Path, str]]":
    own = _RUN.search(path.name)
    if own:
        return [(path, own["rank"])]
    found = [
        (directory, match) for directory in sorted(path.iterdir()) if (match := _RUN.search(directory.name))
    ]
    if run is None and found:
        run = max(found, key=lambda item: item[0].stat().st_mtime)[1]["run"]
    ranks = [(directory, match["rank"]) for directory, match in found if match["run"] == run]
    if not ranks:
        raise FileNotFoundError(f"{path}: no run{'' if run is None else ' ' + run} of gradmon's in it")
    return sorted(ranks, key=lambda item: int(item[1]))


def _files(directory: Path) -> "list[tuple[Path, str]]":
    return [
        (file, match["kind"]) for file in sorted(directory.iterdir()) if (match := _FILE.search(file.name))
    ]


def _table(file: Path, rank: int, kind: str) -> "pandas.DataFrame":
    import pandas

    try:
        wide = pandas.read_csv(file, dtype=str, keep_default_na=False)
        for column, otherwise in (("vpp_stage", "0"), ("micro_step", "")):
            if column not in wide:
                wide[column] = otherwise
        ops = [column for column in wide if column not in [*_PLACE, "shape", "dtype"]]
        wide["row"] = range(len(wide))
        long = wide.melt(["row", *_PLACE], ops, "op", "cell")  # scalars have a column "value"
        long = long[long["cell"] != ""].sort_values("row", kind="stable")
        long["value"] = long["cell"].astype(float)
        for column in ("step", "vpp_stage"):
            long[column] = long[column].astype("int64")
        long["micro_step"] = pandas.to_numeric(long["micro_step"].replace("", None)).astype("Int64")
    except (ValueError, KeyError) as error:
        raise ValueError(f"{file}: {error}") from error
    return long.assign(rank=rank, kind=kind)[COLUMNS]
