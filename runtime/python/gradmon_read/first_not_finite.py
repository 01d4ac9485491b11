# SPDX-License-Identifier: Apache-2.0
"""gradmonctl analyse first: the first value of a job that is not finite, and what was around it. Needs
pyarrow."""
import argparse
import contextlib
from dataclasses import dataclass
from typing import Any, Iterator, Optional, TypeVar

import numpy

from gradmon_read import command_line, run_report
from gradmon_read.csv_tables import KindFile, text_of
from gradmon_read.kind_rows import Batch, KindReader, Names, concatenated, each_kind, files_of_steps
from gradmon_read.listing import Problems, Table, printable, rank_ranges
from gradmon_read.run_report import layer_text, value_json, value_text
from gradmon_read.runs import Run
from gradmon_read.vocabulary import FIELDS, FOLDS, KINDS, SAMPLE_MARKS

# OVERFLOW: the elements are finite; only their sum (mean) or the sum of their squares (norm) is not.
NONE, OVERFLOW, INFINITE, NAN = range(4)

# The parts of a training step, in the order of computation. Weights and moments at the begin of a step were
# computed in the step before, so they come first.
STATE, FORWARD, BACKWARD, REDUCTION, UPDATE, SCALARS = range(6)
PHASES = [
    *("before the step", "in the forward pass", "in the backward pass", "after the backward pass"),
    *("in the optimizer's step", "among the scalars"),
]
_PHASE_OF = {
    **dict.fromkeys(("param_origin", "exp_avg", "exp_avg_sq"), STATE),
    **dict.fromkeys(("actv", "attention_hook", "linear_hook"), FORWARD),
    **dict.fromkeys(("moe_router_weight_hook", "moe_router_logit_hook"), FORWARD),
    **dict.fromkeys(("actv_grad", "grad_unreduced"), BACKWARD),
    **dict.fromkeys(("other", "grad_reduced"), REDUCTION),
    **dict.fromkeys(("param_updated", "update", "ratio"), UPDATE),
    "scalar": SCALARS,
}

STEPS_AFTER = 4  # that are read after the first NaN
BEFORE, AFTER = 5, 2  # rows of the tensor around it
NEIGHBOURS = 3  # rows of the step before it, and after it
_FILES_BEFORE = 16  # that are read for the rows before it

EXTREMES = [op for op, fold in FOLDS.items() if fold in ("least", "greatest")]  # with those of magnitudes
_SIGNED_EXTREMES = ("min", "max")
_LATEST = numpy.iinfo("int64").max


@dataclass(frozen=True)
class Place:
    """A row, with one of its statistics."""

    order: "tuple[int, ...]"  # as of step_order(), then the rank
    kind: str
    vpp_stage: int
    name: str
    micro_step: int  # -1: missing in the file
    field: str  # the statistic
    file: str
    line: int

    @property
    def step(self) -> int:
        return self.order[0]

    @property
    def phase(self) -> str:
        return PHASES[self.order[3]]

    @property
    def rank(self) -> int:
        return self.order[-1]

    @property
    def source(self) -> str:
        """ "actv_8-8.csv:3": the file, and its line if the file has lines."""
        return printable(self.file) + (f":{self.line}" if self.line else "")

    def text(self, layer: str) -> str:
        """ "fc1.weight (grad_reduced), step 37, micro step 0, in the backward pass, rank 2" """
        micro_step = f", micro step {self.micro_step}" if self.micro_step >= 0 else ""
        where = f"{printable(layer)} ({self.kind}), step {self.step}{micro_step}"
        return f"{where}, {self.phase}, rank {self.rank}"

    def json_with(self, own: "dict[str, Any]") -> "dict[str, Any]":
        return {
            "step": self.step,
            "micro_step": run_report.step_or_none(self.micro_step),
            **{name: getattr(self, name) for name in ("phase", "rank", "kind")},
            **own,
            "file": self.file,
            "line": self.line,
        }


