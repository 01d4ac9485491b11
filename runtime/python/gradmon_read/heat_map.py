# SPDX-License-Identifier: Apache-2.0
"""gradmonctl analyse plot: heat maps of layer over step, or bin of a histogram over step, as a picture or as
an interactive page. Needs pyarrow and matplotlib."""
import argparse
import fnmatch
import io
import math
import sys
from collections import Counter
from html import escape
from pathlib import Path
from typing import Any, Iterator, NamedTuple, Optional

import matplotlib
import numpy
from matplotlib import cm, colormaps, colors, figure, patches

from gradmon_read import command_line, run_report
from gradmon_read.command_line import CommandError, UsageError, require
from gradmon_read.event_rows import EventFileError, Tag, events, rank_event_files, tag_of
from gradmon_read.kind_rows import Batch, KindReader, Names, each_kind
from gradmon_read.listing import Problems, printable, screen_size
from gradmon_read.run_report import layer_text
from gradmon_read.runs import RankDirectory, Run
from gradmon_read.vocabulary import BINS, FIELDS, HISTOGRAM_KINDS, ROW_KINDS

MISSING = -1  # a cell without a value: values are magnitudes

_BINS = len(BINS)  # of a histogram, over [-1, 1]
_MOST_ROWS, _MOST_COLUMNS = 256, 512
_MOST_CELLS = 32 << 20  # of 4 bytes: more layers than this get fewer columns
_MOST_NAMED = 3  # parameters in a message


class HeatMap(NamedTuple):
    """Values over layers and steps."""

    title: str
    rows: "list[str]"  # labels, from the top
    first_steps: "list[int]"  # of each column, ascending
    last_step: int
    cells: Any  # float32, row by row: magnitudes, infinite, NaN or MISSING


