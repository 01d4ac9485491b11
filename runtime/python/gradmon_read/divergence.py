# SPDX-License-Identifier: Apache-2.0
"""gradmonctl analyse diff: the differences between two runs. Needs pyarrow."""
import argparse
import contextlib
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Optional

import numpy

from gradmon_read import command_line, run_report
from gradmon_read.command_line import CommandError, UsageError
from gradmon_read.csv_tables import KindFile
from gradmon_read.first_not_finite import Place, Rows
from gradmon_read.kind_rows import Batch, KindReader, RowSource, aligned, each_kind
from gradmon_read.listing import Problems, Table, printable
from gradmon_read.run_report import layer_text, value_json, value_text
from gradmon_read.runs import Run, find_run
from gradmon_read.vocabulary import FIELDS, ROW_KINDS

# Scalars that differ in equal runs.
_OF_THE_CLOCK = {
    *("iteration-time", "throughput", "throughput_linearity", "B-samples-per-day"),
    "model-flops-throughput-per-device",
}


class Tolerance(NamedTuple):
    """Two values part if they differ by more than `absolute` and, relative to the larger one, by more than
    `relative`. NaN equals NaN. The defaults ignore differences from rounding to 6 decimals."""

    relative: float = 1e-5
    absolute: float = 1e-6


def relative_difference(a: Any, b: Any) -> Any:
    """|a - b| / max(|a|, |b|); infinite if only one of them is finite, or both are infinite with other
    signs. Arrays."""
    larger = numpy.maximum(numpy.abs(a), numpy.abs(b))
    with numpy.errstate(divide="ignore", invalid="ignore", over="ignore"):
        difference = numpy.abs(a / larger - b / larger)  # a - b may overflow
    difference = numpy.where(numpy.isfinite(a) & numpy.isfinite(b), difference, numpy.inf)
    return numpy.where((a == b) | (numpy.isnan(a) & numpy.isnan(b)), 0, difference)


@dataclass(frozen=True)
class Parting(Place):
    """A row whose values part, and the statistic with the largest relative difference. The place is in A."""

    a: float
    b: float
    difference: float  # relative

    @property
    def layer(self) -> str:
        return f"{self.vpp_stage}:{self.name}" if self.vpp_stage else self.name

    def __str__(self) -> str:
        return self.text(layer_text(0, self.layer))

    def values_text(self) -> str:
        values = f"{self.field} {value_text(self.a)} in A, {value_text(self.b)} in B"
        return f"{values}, relative difference {self.difference_text()}"

    def difference_text(self) -> str:
        return value_text(self.difference, _DIFFERENCE_DIGITS)

    def json(self) -> "dict[str, Any]":
        own = {
            "layer": self.layer,
            "statistic": self.field,
            "a": value_json(self.a),
            "b": value_json(self.b),
            "relative_difference": value_json(self.difference),
        }
        return self.json_with(own)


class StepCount:
    """A step with rows in both runs."""

    def __init__(self) -> None:
        self.compared = 0  # rows
        self.parted = 0
        self.worst: Optional[Parting] = None  # with the largest relative difference


class Only(NamedTuple):
    """Rows that only one of the runs has, and the first one."""

    rows: int = 0
    first_step: Optional[int] = None
    first: Optional[str] = None  # "grad_reduced of fc1.weight on rank 3"


class Divergence:
    """The differences between two runs."""

    def __init__(self) -> None:
        self.first: Optional[Parting] = None
        self.by_rank: "dict[int, Parting]" = {}  # the first of each rank
        self.steps: "dict[int, StepCount]" = {}  # by step: all steps with rows in both
        self.compared = 0  # rows
        self.without_common = 0  # rows in both without a common statistic, or of a sample in one of them
        self.only = [Only(), Only()]  # in A, in B

    def steps_apart(self) -> "list[tuple[int, StepCount]]":
        """The steps from the first difference on."""
        first = self.first
        return [item for item in self.steps.items() if first and item[0] >= first.step]


def find_divergence(a: Run, b: Run, tolerance: Tolerance, problems: Problems) -> Divergence:
    """Compares all rows of two runs by rank, kind, layer, step and micro step. Skips scalars of the clock,
    which differ in equal runs: iteration-time, throughput and its kin."""
    comparison = _Comparison(tolerance, problems)
    in_a, in_b = _files_of(a, problems), _files_of(b, problems)
    for key in [*sorted(in_a), *sorted(in_b.keys() - in_a.keys())]:
        comparison.compare(key[0], ROW_KINDS[key[1]], in_a.get(key, []), in_b.get(key, []))
    comparison.found.steps = dict(sorted(comparison.found.steps.items()))
    return comparison.found


