# SPDX-License-Identifier: Apache-2.0
"""The rows in TensorBoard's event files: of a rank, or made by `gradmonctl convert csv2tb`. Needs pyarrow and
google-crc32c."""
import os
import re
import struct
from functools import lru_cache
from pathlib import Path
from typing import Any, Callable, Iterator, NamedTuple, Optional

import pyarrow

from gradmon_read.command_line import open_regular, require
from gradmon_read.listing import Problems
from gradmon_read.vocabulary import BINS, COLUMN_ORDER, HISTOGRAM_KINDS, KINDS_WITH_MICRO_STEPS, ROW_KINDS

_MOST_VALUES = 1 << 16  # that wait for a table
_TASKS = {"acc_grad": "grad_unreduced", "pre_grad": "grad_unreduced", "post_grad": "grad_reduced"}


def _any(texts: "list[str]") -> str:
    return "|".join(sorted(texts, key=len, reverse=True))


_OPS = _any([op for op in COLUMN_ORDER if op not in ("samples", "value")])
_KINDS = [kind for kind in ROW_KINDS if kind != "scalar"]
_TAG = re.compile(
    rf"(?:(?P<kind>{_any(_KINDS)})_(?P<op>{_OPS})|(?P<histogram>{_any(HISTOGRAM_KINDS)}))/"
    r"((?P<stage>[0-9]{1,9}):)?(?P<name>.*?)(:micro(?P<micro>[0-9]{1,9}))?\Z",
    re.DOTALL,
)
# msprobe's forms: {vpp_stage}:{name}[:{micro_step}]/rank{R}/{task}_{op}, and /{kind} of histograms.
_TASK_TAG = re.compile(
    r"(?P<stage>[0-9]{1,9}):(?P<name>.*)/rank(?P<rank>[0-9]{1,9})/"
    rf"((?P<task>{_any([*_TASKS, *_KINDS])})_(?P<op>{_OPS})|(?P<kind>{_any(HISTOGRAM_KINDS)}))\Z",
    re.DOTALL,
)
_CONVERTED = re.compile(
    rf"vp(?P<stage>[0-9]{{1,9}}):(?P<name>.*?)(:micro(?P<micro>[0-9]{{1,9}}))?/(?P<op>{_OPS})\Z", re.DOTALL
)
_OVER_SAMPLES = "-vs-samples"


class Tag(NamedTuple):
    """The meaning of a tag; `op` is empty for a histogram."""

    kind: str
    name: str
    micro_step: Optional[int]
    op: str
    vpp_stage: int
    rank: Optional[int]  # None: that of the directory


Value = tuple[bytes, "float | list[float]"]  # tag, and a number or the counts of the bins of a histogram


def event_files(directory: Path) -> "list[Path]":
    return sorted(directory.glob("events.out.tfevents.*"))


def rank_event_files(directory: Path, problems: Problems) -> "list[Path]":
    """The event files in the directory of a rank."""
    place = directory / "tensorboard"
    try:
        return sorted(file for file in place.iterdir() if file.name.startswith("events.out.tfevents."))
    except FileNotFoundError:
        return []
    except OSError as error:
        problems.add(place, 0, f"cannot be read: {error.strerror}")
        return []


def converted_ranks(path: Path) -> "list[tuple[int, str, Path]]":
    """Rank, kind and directory of the event files that `gradmonctl convert csv2tb` has made in `path`."""
    found = []
    for entry in path.glob("rank*/*"):
        digits = re.match(r"rank(\d+)", entry.parent.name)
        if digits and event_files(entry):
            found.append((int(digits[1]), entry.name, entry))
    return sorted(found)


def tag_of(tag: str, rank: Optional[int] = None) -> Tag:
    """{kind}_{op}/[{vpp_stage}:]{name}[:micro{m}] or {kind}/[{vpp_stage}:]{name} of a histogram, the same in
    msprobe's form, or the name of a training scalar. `rank`: msprobe's form of another rank is a scalar."""
    found = _TAG.match(tag)
    if found is not None:
        kind, name, micro = found["kind"] or found["histogram"], found["name"], found["micro"]
        if micro is not None and kind not in KINDS_WITH_MICRO_STEPS and kind != "grad_unreduced":
            name, micro = f"{name}:micro{micro}", None
        return Tag(kind, name, _number(micro), found["op"] or "", int(found["stage"] or 0), None)
    found = _TASK_TAG.match(tag)
    if found is None or rank not in (None, int(found["rank"])):
        return Tag("scalar", tag, None, "value", 0, None)
    task, kind, name = found["task"], found["kind"], found["name"]
    micro = None
    if task == "pre_grad" or task in KINDS_WITH_MICRO_STEPS:
        name, _, digits = name.rpartition(":")
        micro = int(digits) if re.fullmatch("[0-9]{1,9}", digits) else None
    kind = kind or _TASKS.get(task, task)
    return Tag(kind, name, micro, found["op"] or "", int(found["stage"]), int(found["rank"]))