class HeatMapBuilder:
    """Collects values for a HeatMap of a bounded size. If several values fall into one cell, the cell shows
    the largest magnitude; NaN counts as larger than all others."""

    def __init__(self, most_rows: int = _MOST_ROWS, most_columns: int = _MOST_COLUMNS) -> None:
        """At least 2 columns and 1 row."""
        self._most_rows = most_rows
        self._columns = most_columns
        self._cells = numpy.full((0, most_columns), MISSING, "float32")
        self._width_log = 0  # a column has 2^_width_log steps
        self._least = self._most = -1  # step / width of the first and last value; -1: no value
        self._last_step = 0

    def add(self, row: Any, step: Any, value: Any) -> None:
        """Arrays of equal length. Rows from 0; all that were added stay in memory. Steps in any order."""
        if not len(row):
            return
        first, last = int(step.min()) >> self._width_log, int(step.max()) >> self._width_log
        if self._least < 0:
            self._least = self._most = first
        if first < self._least or last > self._most:
            self._move_cells(self._columns, min(self._least, first), max(self._most, last))
        rows = int(row.max()) + 1
        while self._columns > 2 and rows * self._columns > _MOST_CELLS:
            self.limit_columns(self._columns // 2)
        if rows > len(self._cells):
            rows = max(rows, min(2 * len(self._cells), _MOST_CELLS // self._columns))
            cells = numpy.full((rows, self._columns), MISSING, "float32")
            cells[: len(self._cells)] = self._cells
            self._cells = cells
        size = numpy.abs(value)
        largest = numpy.finfo("float32").max  # a number beyond the range of float is not infinite
        size = numpy.where(numpy.isfinite(size), numpy.minimum(size, largest), size).astype("float32")
        numpy.maximum.at(self._cells, (row, (step >> self._width_log) - self._least), size)
        self._last_step = max(self._last_step, int(step.max()))

    def limit_columns(self, columns: int) -> None:
        """Uses fewer columns from now on, at least 2: less memory for more rows."""
        self._move_cells(columns, self._least, self._most)

    def _move_cells(self, columns: int, least: int, most: int) -> None:
        """Makes columns of twice as many steps until those from `least` to `most` are few enough."""
        doublings = 0
        while (most >> doublings) - (least >> doublings) >= columns:
            doublings += 1
        base = least >> doublings
        moved = numpy.full((len(self._cells), columns), MISSING, "float32")
        for column in range(self._most - self._least + 1 if self._least >= 0 else 0):
            to = ((self._least + column) >> doublings) - base
            numpy.maximum(moved[:, to], self._cells[:, column], out=moved[:, to])
        self._cells, self._columns = moved, columns
        self._width_log += doublings
        self._least, self._most = base, most >> doublings

    def build(self, title: str, labels: "list[str]") -> HeatMap:
        """`labels`: of all rows. If rows exceed the limit, draws neighbours as one row, with the label of the
        first. Skips rows and columns without a value."""
        has = self._cells != MISSING
        rows, columns = numpy.flatnonzero(has.any(axis=1)), numpy.flatnonzero(has.any(axis=0))
        together = -(-len(rows) // self._most_rows)
        begins = numpy.arange(0, len(rows), together)
        cells = numpy.maximum.reduceat(self._cells[numpy.ix_(rows, columns)], begins, axis=0)
        steps = [(self._least + int(column)) << self._width_log for column in columns]
        return HeatMap(title, [labels[row] for row in rows[begins]], steps, self._last_step, cells)


class HeatMapRequest(NamedTuple):
    kind: Optional[str]  # None: grad_reduced, else the run's first kind
    field: Optional[str]  # None: norm, else the first field present
    target: str  # "": all layers
    rank: Optional[int]  # None: all ranks


def is_target(target: str, name: str) -> bool:
    """Returns True if a target names the layer: by its whole name, or by the name of a module above it; with
    "*" (any text) and "?" (one character), by a pattern for the whole name."""
    if not set("*?") & set(target):
        return name == target or name.startswith(target + ".")
    return fnmatch.fnmatchcase(name, target.replace("[", "[[]"))


def heat_map_of(run: Run, request: HeatMapRequest, problems: Problems) -> HeatMap:
    """Layer over step, from the CSV files of the run. Raises CommandError, which names the kinds or layers
    that exist instead."""
    kinds = {kind for _, kind, _ in each_kind(run, Problems())}
    if not kinds:
        raise CommandError("there are no CSV files of gradmon in the run")
    present = [kind for kind in ROW_KINDS if kind in kinds]
    kind = request.kind or ("grad_reduced" if "grad_reduced" in kinds else present[0])
    if kind not in kinds:
        raise CommandError(f"there are no files of {kind}; there are: {', '.join(present)}")
    reader = KindReader(problems)
    collector = _Collector(request, reader.names)
    ranks = set()
    for rank, one, files in each_kind(run, problems):
        if one == kind and request.rank in (None, rank):
            ranks.add(rank)
            for batch in reader.batches(kind, files):
                collector.add(batch)
    if not ranks:
        raise CommandError(f"there is no rank {request.rank or 0} in the run")
    return collector.build(kind, f"{_ranks_text(ranks)}, run {printable(run.id)}")


def _ranks_text(ranks: "set[Any]") -> str:
    return f"rank {min(ranks)}" if len(ranks) == 1 else f"largest of {len(ranks)} ranks"


class _Collector:
    """Collects the values of one kind."""

    def __init__(self, request: HeatMapRequest, names: Names) -> None:
        self._request, self._names = request, names
        self._builder = HeatMapBuilder()
        self._field = request.field
        self._rows = 0
        self._fields: "set[str]" = set()  # with values, of the wanted layers
        self._is_wanted = numpy.zeros(0, bool)  # by number of the name

    def add(self, batch: Batch) -> None:
        self._rows += batch.rows
        wanted = self._wanted(batch)
        present = [field for field in FIELDS if (batch.has(field) & wanted).any()]
        self._fields.update(present)
        if self._field is None and present:
            self._field = _first_field(batch, wanted, present)
        if self._field in present:
            rows = numpy.flatnonzero(batch.has(self._field) & wanted)
            self._builder.add(batch.name[rows], batch.step[rows], batch.values[self._field][rows])

    def _wanted(self, batch: Batch) -> Any:
        if not self._request.target:
            return numpy.ones(batch.rows, bool)
        new = range(len(self._is_wanted), len(self._names.all))
        more = [is_target(self._request.target, self._names.name(number)) for number in new]
        self._is_wanted = numpy.append(self._is_wanted, numpy.array(more, bool))
        return self._is_wanted[batch.name]

    def build(self, kind: str, of: str) -> HeatMap:
        names = self._names
        if self._rows == 0:
            raise CommandError(f"there are no rows of {kind}")
        if not self._fields:
            raise CommandError(f"no layer matches --target {self._request.target}, of {self._rows} rows")
        if self._field not in self._fields:
            there = ", ".join(field for field in FIELDS if field in self._fields)
            raise CommandError(f"{kind} has no values of --op {self._field}; it has {there}")
        labels = [printable(layer_text(stage, names.name(i))) for i, (stage, _) in enumerate(names.all)]
        return self._builder.build(f"{self._field} of {kind}, {of}", labels)


def _first_field(batch: Batch, wanted: Any, present: "list[str]") -> str:
    """The norm, or else the first field, of the first row that has any."""
    firsts = {field: int(numpy.argmax(batch.has(field) & wanted)) for field in present}
    of_row = [field for field in present if firsts[field] == min(firsts.values())]
    return "norm" if "norm" in of_row else of_row[0]


def histogram_map_of(run: Run, request: HeatMapRequest, problems: Problems) -> HeatMap:
    """Bins over steps: the number of values of one parameter's update or ratio in each of the 30 bins, the
    bin of 1 at the top. With several ranks, or several steps in a column, a cell shows the largest number.
    `request.kind` is a histogram's; `request.target` must fit one parameter alone. Raises
    CommandError, which names the histograms that exist instead."""
    builder = HeatMapBuilder(_BINS)
    names, ranks = set(), set[Optional[int]]()
    count = 0
    for directory in run.ranks:
        for step, tag, counts in histograms_in(directory, problems):
            if tag.kind != request.kind or request.rank not in (None, tag.rank):
                continue
            count += 1
            if not request.target or is_target(request.target, tag.name):
                names.add(layer_text(tag.vpp_stage, tag.name))
                ranks.add(tag.rank)
                bins = numpy.arange(_BINS)
                builder.add(_BINS - 1 - bins, numpy.full(_BINS, step), numpy.array(counts))
    kind = request.kind
    if count == 0:
        raise CommandError(
            f'there are no histograms of {kind}; "ur_distribution": true with "format": "tensorboard" makes '
            "them"
        )
    if not names:
        raise CommandError(f"no parameter matches --target {request.target}, of {count} histograms")
    if len(names) > 1:
        named = ", ".join(sorted(names)[:_MOST_NAMED]) + (", ..." if len(names) > _MOST_NAMED else "")
        raise CommandError(
            f"the histograms of {kind} are of {len(names)} parameters ({named}): name one with --target"
        )
    of = f"{printable(min(names))}, {_ranks_text(ranks)}, run {printable(run.id)}"
    lower = [2 * (_BINS - 1 - row) / _BINS - 1 for row in range(_BINS)]
    labels = [f"{least:.2f} to {least + 2 / _BINS:.2f}" for least in lower]
    return builder.build(f"values of {kind} of {of}", labels)


def histograms_in(directory: RankDirectory, problems: Problems) -> "Iterator[tuple[int, Tag, list[float]]]":
    """Step, meaning and the 30 counts, finite and at least 0, of the histograms in the event files of a rank,
    in the order of writing. The rank is the directory's, unless the tag names one."""
    for file in rank_event_files(directory.path, problems):
        try:
            for step, values in events(file):
                for raw, counts in values:
                    tag = tag_of(raw.decode("utf-8", "surrogateescape"))
                    if not isinstance(counts, list) or tag.kind not in HISTOGRAM_KINDS:
                        continue
                    if all(0 <= count < math.inf for count in counts):
                        yield step, tag if tag.rank is not None else tag._replace(rank=directory.rank), counts
        except (OSError, EventFileError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            problems.add(file, 0, f"{why}; the rest of the file is left out")


OWN_COLOURS = {"NaN": "#d62728", "infinite": "#ff7f0e", "0": "#c8c8c8", "no row": "#ffffff"}
_LINEAR_UP_TO = 100  # largest by smallest magnitude
_LONGEST_LABEL = 60
_DPI = 100


def perform(arguments: argparse.Namespace) -> int:
    file = Path(arguments.o)
    if file.suffix not in (".svg", ".png", ".html"):
        raise UsageError(f"-o {arguments.o}: expected a file name that ends with .svg, .png or .html")
    is_of_histograms = arguments.metric in HISTOGRAM_KINDS
    if is_of_histograms and arguments.op:
        raise UsageError(f"--op {arguments.op}: {arguments.metric} is a histogram and has no statistics")
    problems = Problems()
    if file.suffix == ".html":
        require("plotly", "gradmonctl analyse plot")
    run = run_report.chosen_run(arguments, problems)
    request = HeatMapRequest(arguments.metric, arguments.op, arguments.target, arguments.rank)
    try:
        map = (histogram_map_of if is_of_histograms else heat_map_of)(run, request, problems)
    finally:
        run_report.report_problems(problems)
    run_report.replace_file(file, page(map) if file.suffix == ".html" else picture(map, file.suffix[1:]))
    if arguments.json:
        run_report.print_json(
            {
                "file": arguments.o,
                "title": map.title,
                "rows": len(map.rows),
                "columns": len(map.first_steps),
                "first_step": map.first_steps[0],
                "last_step": map.last_step,
                "left_out": run_report.problems_json(problems),
            }
        )
    elif screen_size():
        sys.stdout.write(f"{printable(arguments.o)}: {map.title}, {len(map.rows)} rows\n")
    return command_line.DONE


def scale_of(cells: Any) -> Any:
    """The colours of magnitudes: logarithmic if the largest is more than 100 times the smallest above 0."""
    finite = cells[numpy.isfinite(cells) & (cells >= 0)].astype(float)
    positive = finite[finite > 0]
    if len(positive) and positive.max() > _LINEAR_UP_TO * positive.min():
        return colors.LogNorm(positive.min(), positive.max(), clip=True)
    return colors.Normalize(finite.min() if len(finite) else 0, finite.max() if len(finite) else 1, clip=True)


def colours_of(cells: Any, scale: Any) -> Any:
    """The cells as RGBA, uint8."""
    is_shade = numpy.isfinite(cells) & (cells > 0)
    shades = scale(numpy.where(is_shade, cells, scale.vmin).astype(float)).filled(0)
    colours = colormaps["viridis"](shades, bytes=True)
    own = [numpy.isnan(cells), numpy.isinf(cells), cells == 0, cells == MISSING]
    for colour, where in zip(OWN_COLOURS.values(), own):
        colours[where] = [round(255 * part) for part in colors.to_rgba(colour)]
    return colours


def picture(map: Any, form: str) -> bytes:
    """A file of the form "svg" or "png"."""
    scale = scale_of(map.cells)
    height, width = map.cells.shape
    cell_width, cell_height = min(24, max(2, 800 // width)), min(14, max(4, 900 // height))  # pixels
    labels = [_shortened(row) for row in map.rows]
    left = 20 + 7 * max(len(label) for label in labels)
    size = left + max(cell_width * width, 200) + 190, max(cell_height * height, 260) + 90
    drawn = figure.Figure(figsize=(size[0] / _DPI, size[1] / _DPI), dpi=_DPI)
    axes = drawn.add_axes(
        (left / size[0], 50 / size[1], cell_width * width / size[0], cell_height * height / size[1])
    )
    axes.imshow(colours_of(map.cells, scale), aspect="auto", interpolation="none")
    every = -(-12 // cell_height)
    axes.set_yticks(
        range(0, height, every), labels[::every], fontsize=7, family="monospace", parse_math=False
    )
    every = -(-60 // cell_width)
    axes.set_xticks(range(0, width, every), [str(step) for step in map.first_steps[::every]], fontsize=7)
    axes.set_xlabel("step", fontsize=8)
    drawn.text(10 / size[0], 1 - 18 / size[1], map.title, fontsize=8, family="monospace", parse_math=False)
    right = (left + cell_width * width + 20) / size[0]
    bar = drawn.add_axes((right, 1 - 180 / size[1], 16 / size[0], 140 / size[1]))
    drawn.colorbar(cm.ScalarMappable(scale, "viridis"), bar).ax.tick_params(labelsize=7)
    boxes = [
        patches.Patch(facecolor=colour, edgecolor="#888888", label=label)
        for label, colour in OWN_COLOURS.items()
    ]
    drawn.legend(
        handles=boxes, loc="upper left", bbox_to_anchor=(right, 1 - 190 / size[1]), fontsize=7, frameon=False
    )
    made = io.BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "gradmon"}):
        drawn.savefig(made, format=form, metadata={"Date": None} if form == "svg" else {})
    return made.getvalue()


def _shortened(label: str) -> str:
    """Keeps both ends, which identify the label best."""
    half = (_LONGEST_LABEL - 3) // 2
    return label if len(label) <= _LONGEST_LABEL else f"{label[:half]}...{label[-half:]}"


_ROW = "%{y}<br>step %{x}<br>"


def page(map: HeatMap) -> bytes:
    """An interactive page, which needs no network: zoom, and each cell's value when the pointer is on it.
    Needs plotly, whose script is 4.8 MB."""
    from plotly import graph_objects

    is_logarithmic = isinstance(scale_of(map.cells), colors.LogNorm)
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
            drawn.add_traces(_marked(map, label, where))
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


def _marked(map: HeatMap, label: str, where: Any) -> "list[Any]":
    """Cells of one colour, and their entry in the legend."""
    from plotly import graph_objects

    colour = OWN_COLOURS[label]
    cells = graph_objects.Heatmap(
        **_places(map),
        z=numpy.where(where, 1.0, numpy.nan),
        colorscale=[[0, colour], [1, colour]],
        showscale=False,
        hovertemplate=f"{_ROW}{label}<extra></extra>",
        hoverongaps=False,
    )
    marker = {"color": colour, "symbol": "square", "size": 10}
    return [cells, graph_objects.Scatter(x=[None], y=[None], mode="markers", marker=marker, name=label)]
