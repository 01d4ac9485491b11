# SPDX-License-Identifier: Apache-2.0
"""Reads the rows of a job into one table."""
import contextlib
import operator
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Collection, Optional, Union

from gradmon import _gradmon
from gradmon.forms import csv_files, databases, event_files
from gradmon.forms.rows import COLUMNS, PLACE, Choice, RankDirectory, require
from gradmon.forms.joining import Scopes, joined, scopes_of

if TYPE_CHECKING:
    import pandas

_FORMS: "dict[str, Any]" = {"csv": csv_files, "sqlite": databases, "tensorboard": event_files}

_RUN = re.compile(r"(?P<time>[A-Z][a-z]{2}\d\d_\d\d-\d\d-\d\d)-rank(?P<rank>\d+)-(?P<run>[0-9a-f]{8})$")

Names = Union[str, Collection[str], "re.Pattern[str]"]


def load(
    path: Union[str, "os.PathLike[str]"],
    run: Optional[str] = None,
    *,
    kind: Union[str, Collection[str], None] = None,
    steps: Union[int, Collection[int], None] = None,
    ranks: Union[int, Collection[int], None] = None,
    names: Optional[Names] = None,
    form: Optional[str] = None,
    whole: bool = False,
) -> "pandas.DataFrame":
    """Reads the rows of a job into one table, with one value per row. Reads only the files that it needs.

    Parameters
    ----------
    path : str or path-like
        The job's output directory, or the directory of one rank in it. Also the output of
        ``gradmonctl convert``: a database or its directory, or the directory of event files.
    run : str, optional
        The 8 hex digits of one run. Default: the run written to last.
    kind : str or collection of str, optional
        Prefixes of the files: "grad_reduced"; "update", "ratio" for histograms. Default: all.
    steps, ranks : int or collection of int, optional
        Step numbers, for example ``range(1000, 2000)``, and ranks. Default: all.
    names : str, collection of str or compiled pattern, optional
        Names as in the files, or a pattern that is searched in them. Default: all.
    form : {"csv", "sqlite", "tensorboard"}, optional
        The form to read: the CSV files, ``monitor_metrics.db`` or the event files of the ranks. Default: the
        first of these that a rank has; the event files for histograms alone.
    whole : bool
        True: the rows of ranks that each hold a part of a tensor (FSDP, DTensor, DeepSpeed, Megatron) become
        one row of the whole tensor, with the lowest of their ranks; if ranks hold the same, the row of the
        lowest is kept. Rows of a rank's own values stay. Layers of a pipeline have their numbers in the whole
        model, unlike in the files and in `names`.

    Returns
    -------
    pandas.DataFrame
        Columns rank, step, micro_step (missing where a row is of the whole step), kind, name, op
        (the CSV column: norm, mg_direction, ...; bin_0 to bin_29), value and vpp_stage. A value is NaN where
        NaN was measured; a value that was not measured has no row. Sorted by step, then as written; in a
        database, within a step, by kind and target. The table is alike for every form.

    Raises
    ------
    FileNotFoundError
        If there is no such path or no run, or the run has no file of the form.
    ImportError
        If pandas is missing.
    ValueError
        If `kind` is unknown; the message lists the known ones.
        If a file cannot be read, or is a database that this process is writing; the message names the
        file. If the form is none of the three. With `whole`: if a rank holds a summand only (partial), or a
        tensor that nothing relates to others (local); if not all parts are there; for event files that
        ``gradmonctl convert`` has made, which have no scopes.

    Notes
    -----
    Needs pandas, not TensorBoard. A last line or event that is being written is left out. Only event files
    have histograms: bin_i counts the elements in the i-th of 30 equal bins over [-1, 1]. FORMAT.md
    ("gradmon.load") says how precise each form is, and what it lacks. With `whole`, a step is
    left out if some ranks lack its rows but have rows of a later step; a UserWarning names these steps.

    Examples
    --------
    >>> rows = gradmon.load("monitor_output", kind="grad_reduced", steps=range(1000, 2000))
    >>> rows[rows["op"] == "norm"].groupby("name")["value"].max()
    """
    require("pandas", "gradmon.load()")
    choice = Choice(_known_kinds(kind), _integers(steps), _integers(ranks))
    if not os.path.exists(path):
        raise FileNotFoundError(f"{path}: no such file or directory; expected a job's output directory")
    place = Path(os.path.abspath(path))  # "." has no name that would say whether it is a rank's directory
    table = _chosen(_read(place, run, choice, form), choice, names)
    if whole:
        table = joined(table, _scopes(place, run, choice))
    return _sorted(table)


def _sorted(table: "pandas.DataFrame") -> "pandas.DataFrame":
    """Sorts by step, then by place, without PLACE. sort_values() takes twice the time, and copies more."""
    import numpy
    import pandas

    order = numpy.lexsort((table[PLACE].to_numpy(), table["step"].to_numpy()))
    in_order = (order[1:] > order[:-1]).all()
    columns = {name: table[name].array if in_order else table[name].array.take(order) for name in COLUMNS}
    return pandas.DataFrame(columns, copy=False)