_AnyPlace = TypeVar("_AnyPlace", bound=Place)


class Rows:
    """Rows of one rank and kind, each a Place when asked for."""

    def __init__(self, rank: int, kind: str, batch: Batch, names: Names) -> None:
        self.batch = batch
        self._rank, self._kind, self._names = rank, kind, names
        self._order = step_order(kind, batch)

    def place(self, row: int, of: "type[_AnyPlace]", field: str, **own: Any) -> _AnyPlace:
        batch = self.batch
        number = batch.name[row]
        return of(
            order=(*(int(part[row]) for part in self._order), self._rank),
            kind=self._kind,
            vpp_stage=self._names.all[number][0],
            name=self._names.name(number),
            micro_step=int(batch.micro_step[row]),
            field=field,
            file=batch.files[batch.file[row]].path,
            line=int(batch.line[row]),
            **own,
        )

    def first(self, rows: Any) -> int:
        """The first one by order."""
        return int(rows[numpy.lexsort([part[rows] for part in reversed(self._order)])[0]])


@dataclass(frozen=True)
class NotFinite(Place):
    """A row with a value that is not finite."""

    what: int
    value: float  # of the statistic that shows it
    shape: str
    dtype: str

    def __str__(self) -> str:
        """ "NaN in fc1.weight (grad_reduced), step 37, in the backward pass, rank 2" """
        what = ("", "an overflow", "an infinity", "NaN")[self.what]
        return f"{what} in {self.text(layer_text(self.vpp_stage, self.name))}"

    def details(self) -> str:
        text = f"  {self.field} {value_text(self.value)}"
        text += f", shape {printable(self.shape)}" if self.shape else ""
        text += f", {printable(self.dtype)}" if self.dtype else ""
        return f"{text}\n  {self.source}\n"

    def json(self) -> "dict[str, Any]":
        own = {
            "vpp_stage": self.vpp_stage,
            "name": self.name,
            "what": ("", "overflow", "inf", "nan")[self.what],
            "statistic": self.field,
            "value": value_json(self.value),
            "shape": self.shape or None,
            "dtype": self.dtype or None,
        }
        return self.json_with(own)


class Extent:
    """The amount of input read."""

    def __init__(self) -> None:
        self.rows = 0
        self.first_step = -1  # -1: no row
        self.last_step = -1

    def add(self, batch: Batch) -> None:
        least = int(batch.step.min())
        self.first_step = least if self.rows == 0 else min(self.first_step, least)
        self.last_step = max(self.last_step, int(batch.step.max()))
        self.rows += batch.rows

    def __str__(self) -> str:
        return f"steps {self.first_step}-{self.last_step}, {self.rows} rows"

    def json(self) -> "dict[str, Any]":
        steps = {name: getattr(self, name) for name in ("first_step", "last_step")}
        return {"rows": self.rows, **{name: run_report.step_or_none(step) for name, step in steps.items()}}


def step_order(kind: str, batch: Batch) -> "list[Any]":
    """Sorts rows of all kinds by step; in a step: state, then for each micro step forward and backward, then
    the rest. Within a phase: model chunks (rising, in the backward pass falling), kind, place among the rows
    of the step in the file; collective calls before reduced gradients.

    Returns arrays step, part, micro step, phase, chunk, kind, place: the first counts most."""
    phase = numpy.full(batch.rows, _PHASE_OF[kind])
    if kind == "other":  # a collective call, or a gradient against its momentum
        phase[batch.has("mg_direction")] = UPDATE
    part = numpy.where(phase == BACKWARD, FORWARD, phase)
    # A gradient without a micro step follows the last micro step; a feature of the weights counts as one of
    # the first.
    none = numpy.where(phase == BACKWARD, numpy.iinfo("int32").max, 0)
    micro_step = numpy.where(batch.micro_step < 0, none, batch.micro_step)
    chunk = numpy.where(phase == BACKWARD, -batch.stage, batch.stage)
    file = numpy.full(batch.rows, 0 if kind == "other" else KINDS.index(kind) + 1)
    return [batch.step, part, micro_step, phase, chunk, file, batch.place]


