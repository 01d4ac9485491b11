# SPDX-License-Identifier: Apache-2.0
"""Reads the rows of a job into one table."""
import contextlib
import operator
import os
import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Collection, Optional, Union

from gradmon_read.command_line import CommandError, require_alone
from gradmon_read.joining import Scopes, joined, scopes_of
from gradmon_read.rank_database import RankDatabase, RankDatabaseError
from gradmon_read.rows import FORMS, Names, Rows, Sources, find_sources
from gradmon_read.runs import parse_rank_directory
from gradmon_read.vocabulary import KINDS

if TYPE_CHECKING:
    import pandas

_COLUMNS = ["rank", "step", "micro_step", "kind", "name", "op", "value", "vpp_stage"]
_PLACE = "place"  # of a row among all, as read


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
        The 8 hex digits of one run. Default: the newest.
    kind : str or collection of str, optional
        Prefixes of the files: "grad_reduced"; "update", "ratio" for histograms. Default: all.
    steps, ranks : int or collection of int, optional
        Step numbers, for example ``range(1000, 2000)``, and ranks. Default: all.
    names : str, collection of str or compiled pattern, optional
        Names as in the files, or a pattern that is searched in them. Default: all.
    form : {"csv", "sqlite", "tensorboard"}, optional
        The form to read: the CSV files, ``monitor_metrics.db`` or the event files of the ranks. Default: the
        first of these that a rank has; for histograms in `kind`, the event files.
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
        NaN was measured; a value that was not measured has no row. Sorted by step, then by rank and kind,
        then as written. The table is alike for every form.

    Raises
    ------
    FileNotFoundError
        If there is no such path or no run, or the run has no file of the form.
    ImportError
        If pandas is missing, or google-crc32c for event files.
    ValueError
        If `kind` is unknown; the message lists the known ones.
        If a file cannot be read, or is a database that this process is writing; the message names the
        file. If the form is none of the three. With `whole`: if a rank holds a summand only (partial), or a
        tensor that nothing relates to others (local); if not all parts are there; for event files that
        ``gradmonctl convert`` has made, which have no scopes.

    Notes
    -----
    Needs pandas and pyarrow, not TensorBoard. A last line or event that is being written is left out. Only
    event files have histograms: bin_i counts the elements in the i-th of 30 equal bins over [-1, 1].
    FORMAT.md ("gradmon.load") says how precise each form is, and what it lacks. With `whole`, a step is
    left out if some ranks lack its rows but have rows of a later step; a UserWarning names these steps.

    Examples
    --------
    >>> rows = gradmon.load("monitor_output", kind="grad_reduced", steps=range(1000, 2000))
    >>> rows[rows["op"] == "norm"].groupby("name")["value"].max()
    """
    require_alone("pandas", "gradmon.load()")
    wanted, kinds = _integers(ranks), _known_kinds(kind)
    sources = _sources(path, run, form)
    parts = sources.parts + (sources.histograms if kinds is not None else [])
    rows = Rows(parts, sources.problems).where(kind=kinds, steps=_integers(steps), ranks=wanted, names=names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what is an error here
        table = rows.pandas(_COLUMNS)
    if sources.problems.count:
        raise ValueError(re.sub("; the (row|file) is left out", "", sources.problems.first[0]))
    if whole:
        table = joined(table.assign(**{_PLACE: range(len(table))}), _scopes(sources, wanted))
    return _in_order(table)


def _sources(path: "Union[str, os.PathLike[str]]", run: Optional[str], form: Optional[str]) -> Sources:
    if form is not None and form not in FORMS:
        raise ValueError(f'form: found "{form}"; expected one of {", ".join(FORMS)}')
    if not os.path.exists(path):
        raise FileNotFoundError(f"{path}: no such file or directory; expected a job's output directory")
    try:
        return find_sources([Path(os.path.abspath(path))], run, form)
    except CommandError as error:
        raise FileNotFoundError(str(error)) from None


def _scopes(sources: Sources, ranks: "Optional[Collection[int]]") -> Scopes:
    """The scopes of the rows of the wanted ranks."""
    found: Scopes = {}
    noted = []
    for run, rank, path in sources.places:
        if path.is_file() and parse_rank_directory(path.parent.name) is None:
            found.update(_noted_in(path))
        elif not run:
            raise ValueError(
                f"{path}: whole=True needs the ranks' directories, with their scopes.json, or a database"
            )
        elif rank is not None and (ranks is None or rank in ranks):
            noted.append((rank, path.parent if path.is_file() else path))
    found.update(scopes_of(noted))
    return found


def _noted_in(database: Path) -> Scopes:
    try:
        with contextlib.closing(RankDatabase(database)) as opened:
            found = opened.scopes()
    except RankDatabaseError as error:
        raise ValueError(str(error)) from None
    if not found:
        raise ValueError(f"{database}: whole=True needs the table target_scope, which is empty")
    return found


def _in_order(table: "pandas.DataFrame") -> "pandas.DataFrame":
    """By step, then as read. sort_values() takes twice the time, and copies more."""
    import numpy
    import pandas

    places = table.pop(_PLACE).to_numpy() if _PLACE in table else numpy.arange(len(table))
    order = numpy.lexsort((places, table["step"].to_numpy()))
    if (order[1:] > order[:-1]).all():
        return table
    columns = {name: table.pop(name).array.take(order) for name in list(table.columns)}  # each is freed then
    return pandas.DataFrame(columns, copy=False)


def _known_kinds(value: Any) -> "Optional[Collection[str]]":
    kinds = [value] if isinstance(value, str) else None if value is None else list(value)
    for kind in kinds or ():
        if kind not in KINDS:
            raise ValueError(f'kind: found "{kind}"; expected one of {", ".join(KINDS)}')
    return kinds


def _integers(value: Any) -> "Optional[Collection[int]]":
    if value is None or isinstance(value, range):
        return value
    try:
        collection = iter(value)
    except TypeError:  # one number. Arrays have __index__, too.
        return [operator.index(value)]
    return [operator.index(one) for one in collection]
