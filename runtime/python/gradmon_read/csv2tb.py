# SPDX-License-Identifier: Apache-2.0
"""Event files of TensorBoard from CSV files (FORMAT.md). Needs pyarrow and google-crc32c.

The tags of a target's rows are constant, so the record of a row is a template of bytes into which its floats,
its step, its time and its checksum are put."""
import argparse
import ctypes
import os
import re
import signal
import socket
import struct
import sys
import time
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import google_crc32c
import numpy
import pyarrow

from gradmon_read.command_line import CommandError, hide_pandas
from gradmon_read.conversion import CURVES, EVENT_FILE, Interrupted, Meter, RankRows, Task, converted
from gradmon_read.conversion import make_directories, request_of
from gradmon_read.csv_tables import text_of
from gradmon_read.kind_rows import Batch, grown
from gradmon_read.listing import Problems

BYTES_OF_A_FILE = 64 << 20
_ROWS_AT_ONCE = 4096  # their records stay in the processor's cache
_OVER_STEPS_ONLY = (b"throughput_linearity", b"model-flops-throughput-per-device", b"B-samples-per-day")
_HEADER, _FOOTER = 12, 4  # bytes of a record, around its event
_WALL_TIME = _HEADER + 1  # offsets in a record
_STEP = _WALL_TIME + 9


@lru_cache(4096)
def _varint(number: int) -> bytes:
    parts = []
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])


def _counted(key: int, data: bytes) -> bytes:
    return bytes([key]) + _varint(len(data)) + data


def _masked(checksums: Any) -> Any:
    """CRC32C as TFRecord files have it."""
    sums = numpy.asarray(checksums, numpy.uint64)
    return (((sums >> 15 | sums << 17) & 0xFFFFFFFF) + 0xA282EAD8 & 0xFFFFFFFF).astype("<u4")


def _record(event: bytes) -> bytes:
    length = struct.pack("<Q", len(event))
    header, footer = _masked([google_crc32c.value(length), google_crc32c.value(event)])
    return b"".join([length, header.tobytes(), event, footer.tobytes()])


def _event(wall_time: float, step: bytes, values: "list[bytes]") -> bytes:
    return b"\x09" + struct.pack("<d", wall_time) + b"\x10" + step + _counted(0x2A, b"".join(values))


def _value(tag: bytes, number: bytes = bytes(4)) -> bytes:
    return _counted(0x0A, _counted(0x0A, tag) + b"\x15" + number)


def first_record(wall_time: float) -> bytes:
    """The begin of each event file; it names the writer."""
    version = _counted(0x1A, b"brain.Event:2") + _counted(0x52, _counted(0x0A, b"gradmon"))
    return _record(b"\x09" + struct.pack("<d", wall_time) + version)


def _unaligned(data: Any, dtype: str) -> Any:
    """A view of bytes with an element at each offset."""
    size = numpy.dtype(dtype).itemsize
    return numpy.ndarray((len(data) - size + 1,), dtype, data, strides=(1,))


class _Checksums:
    """CRC32C is linear: a changed byte changes the sum by a number that follows from the byte and the number
    of bytes behind it."""

    LONGEST = 4096  # bytes of an event; of longer ones each sum is computed anew

    def __init__(self) -> None:
        zeros = bytes(255)
        self._first = numpy.array(
            [google_crc32c.value(bytes([byte])) ^ google_crc32c.value(zeros[:1]) for byte in range(256)],
            numpy.uint32,
        )
        self.changes = self._first  # by 256 * bytes behind + the byte

    def reach(self, behind: int) -> None:
        """Makes `changes` long enough."""
        while len(self.changes) <= behind << 8:
            rows = [self.changes[-256:]]
            for _ in range(len(self.changes) >> 8):
                rows.append(self._first[rows[-1] & 255] ^ rows[-1] >> 8)
            self.changes = numpy.concatenate([self.changes, *rows[1:]])

    def change(self, sums: Any, places: Any, data: Any) -> None:
        """`places`: of the first byte, by 256 * bytes behind; `data`: bytes of each."""
        for i in range(data.shape[1]):
            sums ^= self.changes.take(places - (i << 8) + data[:, i])