def not_finite_in(batch: Batch) -> "tuple[Any, Any]":
    """Each row's evidence of elements that are not finite, by METRICS.md's definition of each statistic:
    arrays of NONE to NAN, and of the index in FIELDS of the statistic that shows it.

    NAN: "nans" is above 0, or a norm or an extreme is NaN: only a NaN element makes a sum of squares or an
    extreme NaN, regardless of "nans". Infinities of both signs also make a mean NaN, so a NaN mean shows a
    NaN element only if the row has none of the other statistics.
    INFINITE: an extreme is infinite; or norm or mean is not finite, and the row does not show that the
    elements are (it has neither an extreme of magnitudes nor both min and max). It may be an overflow.
    OVERFLOW: norm or mean is not finite, although all elements are.

    Ignores values that are NaN by definition: "zeros", a minimum or maximum of complex numbers, and all
    statistics except "nans" of a boolean or an empty tensor."""
    what = numpy.zeros(batch.rows, "int8")
    field = numpy.zeros(batch.rows, "int8")

    def decide(where: Any, found: Any, by: str) -> None:
        now = where & (what == NONE)
        what[now] = found[now] if isinstance(found, numpy.ndarray) else found
        field[now] = FIELDS.index(by)

    def of_list(texts: "list[bytes]", index: Any, holds: Any) -> Any:
        return numpy.array([holds(text) for text in texts])[index]

    is_complex = of_list(batch.dtypes, batch.dtype, lambda text: text.startswith(b"torch.complex"))
    has = {name: batch.has(name) for name in batch.values}
    for name in has.keys() & set(_SIGNED_EXTREMES):
        has[name] &= ~is_complex
    value = batch.values
    if "nans" in has:
        decide(has["nans"] & (value["nans"] > 0), NAN, "nans")
    judged = ~of_list(batch.dtypes, batch.dtype, lambda text: text == b"torch.bool")
    judged &= ~of_list(batch.shapes, batch.shape, _is_empty_tensor)
    extremes = [name for name in EXTREMES if name in has]
    for name in ["norm", *extremes]:
        if name in has:
            decide(judged & has[name] & numpy.isnan(value[name]), NAN, name)
    for name in extremes:
        decide(judged & has[name] & numpy.isinf(value[name]), INFINITE, name)
    finite = {name: has[name] & numpy.isfinite(value[name]) for name in extremes}
    none = numpy.zeros(batch.rows, bool)
    all_finite = finite.get("min", none) & finite.get("max", none)
    for name in extremes:
        if name not in _SIGNED_EXTREMES:
            all_finite |= finite[name]
    excludes_nan = none.copy()
    for name in ["nans", "norm", *extremes]:
        excludes_nan |= has.get(name, none)
    for name in ("norm", "mean"):
        if name in has:
            is_nan = numpy.isnan(value[name])
            found = numpy.where(is_nan & ~excludes_nan, NAN, numpy.where(all_finite, OVERFLOW, INFINITE))
            decide(judged & has[name] & ~numpy.isfinite(value[name]), found, name)
    for name in FIELDS[len(FOLDS) :]:  # entropy, a training scalar ...
        if name in has and name not in SAMPLE_MARKS:
            found = numpy.where(numpy.isnan(value[name]), NAN, INFINITE)
            decide(judged & has[name] & ~numpy.isfinite(value[name]), found, name)
    return what, field


def _is_empty_tensor(shape: bytes) -> bool:
    """ "[0]", "[4, 0]" """
    return b"0" in shape.replace(b"[", b" ").replace(b"]", b" ").replace(b",", b" ").split()


