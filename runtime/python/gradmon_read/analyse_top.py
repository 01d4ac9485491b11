# SPDX-License-Identifier: Apache-2.0
"""gradmonctl analyse top."""
import argparse
import math
import sys
from typing import TYPE_CHECKING, Any

from gradmon_read import command_line, run_report
from gradmon_read.analyse_first import extent_json, extent_text, left_out_text, place_json, place_text
from gradmon_read.command_line import Argument, Command, integer
from gradmon_read.listing import Table, screen_size

if TYPE_CHECKING:
    from gradmon_read.csv_tables import Problems
    from gradmon_read.runs import Run

_FACTOR_DIGITS = 4


def command() -> Command:
    count = "entries of each list (default: 8; fewer on a small screen)"
    return Command(
        "analyse top [RUN] [--run ID] [--flight] [--count N] [--json]",
        "Show the layers that stand out: largest change, not finite, dead, exploding",
        [
            *run_report.run_arguments(),
            Argument("--count", count, "N", 8, integer(1)),
            run_report.JSON_ARGUMENT,
        ],
        _perform,
        "The size of a tensor is its norm, else the largest magnitude of min and max, else |mean|.\n"
        "  change     by what factor the size differs from that of the collected step before, up or\n"
        "             down; sizes count as at least 1e-6 of the largest one before\n"
        "  dead       the last 2 or more steps have a size of 0, or at most 1e-6 of the largest one\n"
        "  exploding  the median of the last 3 sizes is at least 10 times the median of the first 5\n"
        "\n"
        "examples:\n"
        "  gradmonctl analyse top monitor_output\n"
        "  gradmonctl analyse top monitor_output --run 1a2b3c4d --count 20",
    )


def _perform(arguments: argparse.Namespace) -> int:
    problems = run_report.no_problems("top")
    from gradmon_read.kind_rows import KindReader
    from gradmon_read.layer_changes import find_layer_changes

    run = run_report.chosen_run(arguments, problems)
    changes = find_layer_changes(run, KindReader(problems))
    run_report.report_problems(problems)
    if changes.not_finite.extent.rows == 0:
        raise run_report.no_rows_error(run)
    if arguments.json:
        run_report.print_json(_json(run, changes, arguments.count, problems))
    else:
        sys.stdout.write(_fitting(run, changes, arguments.count))
    return command_line.DONE


def _fitting(run: "Run", changes: Any, count: int) -> str:
    """With as many entries of each list as the screen has room for."""
    screen = screen_size()
    if screen is None:
        return _text(run, changes, count)
    count = min(count, screen[1])
    while True:
        text = run_report.folded(_text(run, changes, count))
        if count <= 1 or text.count("\n") < screen[1]:
            return text
        count -= 1


def _text(run: "Run", changes: Any, count: int) -> str:
    not_finite = changes.not_finite
    left_out = left_out_text(not_finite)
    text = f"{run_report.run_text(run)}, {extent_text(not_finite.extent)}\n\n"
    if not_finite.first:
        text += f"first value that is not finite: {place_text(not_finite.first)}\n"
    else:
        text += "all other values are finite\n" if left_out else "all values are finite\n"
    text += left_out
    text += _list(
        "largest change",
        ["factor", "step", "rank", "before", "after"],
        [
            [_factor(each.factor), str(each.step), str(each.rank), run_report.value_text(each.before)]
            + [run_report.value_text(each.after), each.kind, run_report.layer_text(0, each.layer)]
            for each in changes.largest[:count]
        ],
        len(changes.largest),
    )
    text += _list(
        "dead",
        ["since step", "ranks"],
        [
            [str(each.since), str(each.ranks), each.kind, run_report.layer_text(0, each.layer)]
            for each in changes.dead[:count]
        ],
        len(changes.dead),
    )
    return text + _list(
        "exploding",
        ["factor", "rank", "last size"],
        [
            [_factor(each.growth), str(each.rank), run_report.value_text(each.last_size)]
            + [each.kind, run_report.layer_text(0, each.layer)]
            for each in changes.exploding[:count]
        ],
        len(changes.exploding),
    )


def _factor(factor: float) -> str:
    return run_report.value_text(factor, _FACTOR_DIGITS)


def _list(what: str, numbers: "list[str]", rows: "list[list[str]]", all: int) -> str:
    """A heading, with the number of layers, and a table whose last columns are kind and layer."""
    if all == 0:
        return f"\n{what}: none\n"
    heading = f"\n{what}: {all} layer{'' if all == 1 else 's'}"
    heading += f", the first {len(rows)}\n" if all > len(rows) else "\n"
    table = Table([*numbers, "kind", "layer"], [*(False for _ in numbers), True, True])
    return heading + run_report.table_text(table, rows)


def _json(run: "Run", changes: Any, count: int, problems: "Problems") -> "dict[str, Any]":
    return {
        "run": run_report.run_json(run),
        "read": extent_json(changes.not_finite.extent),
        "first_not_finite": place_json(changes.not_finite.first),
        "always_infinite": [place_json(place) for place in changes.not_finite.left_out()],
        "layers": changes.layers,
        "changed_layers": len(changes.largest),
        "largest_change": [
            {**each._asdict(), "factor": each.factor if math.isfinite(each.factor) else None}
            for each in changes.largest[:count]
        ],
        "dead_layers": len(changes.dead),
        "dead": [
            {
                "layer": each.layer,
                "kind": each.kind,
                "since_step": each.since,
                "ranks": each.ranks,
                "first_rank": each.rank,
            }
            for each in changes.dead[:count]
        ],
        "exploding_layers": len(changes.exploding),
        "exploding": [
            {
                "layer": each.layer,
                "kind": each.kind,
                "rank": each.rank,
                "factor": each.growth if math.isfinite(each.growth) else None,
                "last_size": each.last_size,
            }
            for each in changes.exploding[:count]
        ],
        "left_out": run_report.problems_json(problems),
    }
