# SPDX-License-Identifier: Apache-2.0
"""Finds all differences between the output of a release of msprobe and gradmon's of one training."""
import math
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Optional

from readings import KEY_COLUMNS, STRUCTURE, Side, Table, prefix_of, stack_parts, structure_parts

_EXACT = ("min", "max", "nans", "zeros")
_PLACE = re.compile(r"\.(input|output)(_\w+)?(@\d+)?$")


@dataclass(frozen=True)
class Release:
    """A release line of msprobe: how it shortens names, and where it puts files."""

    name: str
    shortening: "tuple[str, ...]"  # patterns of squash_param_name in module_metric.py; the first match counts
    squash_name: bool  # the default of the key
    structure: str  # where print_struct writes
    columns: "dict[str, str]" = field(default_factory=dict)  # gradmon's name, where it differs

    def short_name(self, name: str, squash_name: "Optional[bool]" = None) -> str:
        """The name that this release gives to our row."""
        name = re.sub(r"\.router$", ".moe_router", name)
        name = re.sub(r"^(\d+:)?(model|root)(?=\.(in|out)put|$)", r"\1", name)  # of the whole model
        if not (self.squash_name if squash_name is None else squash_name):
            return name
        stage, colon, name = name.rpartition(":")
        place = _PLACE.search(name)
        module, rest = (name[: place.start()], place[0]) if place else (name, "")
        for pattern in self.shortening:
            found = re.findall(pattern, module)
            if found:
                return stage + colon + str(found[0]) + rest
        return stage + colon + name


RELEASES = {
    release.name: release
    for release in (
        Release(
            "8.1",
            (r"layers?\.(.*)", r"embeddings?\.(.*)", "final.*", "output.*", "norm.*"),
            squash_name=True,
            structure="module_struct.json",
        ),
        Release(
            "26.2",
            tuple(
                rf"^.*\.({end})"
                for end in (r"layers?\..*", r"embeddings?\..*", "final.*", "output.*", "norm.*")
            ),
            squash_name=False,
            structure="module_struct/rank0/module_struct.json",
            columns={"router_weight_similarity": "cosine", "per_token_expert_entropy": "entropy"},
        ),
    )
}


@dataclass(frozen=True)
class Finding:
    """One difference.

    `what` is one of: `exit`, `training`, `directories`, `file_missing` (msprobe has it, gradmon has not),
    `file_extra`, `header`, `name`, `call`, `row_missing`, `row_extra`, `order`, `value`,
    `rounded` (to 0.0 by msprobe), `content`, `place`,
    `steps` (that msprobe counts for one), `runs` (that msprobe needs for what gradmon does in one).
    """

    case: str
    what: str
    file: str = ""  # the kind of rows of a CSV file, or the name of another file
    name: str = ""  # of the row
    column: str = ""
    step: str = ""
    original: str = ""
    ours: str = ""


