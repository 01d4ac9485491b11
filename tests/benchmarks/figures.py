# SPDX-License-Identifier: Apache-2.0
"""Measured figures with their goals, and the command line of the benchmarks in Python."""
import argparse
import json
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, Sequence


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


def measured(names: "Sequence[str]", bench: "Callable[[str], Figure]") -> "Iterator[Figure]":
    """The figures of these names; prints the error of one that cannot be measured."""
    for name in names:
        try:
            yield bench(name)
        except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
            print(f"gradmon-bench: {name}: {error}", file=sys.stderr)


def report(figures: "Iterable[Figure]", options: argparse.Namespace, **more: Any) -> int:
    """Prints each figure when it is measured, then writes the file of --json. Returns their number."""
    done = []
    for figure in figures:
        figure.how += "; quick: the value is not meaningful" if options.quick else ""
        print(figure.line(), flush=True)
        done.append(figure.as_json())
    if options.json is not None:
        text = json.dumps({**more, "figures": done}, indent=2, ensure_ascii=False)
        options.json.write_text(text + "\n")
    return len(done)
