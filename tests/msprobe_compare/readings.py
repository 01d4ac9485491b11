# SPDX-License-Identifier: Apache-2.0
"""Reads the output of one side: CSV files of each rank, other files, and the scripts' records; and splits
module_struct.json and stack_info.csv into parts that can be compared one by one."""
import csv
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

_RANK_DIRECTORY = re.compile(r"^[A-Z][a-z]{2}\d\d_\d\d-\d\d-\d\d-rank(\d+)-[0-9a-f]{8}$")
_PERIOD = re.compile(r"_(\d+)-(\d+)(\.r\d+)?\.csv$")
_FRAME = re.compile(r"File (.*?), line (\d+), in (.*?), \n (.*?) \n", re.DOTALL)

# The place to which gradmon writes the structure of the modules.
STRUCTURE = "module_struct/rank0/module_struct.json"
# Cells that say whose row it is.
KEY_COLUMNS = ("vpp_stage", "name", "step", "micro_step")


@dataclass
class Table:
    """A CSV file: its header, and its rows as they stand in the file."""

    header: "list[str]"
    rows: "list[list[str]]"

    def keyed(self) -> "dict[tuple[str, ...], list[str]]":
        """Rows by their key. A repeated key gets the number of its occurrence as a last part."""
        places = [self.header.index(column) for column in KEY_COLUMNS if column in self.header]
        keyed: "dict[tuple[str, ...], list[str]]" = {}
        for row in self.rows:
            key = tuple(row[place] if place < len(row) else "" for place in places)
            count = 1
            while key + ((str(count),) if count > 1 else ()) in keyed:
                count += 1
            keyed[key + ((str(count),) if count > 1 else ())] = row
        return keyed


@dataclass
class Side:
    """The output of one run."""

    exit_code: int
    log: str
    tables: "dict[tuple[int, str], Table]" = field(default_factory=dict)  # by rank and file name
    files: "dict[str, Optional[Any]]" = field(default_factory=dict)  # others: content of JSON, else None
    directories: "dict[int, int]" = field(default_factory=dict)  # directories of each rank
    records: "list[Any]" = field(default_factory=list)  # of training, by rank


def read_table(path: Path) -> Table:
    with open(path, newline="") as file:
        lines = list(csv.reader(file))
    return Table(lines[0], lines[1:]) if lines else Table([], [])


def read_side(output: Path, record: Path, ranks: int, exit_code: int, log: str) -> Side:
    """Reads a run's output directory. Leaves out the random parts of the names of directories and files."""
    side = Side(exit_code, log)
    for path in sorted(path for path in output.rglob("*") if path.is_file()):
        parts = path.relative_to(output).parts
        directory = _RANK_DIRECTORY.match(parts[0])
        if directory and len(parts) == 2 and path.suffix == ".csv":
            side.tables[int(directory[1]), parts[1]] = read_table(path)
            continue
        name = "/".join(["rank%s" % directory[1], *parts[1:]] if directory else parts)
        name = re.sub(r"^run-[0-9a-f]{8}\.json$", "run-ID.json", name)
        name = re.sub(r"^\.gradmon/[0-9a-f]+/", ".gradmon/ID/", name)
        side.files[name] = json.loads(path.read_text()) if name.endswith("struct.json") else None
    for path in output.iterdir() if output.exists() else ():
        directory = _RANK_DIRECTORY.match(path.name)
        if directory:
            side.directories[int(directory[1])] = side.directories.get(int(directory[1]), 0) + 1
    for rank in range(ranks):
        path = Path(f"{record}-rank{rank}")
        side.records.append(json.loads(path.read_text()) if path.exists() else None)
    return side


def merged(sides: "list[Side]") -> Side:
    """Runs of which each watched one model, as one run: the n-th run's rows are those of vpp_stage n."""
    whole = sides[0]
    for stage, side in enumerate(sides[1:], 1):
        whole.exit_code = whole.exit_code or side.exit_code
        for key, table in side.tables.items():
            rows = [[str(stage), *row[1:]] for row in table.rows]
            whole.tables.setdefault(key, Table(table.header, [])).rows.extend(rows)
    return whole


def every(stride: int, side: Side) -> Side:
    """The last of each `stride` steps, as one step."""
    if stride == 1:
        return side
    kept = {}
    for (rank, name), table in side.tables.items():
        period = _PERIOD.search(name)
        if period and int(period[1]) % stride == stride - 1:
            step = str(int(period[1]) // stride)
            place = table.header.index("step")
            rows = [[*row[:place], step, *row[place + 1 :]] for row in table.rows]
            kept[rank, f"{prefix_of(name)}_{step}-{step}.csv"] = Table(table.header, rows)
    side.tables = kept
    return side


def rebased(side: Side) -> Side:
    """The same, with steps counted from each rank's first collected one: a dynamic run begins at any step."""
    for rank in {rank for rank, _ in side.tables}:
        tables = {name: table for (r, name), table in side.tables.items() if r == rank}
        firsts = [int(match[1]) for name in tables if (match := _PERIOD.search(name))]
        first = min(firsts, default=0)
        for name, table in tables.items():
            del side.tables[rank, name]
            renamed = _PERIOD.sub(lambda m: f"_{int(m[1]) - first}-{int(m[2]) - first}{m[3] or ''}.csv", name)
            if "step" in table.header:
                place = table.header.index("step")
                for row in table.rows:
                    row[place] = str(int(row[place]) - first)
            side.tables[rank, renamed] = table
    return side


def prefix_of(file: str) -> str:
    """`grad_reduced` of `grad_reduced_0-0.csv`."""
    return _PERIOD.sub("", file)


def structure_parts(modules: "dict[str, Any]") -> "dict[str, str]":
    """Each line of each module's structure, as `{module} {place} {key}`; one part if there is none."""
    parts: "dict[str, str]" = {}
    for module, places in modules.items():
        if not places:
            parts[module] = "{}"
        for place, lines in places.items():
            parts.update({f"{module} {place} {key}": str(line) for key, line in lines.items()})
    return parts


def stack_parts(stacks: "dict[str, str]") -> "dict[str, str]":
    """The script's frames of each module's stack, and the number of others before and after these."""
    parts: "dict[str, str]" = {}
    for module, text in stacks.items():
        frames = [match.groups() for match in _FRAME.finditer(text)]
        own = [i for i, frame in enumerate(frames) if "/msprobe_compare/scripts/" in frame[0]]
        first, last = (own[0], own[-1]) if own else (0, -1)
        between = [" ".join(frame) for frame in frames[first : last + 1]]
        parts[f"{module} frames"] = "\n".join(between)
        before = [frame[0].rsplit("/", 1)[-1] for frame in frames[:first]]
        parts[f"{module} callees"] = " ".join(before)
        parts[f"{module} launcher"] = " ".join(frame[0].rsplit("/", 1)[-1] for frame in frames[last + 1 :])
    return parts