def _suspicious(batch: Batch) -> Any:
    """True where not_finite_in() may find something."""
    found = numpy.zeros(batch.rows, bool)
    for field, values in batch.values.items():
        odd = values > 0 if field == "nans" else ~numpy.isfinite(values)
        if odd.any():
            found |= odd & batch.has(field)
    return found


class FirstNotFinite:
    """The first value of a job that is not finite, by step_order(), then by rank."""

    def __init__(self, names: Names) -> None:
        self.first: Optional[NotFinite] = None
        self.first_nan: Optional[NotFinite] = None  # may be `first`
        self.by_rank: "dict[int, NotFinite]" = {}  # the first of each rank
        # Excluded from all these: tensors that hold an infinity (and no NaN) in every row from the first step
        # of their kind and rank on, as attention masks do. By rank and kind, then by number of the name.
        self.always_infinite: "dict[tuple[int, str], dict[int, NotFinite]]" = {}
        self.extent = Extent()  # rows long after the first NaN may not have been read
        self._names = names
        self._first_steps: "dict[tuple[int, str], int]" = {}

    def add(self, rank: int, kind: str, batch: Batch, stops: bool = False) -> bool:
        """Takes the next rows of a rank and kind. Returns False if later ones need not be read; with `stops`,
        takes no row after it is known."""
        first_step = self._first_steps.setdefault((rank, kind), int(batch.step[0]))
        known = self.always_infinite.setdefault((rank, kind), {})
        suspicious = _suspicious(batch)
        maybe_always = numpy.unique(batch.name[suspicious & (batch.step == first_step)])
        rows = numpy.flatnonzero(suspicious | numpy.isin(batch.name, [*known, *maybe_always]))
        found = batch.take(rows)
        what, field = not_finite_in(found)
        limit = self._limit(batch, rows[what == NAN])
        goes_on = not len(limit)
        if stops and not goes_on:
            batch = batch.take(slice(0, int(limit[0]) + 1))
            within = rows <= limit[0]
            found, what, field = found.take(within), what[within], field[within]
        self.extent.add(batch)
        if found.rows:
            places = _Places(rank, kind, found, what, field, self._names)
            in_first = found.step == first_step
            self._add_first_step(places, numpy.flatnonzero(in_first), known)
            self._add_later(places, ~in_first, known)
        return goes_on

    def counts(self, rank: int, kind: str, batch: Batch) -> Any:
        """True where a row holds a value that is not finite and not excluded."""
        counted = numpy.zeros(batch.rows, bool)
        rows = numpy.flatnonzero(_suspicious(batch))
        what, _ = not_finite_in(batch.take(rows))
        always = list(self.always_infinite.get((rank, kind), {}))
        counted[rows] = (what != NONE) & ((what != INFINITE) | ~numpy.isin(batch.name[rows], always))
        return counted

    def left_out(self) -> "list[NotFinite]":
        """The excluded tensors, by rank, kind, model chunk and name."""
        places = [place for known in self.always_infinite.values() for place in known.values()]
        return sorted(places, key=lambda each: (each.rank, KINDS.index(each.kind), each.vpp_stage, each.name))

    def _limit(self, batch: Batch, nans: Any) -> Any:
        """The rows after which nothing needs to be read."""
        before = self.first_nan.step if self.first_nan else _LATEST
        if before == _LATEST and not len(nans):
            return nans
        first = numpy.full(batch.rows, before)
        first[nans] = numpy.minimum(first[nans], batch.step[nans])
        return numpy.flatnonzero(batch.step - STEPS_AFTER > numpy.minimum.accumulate(first))

    def _add_first_step(self, places: "_Places", rows: Any, known: "dict[int, NotFinite]") -> None:
        for row in rows:
            number, what = int(places.batch.name[row]), places.what[row]
            if what == INFINITE and number not in known:
                known[number] = places[row]
            elif what != INFINITE or number not in known:
                if what != NONE:
                    self._note(places[row])
                if what != NAN and number in known:
                    self._note(known.pop(number))

    def _add_later(self, places: "_Places", where: Any, known: "dict[int, NotFinite]") -> None:
        """A tensor that is no longer infinite was noted with its first step: what is found of it in the same
        rows is later."""
        is_known = numpy.isin(places.batch.name, list(known))
        noted = (places.what != NONE) & ~(is_known & (places.what == INFINITE))
        for counted in (noted, places.what == NAN):
            rows = numpy.flatnonzero(where & counted)
            if len(rows):
                self._note(places[places.first(rows)])
        ended = where & is_known & ((places.what == NONE) | (places.what == OVERFLOW))
        for number in numpy.unique(places.batch.name[ended]):
            self._note(known.pop(int(number)))

    def _note(self, place: NotFinite) -> None:
        if place.what == NAN and (self.first_nan is None or place.order < self.first_nan.order):
            self.first_nan = place
        if self.first is None or place.order < self.first.order:
            self.first = place
        if place.rank not in self.by_rank or place.order < self.by_rank[place.rank].order:
            self.by_rank[place.rank] = place