class Comparison:
    """Compares the two sides of a case."""

    def __init__(self, case: str, ndigits: int, squash_name: Optional[bool], release: Release) -> None:
        self._case = case
        self._ndigits = ndigits
        self._squash_name = squash_name  # None: the release's default
        self._release = release
        self.same: "Counter[str]" = Counter()  # files, rows and cells that are the same
        self.findings: "list[Finding]" = []

    def compare(self, original: Side, ours: Side) -> None:
        self._one("exit", original.exit_code, ours.exit_code)
        self._one("directories", original.directories, ours.directories)
        for theirs, mine in zip(original.records, ours.records):
            self._records(theirs, mine)
        self._structure(original, ours)
        for key in sorted(original.tables.keys() | ours.tables.keys()):
            self._file(key[1], original.tables.get(key), ours.tables.get(key))
        for name in sorted(original.files.keys() ^ ours.files.keys()):
            self._add("file_missing" if name in original.files else "file_extra", file=name)
        self.same["files"] += len(original.files.keys() & ours.files.keys())

    def _add(self, what: str, **more: str) -> None:
        self.findings.append(Finding(self._case, what, **more))

    def _one(self, what: str, original: Any, ours: Any, **more: str) -> None:
        if original == ours:
            self.same[what] += 1
        else:
            self._add(what, original=str(original), ours=str(ours), **more)

    def _records(self, original: Any, ours: Any) -> None:
        """Records of training; metrics of the api compare like rows."""
        original, ours = original or {}, ours or {}
        for name in ("parameters", "random"):
            self._one("training", original.get(name), ours.get(name), name=name)
        for theirs, mine in zip(original.get("metrics", []), ours.get("metrics", [])):
            mine = {self._known_tag(tag, theirs): values for tag, values in mine.items()}
            for tag in sorted(theirs.keys() | mine.keys()):
                if tag in mine and tag in theirs:
                    one, other = theirs[tag], mine[tag]
                    cells = {op: (str(one.get(op)), str(other.get(op))) for op in {*one, *other}}
                    self._cells("api", tag, "", cells)
                    continue
                texts = (str(side[tag]) if tag in side else None for side in (theirs, mine))
                self._lone("api", *texts, name=tag)

    def _lone(self, file: str, original: Optional[str], ours: Optional[str], **more: str) -> None:
        """A row or a part that one side has."""
        what = "row_missing" if ours is None else "row_extra"
        self._add(what, file=file, original=original or "", ours=ours or "", **more)

    def _file(self, file: str, original: Optional[Table], ours: Optional[Table]) -> None:
        kind = prefix_of(file)
        if original is None or ours is None:
            self._add("file_missing" if ours is None else "file_extra", file=kind, name=file)
            for row in (original or ours or Table([], [])).rows:
                self._lone_row(kind, original or ours, row, ours is None)
            return
        self.same["files"] += 1
        self._one("header", ",".join(original.header), ",".join(ours.header), file=kind)
        original = Table([self._release.columns.get(c, c) for c in original.header], original.rows)
        if kind == "stack_info.csv":
            self._stacks(original, ours)
            return
        theirs, mine = original.keyed(), self._renamed(kind, original, ours)
        if kind == "actv":
            mine = self._last_calls(kind, mine)
        if kind == "grad_unreduced" and "micro_step" in ours.header:
            mine = accumulated(ours.header, mine)
        self._order(file, [key for key in theirs if key in mine], [key for key in mine if key in theirs])
        for key, row in theirs.items():
            if key not in mine:
                self._lone_row(kind, original, row, True)
        for key, row in mine.items():
            if key not in theirs:
                self._lone_row(kind, ours, row, False)
                continue
            self.same["rows"] += 1
            one = _by_column(original.header, theirs[key])
            other = _direction_as_ops(_by_column(ours.header, row), original)
            columns = [c for c in {**one, **other} if c not in KEY_COLUMNS]
            cells = {c: (one.get(c, ""), other.get(c, "")) for c in columns}
            self._cells(kind, key[1], one.get("step", ""), cells)

    def _order(self, file: str, original: "list[tuple[str, ...]]", ours: "list[tuple[str, ...]]") -> None:
        """True if the rows that both have come in one order, within each model."""
        for stage in sorted({key[0] for key in original}):
            orders = [" ".join(key[1] for key in keys if key[0] == stage) for keys in (original, ours)]
            self._one("order", *orders, file=prefix_of(file), name=file)

    def _renamed(self, kind: str, original: Table, ours: Table) -> "dict[tuple[str, ...], list[str]]":
        """Our rows by msprobe's keys, where only the shortened name differs."""
        known = original.keyed()
        names = {key[1] for key in known}
        renamed: "dict[tuple[str, ...], list[str]]" = {}
        own_keys: "dict[tuple[str, ...], tuple[str, ...]]" = {}
        for own_key, row in ours.keyed().items():
            theirs = self._known(own_key[1], names)
            key = (own_key[0], theirs, *own_key[2:])
            if theirs != own_key[1]:
                own = own_key[1]
                self._add("name", file=kind, name=own, step=own_key[2], original=theirs, ours=own)
            if key in renamed and (*key, "2") in known:  # a second module that msprobe gives the same name
                key = (*key, "2")
            elif key in renamed:  # msprobe has the row of the last module with this name
                renamed[own_keys[key]] = renamed.pop(key)
            renamed[key], own_keys[key] = row, own_key
        return renamed

    def _last_calls(
        self, kind: str, rows: "dict[tuple[str, ...], list[str]]"
    ) -> "dict[tuple[str, ...], list[str]]":
        """The rows with a module's last call in the place of its first: msprobe keeps that one."""
        last = dict(rows)
        for key in rows:
            name, _, number = key[1].partition("@")
            first = (key[0], name, *key[2:])
            if number and first in rows:
                self._add("call", file=kind, name=key[1], step=key[2], ours=",".join(rows[first]))
                last[first] = last.pop(key)
        return last

    def _lone_row(self, kind: str, table: Optional[Table], row: "list[str]", missing: bool) -> None:
        cells = _by_column(table.header if table else [], row)
        text = ",".join(row)
        texts = (text, None) if missing else (None, text)
        self._lone(kind, *texts, name=cells.get("name", ""), step=cells.get("step", ""))

    def _cells(self, kind: str, name: str, step: str, cells: "dict[str, tuple[str, str]]") -> None:
        numbers = [_number(text) for pair in cells.values() for text in pair]
        scale = max((abs(x) for x in numbers if x is not None and math.isfinite(x)), default=0.0)
        for column, (original, ours) in cells.items():
            a, b = _number(original), _number(ours)
            where = {"file": kind, "name": name, "column": column, "step": step}
            if original == ours:
                self.same["cells"] += 1
            elif self._wiped_out(a, b):
                self._add("rounded", original=original, ours=ours, **where)
            elif self._equal_numbers(column, a, b, scale):
                self.same["cells within rounding"] += 1
            else:
                self._add("value", original=original, ours=ours, **where)

    def _wiped_out(self, a: Optional[float], b: Optional[float]) -> bool:
        """True if msprobe's rounding has left nothing of a value that is here."""
        return a == 0 and b is not None and 0 < abs(b) <= 0.51 * 10.0**-self._ndigits

    def _equal_numbers(self, column: str, a: Optional[float], b: Optional[float], scale: float) -> bool:
        """True if rounding explains the difference: of the last digit, and of the order of a double sum."""
        if a is None or b is None:
            return False
        if not (math.isfinite(a) and math.isfinite(b)):
            return a == b
        of_sum = 4e-16 * abs(a) if column in _EXACT else 1e-14 * scale
        return abs(a - b) <= 1.01 * 10.0**-self._ndigits + of_sum if column != "nans" else a == b

    def _parts(self, file: str, original: "dict[str, str]", ours: "dict[str, str]") -> None:
        """Parts of a file that is not a table of rows."""
        for name in [*original, *(name for name in ours if name not in original)]:
            if name in original and name in ours:
                self._one("content", original[name], ours[name], file=file, name=name)
            else:
                self._lone(file, original.get(name), ours.get(name), name=name)

    def _structure(self, original: Side, ours: Side) -> None:
        """module_struct.json, whose place differs too."""
        place = self._release.structure
        theirs, mine = original.files.pop(place, None), ours.files.pop(STRUCTURE, None)
        if theirs is None and mine is None:
            return
        self._one("place", place, STRUCTURE, file="module_struct.json")
        renamed = self._known_all(mine or {}, theirs or {})
        self._parts("module_struct.json", structure_parts(theirs or {}), structure_parts(renamed))

    def _stacks(self, original: Table, ours: Table) -> None:
        theirs: "dict[str, str]" = {}
        for name, text in original.rows:
            theirs[f"{name} (2)" if name in theirs else name] = text
        mine = self._known_all(dict(ours.rows), theirs)
        self._one("order", list(theirs), list(mine), file="stack_info.csv")
        self._parts("stack_info.csv", stack_parts(theirs), stack_parts(mine))

    def _known_all(self, ours: "dict[str, Any]", known: "dict[str, Any]") -> "dict[str, Any]":
        """Ours by msprobe's names. The second of two modules with one name is `{name} (2)` if known."""
        renamed: "dict[str, Any]" = {}
        for name, value in ours.items():
            theirs = self._known(name, known)
            second = f"{theirs} (2)"
            renamed[theirs if theirs not in renamed else second if second in known else name] = value
        return renamed

    def _known_tag(self, tag: str, known: "dict[str, Any]") -> str:
        """Likewise of a tag `{vpp}:{name}:{micro}/rank{R}/{task}` of the api."""
        stage, name, rest = tag.split(":", 2)
        theirs = f"{stage}:{self._release.short_name(name, self._squash_name)}:{rest}"
        return theirs if tag not in known and theirs in known else tag

    def _known(self, name: str, known: "Any") -> str:
        """Our name as msprobe has it, if it is one of the known."""
        theirs = self._release.short_name(name, self._squash_name)
        within = f"module.{theirs}"  # of DistributedDataParallel
        others = (one for one in (theirs, within) if name not in known and one in known)
        return next(others, name)


