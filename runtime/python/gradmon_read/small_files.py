# SPDX-License-Identifier: Apache-2.0
"""Small CSV files that are parsed together: a job may write a file a step. Needs pyarrow."""
import ctypes
import os
import stat
import sys
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any, Callable, Collection, Iterable, Iterator, NamedTuple, Optional, Sequence, TypeVar

import numpy
import pyarrow

from gradmon_read.csv_tables import KindFile, decompressed, header_of, line_ends, regular_table

_TOGETHER = 8 << 20  # bytes of files that are parsed at a time
_AHEAD = 2  # items whose work is done while one is used
_THREADS = 2
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_SMALL = 4 << 20  # bytes
_LIKELY_RATIO = 8  # of text to compressed bytes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameters of mallopt()
_cached_header = lru_cache(64)(header_of)


class Group(NamedTuple):
    """Files that may be parsed together, or that have common steps."""

    files: "list[KindFile]"
    is_small: bool


class Together(NamedTuple):
    """The rows of several files, in order, as CsvFile.tables() has them."""

    table: pyarrow.Table
    file: Any  # the index of each row's file; int32
    written: Any  # the time of the last write to each file, in seconds since 1970
    bytes_read: int


def keep_freed_memory() -> None:
    """For a process that does nothing else: arrays of megabytes come and go, and keeping their memory saves a
    fifth of the time."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, 256 << 20)
        mallopt(_MMAP_THRESHOLD, 128 << 20)
        pyarrow.set_memory_pool(pyarrow.system_memory_pool())


def read_ahead(
    items: "Iterable[tuple[_Item, Optional[Callable[[], _Result]]]]",
) -> "Iterator[tuple[_Item, Optional[Future[_Result]]]]":
    """Each item with what its work gives, in order. Two threads do the work of the next items meanwhile."""
    waiting: "deque[tuple[_Item, Optional[Future[_Result]]]]" = deque()
    with ThreadPoolExecutor(_THREADS) as pool:
        for item, work in items:
            waiting.append((item, pool.submit(work) if work else None))
            if len(waiting) > _AHEAD:
                yield waiting.popleft()
        yield from waiting


def groups(files: "Sequence[KindFile]") -> "Iterator[Group]":
    """Neighbours without common steps, as many small ones together as one block has, if all are as large as
    the first; files with common steps, as far as they overlap. `files`: ascending by first step."""
    together: "list[KindFile]" = []
    most = i = 0
    while i < len(files):
        end, last = i + 1, files[i].last_step
        while end < len(files) and files[end].first_step <= last:
            last = max(last, files[end].last_step)
            end += 1
        if together and (end > i + 1 or len(together) == most):
            yield Group(together, True)
            together = []
        if not together:
            size = _size(files[i])
            most = _TOGETHER // size
        if end == i + 1 and size < _SMALL:
            together.append(files[i])
        else:
            yield Group(list(files[i:end]), False)
        i = end
    if together:
        yield Group(together, True)


def _size(file: KindFile) -> int:
    try:
        size = os.stat(file.path).st_size * (_LIKELY_RATIO if file.path.suffix == ".zst" else 1)
        return max(size, _TOGETHER >> 12)
    except OSError:
        return _SMALL


def read_together(
    files: "Sequence[KindFile]", columns: "Optional[Collection[str]]" = None
) -> "Optional[Together]":
    """The rows of small files with one header; None if the files must be read one by one. `columns`: as
    regular_table() has it. Any thread."""
    header: Optional[bytes] = None
    texts, lines, written, size = [], [], [], 0
    for file in files:
        try:
            content, time = _content(file.path)
        except (OSError, ValueError):
            return None
        header = content[: content.find(b"\n") + 1] if header is None else header
        texts.append(memoryview(content)[len(header) : content.rfind(b"\n") + 1])
        lines.append(line_ends(texts[-1]))
        written.append(time)
        size += len(content)
        if not header or not content.startswith(header) or size > 4 * _TOGETHER:
            return None
    titles = _cached_header(header[:-1]) if header else None
    whole = b"".join(texts)
    table = regular_table(whole, titles, 1, columns, sum(lines)) if titles else None
    if table is None:
        return None
    index = numpy.repeat(numpy.arange(len(files), dtype="int32"), lines)
    before = numpy.cumsum([0, *lines[:-1]])  # rows of the files before each
    line = table["line"].to_numpy() - before[index] + 1
    place = table.column_names.index("line")
    return Together(table.set_column(place, "line", pyarrow.array(line)), index, numpy.array(written), size)


def _content(path: Path) -> "tuple[bytes, float]":
    """And the time of the last write. Never waits for a FIFO. Raises OSError for what is no small file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > 2 * _SMALL:
            raise OSError(0, "not a small file")
        seconds, nanoseconds = divmod(status.st_mtime_ns, 10**9)
        content = os.read(descriptor, status.st_size)  # a job may be appending to it
        if path.suffix == ".zst":
            content = decompressed(content).read(4 * _TOGETHER + 1)
        return content, seconds + 1e-9 * nanoseconds
    finally:
        os.close(descriptor)