class _Places(Rows):
    def __init__(self, rank: int, kind: str, batch: Batch, what: Any, field: Any, names: Names) -> None:
        super().__init__(rank, kind, batch, names)
        self.what, self._field = what, field

    def __getitem__(self, row: int) -> NotFinite:
        batch, field = self.batch, FIELDS[self._field[row]]
        return self.place(
            row,
            NotFinite,
            field,
            what=int(self.what[row]),
            value=float(batch.values[field][row]),
            shape=text_of(batch.shapes[batch.shape[row]]),
            dtype=text_of(batch.dtypes[batch.dtype[row]]),
        )


def find_first_not_finite(run: Run, reader: KindReader) -> FirstNotFinite:
    """Reads as much of the run as needed."""
    found = FirstNotFinite(reader.names)
    for rank, kind, files in each_kind(run, reader.problems):
        with contextlib.closing(reader.batches(kind, files)) as batches:
            for batch in batches:
                if not found.add(rank, kind, batch, stops=True):
                    break
    return found


# A row: step, micro_step (None: missing), vpp_stage, name, and the statistics it has.
Sample = dict[str, Any]


class Context:
    """The surroundings of a value that is not finite."""

    def __init__(self) -> None:
        # The same tensor and rank: up to BEFORE rows before, of the step, AFTER after.
        self.history: "list[Sample]" = []
        self.neighbours: "list[Sample]" = []  # the step's rows before and after it, of the same micro step
        self.place = 0  # of the row in `neighbours`
        self.ranks: "dict[int, bool]" = {}  # others with a row of the tensor in the step; True: not finite
        # By step, over all ranks and kinds: rows, and those that are not finite. The step and those after it.
        self.spread: "dict[int, tuple[int, int]]" = {}


def context_of(run: Run, found: FirstNotFinite, reader: KindReader) -> Context:
    """Reads the files of the run around `found.first` once more."""
    place = found.first
    assert place is not None
    context = Context()
    first, last = place.step, min(place.step, _LATEST - STEPS_AFTER) + STEPS_AFTER
    for rank, kind, files in each_kind(run, reader.problems):
        if (rank, kind) == (place.rank, place.kind):
            _look_around(place, files, reader, context)
        for batch in _rows_of_steps(reader, kind, files, first, last):
            not_finite = found.counts(rank, kind, batch)
            for step in numpy.unique(batch.step).tolist():
                of_step = batch.step == step
                rows, odd = context.spread.get(step, (0, 0))
                odd += int((of_step & not_finite).sum())
                context.spread[step] = rows + int(of_step.sum()), odd
            if kind == place.kind and rank != place.rank:
                same = numpy.flatnonzero(_is_of_tensor(batch, place, reader.names) & (batch.step == first))
                if len(same):
                    context.ranks[rank] = bool(not_finite[same[-1]])
    context.spread = dict(sorted(context.spread.items()))
    return context