class _Templates:
    """Templates of rows that have the same fields, and as many bytes of their step; by number of a target."""

    def __init__(self, fields: "tuple[str, ...]", bytes_of_step: int) -> None:
        self.fields = fields
        self.bytes_of_step = bytes_of_step
        self.record = numpy.full(1024, -1)  # index into Encoder._records
        self.end = numpy.zeros(1024, numpy.int64)  # of the event in the record
        self.sum = numpy.zeros(1024, numpy.uint32)  # CRC32C of the event
        self.numbers = numpy.zeros((1024, len(fields)), numpy.int64)  # offsets of the floats

    def missing(self, keys: Any) -> "list[int]":
        """Keys without a template."""
        size = int(keys.max()) + 1
        self.record, self.end = grown(self.record, size), grown(self.end, size)
        self.sum, self.numbers = grown(self.sum, size), grown(self.numbers, size)
        return list(dict.fromkeys(keys[self.record[keys] < 0].tolist()))


class _Part(NamedTuple):
    """Rows that have the same templates."""

    templates: _Templates
    rows: Any  # an index of arrays
    columns: "list[Any]"  # of the fields; floats


class Encoder:
    """Makes the records of the rows of one kind. `form`: of the tags, "gradmon" or "msprobe"."""

    def __init__(self, kind: str, form: str, rows: RankRows) -> None:
        self._kind = kind
        self._form = form
        self._target = rows.target
        self._known: "dict[tuple[tuple[str, ...], int], _Templates]" = {}  # by fields and bytes of the step
        self._records: "list[bytes]" = []  # with zeros for numbers
        self._array = pyarrow.array(self._records, pyarrow.binary())
        self._checksums = _Checksums()

    def encode(self, rows: Batch) -> Any:
        """The bytes of the records, in order."""
        if self._kind == "scalar" and self._form == "gradmon":
            return numpy.frombuffer(self._scalars(rows), numpy.uint8)
        steps = rows.step
        parts = self._parts(rows, 1 + numpy.searchsorted(1 << 7 * numpy.arange(1, 9), steps, "right"))
        record = numpy.empty(len(steps), numpy.int64)
        for part in parts:
            keys = rows.name[part.rows]
            for key in part.templates.missing(keys):
                self._add(part.templates, key)
            record[part.rows] = part.templates.record[keys]
        if len(self._array) < len(self._records):
            self._array = pyarrow.array(self._records, pyarrow.binary())
        _, ends, buffer = self._array.take(pyarrow.array(record)).buffers()
        places = numpy.frombuffer(ends, numpy.int32, len(steps) + 1).astype(numpy.int64)
        data = numpy.frombuffer(buffer, numpy.uint8, int(places[-1]))  # new, so it may be changed
        times = numpy.array([file.written for file in rows.files])
        for part in parts:
            written = times[rows.file[part.rows]]
            self._put(data, places[:-1][part.rows], part, rows.name[part.rows], steps[part.rows], written)
        return data

    def _parts(self, rows: Batch, bytes_of_step: Any) -> "list[_Part]":
        columns = rows.values
        present = bytes_of_step.astype(numpy.int64)
        for i, field in enumerate(columns):
            present |= rows.has(field).astype(numpy.int64) << i + 4
        with numpy.errstate(all="ignore"):  # a double may be too large for a float
            numbers = [column.astype("<f4") for column in columns.values()]
        parts = []
        alike = (present == present[0]).all()
        for one in [int(present[0])] if alike else numpy.unique(present).tolist():
            chosen = slice(None) if alike else numpy.flatnonzero(present == one)
            indices = [i for i in range(len(columns)) if one >> i + 4 & 1]
            key = tuple(field for i, field in enumerate(columns) if i in indices), one & 15
            if key not in self._known:
                self._known[key] = _Templates(*key)
            parts.append(_Part(self._known[key], chosen, [numbers[i][chosen] for i in indices]))
        return parts

    def _put(self, data: Any, begins: Any, part: _Part, keys: Any, steps: Any, written: Any) -> None:
        """Puts the numbers of rows into their records, which begin at `begins`."""
        templates = part.templates
        ends = templates.end[keys]
        step = steps[:, None] >> 7 * numpy.arange(templates.bytes_of_step) & 0x7F
        step[:, :-1] |= 0x80
        time = written.astype("<f8").view(numpy.uint8).reshape(-1, 8)
        fields = [(_WALL_TIME, time), (_STEP, step.astype(numpy.uint8))]
        numbers = templates.numbers[keys]
        fields += [
            (numbers[:, i], column.view(numpy.uint8).reshape(-1, 4)) for i, column in enumerate(part.columns)
        ]
        sums = templates.sum[keys]
        longest = int(ends.max())
        if longest < _Checksums.LONGEST:
            self._checksums.reach(longest)
        for offset, bytes_of_rows in fields:
            width = bytes_of_rows.shape[1]
            if width in (4, 8):
                _unaligned(data, f"V{width}")[begins + offset] = bytes_of_rows.view(f"V{width}")[:, 0]
            else:
                data[(begins + offset)[:, None] + numpy.arange(width)] = bytes_of_rows
            if longest < _Checksums.LONGEST:
                self._checksums.change(sums, (ends - 1 - offset) << 8, bytes_of_rows)
        if longest >= _Checksums.LONGEST:
            pairs = zip((begins + _HEADER).tolist(), (begins + ends).tolist())
            sums = [google_crc32c.value(data[begin:end].tobytes()) for begin, end in pairs]
        _unaligned(data, "<u4")[begins + ends] = _masked(sums)

    def _add(self, templates: _Templates, key: int) -> None:
        size = templates.bytes_of_step
        for (fields, _), other in self._known.items():
            if fields == templates.fields and key < len(other.record) and other.record[key] >= 0:
                event = self._records[other.record[key]][_HEADER:-_FOOTER]
                behind = _STEP - _HEADER + other.bytes_of_step
                event = event[: _STEP - _HEADER] + bytes(size) + event[behind:]
                templates.numbers[key] = other.numbers[key] + size - other.bytes_of_step
                break
        else:
            values = [_value(tag) for tag in self._tags(key, templates.fields)]
            event = _event(0, bytes(size), values)
            lengths = numpy.array([len(value) for value in values])
            templates.numbers[key] = _HEADER + len(event) - lengths.sum() + lengths.cumsum() - 4
        templates.record[key] = len(self._records)
        templates.end[key] = _HEADER + len(event)
        templates.sum[key] = google_crc32c.value(event)
        self._records.append(_record(event))

    def _tags(self, key: int, fields: "tuple[str, ...]") -> "list[bytes]":
        stage, name, micro_step = self._target(key)
        micro = f":micro{micro_step}" if micro_step >= 0 else ""
        text = _utf8(name)
        if self._form == "msprobe":
            return [f"vp{stage}:{text}{micro}/{field}".encode() for field in fields]
        if stage or re.match(r"\d+:", text, re.ASCII):
            text = f"{stage}:{text}"
        return [f"{self._kind}_{field}/{text}{micro}".encode() for field in fields]

    def _scalars(self, rows: Batch) -> bytes:
        """One event over steps, then one over samples, like the sink."""
        events = []
        names = [_utf8(self._target(key).name).encode() for key in rows.name.tolist()]
        values, samples = rows.cells("value"), rows.cells("samples")
        times = [rows.files[file].written for file in rows.file.tolist()]
        for name, step, value, count, written in zip(names, rows.step.tolist(), values, samples, times):
            if value is None:
                continue
            with numpy.errstate(all="ignore"):
                number = numpy.float64(value).astype("<f4").tobytes()
            events.append(_event(written, _varint(step), [_value(name, number)]))
            if count is not None and 0 <= count < 2**63 and name not in _OVER_STEPS_ONLY:
                over_samples = [_value(name + b"-vs-samples", number)]
                events.append(_event(written, _varint(int(count)), over_samples))
        return b"".join(map(_record, events))


