#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Prints a table of a job's revisions: report.py OUTPUT_DIR WORLD_SIZE. A row has the step at which each rank
applied the revision, and the number of its rows. Exit code 1 if ranks disagree with each other or with the
verdicts."""
import csv
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any


def lines_of(pattern: str, output: Path) -> "list[dict[str, Any]]":
    return [
        json.loads(line) for file in sorted(output.glob(pattern)) for line in file.read_text().splitlines()
    ]


def commits_of(output: Path) -> "list[dict[str, Any]]":
    """The committed plans in their order, with the switches that the ranks have noted."""
    entries = {entry["revision"]: entry for entry in lines_of(".gradmon/*/history.jsonl", output)}
    for switch in lines_of("*-rank*-*/switches.jsonl", output):
        if switch["revision"] in entries:
            entries[switch["revision"]]["applied"][str(switch["rank"])] = switch["step"]
    return [entry for _, entry in sorted(entries.items()) if entry["verdict"] == "commit"]


def rows_of(rank: int, output: Path) -> "Counter[int]":
    """The number of rows of reduced gradients, by step."""
    rows: "Counter[int]" = Counter()
    for path in output.glob(f"*-rank{rank}-*/grad_reduced_*.csv"):
        with path.open(newline="") as file:
            rows.update(int(row["step"]) for row in csv.DictReader(file))
    return rows


def agreed_steps(commits: "list[dict[str, Any]]", last: int) -> "set[int]":
    """The steps up to `last` to collect by the verdicts."""
    ends = [entry["effective_step"] for entry in commits[1:]] + [last + 1]
    steps = set()
    for entry, end in zip(commits, ends):
        first, interval, times = (entry["steps"][key] for key in ("first", "interval", "times"))
        collected = range(first, first + interval * times, interval)
        steps.update(step for step in range(entry["effective_step"], end) if step in collected)
    return steps


def report(output: Path, world: int) -> bool:
    commits = commits_of(output)
    rows = [rows_of(rank, output) for rank in range(world)]
    starts = sorted(entry["effective_step"] for entry in commits)
    agree = bool(commits)
    print("revision  cause  what    step applied by rank" + "rows".rjust(8 * max(world - 3, 1) - 1))
    for entry in commits:
        begin = entry["effective_step"]
        end = min((start for start in starts if start > begin), default=sys.maxsize)
        applied = [entry["applied"].get(str(rank), "-") for rank in range(world)]
        agree = agree and all(step == begin for step in applied)
        count = sum(number for of_rank in rows for step, number in of_rank.items() if begin <= step < end)
        cells = "".join(f"{step:>7}" for step in applied)
        print(f"{entry['revision']:8}  {entry['cause']:7}{'on' if entry['on'] else 'off':4}{cells}{count:9}")
    last = max(
        [step for entry in commits for step in (entry["effective_step"], entry["finished_step"])], default=0
    )
    agreed = agreed_steps(commits, max([last, *(max(of_rank, default=0) for of_rank in rows)]))
    for rank, of_rank in enumerate(rows):
        if set(of_rank) != agreed:
            agree = False
            print(f"rank {rank}: its files hold {len(of_rank)} steps, agreed were {len(agreed)}")
    alike = "every rank switched at the same steps, and its files hold exactly the agreed steps"
    print(alike if agree else "RANKS DISAGREE")
    return agree


if __name__ == "__main__":
    sys.exit(0 if report(Path(sys.argv[1]), int(sys.argv[2])) else 1)
