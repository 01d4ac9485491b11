# SPDX-License-Identifier: Apache-2.0
"""Reads TensorBoard's event files: of a rank, or made by `gradmonctl convert csv2tb`."""
import re
import struct
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, NamedTuple, Optional

from gradmon import _gradmon
from gradmon.forms.rows import KINDS_WITH_MICRO_STEPS, Choice, RankDirectory, table_of

if TYPE_CHECKING:
    import pandas

DIRECTORY = "tensorboard"

_TASKS = {"acc_grad": "grad_unreduced", "pre_grad": "grad_unreduced", "post_grad": "grad_reduced"}
# Kinds that are tasks by their own name.
_KINDS = [kind for kind in _gradmon.record_kinds if kind not in {*_TASKS.values(), "scalar"}]
_OVER_SAMPLES = "-vs-samples"
_BY_LENGTH = "|".join(sorted([*_KINDS, "grad_unreduced", "grad_reduced"], key=len, reverse=True))
_OPS = "|".join([*_gradmon.ops, "entropy", "softmax_max", "sr", "kernel_norm", "cosine", "mg_direction"])
_TAG = re.compile(
    f"(?P<kind>{_BY_LENGTH})_(?P<op>{_OPS})/((?P<stage>\\d+):)?(?P<name>.*?)(:micro(?P<micro>\\d+))?\\Z",
    re.DOTALL,
)
_HISTOGRAM_TAG = re.compile(r"(?P<kind>[a-z]+)/((?P<stage>\d+):)?(?P<name>.*)$", re.DOTALL)
# msprobe's form.
_TASK_AND_OP = re.compile(
    f"(?P<task>{'|'.join(sorted([*_TASKS, *_KINDS], key=len, reverse=True))})_(?P<op>[a-z_]+)$"
)
_TARGET = re.compile(r"(?P<stage>\d+):(?P<name>.*?)$", re.DOTALL)
_BINS = 30  # of a histogram of gradmon, over [-1, 1]
_CONVERTED = re.compile(r"vp(?P<stage>\d+):(?P<name>.*?)(:micro(?P<micro>\d+))?/(?P<op>[a-z_]+)$", re.DOTALL)
_CONVERTED_RANK = re.compile(r"rank(?P<rank>\d+)$")


class _Tag(NamedTuple):
    """The meaning of a tag."""

    rank: int
    kind: str
    name: str
    micro_step: Optional[int]
    op: str
    vpp_stage: int


class _Event(NamedTuple):
    """The content of an event: numbers and counts of bins, with their tags."""

    step: int
    numbers: "list[tuple[bytes, float]]"
    histograms: "list[tuple[bytes, list[float]]]"


def has_rows(directory: Path) -> bool:
    """Returns True if the directory of a rank has event files."""
    return any((directory / DIRECTORY).glob("events.out.tfevents.*"))


def converted_ranks(path: Path) -> "list[RankDirectory]":
    """The directories rank{R} that `gradmonctl convert csv2tb` has made in `path`."""
    found = [(entry, _CONVERTED_RANK.match(entry.name)) for entry in path.iterdir() if entry.is_dir()]
    ranks = [
        RankDirectory(entry, int(match["rank"]))
        for entry, match in found
        if match and any(entry.glob("*/events.out.tfevents.*"))
    ]
    return sorted(ranks, key=lambda directory: directory.rank)


def read(directories: "Iterable[RankDirectory]", choice: Choice) -> "pandas.DataFrame":
    """The rows of the directories of ranks, with PLACE. The values are float32."""
    rows: "list[tuple[Any, ...]]" = []
    for path, rank in directories:
        rows += _rows(path / DIRECTORY, choice, partial(_tag_of, rank), partial(_histogram_tag, rank))
    return table_of(rows)


def read_converted(directories: "Iterable[RankDirectory]", choice: Choice) -> "pandas.DataFrame":
    """The same of converted_ranks()."""
    rows: "list[tuple[Any, ...]]" = []
    for path, rank in directories:
        for of_kind in sorted(path.iterdir()):
            if of_kind.is_dir() and choice.has_kind(of_kind.name):
                rows += _rows(of_kind, choice, partial(_converted, rank, of_kind.name), lambda tag: None)
    return table_of(rows)


def _tag_of(rank: int, tag: str) -> Optional[_Tag]:
    """{kind}_{op}/[{vpp_stage}:]{name}[:micro{m}], in msprobe's form
    {vpp_stage}:{name}[:{micro_step}]/rank{R}/{task}_{op}, or the name of a training scalar. A scalar's
    event over samples follows the one over steps; its x axis is the number of samples."""
    found = _TAG.match(tag)
    if found is not None:
        kind, name, micro = found["kind"], found["name"], found["micro"]
        if micro is not None and kind not in KINDS_WITH_MICRO_STEPS and kind != "grad_unreduced":
            name, micro = f"{name}:micro{micro}", None
        return _Tag(
            rank, kind, name, None if micro is None else int(micro), found["op"], int(found["stage"] or 0)
        )
    target, of_rank, rest = tag.rpartition(f"/rank{rank}/")
    what, whose = _TASK_AND_OP.match(rest), _TARGET.match(target)
    if not of_rank or what is None or whose is None:
        return _Tag(rank, "scalar", tag, None, "value", 0)
    task, name, micro_step = what["task"], whose["name"], None
    if task == "pre_grad" or task in KINDS_WITH_MICRO_STEPS:
        name, _, number = name.rpartition(":")
        micro_step = int(number) if number.isdigit() else None
    return _Tag(rank, _TASKS.get(task, task), name, micro_step, what["op"], int(whose["stage"]))


