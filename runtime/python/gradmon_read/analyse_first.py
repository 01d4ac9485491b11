# SPDX-License-Identifier: Apache-2.0
"""gradmonctl analyse first, and the words for values that are not finite."""
import argparse
from typing import TYPE_CHECKING, Any, Optional

from gradmon_read import command_line, run_report
from gradmon_read.command_line import Command
from gradmon_read.listing import Table, printable
from gradmon_read.vocabulary import FIELDS

if TYPE_CHECKING:
    from gradmon_read.csv_tables import Problems
    from gradmon_read.runs import Run

_MOST_LEFT_OUT = 3  # named in the text
_MOST_RANKS = 10  # with their own first value, in the text


def command() -> Command:
    return Command(
        "analyse first [RUN] [--run ID] [--flight] [--json]",
        "Find the job's first value that is not finite, and what was around it",
        [*run_report.run_arguments(), run_report.JSON_ARGUMENT],
        _perform,
        "The first one by step and micro step; in these by the order of computation: what the step\n"
        "begins with (weights, moments), forward, backward, reduced gradients, updated weights,\n"
        "scalars; then by the order of the rows, and by rank. A tensor that holds an infinity in every\n"
        "row from the first collected step on, as an attention mask does, is left out; one line names it.\n"
        "\n"
        "examples:\n"
        "  gradmonctl analyse first monitor_output\n"
        "  gradmonctl analyse first --json monitor_output | jq .first.step",
    )


def _perform(arguments: argparse.Namespace) -> int:
    problems = run_report.no_problems("first")
    from gradmon_read.first_not_finite import context_of, find_first_not_finite
    from gradmon_read.kind_rows import KindReader

    run = run_report.chosen_run(arguments, problems)
    reader = KindReader(problems)
    found = find_first_not_finite(run, reader)
    again = KindReader(run_report.no_problems("first"), reader.names)  # its problems are known
    around = context_of(run, found, again) if found.first else None
    run_report.report_problems(problems)
    if found.extent.rows == 0:
        raise run_report.no_rows_error(run)
    if arguments.json:
        run_report.print_json(_json(run, found, around, problems))
    else:
        run_report.print_text(_text(run, found, around))
    return command_line.DONE


def place_text(place: Any) -> str:
    """ "NaN in fc1.weight (grad_reduced), step 37, in the backward pass, rank 2" """
    layer = run_report.layer_text(place.vpp_stage, place.name)
    what = ("", "an overflow", "an infinity", "NaN")[place.what]
    return f"{what} in {run_report.place_text(layer, place)}"


def place_json(place: Any) -> "Optional[dict[str, Any]]":
    if place is None:
        return None
    return {
        "step": place.step,
        "micro_step": run_report.step_or_none(place.micro_step),
        "phase": place.phase,
        "rank": place.rank,
        "kind": place.kind,
        "vpp_stage": place.vpp_stage,
        "name": place.name,
        "what": ("", "overflow", "inf", "nan")[place.what],
        "statistic": place.field,
        "value": run_report.value_json(place.value),
        "shape": place.shape or None,
        "dtype": place.dtype or None,
        "file": place.file,
        "line": place.line,
    }


def left_out_text(found: Any) -> str:
    """Names in one line what FirstNotFinite skips; "" if it skips nothing."""
    places = found.left_out()
    tensors = sorted(
        {f"{printable(run_report.layer_text(each.vpp_stage, each.name))} ({each.kind})" for each in places}
    )
    if not tensors:
        return ""
    more = f" and {len(tensors) - _MOST_LEFT_OUT} more" if len(tensors) > _MOST_LEFT_OUT else ""
    return (
        "left out, infinite from the first collected step on, as attention masks are: "
        f"{', '.join(tensors[:_MOST_LEFT_OUT])}{more}\n"
    )


def extent_text(extent: Any) -> str:
    return f"steps {extent.first_step}-{extent.last_step}, {extent.rows} rows"


def extent_json(extent: Any) -> "dict[str, Any]":
    return {
        "rows": extent.rows,
        "first_step": run_report.step_or_none(extent.first_step),
        "last_step": run_report.step_or_none(extent.last_step),
    }