def _files_of(run: Run, problems: Problems) -> "dict[tuple[int, int], list[KindFile]]":
    files: "dict[tuple[int, int], list[KindFile]]" = {}
    for rank, kind, of_kind in each_kind(run, problems):
        files.setdefault((rank, ROW_KINDS.index(kind)), []).extend(of_kind)
    return files


class _Comparison:
    """Compares two runs, one rank and kind after the other."""

    def __init__(self, tolerance: Tolerance, problems: Problems) -> None:
        self.found = Divergence()
        self._tolerance = tolerance
        self._reader = KindReader(problems)
        self._names = self._reader.names

    def compare(self, rank: int, kind: str, a: "list[KindFile]", b: "list[KindFile]") -> None:
        with contextlib.closing(self._reader.batches(kind, a)) as of_a, contextlib.closing(
            self._reader.batches(kind, b)
        ) as of_b:
            for rows in aligned([RowSource(of_a), RowSource(of_b)]):
                self._compare_steps(rank, kind, [each[0] if each else None for each in rows])

    def _compare_steps(self, rank: int, kind: str, rows: "list[Optional[Batch]]") -> None:
        """`rows`: of A and B, of the same steps."""
        keys = [_keys(batch) for batch in rows if batch]
        origin = numpy.concatenate([numpy.full(batch.rows, i) for i, batch in enumerate(rows) if batch])
        row = numpy.concatenate([numpy.arange(batch.rows) for batch in rows if batch])
        columns = [numpy.concatenate(parts) for parts in zip(*keys)]
        order = numpy.lexsort([origin, *reversed(columns)])
        equal = numpy.ones(len(order) - 1, bool)
        for column in columns:
            equal &= column[order[1:]] == column[order[:-1]]
        pairs = numpy.flatnonzero(equal)
        alone = numpy.ones(len(order), bool)
        alone[pairs] = alone[pairs + 1] = False
        for i, batch in enumerate(rows):
            if batch:
                chosen = order[alone & (origin[order] == i)]
                self._note_only(i, rank, kind, batch.take(row[chosen]))
        if len(pairs) and rows[0] and rows[1]:
            self._compare_rows(
                rank, kind, rows[0].take(row[order[pairs]]), rows[1].take(row[order[pairs + 1]])
            )

    def _note_only(self, which: int, rank: int, kind: str, batch: Batch) -> None:
        if not batch.rows:
            return
        rows, step, what = self.found.only[which]
        first = int(batch.step.argmin())
        if step is None or batch.step[first] < step:
            step = int(batch.step[first])
            what = f'{kind} of "{self._names.label(batch.name[first])}" on rank {rank}'
        self.found.only[which] = Only(rows + batch.rows, step, what)

    def _compare_rows(self, rank: int, kind: str, a: Batch, b: Batch) -> None:
        """Rows with the same keys, sorted by these."""
        if kind == "scalar":
            of_clock = [label in _OF_THE_CLOCK for label in map(self._names.label, a.name)]
            others = ~numpy.array(of_clock)
            a, b = a.take(others), b.take(others)
        alike = a.has("sampled") == b.has("sampled")  # an estimate is not compared with a whole tensor
        common = numpy.zeros(a.rows, bool)
        largest = numpy.full(a.rows, -1.0)
        field_of = numpy.zeros(a.rows, "int64")
        for number, field in enumerate(FIELDS):
            both = a.has(field) & b.has(field) & alike
            if not both.any():
                continue
            common |= both
            x, y = a.values[field], b.values[field]
            if numpy.array_equal(x, y):
                continue
            difference = relative_difference(x, y)
            with numpy.errstate(invalid="ignore", over="ignore"):
                within = numpy.abs(x - y) <= self._tolerance.absolute
            parts = both & (difference > self._tolerance.relative) & ~within & (difference > largest)
            largest[parts] = difference[parts]
            field_of[parts] = number
        self.found.compared += int(common.sum())
        self.found.without_common += int((~common).sum())
        for step, count in zip(*numpy.unique(a.step[common], return_counts=True)):
            self.found.steps.setdefault(int(step), StepCount()).compared += int(count)
        parted = numpy.flatnonzero(largest >= 0)
        if len(parted):
            rows = Rows(rank, kind, a.take(parted), self._names)
            self._note(rows, b.take(parted), field_of[parted], largest[parted])

    def _note(self, rows: Rows, other: Batch, field: Any, difference: Any) -> None:
        def parting(row: int) -> Parting:
            name = FIELDS[field[row]]
            a, b = (float(batch.values[name][row]) for batch in (rows.batch, other))
            return rows.place(row, Parting, name, a=a, b=b, difference=float(difference[row]))

        steps = rows.batch.step
        order = numpy.lexsort([-difference, steps])
        begins = numpy.flatnonzero(numpy.diff(steps[order], prepend=-1))
        counts = numpy.diff(begins, append=len(order))
        for worst, count in zip(order[begins], counts):
            of_step = self.found.steps[int(steps[worst])]
            of_step.parted += int(count)
            if of_step.worst is None or difference[worst] > of_step.worst.difference:
                of_step.worst = parting(worst)
        first = parting(rows.first(numpy.arange(len(steps))))
        known = self.found.by_rank.get(first.rank)
        if known is None or first.order < known.order:
            self.found.by_rank[first.rank] = first
        if self.found.first is None or first.order < self.found.first.order:
            self.found.first = first


