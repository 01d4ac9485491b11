# SPDX-License-Identifier: Apache-2.0
"""Reads the rows of a job into one table."""
import contextlib
import json
import math
import operator
import os
import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Collection, Optional, Union

import numpy

from gradmon_read.command_line import CommandError, require_alone
from gradmon_read.rank_database import RankDatabase, RankDatabaseError
from gradmon_read.rows import FORMS, Names, Rows, Sources, find_sources
from gradmon_read.runs import parse_rank_directory
from gradmon_read.vocabulary import FOLDS, KINDS, SAMPLE_MARKS

if TYPE_CHECKING:
    import pandas

Scope = dict[str, Any]
Scopes = dict[int, dict[str, dict[str, Scope]]]  # by rank, target ("0:fc1.weight") and kind
_FILE = "scopes.json"
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
        table = _joined(table.assign(**{_PLACE: range(len(table))}), _scopes(sources, wanted))
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
    """The scopes of the rows of the wanted ranks, as noted in databases and in directories."""
    found: Scopes = {}
    noted = {}
    for run, rank, path in sources.places:
        if path.is_file() and parse_rank_directory(path.parent.name) is None:
            try:
                with contextlib.closing(RankDatabase(path)) as opened:
                    scopes = opened.scopes()
            except RankDatabaseError as error:
                raise ValueError(str(error)) from None
            if not scopes:
                raise ValueError(f"{path}: whole=True needs the table target_scope, which is empty")
            found.update(scopes)
        elif not run:
            raise ValueError(
                f"{path}: whole=True needs the ranks' directories, with their scopes.json, or a database"
            )
        elif rank is not None and (ranks is None or rank in ranks):
            noted[rank] = (path.parent if path.is_file() else path) / _FILE
    for rank, file in noted.items():
        try:
            found[rank] = json.loads(file.read_bytes())["targets"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            text = f"{file}: whole=True needs this file, with the scopes of the rows: {error}"
            raise ValueError(text) from error
    return found


def _in_order(table: "pandas.DataFrame") -> "pandas.DataFrame":
    """By step, then as read. sort_values() takes twice the time, and copies more."""
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


def _joined(table: "pandas.DataFrame", scopes: Scopes) -> "pandas.DataFrame":
    """The rows of whole tensors. Raises ValueError where ranks hold summands only, or a part is missing.

    Warns of steps in which some ranks lack rows, though they have rows of later steps."""
    import pandas

    table, scopes = _under_global_names(table, scopes)
    tables = []
    incomplete: "set[int]" = set()
    for (kind, stage, name), rows in table.groupby(["kind", "vpp_stage", "name"], sort=False):
        target = f"{stage}:{name}"
        of_ranks = {
            int(rank): scopes.get(int(rank), {}).get(target, {}).get(kind, {})
            for rank in rows["rank"].unique()
        }
        tables += _whole(rows, of_ranks, f"{kind} of {target}", incomplete)
    if incomplete:
        steps = sorted(incomplete)
        named = ", ".join(map(str, steps[:5])) + (f" and {len(steps) - 5} more" if len(steps) > 5 else "")
        warnings.warn(
            f"whole=True leaves out rows of step {named}: not all ranks that hold a part have them",
            stacklevel=3,
        )
    return pandas.concat(tables, ignore_index=True) if tables else table


def _under_global_names(table: "pandas.DataFrame", scopes: Scopes) -> "tuple[pandas.DataFrame, Scopes]":
    """Names as in the whole model, where they are known: each rank of a pipeline counts its layers from 0."""
    renamed: "dict[tuple[int, str, str], str]" = {}  # by rank, target and kind
    found: Scopes = {}
    for rank, targets in scopes.items():
        of_rank = found.setdefault(rank, {})
        for target, kinds in targets.items():
            stage, _, name = target.partition(":")
            for kind, scope in kinds.items():
                known = scope.get("global_name", name)
                if known != name:
                    renamed[rank, target, kind] = known
                of_rank.setdefault(f"{stage}:{known}", {})[kind] = scope
    if not renamed:
        return table, scopes
    keys = zip(table["rank"], table["vpp_stage"], table["name"], table["kind"])
    names = [renamed.get((rank, f"{stage}:{name}", kind), name) for rank, stage, name, kind in keys]
    return table.assign(name=names), found


def _whole(
    rows: "pandas.DataFrame", scopes: "dict[int, Scope]", what: str, incomplete: "set[int]"
) -> "list[pandas.DataFrame]":
    groups: "dict[tuple[str, str], list[int]]" = {}
    for rank in sorted(scopes):
        label = scopes[rank].get("scope", "whole")
        if label in ("partial", "local"):
            raise ValueError(f"{what}: {_REFUSED[label].format(rank)}; exclude it with kind= or names=")
        # Ranks in other meshes hold other tensors: each data-parallel group, the gradient of its own batch.
        mesh = scopes[rank].get("mesh") or {}
        groups.setdefault((label, json.dumps([mesh.get("shape"), mesh.get("ranks")])), []).append(rank)
    found = []
    for (label, _), ranks in groups.items():
        if label == "whole":  # each rank's own
            found.append(rows[rows["rank"].isin(ranks)])
        elif label == "replica":
            found.append(rows[rows["rank"] == ranks[0]])
        else:
            found += _join(rows, _parts(scopes, ranks, what), what, incomplete)
    return found


_REFUSED = {
    "partial": "rank {} holds a summand, from which the statistics of the sum cannot be computed",
    "local": "the whole of rank {}'s tensor is unknown",
}


def _parts(scopes: "dict[int, Scope]", ranks: "list[int]", what: str) -> "dict[int, int]":
    """The ranks whose parts make up a tensor, one for each part, and the elements of each part."""
    parts: "dict[str, tuple[int, int]]" = {}  # replicas of a part count once
    expected = 0
    for rank in ranks:
        scope = scopes[rank]
        if "shape" not in scope:  # only the number of equal parts is known
            expected, key, elements = scope["count"], [scope["index"]], 1
        else:
            expected = math.prod(scope["shape"])
            elements = scope.get("count", math.prod(scope.get("size", [])))
            key = [scope.get("offset"), scope.get("begin")]
        parts.setdefault(json.dumps(key), (rank, elements))
    held = sum(elements for _, elements in parts.values())
    if held != expected:
        raise ValueError(
            f"{what}: ranks {', '.join(map(str, ranks))} hold {held} of {expected} elements; "
            "expected the rows of all ranks"
        )
    return dict(sorted(parts.values()))


def _join(
    rows: "pandas.DataFrame", parts: "dict[int, int]", what: str, incomplete: "set[int]"
) -> "list[pandas.DataFrame]":
    """One row for each step and statistic that has the rows of all parts. Some ranks may not have written the
    last steps yet; earlier steps that lack rows are added to `incomplete`."""
    found = []
    held = rows[rows["rank"].isin(list(parts))]
    order = held.assign(_micro=held["micro_step"].fillna(-1)).sort_values(
        ["step", "_micro", "rank"], kind="stable"
    )
    marked = order["op"].isin(SAMPLE_MARKS)
    if marked.any():
        found += _marks_of_whole(order[~marked], order[marked], parts)
        order = order[~marked]
    for op, of_op in order.groupby("op", sort=False):
        counts = of_op.groupby(["step", "_micro"], sort=False)["rank"].transform("size")
        is_complete = counts == len(parts)
        complete = of_op[is_complete]
        written_by_all = of_op.groupby("rank")["step"].max().min()
        incomplete.update(of_op.loc[~is_complete & (of_op["step"] < written_by_all), "step"])
        values = complete["value"].to_numpy().reshape(-1, len(parts))
        first = complete[complete["rank"] == min(parts)].drop(columns="_micro")
        weights = numpy.array([*parts.values()], dtype="float64")
        found.append(first.assign(value=_fold_of(op, what)(values, weights)))
    return found


def _marks_of_whole(
    values: "pandas.DataFrame", marks: "pandas.DataFrame", parts: "dict[int, int]"
) -> "list[pandas.DataFrame]":
    """The marks in the steps in which a part is a sample; its errors are independent of others'. A part
    without marks was read whole. There is no error of the norm without the norm."""
    keys = ["step", "_micro", "rank"]
    has_norm = bool((values["op"] == "norm").any())
    rows = values[values["op"] == ("norm" if has_norm else values["op"].iloc[0])]
    rows = rows[rows.groupby(keys[:2])["rank"].transform("size") == len(parts)]
    rows = rows.merge(marks[keys[:2]].drop_duplicates(), on=keys[:2])
    first = rows[rows["rank"] == min(parts)].drop(columns="_micro")
    weights = numpy.array([*parts.values()]) / sum(parts.values())
    norms = rows["value"].to_numpy().reshape(-1, len(parts))
    total = numpy.sqrt((norms**2).sum(axis=1, keepdims=True))
    shares = {"sampled": weights, "mean_se": weights, "norm_se": norms / numpy.where(total == 0, 1, total)}
    found = []
    for op in SAMPLE_MARKS if has_norm else SAMPLE_MARKS[:2]:
        of_op = marks.loc[marks["op"] == op, [*keys, "value"]]
        known = rows[keys].merge(of_op, how="left", on=keys, indicator=True)
        known.loc[known["_merge"] != "both", "value"] = 1.0 if op == "sampled" else 0.0
        of_parts = known["value"].to_numpy().reshape(norms.shape) * shares[op]
        whole = of_parts.sum(axis=1) if op == "sampled" else numpy.sqrt((of_parts**2).sum(axis=1))
        found.append(first.assign(op=op, value=whole))
    return found


_FOLDS: "dict[str, Callable[[Any, Any], Any]]" = {
    "least": lambda values, _: values.min(axis=1),
    "greatest": lambda values, _: values.max(axis=1),
    "sum": lambda values, _: values.sum(axis=1),
    "mean_by_elements": lambda values, weights: values @ (weights / weights.sum()),
    "root_of_squares": lambda values, _: numpy.sqrt((values**2).sum(axis=1)),
}


def _fold_of(op: str, what: str) -> "Callable[[Any, Any], Any]":
    fold = "sum" if op.startswith("bin_") else "mean_by_elements" if op == "mg_direction" else FOLDS.get(op)
    if fold is None:
        raise ValueError(f"{what}: cannot combine {op} across shards; exclude it with kind=")
    return _FOLDS[fold]