def _utf8(name: bytes) -> str:
    """Each byte that is not of a character becomes U+FFFD."""
    return re.sub("[\udc80-\udcff]", "\ufffd", text_of(name))


class EventFiles:
    """Writes records into event files of a directory: `EVENT_FILE{time}.{host}.{pid}`, in order of name."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._host = re.sub(r"[/\x00- ]", "_", socket.gethostname()) or "localhost"
        self._last = 0  # time in a name
        self._file = -1
        self._room = 0

    def append(self, head: bytes, records: Any) -> None:
        """`head`: the begin of a new file. Raises CommandError, which names the file."""
        try:
            if self._room < len(records):
                self._begin(head)
            self._write(memoryview(records))
        except OSError as error:
            raise CommandError(f"cannot write {self._path}: {error.strerror}") from None

    def _begin(self, head: bytes) -> None:
        self.close()
        if not self._last:
            make_directories(self._directory)
        self._last = max(int(time.time()), self._last + 1)
        self._path = self._directory / f"{EVENT_FILE}{self._last:010}.{self._host}.{os.getpid()}"
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
        self._room = BYTES_OF_A_FILE
        self._write(memoryview(head))

    def _write(self, data: "memoryview") -> None:
        self._room -= len(data)
        while data:
            data = data[os.write(self._file, data) :]

    def close(self) -> None:
        """Raises OSError: not all of the file is written."""
        if self._file >= 0:
            file, self._file = self._file, -1
            os.close(file)


def _write_task(task: Task, output: Path, form: str, meter: Meter, problems: Problems) -> None:
    """Raises CommandError and Interrupted."""
    rows = task.rows(meter, problems)
    encoder = Encoder(task.kind, form, rows)
    files = EventFiles(output / f"rank{task.rank.rank}" / task.kind)
    for part in rows:
        for first in range(0, part.rows, _ROWS_AT_ONCE):
            few = part.take(slice(first, first + _ROWS_AT_ONCE))
            files.append(first_record(few.files[few.file[0]].written), encoder.encode(few))
    files.close()


def write_curves(
    tasks: "list[Task]", output: Path, meter: Meter, problems: Problems, form: str, processes: int
) -> None:
    """Makes `output`/rank{R}/{prefix}/events…, for each task that has rows. The contents are the same with
    any number of processes. Raises CommandError, which names the file, and Interrupted."""
    count = min(processes, len(tasks))
    if count < 2:
        for task in tasks:
            _write_task(task, output, form, meter, problems)
        return
    import multiprocessing  # takes time to load
    from concurrent.futures import FIRST_EXCEPTION, ProcessPoolExecutor, wait
    from concurrent.futures.process import BrokenProcessPool

    context: Any = multiprocessing.get_context("spawn")  # a fork would lack the threads of the engines
    counts = context.Array("q", 4)
    sys.stdout.flush()
    with ProcessPoolExecutor(count, context, _begin_process, (counts, os.getpid())) as pool:
        futures = [pool.submit(_write_in_process, task, output, form) for task in tasks]
        try:
            done, waiting = wait(futures, 0)
            while waiting and not any(future.exception() for future in done):
                done, waiting = wait(futures, 0.05, FIRST_EXCEPTION)
                meter.rows, meter.repeated, meter.bytes = counts[:_STOP]
                meter.add()
        finally:
            counts[_STOP] = 1
            pool.shutdown(cancel_futures=True)
    for future in futures:
        error = None if future.cancelled() else future.exception()
        if isinstance(error, BrokenProcessPool):
            raise CommandError("a process of the conversion was killed")
        if error is not None and not isinstance(error, Interrupted):
            raise error
    for future in futures:
        problems.extend(future.result())


_STOP = 3  # in the counts, behind those of the meter
_counts: Any = None  # of this process


class _ProcessMeter(Meter):
    """Counts for the process that shows the progress, which may stop this one."""

    def add(self, rows: int = 0, repeated: int = 0, bytes: int = 0) -> None:
        with _counts.get_lock():
            for i, number in enumerate((rows, repeated, bytes)):
                _counts[i] += number
        if _counts[_STOP]:
            raise Interrupted


def _begin_process(counts: Any, parent: int) -> None:
    global _counts
    _counts = counts
    hide_pandas()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the parent stops this process
    if sys.platform == "linux":  # ends with its parent
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


def _write_in_process(task: Task, output: Path, form: str) -> Problems:
    problems = Problems()
    _write_task(task, output, form, _ProcessMeter(0), problems)
    return problems


def perform(arguments: argparse.Namespace) -> int:
    request = request_of(arguments)
    is_msprobe = arguments.tags == "msprobe"
    target = request.output or request.new_directory("csv2tensorboard_by_step", is_beside=not is_msprobe)
    write = partial(write_curves, form=arguments.tags, processes=arguments.process_num)
    return converted(request, target, CURVES, write)
