# SPDX-License-Identifier: Apache-2.0
"""gradmonctl analyse diff."""
import argparse
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

from gradmon_read import command_line, run_report
from gradmon_read.command_line import Argument, Command, CommandError, UsageError
from gradmon_read.listing import Table, printable

if TYPE_CHECKING:
    from gradmon_read.csv_tables import Problems
    from gradmon_read.runs import Run

_A_FEW = 10
_DIFFERENCE_DIGITS = 3


def command() -> Command:
    newest = "(default: the newest one)"
    return Command(
        "analyse diff RUN_A RUN_B [--run-a ID] [--run-b ID] [--tolerance X] [--absolute X] [--all] [--json]",
        "Find where two runs first part, and how they part from there",
        [
            Argument("RUN_A", "the job's output directory, as RUN of `analyse first`", required=True),
            Argument("RUN_B", "the one to compare with it", required=True),
            Argument("--run-a", f"the run with this id in RUN_A {newest}", "ID", ""),
            Argument("--run-b", f"the run with this id in RUN_B {newest}", "ID", ""),
            Argument("--tolerance", "relative to the larger of two values (default: 1e-5)", "X", "1e-5"),
            Argument("--absolute", "in the unit of the values (default: 1e-6)", "X", "1e-6"),
            Argument("--all", "list every step and rank"),
            run_report.JSON_ARGUMENT,
        ],
        _perform,
        "Rows are compared that have the same rank, kind, layer, step and micro step in both runs,\n"
        "but for iteration-time, throughput and other scalars of the clock.\n"
        "Values part if they differ by more than both tolerances; NaN equals NaN. The defaults leave\n"
        "out what rounding to 6 decimals makes; --tolerance 0 --absolute 0 compares exactly.\n"
        "Ends with 0 if no value parts, with 1 if one does.\n"
        "\n"
        "examples:\n"
        "  gradmonctl analyse diff runs/before runs/after\n"
        "  gradmonctl analyse diff monitor_output monitor_output --run-a 1a2b3c4d --tolerance 1e-3",
    )


def _perform(arguments: argparse.Namespace) -> int:
    limits = [_number(f"--{name}", getattr(arguments, name)) for name in ("tolerance", "absolute")]
    problems = run_report.no_problems("diff")
    from gradmon_read.divergence import Tolerance, find_divergence
    from gradmon_read.runs import find_run

    a = find_run(Path(arguments.RUN_A), arguments.run_a, problems)
    b = find_run(Path(arguments.RUN_B), arguments.run_b, problems)
    tolerance = Tolerance(*limits)
    found = find_divergence(a, b, tolerance, problems)
    run_report.report_problems(problems)
    if arguments.json:
        run_report.print_json(_json(a, b, tolerance, found, problems))
    else:
        run_report.print_text(_text(a, b, tolerance, found, None if arguments.all else _A_FEW))
    if found.compared == 0:
        raise CommandError(
            "no row has a statistic that is in both runs"
            if found.without_common
            else "no row is in both runs: ranks, kinds, layers and steps were compared"
        )
    return command_line.FAILED if found.first else command_line.DONE