def _text(run: "Run", found: Any, around: Any) -> str:
    from gradmon_read.first_not_finite import NAN

    text = f"{run_report.run_text(run)}\n"
    left_out = left_out_text(found)
    place, nan = found.first, found.first_nan
    if place is None:
        which = "all other values are finite" if left_out else "all values are finite"
        return f"{text}{which}: {extent_text(found.extent)}\n{left_out}"
    text += f"\nthe first value that is not finite\n  {place_text(place)}\n{_details(place)}"
    if nan is not None and place.what != NAN:
        text += f"\nthe first NaN\n  {place_text(nan)}\n{_details(nan)}"
    of_step = [i for i, sample in enumerate(around.history) if sample.step == place.step]
    text += f"\nthe same tensor, on rank {place.rank}\n"
    text += _samples(around.history, "step", of_step[0] if of_step else -1)
    text += f"\nthe rows before and after it in step {place.step}\n"
    text += _samples(around.neighbours, "name", around.place)
    text += _other_ranks(around.ranks) + _firsts_of_ranks(found.by_rank) + _spread(around.spread)
    return f"{text}\n{left_out}" if left_out else text


def _details(place: Any) -> str:
    text = f"  {place.field} {run_report.value_text(place.value)}"
    if place.shape:
        text += f", shape {printable(place.shape)}"
    if place.dtype:
        text += f", {printable(place.dtype)}"
    return f"{text}\n  {run_report.source_text(place)}\n"


def _samples(samples: Any, title: str, mark: int) -> str:
    """`mark`: the index of the sample to mark."""
    fields = [field for field in FIELDS if any(field in sample.values for sample in samples)]
    table = Table(["", title, *fields], [True, title == "name", *(False for _ in fields)])
    rows = []
    for i, sample in enumerate(samples):
        what = str(sample.step) if title == "step" else run_report.layer_text(sample.vpp_stage, sample.name)
        cells = [
            run_report.value_text(sample.values[field]) if field in sample.values else "" for field in fields
        ]
        rows.append([">" if i == mark else "", what, *cells])
    return run_report.table_text(table, rows)


def _other_ranks(ranks: "dict[int, bool]") -> str:
    text = ""
    for words, wanted in (("finite", False), ("not finite", True)):
        chosen = [rank for rank in sorted(ranks) if ranks[rank] == wanted]
        text += f"  {words} on {run_report.rank_ranges(chosen)}\n" if chosen else ""
    return f"\nthe same tensor and step on other ranks\n{text}" if text else ""


def _firsts_of_ranks(by_rank: "dict[int, Any]") -> str:
    if len(by_rank) < 2:
        return ""
    text = "\nthe first one of each rank\n"
    for rank in sorted(by_rank)[:_MOST_RANKS]:
        text += f"  {place_text(by_rank[rank])}\n"
    if len(by_rank) > _MOST_RANKS:
        text += f"  … and {len(by_rank) - _MOST_RANKS} more ranks (--json shows all)\n"
    return text


def _spread(spread: "dict[int, tuple[int, int]]") -> str:
    table = Table(["", "step", "not finite", "rows"], [True, False, False, False])
    rows = [["", str(step), str(odd), str(count)] for step, (count, odd) in spread.items()]
    return f"\nhow it spreads, over all ranks and kinds\n{run_report.table_text(table, rows)}"


def _json(run: "Run", found: Any, around: Any, problems: "Problems") -> "dict[str, Any]":
    def samples(listed: Any) -> "list[dict[str, Any]]":
        return [
            {
                "step": sample.step,
                "micro_step": run_report.step_or_none(sample.micro_step),
                "vpp_stage": sample.vpp_stage,
                "name": sample.name,
                **{field: run_report.value_json(value) for field, value in sample.values.items()},
            }
            for sample in listed
        ]

    ranks = sorted(around.ranks.items()) if around else []
    spread = around.spread.items() if around else []
    return {
        "run": run_report.run_json(run),
        "read": extent_json(found.extent),
        "first": place_json(found.first),
        "first_nan": place_json(found.first_nan),
        "by_rank": [place_json(found.by_rank[rank]) for rank in sorted(found.by_rank)],
        "history": samples(around.history if around else []),
        "neighbours": samples(around.neighbours if around else []),
        "other_ranks": [{"rank": rank, "finite": not not_finite} for rank, not_finite in ranks],
        "spread": [{"step": step, "not_finite": odd, "rows": rows} for step, (rows, odd) in spread],
        "always_infinite": [place_json(place) for place in found.left_out()],
        "left_out": run_report.problems_json(problems),
    }
