# SPDX-License-Identifier: Apache-2.0
"""Runs commands of gradmon_read; makes databases as ranks write them (FORMAT.md, "SQLite"), and CSV files;
reads and makes event files."""
import contextlib
import os
import random
import sqlite3
import struct
from pathlib import Path
from typing import Any, Iterator, NamedTuple, Optional, Sequence

import pytest
from gradmon_read.__main__ import main
from gradmon_read.event_rows import fields, masked_crc32c, records
from gradmon_read.rank_database import APPLICATION_ID, FILE

GOLDEN = Path(__file__).with_name("golden")
GRADMONCTL = str(Path(os.environ["GRADMON_BIN"]) / "gradmonctl")


class Answer(NamedTuple):
    code: int
    out: str
    err: str


class Commands:
    """Commands in this process: most tests need no process of their own."""

    def __init__(self, capture: "pytest.CaptureFixture[str]") -> None:
        self._capture = capture

    def __call__(self, *words: "str | os.PathLike[str]") -> Answer:
        self._capture.readouterr()
        code = main([os.fspath(word) for word in words])
        captured = self._capture.readouterr()
        return Answer(code, captured.out, captured.err)


def golden_difference(name: str, now: str) -> str:
    """Empty if the text is that of the golden file."""
    path = GOLDEN / name
    if "GRADMON_WRITE_GOLDEN" in os.environ:
        path.write_text(now)
    return "" if path.read_text() == now else f"{path} differs; now:\n{now}"


TABLES = """
CREATE TABLE monitoring_targets (target_id INTEGER PRIMARY KEY, target_name TEXT NOT NULL,
  vpp_stage INTEGER NOT NULL, micro_step INTEGER NOT NULL DEFAULT 0);
CREATE TABLE monitoring_metrics (metric_id INTEGER PRIMARY KEY, metric_name TEXT NOT NULL UNIQUE);
CREATE TABLE target_tensors (metric_id INTEGER, target_id INTEGER, rank INTEGER, step INTEGER, shape TEXT,
  dtype TEXT);
CREATE TABLE metric_stats (metric_id INTEGER NOT NULL, stat_name TEXT NOT NULL);
INSERT INTO monitoring_metrics VALUES (4, 'grad_reduced');
INSERT INTO metric_stats VALUES (4, 'max'), (4, 'norm');
PRAGMA user_version = 1;
"""
PARTITION = (
    "CREATE TABLE IF NOT EXISTS {} (rank INTEGER NOT NULL, step INTEGER NOT NULL, target_id INTEGER, "
    "norm REAL, max REAL, nan_mask INTEGER NOT NULL, PRIMARY KEY (rank, step, target_id)) WITHOUT ROWID"
)


class RankWriter:
    """One rank of a run, which writes its database: rows of grad_reduced."""

    def __init__(self, output_dir: Path, rank: int, run: str = "8c0ffee0", journal: str = "delete") -> None:
        self.directory = output_dir / f"Nov24_08-30-12-rank{rank}-{run}"
        self.directory.mkdir(parents=True)
        self.file = self.directory / FILE
        self._rank = rank
        self._targets: "dict[str, int]" = {}
        self._database = sqlite3.connect(self.file, isolation_level=None, check_same_thread=False)
        self._database.execute("PRAGMA synchronous = OFF")
        self._database.execute(f"PRAGMA journal_mode = {journal}")
        self._database.executescript(f"PRAGMA application_id = {APPLICATION_ID};{TABLES}")

    def write(self, step: int, targets: "Sequence[str]", values: "dict[str, list[float]]" = {}) -> None:
        """Norm and maximum of each target, by default step + rank / 100 and 1."""
        run = self._database.execute
        table = f"metric_4_step_{step // 500 * 500}_{step // 500 * 500 + 499}"
        run("BEGIN IMMEDIATE")
        run(PARTITION.format(table))
        for target in targets:
            if target not in self._targets:
                self._targets[target] = len(self._targets) + 1
                run("INSERT INTO monitoring_targets VALUES (?, ?, 0, 0)", (self._targets[target], target))
        rows = []
        for target in targets:
            found = values.get(target, [step + self._rank / 100, 1.0])
            mask = sum(1 << bit for bit, value in zip((0, 2), found) if value != value)
            rows.append((self._rank, step, self._targets[target], *found, mask))  # SQLite has no NaN
        self._database.executemany(f"INSERT INTO {table} VALUES (?, ?, ?, ?, ?, ?)", rows)
        run("COMMIT")

    def close(self) -> None:
        self._database.close()


def change(file: Path, statements: str) -> None:
    """Changes a database as no rank does."""
    with contextlib.closing(sqlite3.connect(file)) as database:
        database.executescript(statements)


def without(text: str, path: Any, name: Optional[str] = None) -> str:
    return text.replace(str(path), name or "")


def query_rows(database: Path, sql: str) -> "list[str]":
    """ "1|fc1|0.5" of each row; an empty text for NULL."""
    with contextlib.closing(sqlite3.connect(database)) as opened:
        opened.text_factory = lambda data: data.decode(errors="surrogateescape")
        return ["|".join("" if cell is None else str(cell) for cell in row) for row in opened.execute(sql)]