def _chosen(table: "pandas.DataFrame", choice: Choice, names: Optional[Names]) -> "pandas.DataFrame":
    for column, wanted in (("step", choice.steps), ("rank", choice.ranks), ("kind", choice.kinds)):
        if wanted is not None:
            table = table[table[column].isin(wanted)]
    return table if names is None else table[_named(table["name"], names)]


def _read(path: Path, run: Optional[str], choice: Choice, form: Optional[str]) -> "pandas.DataFrame":
    if form is not None and form not in _FORMS:
        raise ValueError(f'form: found "{form}"; expected one of {", ".join(_FORMS)}')
    converted = _converted(path, choice) if run is None else None
    if converted is not None:
        return converted
    directories = _ranks(path, run)
    wanted = [each for each in directories if choice.ranks is None or each.rank in choice.ranks]
    for found in [form] if form else _forms_with(choice):
        if any(_FORMS[found].has_rows(directory.path) for directory in directories):
            table: "pandas.DataFrame" = _FORMS[found].read(wanted, choice)
            return table
    if form is not None:
        raise FileNotFoundError(f"{path}: the run has no files of the form {form}")
    return csv_files.read([], choice)


def _scopes(path: Path, run: Optional[str], choice: Choice) -> Scopes:
    """The scopes of the rows of the wanted ranks."""
    database = _database(path) if run is None else None
    if database is not None:
        found = databases.scopes(database)
        if not found:
            raise ValueError(f"{database}: whole=True needs the table target_scope, which is empty")
        return found
    if run is None and _converted(path, Choice(kinds=[])) is not None:
        raise ValueError(
            f"{path}: whole=True needs the ranks' directories, with their scopes.json, or a database"
        )
    wanted = [each for each in _ranks(path, run) if choice.ranks is None or each.rank in choice.ranks]
    return scopes_of(each for each in wanted if any(form.has_rows(each.path) for form in _FORMS.values()))


def _database(path: Path) -> Optional[Path]:
    """The database that `gradmonctl convert` has made there, or None."""
    if path.is_file():
        return path
    inner = path / databases.FILE
    return inner if not _RUN.search(path.name) and inner.exists() else None


def _forms_with(choice: Choice) -> "list[str]":
    """The forms that can have the wanted kinds."""
    histograms = choice.kinds is not None and set(choice.kinds) <= set(_gradmon.histogram_kinds)
    return ["tensorboard"] if histograms else list(_FORMS)


def _converted(path: Path, choice: Choice) -> "Optional[pandas.DataFrame]":
    """The rows that `gradmonctl convert` has made there; None if it has made nothing."""
    database = _database(path)
    if database is not None:
        return databases.read_files([database], choice)
    if _RUN.search(path.name):
        return None
    converted = event_files.converted_ranks(path)
    return event_files.read_converted(converted, choice) if converted else None


def _known_kinds(value: Any) -> "Optional[Collection[str]]":
    kinds = [value] if isinstance(value, str) else None if value is None else list(value)
    known = [*_gradmon.record_kinds, *_gradmon.histogram_kinds]
    for kind in kinds or ():
        if kind not in known:
            raise ValueError(f'kind: found "{kind}"; expected one of {", ".join(known)}')
    return kinds


def _integers(value: Any) -> "Optional[Collection[int]]":
    """SQLite would take NumPy's integers for blobs."""
    if value is None or isinstance(value, range):
        return value
    try:
        collection = iter(value)
    except TypeError:  # one number. Arrays have __index__, too.
        return [operator.index(value)]
    return [operator.index(one) for one in collection]


def _named(column: "pandas.Series[str]", names: Names) -> Any:
    if isinstance(names, re.Pattern):
        found = {name for name in column.unique() if names.search(name)}
    else:
        found = {names} if isinstance(names, str) else set(names)
    return column.isin(found)


def _last_written(directory: Path) -> float:
    """The latest write time of its files. The directory's own time changes when a database is read: SQLite
    makes and removes empty files beside it."""
    last = 0.0
    for file in (*directory.iterdir(), *(directory / event_files.DIRECTORY).glob("*")):
        with contextlib.suppress(OSError):  # The job may have renamed it meanwhile.
            found = file.stat()
            if stat.S_ISREG(found.st_mode) and found.st_size > 0 and not file.name.endswith("-shm"):
                last = max(last, found.st_mtime)
    return last


def _ranks(path: Path, run: Optional[str]) -> "list[RankDirectory]":
    own = _RUN.search(path.name)
    if own:
        return [RankDirectory(path, int(own["rank"]))]
    found = [
        (directory, match) for directory in sorted(path.iterdir()) if (match := _RUN.search(directory.name))
    ]
    if run is None and found:
        run = max(found, key=lambda item: _last_written(item[0]))[1]["run"]
    ranks = [
        RankDirectory(directory, int(match["rank"])) for directory, match in found if match["run"] == run
    ]
    if not ranks:
        raise FileNotFoundError(f"{path}: no run{'' if run is None else ' ' + run} of gradmon's in it")
    return sorted(ranks, key=lambda directory: directory.rank)