def _keys(batch: Batch) -> "list[Any]":
    """Step, name, micro step, and the number of earlier rows of the step with these."""
    columns = [batch.step, batch.name, batch.micro_step]
    order = numpy.lexsort(columns[::-1])
    begins = numpy.zeros(batch.rows, bool)
    begins[0] = True
    for column in columns:
        begins[1:] |= column[order[1:]] != column[order[:-1]]
    count = numpy.arange(batch.rows)
    repetition = numpy.empty(batch.rows, "int64")
    repetition[order] = count - numpy.maximum.accumulate(numpy.where(begins, count, 0))
    return [*columns, repetition]


_A_FEW = 10
_DIFFERENCE_DIGITS = 3


def perform(arguments: argparse.Namespace) -> int:
    limits = [_number(f"--{name}", getattr(arguments, name)) for name in ("tolerance", "absolute")]
    problems = Problems()
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


def _text(a: Run, b: Run, tolerance: Tolerance, found: Divergence, most: Optional[int]) -> str:
    """`most`: the length of a list; None: any."""
    relative, absolute = map(value_text, tolerance)
    text = f"A: {run_report.run_text(a)}\nB: {run_report.run_text(b)}\n{found.compared} rows compared, "
    text += f"tolerance {relative} relative and {absolute} absolute\n"
    for run, only in zip("AB", found.only):
        if only.first:
            where = f"the first in step {only.first_step}: {printable(only.first)}"
            text += f"rows only in {run}: {only.rows}, {where}\n"
    if found.without_common:
        text += f"rows with no statistic in common: {found.without_common}\n"
    if found.first is None:
        return text + ("no value parts\n" if found.compared else "")
    text += f"\nthe runs first part in\n  {found.first}\n  {found.first.values_text()}\n"
    text += f"  {found.first.source}\n{_steps_text(found, most)}"
    ranks = [found.by_rank[rank] for rank in sorted(found.by_rank)]
    if len(ranks) < 2:
        return text
    text += "\nwhere each rank first parts\n"
    text += "".join(f"  {one}: {one.values_text()}\n" for one in ranks[:most])
    return text + _more(len(ranks) - len(ranks[:most]), "ranks")


def _steps_text(found: Divergence, most: Optional[int]) -> str:
    """The steps from the first difference on; always with the last one."""
    titles = ["step", "rows", "apart", "largest difference", "statistic", "rank", "kind", "layer"]
    rows = []
    for step, count in found.steps_apart():
        row = [str(step), str(count.compared), str(count.parted)]
        if one := count.worst:
            row += [one.difference_text(), one.field, str(one.rank), one.kind, layer_text(0, one.layer)]
        rows.append(row + [""] * (len(titles) - len(row)))
    shown = rows if most is None or len(rows) <= most else [*rows[: most - 1], rows[-1]]
    is_left = [title in ("statistic", "kind", "layer") for title in titles]
    text = f"\nhow they part from there\n{run_report.table_text(Table(titles, is_left), shown)}"
    return text + _more(len(rows) - len(shown), "steps in between")


def _more(count: int, noun: str) -> str:
    return f"… and {count} more {noun} (--all shows all)\n" if count else ""


def _json(a: Run, b: Run, tolerance: Tolerance, found: Divergence, problems: Problems) -> "dict[str, Any]":
    return {
        "a": run_report.run_json(a),
        "b": run_report.run_json(b),
        "tolerance": tolerance._asdict(),
        "compared_rows": found.compared,
        "rows_without_common_statistic": found.without_common,
        "only_in_a": found.only[0]._asdict(),
        "only_in_b": found.only[1]._asdict(),
        "first": found.first and found.first.json(),
        "by_rank": [found.by_rank[rank].json() for rank in sorted(found.by_rank)],
        "steps": [
            {"step": step, "rows": one.compared, "apart": one.parted, "worst": one.worst and one.worst.json()}
            for step, one in found.steps_apart()
        ],
        "left_out": run_report.problems_json(problems),
    }
