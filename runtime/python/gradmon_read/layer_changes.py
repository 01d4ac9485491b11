# SPDX-License-Identifier: Apache-2.0
"""gradmonctl analyse top: the conspicuous layers (parameters, modules) of a run. Needs pyarrow."""
import argparse
import math
import sys
from typing import Any, Iterator, NamedTuple, Sequence

import numpy

from gradmon_read import command_line, run_report
from gradmon_read.first_not_finite import EXTREMES, FirstNotFinite, left_out_text
from gradmon_read.kind_rows import Batch, KindReader, Names, each_kind, grown
from gradmon_read.listing import Problems, Table, screen_size
from gradmon_read.run_report import layer_text
from gradmon_read.runs import Run

EXPLODING_GROWTH = 10.0  # a layer is exploding if it has grown by at least this

_NOTHING = 1e-6  # of the largest size before
_EARLY, _LATE = 5, 3  # sizes whose medians tell the growth
_LEAST_CELLS = 1 << 16  # of a table of sizes that is halved if it has few


def sizes_of(batch: Batch) -> "tuple[Any, Any]":
    """One number for the size of each row's tensor, at least 0, and where there is one: its norm, else the
    largest magnitude of its extremes (min, max), else kernel_norm, else |mean|. A size may be NaN."""
    has = batch.has("norm")
    if has.all():
        return numpy.abs(batch.values["norm"]), has
    size = numpy.zeros(batch.rows)
    has = numpy.zeros(batch.rows, bool)
    for fields in (["norm"], EXTREMES, ["kernel_norm"], ["mean"]):
        found = numpy.zeros(batch.rows, bool)
        for field in fields:
            new = batch.has(field) & ~has
            if new.any():
                size[new] = numpy.maximum(size[new], numpy.abs(batch.values[field][new]))
                found |= new
        has |= found
    return size, has


_STATE = numpy.dtype(
    [
        ("steps", "i8"),  # sizes so far
        ("last_step", "i8"),
        ("last_size", "f8"),
        ("largest", "f8"),
        ("dead_steps", "i8"),  # at the end, with a size of 0, or of at most 1e-6 of the largest one before
        ("dead_since", "i8"),  # the first of these
        # The largest change from one step to the next, up or down, at least 1. Sizes count as at least 1e-6
        # of the largest one before. step -1: none.
        ("factor", "f8"),
        ("from_step", "i8"),
        ("step", "i8"),
        ("before", "f8"),
        ("after", "f8"),
        ("early", "f8", _EARLY),
        ("late", "f8", _LATE),  # a ring
    ]
)


