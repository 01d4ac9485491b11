# SPDX-License-Identifier: Apache-2.0
"""The records of TensorBoard's event files (TFRecord), and the fields of their messages. Needs
google-crc32c."""
import os
import stat
import struct
from functools import lru_cache
from pathlib import Path
from typing import Any, Callable, Iterator

from gradmon_read.command_line import require

MOST_RECORD_BYTES = 64 << 20
HEADER_BYTES, FOOTER_BYTES = 12, 4


class EventFileError(ValueError):
    """The file goes on with something else than a record."""


def records(path: Path) -> "Iterator[bytes]":
    """The data of the whole records of a file, to which a running job may be appending. The longest record
    bounds the memory. Skips a torn last record in silence; never waits for a FIFO. Raises OSError, whose
    `strerror` says why, and EventFileError where the file goes on with something else."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        raise OSError(error.errno, f"cannot open: {error.strerror}") from None
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(0, "not a regular file")
        at = 0
        while at + HEADER_BYTES <= status.st_size:
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
            is_last = at + HEADER_BYTES + length + FOOTER_BYTES == status.st_size  # may be being written
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
    found: "Callable[[bytes], int]" = require("google-crc32c", "an event file", "google_crc32c").value
    return found
