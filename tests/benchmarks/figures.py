# SPDX-License-Identifier: Apache-2.0
"""A measured figure and its goal; numbers as gradmon-bench prints them."""
import statistics
from dataclasses import dataclass
from typing import Any


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
        value, goal = text_of(self.value), text_of(self.goal)
        most = "at least" if self.at_least else "at most"
        return f"{self.name}  {value} {self.unit}  (goal: {most} {goal})  {met}\n    {self.how}"


def spread(values: "list[float]") -> str:
    three = (min(values), statistics.median(values), max(values))
    return f"minimum, median and maximum of {len(values)}: {' '.join(map(text_of, three))}"
