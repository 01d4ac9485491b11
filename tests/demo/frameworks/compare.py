# SPDX-License-Identifier: Apache-2.0
"""Compares one framework's rows with plain torch's own values."""
import csv
import json
import math
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas
import reference
from frameworks import KINDS, Framework
from run import EDITS

import gradmon

TOLERANCE = 1e-6
OF_EACH_RANK = ("grad_unreduced", "actv", "actv_grad")  # rows of the other kinds are shared, or joined


@dataclass
class Result:
    framework: Framework
    agreed: "list[list[int]]" = field(default_factory=list)  # of each rank: the first step after each edit
    counts: "dict[str, int]" = field(default_factory=dict)  # rows of all ranks, by kind
    largest: float = 0.0  # relative difference
    compared: int = 0  # values
    collectives_added: int = 0
    ratio: float = math.nan  # of the time of a collected step to that of one without gradmon
    problems: "list[str]" = field(default_factory=list)
    cannot_be_had: "list[str]" = field(default_factory=list)


class Outcome:
    """What the ranks of one framework have left in its directory."""

    def __init__(self, framework: Framework, directory: Path) -> None:
        self.framework = framework
        self.out = directory / "out"
        self.ranks: "list[dict[str, Any]]" = [
            json.loads((directory / f"rank{rank}.json").read_text()) for rank in range(framework.ranks)
        ]
        self.steps = [self._steps_of(rank) for rank in range(framework.ranks)]

    def collected(self) -> "set[int]":
        return {step for of_rank in self.steps for steps in of_rank.values() for step in steps}

    def _steps_of(self, rank: int) -> "dict[str, list[int]]":
        """Steps with rows, by kind."""
        found: "dict[str, list[int]]" = {}
        for kind in KINDS:
            steps = set()
            for path in self.out.glob(f"*-rank{rank}-*/{kind}_[0-9]*.csv"):
                with path.open(newline="") as file:
                    steps |= {int(row["step"]) for row in csv.DictReader(file)}
            found[kind] = sorted(steps)
        return found


def compare(outcome: Outcome, expected: reference.Rows) -> Result:
    """Compares the rows with the expected values, and notes every problem."""
    result = Result(outcome.framework)
    _check_switches(outcome, result)
    _check_training(outcome, result)
    for kind in KINDS:
        _check_rows(outcome, kind, expected.get(kind, {}), result)
    if not result.largest <= TOLERANCE:
        result.problems.append(f"largest relative difference {result.largest:.2g}, more than {TOLERANCE}")
    return result


def _check_switches(outcome: Outcome, result: Result) -> None:
    everything, gradients = EDITS
    for rank, steps in enumerate(outcome.steps):
        first = steps["actv"]  # of the first edit, which asks for everything
        second = [step for step in steps["grad_unreduced"] if step not in first]
        counts = [len(first), len(second)]
        if counts != [everything["collect_times"], gradients["collect_times"]]:
            result.problems.append(f"rank {rank} has rows of {counts} steps after the two edits")
        for kind, of_kind in steps.items():  # with dp_group, one rank writes what all hold
            if of_kind not in ([], outcome.steps[0][kind]):
                result.problems.append(f"{kind}: ranks 0 and {rank} have rows of different steps")
        result.agreed.append([of_edit[0] for of_edit in (first, second) if of_edit])


def _check_training(outcome: Outcome, result: Result) -> None:
    if not all(of_rank["equal"] for of_rank in outcome.ranks):
        result.problems.append("training with gradmon has other weights at its end than without")
    without, watched = (sum(of_rank["collectives"][i] for of_rank in outcome.ranks) for i in range(2))
    result.collectives_added = watched - without
    if watched != without or (without == 0) != (outcome.framework.ranks == 1):
        result.problems.append(f"collectives: {watched}, and {without} without gradmon")
    seconds = outcome.ranks[0]["seconds"]
    collected = [seconds["watched"][step] for step in outcome.steps[0]["actv"]]
    if collected:
        result.ratio = statistics.median(collected) / statistics.median(seconds["bare"])