RANK0 = "Nov24_12-04-37-rank0-1a2b3c4d"
RANK3 = "Nov24_12-04-37-rank3-1a2b3c4d"
MSPROBE = "Dec03_21-34-40-rank0-5e6f"
_TENSOR = ',"[16, 8]",torch.float32\n'
_PLACE = "vpp_stage,name,step,"
# A job of gradmon with ranks 0 and 3, and one of msprobe, started on another day; both have step 1 of actv.
# 12 rows with 31 values, of which a conversion of all leaves out one row with two values.
_SAMPLE = {
    f"{RANK0}/actv_0-0.csv": f"{_PLACE}micro_step,norm,nans,shape,dtype\n0,fc1.input,0,0,6.5,0{_TENSOR}"
    f'0,fc1.input,0,1,7.25,0{_TENSOR}1,"a,b",0,0,nan,3{_TENSOR}0,fc1.input,1,0,9,0{_TENSOR}',
    f"{RANK0}/grad_reduced_0-99.csv": f"{_PLACE}min,max,mean,norm,nans,zeros,absmax,shape,dtype\n"
    f"0,layers.0.fc.weight,0,-0.5,1e-09,0.125,2.5,0,0.0,0.5{_TENSOR}"
    f"0,layers.0.fc.weight,7,-inf,inf,0.25,3.5,0,0.5,inf{_TENSOR}",
    f"{RANK0}/scalar_0-0.csv": "name,step,samples,value\nloss,0,16777217,2.75\n",
    f"{RANK0}/other_0-0.csv": f"{_PLACE}mg_direction,norm,shape,dtype\n0,fc1.weight,0,0.75,{_TENSOR}"
    "0,all_reduce.pre_0@a.py[3],0,,4.5,[8],torch.bfloat16\n",
    f"{RANK0}/attention_hook_0-0.csv": f"{_PLACE}micro_step,entropy,softmax_max\n0,core,0,0,0.5,0.25\n",
    f"{RANK3}/grad_reduced_0-99.csv": f"{_PLACE}norm,shape,dtype\n0,layers.0.fc.weight,0,9.5{_TENSOR}",
    f"{MSPROBE}/actv_0-0.csv": f"{_PLACE}micro_step,norm,max,shape,dtype\n0,fc2.input,1,0,1.5,True,"
    "torch.Size([4]),torch.float32\n0,fc2.output,1,0,nan,nan,nan,nan\n",
}


def write_files(directory: Path, files: "dict[str, str]") -> Path:
    for name, text in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    return directory


def sample_job(directory: Path) -> Path:
    return write_files(directory, _SAMPLE)


def corrupted(content: bytes, count: int, chosen: random.Random) -> bytes:
    """With so many random bytes."""
    made = bytearray(content)
    for _ in range(count):
        made[chosen.randrange(len(made))] = chosen.randrange(256)
    return bytes(made)


def broken_texts(good: bytes, count: int) -> "Iterator[bytes]":
    """The texts of CSV files, each broken in another way."""
    chosen = random.Random(17)
    odd = [b'"', b",", b"\n", b"\r", b"\x00", b"\xff", b"0x1", b"e999", b" ", b"True", b"-"]
    for number in range(count):
        text = good.replace(b"fc1", b"fc%d" % number)
        at, until = sorted(chosen.randrange(len(text) + 1) for _ in range(2))
        yield [
            lambda: text[:at],
            lambda: text[at:],
            lambda: bytes(chosen.randrange(256) if i % 20 == at % 20 else c for i, c in enumerate(text)),
            lambda: bytes(chosen.randrange(256) for _ in text),
            lambda: b"",
            lambda: text + b"name,step,max\nx,1,2\n" + text,
            lambda: text[:at] + chosen.choice(odd) + text[at:],
            lambda: text[:at] + chosen.choice([b"\0", b","]) * chosen.randrange(70_000) + text[at:],
            lambda: text[:at] + text[until:],
            lambda: text + b"0,x,9223372036854775807,2147483647,1e308,0,,\n0,y,9223372036854775808,0,1,0,,\n"
            b"2147483647,z,9223372036854775807,0,1e999,-1e-320,,\n-1,w,-1,-1,1,1,,\n",
            lambda: text + b"0,x'); DROP TABLE global_stats; --,1,0,2,0,,\n0,../../etc/passwd,1,0,2,0,,\n"
            b'0,\x1b[2J\xff\xfe,1,0,2,0,,\n0,,1,0,2,0,"' + b"[" * 3000 + b'",x\n',
            lambda: b"vpp_stage,name,step,entropy,mg_direction,samples,value,norm\n0,a,4,1,2,3,4,5\n",
        ][number % 12]()


class Point(NamedTuple):
    tag: str
    step: int
    value: float
    wall_time: float


def points_in(directory: Path) -> "Iterator[Point]":
    """The points in the event files of a directory; checks all checksums."""
    for file in sorted(directory.glob("events.out.tfevents.*")):
        for record in map(memoryview, records(file)):
            event = dict(fields(record))
            for _, value in fields(event.get(5, memoryview(b""))):
                tag, number = (part for _, part in fields(value))
                yield Point(bytes(tag).decode(), event.get(2, 0), number, event[1])


def _field(number: int, data: bytes) -> bytes:
    """A protobuf field with bytes, of less than 2^14."""
    return bytes([number << 3 | 2, len(data) & 0x7F | 0x80, len(data) >> 7]) + data


def event_of(tag: str, number: "float | list[float]", step: int = 7) -> bytes:
    """An event with a number, or with the counts of a histogram."""
    if isinstance(number, list):
        data = _field(5, _field(7, struct.pack(f"<{len(number)}d", *number)))
    else:
        data = b"\x15" + struct.pack("<f", number)
    sevens = [step % 2**64 >> shift & 0x7F | 0x80 for shift in range(0, 63, 7)]
    varint = bytes([*sevens, step % 2**64 >> 63])
    value = _field(1, _field(1, tag.encode()) + data)
    return b"\x09" + struct.pack("<d", 1.5) + b"\x10" + varint + _field(5, value)


def record_of(data: bytes) -> bytes:
    header = struct.pack("<Q", len(data))
    sums = [struct.pack("<I", masked_crc32c(part)) for part in (header, data)]
    return header + sums[0] + data + sums[1]
