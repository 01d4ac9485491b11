# SPDX-License-Identifier: Apache-2.0
"""A heat map as one interactive page, which needs no network. Needs plotly, whose script is 4.8 MB."""
from collections import Counter
from html import escape
from typing import Any

import numpy
from plotly import graph_objects

from gradmon_read.heat_map import HeatMap

_ROW = "%{y}<br>step %{x}<br>"


def page(map: HeatMap, own: "dict[str, str]", is_logarithmic: bool) -> bytes:
    """The page: zoom, and each cell's value when the pointer is on it.

    Parameters
    ----------
    map : HeatMap
    own : dict
        The colours of "NaN", "infinite" and "0".
    is_logarithmic : bool
        Whether the colours of the other values follow their logarithm.
    """
    cells = map.cells.astype(float)
    is_shade = numpy.isfinite(cells) & (cells > 0)  # MISSING is below 0
    shades = numpy.where(is_shade, cells, numpy.nan)
    drawn = graph_objects.Figure(
        graph_objects.Heatmap(
            **_places(map),
            z=numpy.log10(shades) if is_logarithmic else shades,
            customdata=shades,
            hovertemplate=_ROW + "%{customdata:.6g}<extra></extra>",
            colorscale="Viridis",
            colorbar={"title": "log₁₀" if is_logarithmic else ""},
            hoverongaps=False,
        )
    )
    which = {"NaN": numpy.isnan(cells), "infinite": numpy.isinf(cells), "0": cells == 0}
    for label, where in which.items():
        if where.any():
            drawn.add_traces(_marked(map, label, where, own[label]))
    height = max(300, min(1600, 120 + 14 * len(map.rows)))
    drawn.update_layout(
        title=escape(map.title, quote=False),
        height=height,
        plot_bgcolor="white",
        xaxis={"title": "step", "type": "category", "showgrid": False},
        yaxis={"type": "category", "autorange": "reversed", "showgrid": False, "automargin": True},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 1, "xanchor": "right"},
    )
    text: str = drawn.to_html(include_plotlyjs=True, full_html=True)
    return text.encode()


def _places(map: HeatMap) -> "dict[str, Any]":
    """The steps, and the labels of the rows, each once."""
    seen: "Counter[str]" = Counter()
    labels = []
    for label in (escape(row, quote=False) for row in map.rows):  # plotly shows some tags
        seen[label] += 1
        labels.append(label if seen[label] == 1 else f"{label} ({seen[label]})")
    return {"x": [str(step) for step in map.first_steps], "y": labels}


def _marked(map: HeatMap, label: str, where: Any, colour: str) -> "list[Any]":
    """Cells of one colour, and their entry in the legend."""
    cells = graph_objects.Heatmap(
        **_places(map),
        z=numpy.where(where, 1.0, numpy.nan),
        colorscale=[[0, colour], [1, colour]],
        showscale=False,
        hovertemplate=f"{_ROW}{label}<extra></extra>",
        hoverongaps=False,
    )
    marker = {"color": colour, "symbol": "square", "size": 10}
    entry = graph_objects.Scatter(x=[None], y=[None], mode="markers", marker=marker, name=label)
    return [cells, entry]
