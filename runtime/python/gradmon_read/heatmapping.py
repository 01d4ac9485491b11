# SPDX-License-Identifier: Apache-2.0
"""Draws the rows of a job as a heatmap."""
import os
from typing import TYPE_CHECKING, Any, Optional, Union

from gradmon_read.command_line import require_alone
from gradmon_read.loading import load

if TYPE_CHECKING:
    import pandas

NAN_COLOR = "red"
INFINITY_COLOR = "orange"
ZERO_COLOR = "silver"

_LABELS = 300  # most names that are readable below each other


def heatmap(
    df: "Union[pandas.DataFrame, str, os.PathLike[str]]",
    kind: Optional[str] = None,
    op: str = "norm",
    *,
    rank: Optional[int] = None,
    log: Optional[bool] = None,
    ax: Any = None,
) -> Any:
    """Draws one statistic of every layer over the steps.

    Parameters
    ----------
    df : pandas.DataFrame, str or path-like
        The result of load(), or some of its rows; or the path that load() takes.
    kind : str, optional
        Kind of row. Default: "grad_reduced" if `df` has it, else the only kind.
    op : str
        The statistic: "norm", "mg_direction".
    rank : int, optional
        Default: the lowest rank with such rows.
    log : bool, optional
        Logarithmic colour scale. Default: logarithmic if no value is negative and one is positive.
        Values below 1e-20 of the largest then have the lowest colour.
    ax : matplotlib.axes.Axes, optional
        The axes to draw on. Default: a new figure, large enough for the names.

    Returns
    -------
    matplotlib.axes.Axes
        Names run from top to bottom in the order of the files, with "1:" before those of model chunk 1. Each
        step with a row of this kind is a column. If a step has several micro steps, the last is drawn. NaN,
        infinity and, if no value is negative, 0 have separate colours; a place without a row stays blank.

    Raises
    ------
    ValueError
        If `df` has no such rows; the message lists what it has.
    ImportError
        If matplotlib is missing.

    Examples
    --------
    >>> gradmon.heatmap(gradmon.load("monitor_output"), op="norm").figure.savefig("norms.png")
    """
    require_alone("matplotlib", "gradmon.heatmap()")
    from matplotlib import pyplot

    table = load(df) if isinstance(df, (str, os.PathLike)) else df
    rows = _chosen(table, kind, op, rank)
    names, steps, values = _grid(rows)
    if ax is None:
        size = (8.0, 1.5 + 0.18 * min(len(names), _LABELS))
        ax = pyplot.subplots(figsize=size, layout="constrained")[1]
    _paint(ax, values, op, log)
    every = 1 + (len(names) - 1) // _LABELS
    ax.set_yticks(range(0, len(names), every), names[::every], fontsize="x-small")
    ax.xaxis.set_major_locator(pyplot.MaxNLocator(integer=True))
    ax.xaxis.set_major_formatter(lambda x, _: str(steps[int(x)]) if 0 <= x < len(steps) else "")
    ax.set_xlabel("step")
    ax.set_title(f"{rows['kind'].iloc[0]}, rank {rows['rank'].iloc[0]}")
    return ax


def _chosen(df: "pandas.DataFrame", kind: Optional[str], op: str, rank: Optional[int]) -> "pandas.DataFrame":
    kinds = sorted(df["kind"].unique())
    if kind is None and ("grad_reduced" in kinds or len(kinds) == 1):
        kind = "grad_reduced" if "grad_reduced" in kinds else kinds[0]
    if kind not in kinds:
        asked = "which kind?" if kind is None else f"no rows of kind {kind!r};"
        raise ValueError(f"{asked} available: {', '.join(kinds) or 'none'}")
    rows = df[df["kind"] == kind]
    ops = list(rows["op"].unique())
    if op not in ops:
        raise ValueError(f"no {op!r} in {kind}; available: {', '.join(ops)}")
    rows = rows[rows["op"] == op]
    ranks = sorted(rows["rank"].unique())
    if rank is not None and rank not in ranks:
        raise ValueError(f"no {op!r} in {kind} of rank {rank}; available: {', '.join(map(str, ranks))}")
    return rows[rows["rank"] == (ranks[0] if rank is None else rank)]


def _grid(rows: "pandas.DataFrame") -> "tuple[list[str], list[int], Any]":
    """Names, steps, and a names-by-steps array of values, masked where there is no row."""
    import numpy
    import pandas

    chunk = rows["vpp_stage"]
    y, names = pandas.factorize(rows["name"].where(chunk == 0, chunk.astype(str) + ":" + rows["name"]))
    x, steps = pandas.factorize(rows["step"], sort=True)
    values = numpy.ma.masked_all((len(names), len(steps)))
    last_is_last = rows.assign(y=y, x=x).sort_values("micro_step", kind="stable")
    values[last_is_last["y"], last_is_last["x"]] = last_is_last["value"].to_numpy(float)
    return list(names), list(steps), values


def _paint(ax: Any, values: Any, op: str, log: Optional[bool]) -> None:
    import numpy
    from matplotlib import colors, patches

    finite = values.compressed()[numpy.isfinite(values.compressed())]
    if log is None:
        log = bool((finite >= 0).all() and (finite > 0).any())
    shown = finite[finite > 0] if log else finite
    low, high = (shown.min(), shown.max()) if len(shown) else (0.1, 1)
    if log:
        high = min(high, 1e250)  # matplotlib computes with slightly larger numbers
        low = max(low, high * 1e-20)
    scale = colors.LogNorm(low, high, clip=True) if log else colors.Normalize(low, high)
    edges = [numpy.arange(count + 1) - 0.5 for count in reversed(values.shape)]
    mesh = ax.pcolormesh(*edges, numpy.ma.masked_invalid(values), norm=scale)
    ax.figure.colorbar(mesh, ax=ax, label=op)
    ax.set_ylim(edges[1][-1], edges[1][0])
    own = {"NaN": NAN_COLOR, "infinite": INFINITY_COLOR, "0": ZERO_COLOR}
    zero = (values.data == 0) & bool((finite >= 0).all())
    which = numpy.select([numpy.isnan(values.data), numpy.isinf(values.data), zero], [0, 1, 2], -1)
    which = numpy.ma.masked_array(which, numpy.ma.getmaskarray(values) | (which < 0))
    if which.count():
        ax.pcolormesh(*edges, which, cmap=colors.ListedColormap(list(own.values())), vmin=0, vmax=2)
        drawn = [label for number, label in enumerate(own) if (which == number).any()]
        legend = [patches.Patch(color=own[label], label=label) for label in drawn]
        place = {"loc": "lower right", "bbox_to_anchor": (1, 1), "ncol": 3, "frameon": False}
        ax.legend(handles=legend, fontsize="x-small", **place)
