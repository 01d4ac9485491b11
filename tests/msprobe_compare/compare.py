#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Trains scripts under msprobe and under gradmon, and compares what both write; tools/compare runs it."""
import argparse
import importlib.metadata
import json
import sys
import tempfile
from pathlib import Path
from typing import Any, Optional

from comparison import RELEASES, Comparison, Finding, Release
from differences import Difference, DifferencesError, explanation, read_differences
from launching import FOLDER, Case, read_cases, run
from readings import Side
from timing import measure

PAGE = FOLDER.parents[1] / "runtime" / "python" / "coming-from-msprobe.md"
_SHOWN = 12  # undocumented differences that are printed of a case


class Outcome:
    """The result of the comparison of a case."""

    def __init__(self, case: Case, comparison: Comparison, differences: "list[Difference]") -> None:
        self.case = case
        self.same = dict(comparison.same)
        self.explained: "dict[str, int]" = {"better": 0, "differs": 0}
        self.undocumented: "list[Finding]" = []
        for finding in comparison.findings:
            entry = explanation(finding, differences)
            if entry is None:
                self.undocumented.append(finding)
            else:
                self.explained[entry.verdict] += 1

    def as_json(self) -> "dict[str, Any]":
        undocumented = [vars(finding) for finding in self.undocumented]
        return {"name": self.case.name, "same": self.same, **self.explained, "undocumented": undocumented}

    def line(self) -> str:
        cells = self.same.get("cells", 0) + self.same.get("cells within rounding", 0)
        numbers = (self.same.get("rows", 0), cells, *self.explained.values(), len(self.undocumented))
        return f"{self.case.name:50}" + "".join(f"{number:>12}" for number in numbers)


def header_line() -> str:
    columns = ("same rows", "same cells", "better", "differs", "unexpected")
    return f"{'case':50}" + "".join(f"{column:>12}" for column in columns)


def check_plain(case: Case, comparison: Comparison, plain: Side, gradmon: Side) -> None:
    """Training with gradmon must end as training without a monitor does."""
    for rank, (bare, watched) in enumerate(zip(plain.records, gradmon.records)):
        for name in ("parameters", "random"):
            values = ((bare or {}).get(name), (watched or {}).get(name))
            if values[0] is None or values[0] != values[1]:
                finding = Finding(
                    case.name,
                    "training",
                    name=f"{name} of rank {rank} without a monitor",
                    original=str(values[0]),
                    ours=str(values[1]),
                )
                comparison.findings.append(finding)


def compare_case(
    case: Case, release: Release, scratch: Path, package: Path, differences: "list[Difference]"
) -> Outcome:
    folder = scratch / "".join(c if c.isalnum() else "_" for c in case.name)
    sides = {side: run(case, side, folder, package) for side in ("plain", "msprobe", "gradmon")}
    comparison = Comparison(case.name, case.ndigits, case.config.get("squash_name"), release)
    check_plain(case, comparison, sides["plain"], sides["gradmon"])
    comparison.compare(sides["msprobe"], sides["gradmon"])
    for what, number in (("steps", case.stride), ("runs", len(case.one_by_one) or 1)):
        if number > 1:
            comparison.findings.append(Finding(case.name, what, original=str(number), ours="1"))
    outcome = Outcome(case, comparison, differences)
    if outcome.undocumented:
        for side in ("msprobe", "gradmon"):
            print(f"--- the end of {side}'s log of {case.name}\n{sides[side].log[-1500:]}", file=sys.stderr)
    return outcome


def print_undocumented(outcome: Outcome) -> None:
    for finding in outcome.undocumented[:_SHOWN]:
        place = " ".join(part for part in (finding.file, finding.name, finding.column, finding.step) if part)
        print(
            f"    {finding.what}: {place}: msprobe {finding.original[:90]!r}, gradmon {finding.ours[:90]!r}"
        )
    if len(outcome.undocumented) > _SHOWN:
        print(f"    and {len(outcome.undocumented) - _SHOWN} more")


def print_differences(differences: "list[Difference]") -> None:
    print(f"\n{'documented difference':44}{'count':>8}  {'verdict':9}runtime/python/coming-from-msprobe.md")
    for entry in differences:
        count = sum(entry.cases.values())
        if count:
            print(f'{entry.id:44}{count:>8}  {entry.verdict:9}"{entry.page}"')


def compare_all(options: argparse.Namespace, scratch: Path) -> "tuple[int, dict[str, Any]]":
    release = RELEASES[options.release]
    differences = read_differences(FOLDER / "differences.json", PAGE, release.name)
    wanted = [
        case for case in read_cases(FOLDER / "cases.json") if options.only in (None, case.name, case.script)
    ]
    cases = [case for case in wanted if release.name not in case.not_in]
    if not wanted:
        raise DifferencesError(f"no case or script is named {options.only!r}; tools/compare msprobe --list")
    print(header_line())
    outcomes = []
    for case in cases:
        outcomes.append(compare_case(case, release, scratch, options.package, differences))
        print(outcomes[-1].line(), flush=True)
        print_undocumented(outcomes[-1])
    left_out = {case.name: case.not_in[release.name] for case in wanted if case not in cases}
    for name, reason in left_out.items():
        print(f"{name:50}  left out: {reason}")
    print_differences(differences)
    unseen = [] if options.only else [entry.id for entry in differences if not entry.cases]
    for name in unseen:
        print(f"not seen any more: {name} (differences.json)")
    unexpected = sum(len(outcome.undocumented) for outcome in outcomes)
    print(f"msprobe {release.name}: {unexpected} undocumented differences in {len(outcomes)} cases")
    document = {
        "release": release.name,
        "cases": [outcome.as_json() for outcome in outcomes],
        "left_out": left_out,
        "differences": [entry.as_json() for entry in differences if entry.cases],
        "not_seen": unseen,
        "undocumented": unexpected,
    }
    return (1 if unexpected or unseen else 0), document


def parse(arguments: "Optional[list[str]]" = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools/compare msprobe", description=__doc__)
    parser.add_argument("--package", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--release", choices=[*RELEASES], default="8.1", help="of msprobe")
    parser.add_argument("--json", type=Path, metavar="OUT", help="writes the result to this file")
    parser.add_argument("--only", metavar="NAME", help="only the case or the script of this name")
    parser.add_argument("--time", action="store_true", help="measures step times instead")
    parser.add_argument("--rounds", type=int, default=25, help="rounds of --time")
    parser.add_argument("--list", action="store_true", help="the names of all cases")
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="leaves the output of all runs in this directory"
    )
    return parser.parse_args(arguments)


def main() -> int:
    options = parse()
    if options.list:
        print("\n".join(case.name for case in read_cases(FOLDER / "cases.json")))
        return 0
    versions = {name: importlib.metadata.version(name) for name in ("mindstudio-probe", "torch", "numpy")}
    print(", ".join(f"{name} {version}" for name, version in versions.items()))
    if not versions["mindstudio-probe"].startswith(options.release + "."):
        sys.exit(f"gradmon: --release {options.release}, but {sys.prefix} has another release of msprobe")
    with tempfile.TemporaryDirectory(prefix="gradmon-compare-") as temporary:
        scratch = options.keep or Path(temporary)
        try:
            code, document = measure(options, scratch) if options.time else compare_all(options, scratch)
        except DifferencesError as error:
            sys.exit(f"gradmon: {error}")
    if options.json:
        options.json.write_text(json.dumps({"versions": versions, **document}, indent=2) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