def _rows_of_steps(
    reader: KindReader, kind: str, files: "list[KindFile]", first: int, last: int
) -> "Iterator[Batch]":
    """Up to the first row of a later step."""
    with contextlib.closing(reader.batches(kind, files_of_steps(files, first, last))) as batches:
        for batch in batches:
            later = numpy.flatnonzero(batch.step > last)
            within = batch.step >= first
            within[later[0] if len(later) else batch.rows :] = False
            if within.any():
                yield batch.take(within)
            if len(later):
                return


def _is_of_tensor(batch: Batch, place: NotFinite, names: Names) -> Any:
    number = names.number(place.vpp_stage, place.name.encode("utf-8", "surrogateescape"))
    return (batch.name == number) & (batch.micro_step == place.micro_step)


def _look_around(place: NotFinite, files: "list[KindFile]", reader: KindReader, context: Context) -> None:
    """Adds history and neighbours, from the files of the place's rank and kind."""
    step = place.step
    later = next((i for i, file in enumerate(files) if file.first_step > step), len(files))
    near = files[max(0, later - _FILES_BEFORE) : later + AFTER]
    history, beside = [], []
    after = 0
    with contextlib.closing(reader.batches(place.kind, near)) as batches:
        for batch in batches:
            same = _is_of_tensor(batch, place, reader.names)
            history.append(batch.take(same))
            beside.append(batch.take((batch.step == step) & (batch.micro_step == place.micro_step)))
            after += int((batch.step[same] > step).sum())
            if after >= AFTER:
                break
    if not history:
        return
    rows = concatenated(history)
    around = [numpy.flatnonzero(where) for where in (rows.step < step, rows.step == step, rows.step > step)]
    chosen = numpy.concatenate([around[0][-BEFORE:], around[1], around[2][:AFTER]])
    context.history = _samples(rows, chosen, reader.names)
    rows = concatenated(beside)
    at = int(numpy.argmax(_is_of_tensor(rows, place, reader.names)))
    begin = max(0, at - NEIGHBOURS)
    context.place = at - begin
    context.neighbours = _samples(rows, range(begin, min(rows.rows, at + NEIGHBOURS + 1)), reader.names)


def _samples(batch: Batch, rows: Any, names: Names) -> "list[Sample]":
    has = {field: batch.has(field) for field in FIELDS if field in batch.values}
    made = []
    for row in rows:
        number, micro_step = batch.name[row], run_report.step_or_none(int(batch.micro_step[row]))
        place: Sample = {"vpp_stage": names.all[number][0], "name": names.name(number)}
        values: Sample = {field: float(batch.values[field][row]) for field in has if has[field][row]}
        made.append({"step": int(batch.step[row]), "micro_step": micro_step, **place, **values})
    return made


_MOST_LEFT_OUT = 3  # named in the text
_MOST_RANKS = 10  # with their own first value, in the text


def perform(arguments: argparse.Namespace) -> int:
    problems = Problems()
    run = run_report.chosen_run(arguments, problems)
    reader = KindReader(problems)
    found = find_first_not_finite(run, reader)
    again = KindReader(Problems(), reader.names)  # its problems are known
    around = context_of(run, found, again) if found.first else None
    run_report.report_problems(problems)
    if found.extent.rows == 0:
        raise run_report.no_rows_error(run)
    if arguments.json:
        run_report.print_json(_json(run, found, around, problems))
    else:
        run_report.print_text(_text(run, found, around))
    return command_line.DONE


def left_out_text(found: Any) -> str:
    """Names in one line what FirstNotFinite skips; "" if it skips nothing."""
    places = found.left_out()
    tensors = sorted({f"{printable(layer_text(each.vpp_stage, each.name))} ({each.kind})" for each in places})
    if not tensors:
        return ""
    more = f" and {len(tensors) - _MOST_LEFT_OUT} more" if len(tensors) > _MOST_LEFT_OUT else ""
    return (
        "left out, infinite from the first collected step on, as attention masks are: "
        f"{', '.join(tensors[:_MOST_LEFT_OUT])}{more}\n"
    )