def _histogram_tag(rank: int, tag: str) -> Optional[_Tag]:
    """{kind}/[{vpp_stage}:]{name}, in msprobe's form {vpp_stage}:{name}/rank{R}/{kind}"""
    found = _HISTOGRAM_TAG.match(tag)
    if found is not None and found["kind"] in _gradmon.histogram_kinds:
        return _Tag(rank, found["kind"], found["name"], None, "", int(found["stage"] or 0))
    target, of_rank, kind = tag.rpartition(f"/rank{rank}/")
    whose = _TARGET.match(target)
    if not of_rank or whose is None or kind not in _gradmon.histogram_kinds:
        return None
    return _Tag(rank, kind, whose["name"], None, "", int(whose["stage"]))


def _converted(rank: int, kind: str, tag: str) -> Optional[_Tag]:
    found = _CONVERTED.match(tag)
    if found is None:
        return _tag_of(rank, tag)
    micro_step = None if found["micro"] is None else int(found["micro"])
    return _Tag(rank, kind, found["name"], micro_step, found["op"], int(found["stage"]))


def _rows(
    directory: Path,
    choice: Choice,
    number_tag: "Callable[[str], Optional[_Tag]]",
    histogram_tag: "Callable[[str], Optional[_Tag]]",
) -> "Iterator[tuple[Any, ...]]":
    number_tag, histogram_tag = lru_cache(maxsize=None)(number_tag), lru_cache(maxsize=None)(histogram_tag)
    for path in sorted(directory.glob("events.out.tfevents.*")):
        name, step = "", 0  # of the event before
        for event in _events(path):
            for raw, value in event.numbers:
                tag = number_tag(raw.decode(errors="replace"))
                if tag is not None and tag.name == name + _OVER_SAMPLES and tag.kind == "scalar":
                    tag, value = tag._replace(name=name, op="samples"), float(event.step)
                else:
                    step = event.step
                name = tag.name if tag is not None else ""
                if tag is not None and choice.has_kind(tag.kind) and choice.meets(step, step):
                    yield _row(tag, step, tag.op, value)
            for raw, counts in event.histograms:
                tag = histogram_tag(raw.decode(errors="replace"))
                if tag is None or len(counts) != _BINS or not choice.has_kind(tag.kind):
                    continue
                if choice.meets(event.step, event.step):
                    yield from (_row(tag, event.step, f"bin_{i}", count) for i, count in enumerate(counts))


def _row(tag: _Tag, step: int, op: str, value: float) -> "tuple[Any, ...]":
    return tag.rank, step, tag.micro_step, tag.kind, tag.name, op, value, tag.vpp_stage


def _events(path: Path) -> "Iterator[_Event]":
    """Yields nothing if the first event names another program as the writer."""
    for number, record in enumerate(_records(path)):
        try:
            if number == 0 and _writer(record) != b"gradmon":
                return
            yield _event(record)
        except (ValueError, KeyError, IndexError, TypeError, struct.error) as error:
            raise ValueError(f"{path}: an event that cannot be read: {error}") from error


def _records(path: Path) -> "Iterator[memoryview]":
    """The whole records of a file, without a last record that is still being written, or whose writer was
    killed."""
    data = memoryview(path.read_bytes())
    at = 0
    while at + 12 <= len(data):
        length, checksum = struct.unpack_from("<QI", data, at)
        if _masked_crc32c(data[at : at + 8]) != checksum:
            raise ValueError(f"{path}: byte {at} begins no record of an event file")
        end = at + 12 + length
        if end + 4 > len(data):
            return
        if end + 4 == len(data):
            (checksum,) = struct.unpack_from("<I", data, end)
            if _masked_crc32c(data[at + 12 : end]) != checksum:
                return
        yield data[at + 12 : end]
        at = end + 4


def _writer(record: memoryview) -> bytes:
    """The program that has written the file, by its first event. Older releases of gradmon name none."""
    source = dict(_fields(record)).get(10)
    return bytes(dict(_fields(source)).get(1, b"")) if source is not None else b"gradmon"


def _event(record: memoryview) -> _Event:
    """The step of an Event (event.proto), and the tags, numbers and histograms of its Summary."""
    event = _Event(0, [], [])
    for number, field in _fields(record):
        if number == 2:
            event = event._replace(step=int(field))
        elif number == 5:
            for of_summary, value in _fields(field):
                if of_summary != 1:
                    continue
                parts = dict(_fields(value))
                if 2 in parts:
                    event.numbers.append((bytes(parts[1]), parts[2]))
                elif 5 in parts:
                    event.histograms.append((bytes(parts[1]), _counts(parts[5])))
    return event


def _counts(histogram: memoryview) -> "list[float]":
    """The counts of the bins of a HistogramProto."""
    counts: "list[float]" = []
    for number, field in _fields(histogram):
        if number == 7:
            counts += [field] if isinstance(field, float) else [n for (n,) in struct.iter_unpack("<d", field)]
    return counts


def _fields(message: memoryview) -> "Iterator[tuple[int, Any]]":
    """Number and value of each field of a protobuf message: an integer, a float, or the bytes of the rest."""
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


def _crc32c_table() -> "list[int]":
    table = []
    for number in range(256):
        for _ in range(8):
            number = number >> 1 ^ (0x82F63B78 if number & 1 else 0)
        table.append(number)
    return table


_TABLE = _crc32c_table()


def _masked_crc32c(data: memoryview) -> int:
    """The checksum of TFRecord files: CRC32C (Castagnoli), rotated by 15 bits, plus a constant."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
