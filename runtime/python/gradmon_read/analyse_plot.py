# SPDX-License-Identifier: Apache-2.0
"""gradmonctl analyse plot."""
import argparse
import io
import sys
from pathlib import Path
from typing import Any

from gradmon_read import command_line, run_report
from gradmon_read.command_line import Argument, Command, UsageError, integer, require
from gradmon_read.listing import printable, screen_size
from gradmon_read.vocabulary import FIELDS, HISTOGRAM_KINDS, KINDS

NAN_COLOUR = "#d62728"
INFINITE_COLOUR = "#ff7f0e"
ZERO_COLOUR = "#c8c8c8"
MISSING_COLOUR = "#ffffff"

_LINEAR_UP_TO = 100  # largest by smallest magnitude
_LONGEST_LABEL = 60
_DPI = 100


def command() -> Command:
    return Command(
        "analyse plot [RUN] -o FILE [--run ID] [--flight] [--metric KIND] [--op OP] [--target NAME] "
        "[--rank R] [--json]",
        "Draw a heat map, layer or bin over step",
        [
            *run_report.run_arguments(),
            Argument(
                "-o,--output",
                "the picture, FILE.svg or FILE.png, or an interactive page, FILE.html;\n"
                "replaced if it exists",
                "FILE",
                required=True,
            ),
            Argument(
                "--metric",
                "as in the names of the files (default: grad_reduced,\nelse the first kind that is there)",
                "KIND",
                choices=KINDS,
            ),
            Argument(
                "--op", "the statistic (default: norm, else the first that is there)", "OP", choices=FIELDS
            ),
            Argument(
                "--target",
                "these layers alone: a name, which includes what is below it,\nor a pattern with * and ?",
                "NAME",
                "",
            ),
            Argument("--rank", "this rank alone (default: the largest of all ranks)", "R", type=integer(0)),
            Argument("--json", "one JSON object about the file, on stdout"),
        ],
        _perform,
        "A cell is the largest magnitude of the values in it, over ranks, micro steps and, in a long\n"
        "run, neighbouring steps and layers: no spike is lost. NaN, infinities and 0 have colours of\n"
        "their own. Steps without rows are left out.\n"
        "\n"
        "The kinds update and ratio are histograms of one parameter, from TensorBoard's files: a cell is "
        "the\nnumber of values in a bin, and --target names the parameter.\n"
        "\n"
        "examples:\n"
        "  gradmonctl analyse plot monitor_output -o heatmap.svg\n"
        "  gradmonctl analyse plot monitor_output -o heatmap.html --metric actv\n"
        "  gradmonctl analyse plot monitor_output -o actv.svg --metric actv --op max --target 'layers.3.*'\n"
        "  gradmonctl analyse plot monitor_output -o update.svg --metric update --target fc1.weight",
    )


def _perform(arguments: argparse.Namespace) -> int:
    file = Path(arguments.o)
    if file.suffix not in (".svg", ".png", ".html"):
        raise UsageError(f"-o {arguments.o}: expected a file name that ends with .svg, .png or .html")
    is_of_histograms = arguments.metric in HISTOGRAM_KINDS
    if is_of_histograms and arguments.op:
        raise UsageError(f"--op {arguments.op}: {arguments.metric} is a histogram and has no statistics")
    problems = run_report.no_problems("plot")
    for package, module in (("matplotlib", "matplotlib"), ("google-crc32c", "google_crc32c")):
        require(package, "gradmonctl analyse plot", module)
    if file.suffix == ".html":
        require("plotly", "gradmonctl analyse plot")
    from gradmon_read.heat_map import HeatMapRequest, heat_map_of, histogram_map_of

    run = run_report.chosen_run(arguments, problems)
    request = HeatMapRequest(arguments.metric, arguments.op, arguments.target, arguments.rank)
    try:
        map = (histogram_map_of if is_of_histograms else heat_map_of)(run, request, problems)
    finally:
        run_report.report_problems(problems)
    run_report.replace_file(file, _page(map) if file.suffix == ".html" else picture(map, file.suffix[1:]))
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


def _page(map: Any) -> bytes:
    from matplotlib.colors import LogNorm

    from gradmon_read.interactive_plot import page

    own = {"NaN": NAN_COLOUR, "infinite": INFINITE_COLOUR, "0": ZERO_COLOUR}
    return page(map, own, isinstance(scale_of(map.cells), LogNorm))


def scale_of(cells: Any) -> Any:
    """The colours of magnitudes: logarithmic if the largest is more than 100 times the smallest above 0."""
    import numpy
    from matplotlib import colors

    finite = cells[numpy.isfinite(cells) & (cells >= 0)].astype(float)
    positive = finite[finite > 0]
    if len(positive) and positive.max() > _LINEAR_UP_TO * positive.min():
        return colors.LogNorm(positive.min(), positive.max(), clip=True)
    return colors.Normalize(finite.min() if len(finite) else 0, finite.max() if len(finite) else 1, clip=True)


def colours_of(cells: Any, scale: Any) -> Any:
    """The cells as RGBA, uint8."""
    import numpy
    from matplotlib import colormaps, colors

    from gradmon_read.heat_map import MISSING

    is_shade = numpy.isfinite(cells) & (cells > 0)
    shades = scale(numpy.where(is_shade, cells, scale.vmin).astype(float)).filled(0)
    colours = colormaps["viridis"](shades, bytes=True)
    own = {
        NAN_COLOUR: numpy.isnan(cells),
        INFINITE_COLOUR: numpy.isinf(cells),
        ZERO_COLOUR: cells == 0,
        MISSING_COLOUR: cells == MISSING,
    }
    for colour, where in own.items():
        colours[where] = [round(255 * part) for part in colors.to_rgba(colour)]
    return colours


def picture(map: Any, form: str) -> bytes:
    """A file of the form "svg" or "png"."""
    import matplotlib
    from matplotlib import cm, figure, patches

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
    own = {"NaN": NAN_COLOUR, "infinite": INFINITE_COLOUR, "0": ZERO_COLOUR, "no row": MISSING_COLOUR}
    boxes = [patches.Patch(facecolor=own[label], edgecolor="#888888", label=label) for label in own]
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
