# SPDX-License-Identifier: Apache-2.0
"""Figures with their goals, tasks that run in turns, and the command line of the benchmarks in Python."""
import argparse
import json
import math
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterable, Sequence, TypeVar

T = TypeVar("T")


def text_of(value: float) -> str:
    """Four significant digits."""
    decimals = next((d for low, d in ((1000, 0), (100, 1), (10, 2), (0.1, 3)) if abs(value) >= low), 5)
    return f"{value:.{decimals}f}"


@dataclass
class Figure:
    name: str
    value: float
    unit: str
    goal: float
    how: str
    at_least: bool = False  # otherwise the goal is a maximum

    def met(self) -> bool:
        return self.value >= self.goal if self.at_least else self.value <= self.goal

    def as_json(self) -> "dict[str, Any]":
        values = {**vars(self), "met": self.met()}
        return {key: values[key] for key in ("name", "value", "unit", "goal", "met", "how")}

    def line(self) -> str:
        met = "met" if self.met() else "MISSED"
        most = "at least" if self.at_least else "at most"
        goal = f"(goal: {most} {text_of(self.goal)})  {met}"
        return f"{self.name}  {text_of(self.value)} {self.unit}  {goal}\n    {self.how}"


def spread(values: "Sequence[float]") -> str:
    three = (min(values), statistics.median(values), max(values))
    return f"minimum, median and maximum of {len(values)}: {' '.join(map(text_of, three))}"


def median_figure(
    name: str, values: "Sequence[float]", unit: str, goal: float, how: str, at_least: bool = False
) -> Figure:
    """The median of the values; `how` is followed by their spread."""
    return Figure(name, statistics.median(values), unit, goal, f"{how}; {spread(values)}", at_least)


def median_interval(values: "Sequence[float]") -> "tuple[float, float]":
    """The 95 % confidence interval of the median, for any distribution (measure.h)."""
    cut = max(0, math.floor((len(values) - 1) / 2 - 0.98 * math.sqrt(len(values))))
    return sorted(values)[cut], sorted(values)[-1 - cut]


def in_turns(rounds: int, *tasks: "Callable[[], T]") -> "list[list[T]]":
    """The results of each task, by round: A B, B A, A B … So a disturbance hits all tasks alike."""
    found: "list[list[T]]" = [[] for _ in tasks]
    for turn in range(rounds):
        for results, task in list(zip(found, tasks))[:: 1 if turn % 2 == 0 else -1]:
            results.append(task())
    return found


def parser_of(command: str, description: "str | None") -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"tools/bench {command}", description=description)
    quick = "checks that every benchmark runs; the values are not meaningful"
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--json", type=Path, metavar="FILE", help="the figures, as gradmon-bench has them")
    parser.add_argument("--list", action="store_true", help="all names")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these; all without one")
    return parser


def parse(parser: argparse.ArgumentParser, names: "Sequence[str]") -> argparse.Namespace:
    options = parser.parse_args()
    for name in options.names:
        if name not in names:
            parser.error(f"no figure is named {name}; expected some of {', '.join(names)}")
    if options.list:
        print(*names, sep="\n")
        sys.exit(0)
    options.names = options.names or list(names)
    return options


def report(
    options: argparse.Namespace, bench: "Callable[[str], Figure | Iterable[Figure]]", **more: Any
) -> int:
    """Measures all names of the options: prints each figure, or the error of one that cannot be measured, and
    writes the file of --json. Returns the exit code."""
    done, code = [], 0
    for name in options.names:
        try:
            found = bench(name)
            for figure in [found] if isinstance(found, Figure) else found:
                figure.how += "; quick: the value is not meaningful" if options.quick else ""
                print(figure.line(), flush=True)
                done.append(figure.as_json())
        except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
            print(f"gradmon-bench: {name}: {error}", file=sys.stderr)
            code = 1
    if options.json is not None:
        text = json.dumps({**more, "figures": done}, indent=2, ensure_ascii=False)
        options.json.write_text(text + "\n")
    return code