def converted_tag(kind: str, tag: str) -> Tag:
    found = _CONVERTED.match(tag)
    if found is None:
        return tag_of(tag)
    return Tag(kind, found["name"], _number(found["micro"]), found["op"], int(found["stage"]), None)


def _number(digits: Optional[str]) -> Optional[int]:
    return None if digits is None else int(digits)


def events(path: Path) -> "Iterator[tuple[int, list[Value]]]":
    """The step of each event of a file, and its values; none if the first event names another program than
    gradmon as the writer. Raises OSError and EventFileError as records()."""
    for number, record in enumerate(records(path)):
        try:
            if number == 0 and _writer(record) != b"gradmon":
                return
            yield _event(record)
        except (ValueError, KeyError, IndexError, TypeError, struct.error) as error:
            raise EventFileError(f"an event that cannot be read: {error}") from error


def _writer(record: bytes) -> bytes:
    """The program that has written the file, by its first event. Older releases of gradmon name none."""
    source = dict(fields(memoryview(record))).get(10)
    return bytes(dict(fields(source)).get(1, b"")) if source is not None else b"gradmon"


def _event(record: bytes) -> "tuple[int, list[Value]]":
    """The step of an Event (event.proto), and the values of its Summary."""
    step, values = 0, list[Value]()
    for number, field in fields(memoryview(record)):
        if number == 2:
            step = int(field)
        elif number == 5:
            for of_summary, value in fields(field):
                parts = dict(fields(value)) if of_summary == 1 else {}
                if 2 in parts:
                    values.append((bytes(parts[1]), float(parts[2])))
                elif 5 in parts and len(counts := counts_of(parts[5])) == len(BINS):
                    values.append((bytes(parts[1]), counts))
    if step >= 2**63:
        raise ValueError(f"step {step - 2**64}; expected a number from 0")
    return step, values


def event_tables(
    file: Path, meaning: "Callable[[str], Tag]", wanted: "Callable[[str, list[str]], list[str]]"
) -> "Iterator[tuple[str, pyarrow.Table]]":
    """Kind and rows of tables of an event file, as Part.tables() has them; float32. `meaning`: of
    a tag. `wanted`: of the statistics of a kind, those that are."""
    waiting: "dict[str, _Rows]" = {}
    count = 0

    def taken() -> "Iterator[tuple[str, pyarrow.Table]]":
        for kind, rows in waiting.items():
            ops = wanted(kind, list(rows.values))
            if ops:
                yield kind, rows.table(ops)
        waiting.clear()

    try:
        for step, tag, op, value in _values(file, lru_cache(maxsize=None)(meaning)):
            waiting.setdefault(tag.kind, _Rows()).add(step, tag, op, value)
            count += 1
            if count % _MOST_VALUES == 0:
                yield from taken()
    except (OSError, EventFileError) as error:
        raise ValueError(f"{file}: {getattr(error, 'strerror', None) or error}") from error
    yield from taken()


def _values(path: Path, meaning: "Callable[[str], Tag]") -> "Iterator[tuple[int, Tag, str, float]]":
    """A scalar's event over samples follows the one over steps; its x axis is the number of samples."""
    name, step_before = "", 0
    for step, values in events(path):
        for raw, number in values:
            tag = meaning(raw.decode(errors="replace"))
            if isinstance(number, list) != (tag.kind in HISTOGRAM_KINDS):
                continue
            if isinstance(number, list):
                yield from ((step, tag, op, count) for op, count in zip(BINS, number))
                continue
            if tag.kind == "scalar" and tag.name == name + _OVER_SAMPLES:
                tag, number, op = tag._replace(name=name), float(step), "samples"
            else:
                step_before, op = step, tag.op
            name = tag.name
            yield step_before, tag, op, number