def _by_column(header: "list[str]", row: "list[str]") -> "dict[str, str]":
    """Cells by column; cells beyond the header are named by their place."""
    return {header[i] if i < len(header) else f"[{i}]": cell for i, cell in enumerate(row)}


def _direction_as_ops(cells: "dict[str, str]", original: Table) -> "dict[str, str]":
    """A row of mg_direction as msprobe writes it: the statistics of a tensor that holds the one number."""
    if not cells.get("mg_direction"):
        return cells
    direction = cells["mg_direction"]
    of_one = {**dict.fromkeys(("norm", "min", "max", "mean"), direction), "nans": "0", "shape": "[]"}
    of_one.update(zeros=str(float(float(direction) == 0)), dtype="torch.float32")
    keys = {column: cells[column] for column in KEY_COLUMNS if column in cells}
    return {**keys, **{column: of_one[column] for column in original.header if column in of_one}}


def _number(text: str) -> Optional[float]:
    try:
        return float(text)
    except ValueError:
        return None


def accumulated(
    header: "list[str]", rows: "dict[tuple[str, ...], list[str]]"
) -> "dict[tuple[str, ...], list[str]]":
    """Our rows with the means of the micro batches so far, as msprobe has them with `monitor_mbs_grad`."""
    if "mean" not in header:
        return rows
    place = header.index("mean")
    sums: "dict[tuple[str, ...], float]" = {}
    so_far = {}
    for key in sorted(rows, key=lambda key: int(key[3])):
        sums[key[:3]] = sums.get(key[:3], 0.0) + float(rows[key][place])
        so_far[key] = [*rows[key][:place], repr(sums[key[:3]]), *rows[key][place + 1 :]]
    return {key: so_far[key] for key in rows}