def _number(option: str, text: str) -> float:
    if re.fullmatch(r"([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text) and math.isfinite(float(text)):
        return float(text)
    raise UsageError(f'{option} "{text}": expected a number from 0 on, such as 1e-5')


def _place_text(parting: Any) -> str:
    return run_report.place_text(run_report.layer_text(0, parting.layer), parting)


def _values_text(parting: Any) -> str:
    a, b = run_report.value_text(parting.a), run_report.value_text(parting.b)
    return f"{parting.field} {a} in A, {b} in B, relative difference {_difference(parting)}"


def _difference(parting: Any) -> str:
    return run_report.value_text(parting.difference, _DIFFERENCE_DIGITS)


def _text(a: "Run", b: "Run", tolerance: Any, found: Any, most: Optional[int]) -> str:
    """`most`: the length of a list; None: any."""
    relative, absolute = map(run_report.value_text, tolerance)
    text = f"A: {run_report.run_text(a)}\nB: {run_report.run_text(b)}\n{found.compared} rows compared, "
    text += f"tolerance {relative} relative and {absolute} absolute\n"
    for run, only in zip("AB", found.only):
        if only.rows:
            where = f"the first in step {only.step}: {printable(only.what)}"
            text += f"rows only in {run}: {only.rows}, {where}\n"
    if found.without_common:
        text += f"rows with no statistic in common: {found.without_common}\n"
    if found.first is None:
        return text + ("no value parts\n" if found.compared else "")
    text += f"\nthe runs first part in\n  {_place_text(found.first)}\n  {_values_text(found.first)}\n"
    text += f"  {run_report.source_text(found.first)}\n"
    return text + _steps_text(found, most) + _ranks_text(found, most)


def _steps_text(found: Any, most: Optional[int]) -> str:
    """The steps from the first difference on; always with the last one."""
    titles = ["step", "rows", "apart", "largest difference", "statistic", "rank", "kind", "layer"]
    rows = []
    for step, count in found.steps.items():
        if step >= found.first.step:
            row = [str(step), str(count.compared), str(count.parted)]
            worst = count.worst
            if worst is not None:
                row += [_difference(worst), worst.field, str(worst.rank), worst.kind]
                row.append(run_report.layer_text(0, worst.layer))
            rows.append(row + [""] * (len(titles) - len(row)))
    shown = rows if most is None or len(rows) <= most else [*rows[: most - 1], rows[-1]]
    is_left = [title in ("statistic", "kind", "layer") for title in titles]
    text = f"\nhow they part from there\n{run_report.table_text(Table(titles, is_left), shown)}"
    return text + _more(len(rows) - len(shown), "steps in between")


def _ranks_text(found: Any, most: Optional[int]) -> str:
    if len(found.by_rank) < 2:
        return ""
    ranks = sorted(found.by_rank)
    text = "\nwhere each rank first parts\n"
    for rank in ranks[:most]:
        text += f"  {_place_text(found.by_rank[rank])}: {_values_text(found.by_rank[rank])}\n"
    return text + _more(len(ranks) - len(ranks[:most]), "ranks")


def _more(count: int, noun: str) -> str:
    return f"… and {count} more {noun} (--all shows all)\n" if count else ""


def _parting_json(parting: Any) -> "Optional[dict[str, Any]]":
    if parting is None:
        return None
    return {
        "step": parting.step,
        "micro_step": run_report.step_or_none(parting.micro_step),
        "phase": parting.phase,
        "rank": parting.rank,
        "kind": parting.kind,
        "layer": parting.layer,
        "statistic": parting.field,
        "a": run_report.value_json(parting.a),
        "b": run_report.value_json(parting.b),
        "relative_difference": run_report.value_json(parting.difference),
        "file": parting.file,
        "line": parting.line,
    }


def _only_json(only: Any) -> "dict[str, Any]":
    return {"rows": only.rows, "first_step": run_report.step_or_none(only.step), "first": only.what or None}


def _json(a: "Run", b: "Run", tolerance: Any, found: Any, problems: "Problems") -> "dict[str, Any]":
    first = found.first
    steps = {step: count for step, count in found.steps.items() if first and step >= first.step}
    return {
        "a": run_report.run_json(a),
        "b": run_report.run_json(b),
        "tolerance": {"relative": tolerance.relative, "absolute": tolerance.absolute},
        "compared_rows": found.compared,
        "rows_without_common_statistic": found.without_common,
        "only_in_a": _only_json(found.only[0]),
        "only_in_b": _only_json(found.only[1]),
        "first": _parting_json(first),
        "by_rank": [_parting_json(found.by_rank[rank]) for rank in sorted(found.by_rank)],
        "steps": [
            {"step": step, "rows": count.compared, "apart": count.parted, "worst": _parting_json(count.worst)}
            for step, count in steps.items()
        ],
        "left_out": run_report.problems_json(problems),
    }