class _Rows:
    """Rows of a kind. Statistics of one target that follow each other are one row."""

    def __init__(self) -> None:
        self.values: "dict[str, list[Optional[float]]]" = {}  # by op
        self._places: "list[tuple[int, Optional[int], int, str]]" = []

    def add(self, step: int, tag: Tag, op: str, value: float) -> None:
        place = (step, tag.micro_step, tag.vpp_stage, tag.name)
        column = self.values.setdefault(op, [])
        rows = len(self._places)
        if not rows or self._places[-1] != place or len(column) == rows:
            self._places.append(place)
            rows += 1
        column.extend([None] * (rows - 1 - len(column)))
        column.append(value)

    def table(self, ops: "list[str]") -> pyarrow.Table:
        steps, micro_steps, stages, names = zip(*self._places)
        rows = len(steps)
        whole = {"step": steps, "micro_step": micro_steps, "vpp_stage": stages}
        values = {op: self.values[op] + [None] * (rows - len(self.values[op])) for op in ops}
        return pyarrow.table(
            {
                **{name: pyarrow.array(column, "int64") for name, column in whole.items()},
                "name": pyarrow.array(names, "string"),
                **{op: pyarrow.array(column, "float64") for op, column in values.items()},
            }
        )


MOST_RECORD_BYTES = 64 << 20
HEADER_BYTES, FOOTER_BYTES = 12, 4


class EventFileError(ValueError):
    """The file goes on with something else than a record."""


def records(path: Path) -> "Iterator[bytes]":
    """The data of the whole records of a file, to which a running job may be appending. The longest record
    bounds the memory. Skips a torn last record in silence; never waits for a FIFO. Raises OSError, whose
    `strerror` says why, and EventFileError where the file goes on with something else."""
    try:
        file = open_regular(path)
    except OSError as error:
        why = f"cannot open: {error.strerror}" if error.errno else error.strerror
        raise OSError(error.errno, why) from None
    with file:
        size = os.fstat(file.fileno()).st_size
        at = 0
        while at + HEADER_BYTES <= size:
            header = file.read(HEADER_BYTES)
            length, checksum = struct.unpack("<QI", header)
            if masked_crc32c(header[:8]) != checksum:
                raise EventFileError(f"byte {at}: not the header of a record")
            if length > MOST_RECORD_BYTES:
                raise EventFileError(
                    f"byte {at}: a record of {length} bytes; expected at most {MOST_RECORD_BYTES}"
                )
            data = file.read(length + FOOTER_BYTES)
            if len(data) < length + FOOTER_BYTES:
                return
            is_last = at + HEADER_BYTES + length + FOOTER_BYTES == size  # may be being written
            if masked_crc32c(data[:length]) != struct.unpack_from("<I", data, length)[0]:
                if is_last:
                    return
                raise EventFileError(f"byte {at}: the checksum of a record is wrong")
            yield data[:length]
            at += HEADER_BYTES + length + FOOTER_BYTES


def fields(message: memoryview) -> "Iterator[tuple[int, Any]]":
    """Number and value of each field of a protobuf message: an integer, a float, or the bytes of the rest.
    Raises ValueError, IndexError or struct.error if it is none."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        wire_type = key & 7
        value: Any
        if wire_type == 0:
            value, at = _varint(message, at)
        elif wire_type == 1:
            (value,), at = struct.unpack_from("<d", message, at), at + 8
        elif wire_type == 2:
            size, at = _varint(message, at)
            value, at = message[at : at + size], at + size
        elif wire_type == 5:
            (value,), at = struct.unpack_from("<f", message, at), at + 4
        else:
            raise ValueError(f"wire type {wire_type} in a message")
        yield key >> 3, value


def _varint(message: memoryview, at: int) -> "tuple[int, int]":
    """The number, and the place after it."""
    number = shift = 0
    while True:
        byte = message[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits in a message")


def counts_of(histogram: memoryview) -> "list[float]":
    """The counts of the bins of a HistogramProto."""
    counts: "list[float]" = []
    for number, field in fields(histogram):
        if number == 7:
            counts += [field] if isinstance(field, float) else [n for (n,) in struct.iter_unpack("<d", field)]
    return counts


def masked_crc32c(data: bytes) -> int:
    """The checksum of TFRecord files: CRC32C (Castagnoli), rotated by 15 bits, plus a constant."""
    crc = _crc32c()(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


@lru_cache(1)
def _crc32c() -> "Callable[[bytes], int]":
    found: "Callable[[bytes], int]" = require("google-crc32c", "an event file").value
    return found
