# SPDX-License-Identifier: Apache-2.0
"""The documented differences: which findings they explain, and where users read of them."""
import json
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Optional

from comparison import RELEASES, Finding

# Fields of a finding that an entry may restrict, each by a regular expression of the whole text.
_FIELDS = ("case", "what", "file", "name", "column", "step", "original", "ours")
_VERDICTS = ("better", "differs")


@dataclass
class Difference:
    """An entry of differences.json. `page` is a part of a sentence of coming-from-msprobe.md.

    `release` names the only release of msprobe that the entry is for; without it, it is for all.
    """

    id: str
    verdict: str
    page: str
    patterns: "dict[str, re.Pattern[str]]"
    relation: str = ""
    release: str = ""
    cases: "dict[str, int]" = field(default_factory=dict)  # findings that it explains, by case

    def explains(self, finding: Finding) -> bool:
        matches = (bool(pattern.fullmatch(getattr(finding, name))) for name, pattern in self.patterns.items())
        return all(matches) and _RELATIONS[self.relation](finding.original, finding.ours)

    def as_json(self) -> "dict[str, Any]":
        return {"id": self.id, "verdict": self.verdict, "page": self.page, "cases": self.cases}


class DifferencesError(Exception):
    """An entry that is not usable, or that no page documents."""


def read_differences(path: Path, page: Path, release: str) -> "list[Difference]":
    """The entries for this release. Those for others are checked too."""
    text = " ".join(page.read_text().split())
    differences = []
    for entry in json.loads(path.read_text()):
        patterns = {name: re.compile(entry.pop(name), re.DOTALL) for name in _FIELDS if name in entry}
        difference = Difference(patterns=patterns, **entry)
        if difference.verdict not in _VERDICTS or difference.relation not in _RELATIONS or not patterns:
            raise DifferencesError(f"{path.name}: {difference.id}: unusable verdict, relation or pattern")
        if difference.page not in text:
            raise DifferencesError(f'{page.name} does not say "{difference.page}" ({difference.id})')
        if difference.release not in ("", *RELEASES):
            raise DifferencesError(f"{path.name}: {difference.id}: no release {difference.release!r}")
        if difference.release in ("", release):
            differences.append(difference)
    return differences


def explanation(finding: Finding, differences: "list[Difference]") -> Optional[Difference]:
    """The first entry that explains the finding, which the entry then counts."""
    for difference in differences:
        if difference.explains(finding):
            difference.cases[finding.case] = difference.cases.get(finding.case, 0) + 1
            return difference
    return None


def _within(relative: float, absolute: float = 0.0) -> "Callable[[str, str], bool]":
    """True if rounding explains the difference of two numbers; a cell may also be empty or no number."""

    def explains(original: str, ours: str) -> bool:
        try:
            return math.isclose(float(original), float(ours), rel_tol=relative, abs_tol=absolute)
        except ValueError:
            return False

    return explains


_RELATIONS = {
    "": lambda original, ours: True,
    "float32": _within(2.0**-23),
    "float32 sum": _within(2e-6, 2e-7),  # against a sum in double precision
}