class Series:
    """The sizes of tensors of one kind and rank over the steps, in little memory; by number of the tensor.

    Several rows of a step count as their largest. Skips sizes that are not finite, and a row of a step before
    the last one of its tensor."""

    def __init__(self) -> None:
        self._state = numpy.zeros(1, _STATE)  # the last one is unused
        for field in ("last_step", "step", "from_step", "dead_since"):
            self._state[field] = -1
        self._state["factor"] = 1
        self._waiting = [numpy.zeros(0, "int64"), numpy.zeros(0, "int64"), numpy.zeros(0)]

    def add(self, name: Any, step: Any, size: Any) -> None:
        """Arrays of equal length. Rows of the last step wait: more of it may follow."""
        finite = numpy.isfinite(size)
        rows = [name, step, size] if finite.all() else [name[finite], step[finite], size[finite]]
        if len(self._waiting[0]) and len(rows[0]):
            if rows[1].min() > self._waiting[1][0]:
                self._take(*self._waiting)
            else:
                rows = [numpy.concatenate(pair) for pair in zip(self._waiting, rows)]
        if (rows[1][1:] < rows[1][:-1]).any():
            rows = _ascending(*rows)
        if len(rows[0]):
            begin = numpy.searchsorted(rows[1], rows[1][-1])
            self._take(*(column[:begin] for column in rows))
            self._waiting = [column[begin:] for column in rows]

    def end(self) -> Any:
        """Call it after the last row. Returns a structured array by number of the tensor, and unused ones."""
        self._take(*self._waiting)
        return self._state

    def _take(self, name: Any, step: Any, size: Any) -> None:
        if not len(name):
            return
        self._state = grown(self._state, int(name.max()) + 1)
        kept = step > self._state["last_step"][name]
        if kept.all():
            self._take_table(name, step, size)
        elif kept.any():
            self._take_table(name[kept], step[kept], size[kept])

    def _take_table(self, name: Any, step: Any, size: Any) -> None:
        """Halves what would be a large table with few sizes."""
        count = int(numpy.argmax(step != step[0])) or len(step)
        if _is_table(name, step, count):  # as usual
            names, steps, sizes = name[:count], step[::count], size.reshape(-1, count)
        else:
            names, column = numpy.unique(name, return_inverse=True)
            steps, row = numpy.unique(step, return_inverse=True)
            if len(steps) > 1 and len(names) * len(steps) > max(4 * len(name), _LEAST_CELLS):
                middle = numpy.searchsorted(step, steps[len(steps) // 2])
                self._take_table(name[:middle], step[:middle], size[:middle])
                self._take_table(name[middle:], step[middle:], size[middle:])
                return
            sizes = numpy.full((len(steps), len(names)), -1.0)
            numpy.maximum.at(sizes, (row, column), size)
        state = self._state[names]
        _go_on(state, steps, sizes, sizes >= 0)
        self._state[names] = state


def _is_table(name: Any, step: Any, count: int) -> bool:
    """Returns True if each step has the same names in the same order, `count` of them, once."""
    return (
        len(name) % count == 0
        and bool((name.reshape(-1, count) == name[:count]).all())
        and bool((step.reshape(-1, count) == step[::count, None]).all())
        and bool((step[count::count] > step[:-count:count]).all())
        and len(numpy.unique(name[:count])) == count
    )


def _ascending(name: Any, step: Any, size: Any) -> "list[Any]":
    """By step, without rows of a step before that of an earlier row of their tensor."""
    order = numpy.argsort(name, kind="stable")
    steps, code = numpy.unique(step[order], return_inverse=True)
    code += numpy.cumsum(numpy.diff(name[order], prepend=name[order[0]]) != 0) * len(steps)
    kept = numpy.sort(order[code == numpy.maximum.accumulate(code)])
    kept = kept[numpy.argsort(step[kept], kind="stable")]
    return [name[kept], step[kept], size[kept]]


def _go_on(state: Any, steps: Any, sizes: Any, has: Any) -> None:
    """Takes a table of sizes (a row for each step, a column for each tensor) into the states of the tensors.
    `has`: True where there is a size."""
    row = numpy.arange(len(steps))[:, None]
    column = numpy.arange(len(state))
    with_size = numpy.where(has, sizes, 0)
    largest = numpy.maximum.accumulate(numpy.concatenate([state["largest"][None], with_size]))
    if is_full := bool(has.all()):  # as usual
        last = numpy.broadcast_to(row, sizes.shape)
        previous, number = last - 1, state["steps"] + row
        size_before = numpy.concatenate([state["last_size"][None], sizes[:-1]])
    else:
        last = numpy.maximum.accumulate(numpy.where(has, row, -1))
        previous = numpy.concatenate([numpy.full((1, len(state)), -1), last[:-1]])
        number = state["steps"] + numpy.cumsum(has, axis=0) - 1
        size_before = numpy.where(previous >= 0, sizes[previous, column], state["last_size"])
    floor = _NOTHING * largest[:-1]
    before, after = numpy.maximum(size_before, floor), numpy.maximum(sizes, floor)
    with numpy.errstate(divide="ignore", invalid="ignore", over="ignore"):
        factor = numpy.maximum(after / before, before / after)
    factor[~has | (largest[:-1] <= 0) | ((previous < 0) & (state["steps"] == 0)) | numpy.isnan(factor)] = 0
    best = factor.argmax(axis=0)
    grown = numpy.flatnonzero(factor[best, column] > state["factor"])
    at = best[grown]
    before_at = previous[at, grown]
    state["from_step"][grown] = numpy.where(before_at >= 0, steps[before_at], state["last_step"][grown])
    state["step"][grown], state["factor"][grown] = steps[at], factor[at, grown]
    state["before"][grown], state["after"][grown] = size_before[at, grown], sizes[at, grown]

    last_alive = numpy.where(has & (sizes > floor), row, -1).max(axis=0)
    dead = has & (row > last_alive)
    state["dead_steps"][last_alive >= 0] = 0
    begins = dead.any(axis=0) & (state["dead_steps"] == 0)
    state["dead_since"][begins] = steps[dead.argmax(axis=0)[begins]]
    state["dead_steps"] += dead.sum(axis=0)

    count = number[-1] + 1
    if (state["steps"] < _EARLY).any():
        i, j = numpy.nonzero(has & (number < _EARLY))
        state["early"][j, number[i, j]] = sizes[i, j]
    begin = max(0, len(steps) - _LATE) if is_full else 0
    i, j = numpy.nonzero(has[begin:] & (number[begin:] >= count - _LATE))
    state["late"][j, number[begin + i, j] % _LATE] = sizes[begin + i, j]
    state["steps"], state["largest"] = count, largest[-1]
    any_size = numpy.flatnonzero(last[-1] >= 0)
    state["last_step"][any_size] = steps[last[-1, any_size]]
    state["last_size"][any_size] = sizes[last[-1, any_size], any_size]


def growth_of(state: Any) -> Any:
    """The median of the last 3 sizes divided by the median of the first ones, up to 5 of those before the
    last 3. 1 with fewer than 4 steps or a median of 0."""
    growth = numpy.ones(len(state))
    counts = numpy.clip(state["steps"] - _LATE, 0, _EARLY)
    late = numpy.sort(state["late"], axis=1)[:, _LATE // 2]
    for count in range(1, _EARLY + 1):
        chosen = counts == count
        early = numpy.sort(state["early"][chosen, :count], axis=1)[:, count // 2]
        with numpy.errstate(divide="ignore", invalid="ignore", over="ignore"):
            growth[chosen] = numpy.where(early > 0, late[chosen] / early, 1)
    return growth


class Change(NamedTuple):
    """The largest change of a layer, of the kind and rank with the largest."""

    layer: str
    kind: str
    rank: int
    factor: float
    from_step: int
    step: int
    before: float
    after: float


class Dead(NamedTuple):
    layer: str
    kind: str  # the first one in which it is dead
    since_step: int  # the first step of those until the end, on any rank
    ranks: int  # their number
    first_rank: int


class Exploding(NamedTuple):
    layer: str
    kind: str
    rank: int
    factor: float  # its growth
    last_size: float


class LayerChanges:
    """All lists: the worst first."""

    def __init__(self, names: Names) -> None:
        self.not_finite = FirstNotFinite(names)
        self.layers = 0
        self.largest: "list[Change]" = []
        self.dead: "list[Dead]" = []
        self.exploding: "list[Exploding]" = []
        self._names = names
        self._change: "dict[int, Change]" = {}  # by number of the name
        self._dead: "dict[int, Dead]" = {}
        self._last_dead_rank: "dict[int, int]" = {}
        self._exploding: "dict[int, Exploding]" = {}
        self._seen: "dict[int, None]" = {}  # names with a size, in the order of first sight
        self._is_seen = numpy.zeros(1, bool)  # by number of the name

    def see(self, name: Any) -> None:
        self._is_seen = grown(self._is_seen, int(name.max(initial=0)) + 1)
        self._seen.update(dict.fromkeys(name[~self._is_seen[name]].tolist()))
        self._is_seen[name] = True

    def take(self, rank: int, kind: str, state: Any) -> None:
        """The sizes of all tensors of a kind and rank."""
        label, factor, growth = self._names.label, state["factor"], growth_of(state)

        def larger(found: "dict[int, Any]", value: Any, of: Any) -> "Iterator[int]":
            for number in numpy.flatnonzero(of):
                if number not in found or value[number] > found[number].factor:
                    yield number

        for number in larger(self._change, factor, factor > 1):
            numbers = (state[field][number].item() for field in Change._fields[3:])
            self._change[number] = Change(label(number), kind, rank, *numbers)
        for number in larger(self._exploding, growth, growth >= EXPLODING_GROWTH):
            last = state["last_size"][number].item()
            self._exploding[number] = Exploding(label(number), kind, rank, growth[number].item(), last)
        for number in numpy.flatnonzero(state["dead_steps"] >= 2):
            since = state["dead_since"][number].item()
            new = Dead(label(number), kind, since, 0, rank)
            known = self._dead.get(number, new)
            more = self._last_dead_rank.get(number) != rank
            self._dead[number] = known._replace(
                since_step=min(known.since_step, since), ranks=known.ranks + more
            )
            self._last_dead_rank[number] = rank

    def end(self) -> None:
        def ordered(found: "dict[int, Any]", key: Any) -> "list[Any]":
            return sorted((found[number] for number in self._seen if number in found), key=key)

        self.layers = len(self._seen)
        self.largest = ordered(self._change, lambda each: -each.factor)
        self.dead = ordered(self._dead, lambda each: each.since_step)
        self.exploding = ordered(self._exploding, lambda each: -each.factor)


def find_layer_changes(run: Run, reader: KindReader) -> LayerChanges:
    """Reads the whole run. Scalars and "other" have no layers."""
    found = LayerChanges(reader.names)
    for rank, kind, files in each_kind(run, reader.problems):
        series = Series()
        for batch in reader.batches(kind, files):
            found.not_finite.add(rank, kind, batch)
            if kind not in ("scalar", "other"):
                size, has = sizes_of(batch)
                found.see(batch.name[has])
                series.add(batch.name[has], batch.step[has], size[has])
        found.take(rank, kind, series.end())
    found.end()
    return found


_FACTOR_DIGITS = 4


def perform(arguments: argparse.Namespace) -> int:
    problems = Problems()
    run = run_report.chosen_run(arguments, problems)
    changes = find_layer_changes(run, KindReader(problems))
    run_report.report_problems(problems)
    if changes.not_finite.extent.rows == 0:
        raise run_report.no_rows_error(run)
    if arguments.json:
        run_report.print_json(_json(run, changes, arguments.count, problems))
    else:
        sys.stdout.write(_fitting(run, changes, arguments.count))
    return command_line.DONE


def _fitting(run: Run, changes: LayerChanges, count: int) -> str:
    """With as many entries of each list as the screen has room for."""
    screen = screen_size()
    if screen is None:
        return _text(run, changes, count)
    count = min(count, screen[1])
    while True:
        text = run_report.folded(_text(run, changes, count))
        if count <= 1 or text.count("\n") < screen[1]:
            return text
        count -= 1


def _text(run: Run, changes: LayerChanges, count: int) -> str:
    not_finite = changes.not_finite
    left_out = left_out_text(not_finite)
    text = f"{run_report.run_text(run)}, {not_finite.extent}\n\n"
    if not_finite.first:
        text += f"first value that is not finite: {not_finite.first}\n"
    else:
        text += "all other values are finite\n" if left_out else "all values are finite\n"
    text += left_out
    text += _list("largest change", "factor step rank before after", changes.largest, count)
    text += _list("dead", "since_step ranks", changes.dead, count)
    return text + _list("exploding", "factor rank last_size", changes.exploding, count)


def _list(what: str, numbers: str, layers: "Sequence[Any]", count: int) -> str:
    """A heading, with the number of layers, and a table of the first ones: `numbers`, kind and layer."""
    if not layers:
        return f"\n{what}: none\n"
    heading = f"\n{what}: {len(layers)} layer{'' if len(layers) == 1 else 's'}"
    heading += f", the first {count}\n" if len(layers) > count else "\n"
    fields = numbers.split()
    titles = [*(field.replace("_", " ") for field in fields), "kind", "layer"]
    table = Table(titles, [*(False for _ in fields), True, True])
    rows = [
        [*(_number_text(each, field) for field in fields), each.kind, layer_text(0, each.layer)]
        for each in layers[:count]
    ]
    return heading + run_report.table_text(table, rows)


def _number_text(layer: Any, field: str) -> str:
    number = getattr(layer, field)
    if isinstance(number, int):
        return str(number)
    return run_report.value_text(number, _FACTOR_DIGITS if field == "factor" else 6)


def _json(run: Run, changes: LayerChanges, count: int, problems: Problems) -> "dict[str, Any]":
    def first(layers: "Sequence[Any]") -> "list[dict[str, Any]]":
        found = [each._asdict() for each in layers[:count]]
        return [
            {**each, **({} if math.isfinite(each.get("factor", 0)) else {"factor": None})} for each in found
        ]

    not_finite = changes.not_finite
    return {
        "run": run_report.run_json(run),
        "read": not_finite.extent.json(),
        "first_not_finite": not_finite.first and not_finite.first.json(),
        "always_infinite": [place.json() for place in not_finite.left_out()],
        "layers": changes.layers,
        "changed_layers": len(changes.largest),
        "largest_change": first(changes.largest),
        "dead_layers": len(changes.dead),
        "dead": first(changes.dead),
        "exploding_layers": len(changes.exploding),
        "exploding": first(changes.exploding),
        "left_out": run_report.problems_json(problems),
    }