def _check_rows(
    outcome: Outcome, kind: str, expected: "dict[reference.Key, reference.Values]", result: Result
) -> None:
    each = gradmon.load(outcome.out, kind=kind)
    result.counts[kind] = int((each["op"] == "norm").sum())
    # Of each edit, every kind that it asks for has rows in the same steps.
    steps = set(outcome.steps[0]["grad_unreduced" if kind.startswith("grad") else "actv"])
    wanted = {key: values for key, values in expected.items() if key[1] in steps}
    _check_names({(name, step) for name, step, _ in wanted}, each, kind, result)
    try:
        table = gradmon.load(outcome.out, kind=kind, whole=True)
    except ValueError as error:
        part, why = outcome.framework.not_joined.get(kind, ("\0", ""))
        if part in str(error):
            result.cannot_be_had.append(
                f"{kind}, whole: {why}. Rows and names are checked. The error: {error}"
            )
        else:
            result.problems.append(f"{kind} cannot be joined: {error}")
        return
    if kind in outcome.framework.not_joined:
        result.problems.append(f"{kind} can be joined, but the table says that it cannot")
    _check_values(wanted, _by_place(outcome, kind, table), kind, result)


def _check_names(wanted: "set[tuple[str, int]]", each: Any, kind: str, result: Result) -> None:
    found = {(name, int(step)) for name, step in zip(each["name"], each["step"]) if not _of_whole_model(name)}
    if found != wanted or not found:
        missing, other = sorted(wanted - found)[:3], sorted(found - wanted)[:3]
        result.problems.append(f"{kind}: missing (name, step): {missing}; not plain torch's: {other}")


def _of_whole_model(name: str) -> bool:
    return name.startswith(("model.input", "model.output"))


def _by_place(outcome: Outcome, kind: str, table: Any) -> "dict[reference.Key, dict[str, list[float]]]":
    """Values by name, step and place: 0 of what all ranks share. One process has the places as its micro
    steps."""
    found: "dict[reference.Key, dict[str, list[float]]]" = {}
    alone = outcome.framework.ranks == 1
    for row in table.itertuples(index=False):
        if _of_whole_model(row.name):
            continue
        place = 0
        if alone:
            place = 0 if pandas.isna(row.micro_step) else int(row.micro_step)
        elif kind in OF_EACH_RANK:
            place = outcome.framework.place_of(row.rank)
        found.setdefault((row.name, int(row.step), place), {}).setdefault(row.op, []).append(row.value)
    return found


def _check_values(
    wanted: "dict[reference.Key, reference.Values]",
    found: "dict[reference.Key, dict[str, list[float]]]",
    kind: str,
    result: Result,
) -> None:
    shared = {(name, step, max(place, 0)): values for (name, step, place), values in wanted.items()}
    if shared.keys() != found.keys():
        differ = sorted(shared.keys() ^ found.keys())[:3]
        result.problems.append(f"{kind}: not the expected (name, step, place), for example {differ}")
    most = max((len(values) for ops in found.values() for values in ops.values()), default=0)
    if kind not in OF_EACH_RANK and most > result.framework.groups:
        result.problems.append(f"{kind}: {most} rows of one tensor, which were not joined")
    for key in sorted(shared.keys() & found.keys()):
        for op, value in ((op, value) for op, values in found[key].items() for value in values):
            difference = _difference(op, value, shared[key])
            result.compared += 1
            if not difference <= TOLERANCE and not result.largest > TOLERANCE:
                result.problems.append(f"{kind} {key} {op}: {value!r}, plain torch {shared[key][op]!r}")
            result.largest = max(result.largest, difference)


def _difference(op: str, found: float, wanted: reference.Values) -> float:
    """Relative to the value; of min, max and mean, which may be near zero by chance, to the largest
    magnitude; of counts and shares the difference itself."""
    scale = {"norm": wanted["norm"], "nans": 1.0, "zeros": 1.0}.get(op, wanted["scale"])
    difference = abs(found - wanted[op])
    return 0.0 if difference == 0.0 else difference / scale if scale > 0.0 else math.inf