def _text(run: Run, found: FirstNotFinite, around: Optional[Context]) -> str:
    text = f"{run_report.run_text(run)}\n"
    left_out = left_out_text(found)
    place, nan = found.first, found.first_nan
    if place is None or around is None:
        which = "all other values are finite" if left_out else "all values are finite"
        return f"{text}{which}: {found.extent}\n{left_out}"
    text += f"\nthe first value that is not finite\n  {place}\n{place.details()}"
    if nan is not None and place.what != NAN:
        text += f"\nthe first NaN\n  {nan}\n{nan.details()}"
    of_step = [i for i, sample in enumerate(around.history) if sample["step"] == place.step]
    text += f"\nthe same tensor, on rank {place.rank}\n"
    text += _samples_text(around.history, "step", of_step[0] if of_step else -1)
    text += f"\nthe rows before and after it in step {place.step}\n"
    text += _samples_text(around.neighbours, "name", around.place)
    if around.ranks:
        text += "\nthe same tensor and step on other ranks\n"
    for words, wanted in (("finite", False), ("not finite", True)):
        chosen = [rank for rank in sorted(around.ranks) if around.ranks[rank] == wanted]
        text += f"  {words} on {rank_ranges(chosen)}\n" if chosen else ""
    ranks = sorted(found.by_rank)
    if len(ranks) > 1:
        text += "\nthe first one of each rank\n"
        text += "".join(f"  {found.by_rank[rank]}\n" for rank in ranks[:_MOST_RANKS])
    if len(ranks) > _MOST_RANKS:
        text += f"  … and {len(ranks) - _MOST_RANKS} more ranks (--json shows all)\n"
    table = Table(["", "step", "not finite", "rows"], [True, False, False, False])
    rows = [["", str(step), str(odd), str(count)] for step, (count, odd) in around.spread.items()]
    text += f"\nhow it spreads, over all ranks and kinds\n{run_report.table_text(table, rows)}"
    return f"{text}\n{left_out}" if left_out else text


def _samples_text(samples: "list[Sample]", title: str, mark: int) -> str:
    """`mark`: the index of the sample to mark."""
    fields = [field for field in FIELDS if any(field in sample for sample in samples)]
    table = Table(["", title, *fields], [True, title == "name", *(False for _ in fields)])
    rows = []
    for i, sample in enumerate(samples):
        what = str(sample["step"]) if title == "step" else layer_text(sample["vpp_stage"], sample["name"])
        cells = [value_text(sample[field]) if field in sample else "" for field in fields]
        rows.append([">" if i == mark else "", what, *cells])
    return run_report.table_text(table, rows)


def _sample_json(sample: Sample) -> Sample:
    return {name: value_json(value) if name in FIELDS else value for name, value in sample.items()}


def _json(run: Run, found: FirstNotFinite, around: Optional[Context], problems: Problems) -> "dict[str, Any]":
    around = around or Context()
    return {
        "run": run_report.run_json(run),
        "read": found.extent.json(),
        "first": found.first and found.first.json(),
        "first_nan": found.first_nan and found.first_nan.json(),
        "by_rank": [found.by_rank[rank].json() for rank in sorted(found.by_rank)],
        "history": list(map(_sample_json, around.history)),
        "neighbours": list(map(_sample_json, around.neighbours)),
        "other_ranks": [{"rank": rank, "finite": not odd} for rank, odd in sorted(around.ranks.items())],
        "spread": [
            {"step": step, "not_finite": odd, "rows": rows} for step, (rows, odd) in around.spread.items()
        ],
        "always_infinite": [place.json() for place in found.left_out()],
        "left_out": run_report.problems_json(problems),
    }
