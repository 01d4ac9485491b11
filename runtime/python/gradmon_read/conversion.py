# SPDX-License-Identifier: Apache-2.0
"""The course of a conversion: progress, signals, an output that appears when it is complete; and its input:
the rows of each kind and rank. Needs pyarrow."""
import argparse
import contextlib
import ctypes
import errno
import fcntl
import os
import re
import shutil
import signal
import stat
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any, Callable, Iterator, NamedTuple, Optional

import numpy

from gradmon_read.command_line import DONE, FAILED, CommandError, UsageError, default_output_dir, report
from gradmon_read.csv_tables import KindFile, keep_freed_memory, kind_files_in, text_of
from gradmon_read.kind_rows import Batch, KindReader, Names, grown
from gradmon_read.listing import Problems, printable, rank_ranges
from gradmon_read.runs import directory_name, find_run, parse_rank_directory, runs_in, seconds_in_year
from gradmon_read.vocabulary import ROW_KINDS

# An output that may exist at the target, besides an empty directory.
NOTHING = "a new name or an empty directory"
FILE = "a new name, an empty directory or a file"  # replaced at once
CURVES = "a new name or a directory"  # rank{R}/{prefix} in it are added or replaced one by one

_PLACE = re.compile(r"\..+\.unfinished-\w{6,8}", re.DOTALL)
_LOCK = "lock"
_LONGEST_START = 60  # s from making a directory to locking it
EVENT_FILE = "events.out.tfevents."
_NO_REPLACE, _EXCHANGE = 1, 2  # flags of renameat2()
_AT_FDCWD = -100
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
_RENAME = getattr(_LIBC, "renameat2", None)


def make_directories(path: Path) -> None:
    """0750, under the umask. Raises CommandError."""
    for directory in [*reversed(path.parents), path]:
        try:
            directory.mkdir(0o750)
        except OSError as error:
            if not directory.is_dir():
                raise CommandError(f"cannot make {directory}: {error.strerror}") from None


class Unfinished:
    """A file or directory that appears under its name only when it is complete. Until then it is in a
    directory beside it, `.NAME.unfinished-XXXXXXXX`, which close() removes. The directory of a killed process
    is removed when the next conversion begins there."""

    def __init__(self, target: Path, earlier: str) -> None:
        """Makes missing parents of the target. Raises CommandError: something else exists there."""
        self.target = Path(os.path.abspath(target))
        self._earlier = _kind_at(self.target)
        if self._earlier not in (NOTHING, earlier):
            raise CommandError(f"{self.target} is there already; expected {earlier}")
        parent = self.target.parent
        make_directories(parent)
        _remove_abandoned(parent)
        try:
            self._place = Path(tempfile.mkdtemp(prefix=f".{self.target.name}.unfinished-", dir=parent))
        except OSError as error:
            raise CommandError(f"cannot make a directory in {parent}: {error.strerror}") from None
        self.path = self._place / "result"  # does not exist yet
        try:
            self._lock = os.open(
                self._place / _LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640
            )
        except OSError as error:
            self._place.rmdir()
            raise CommandError(f"cannot make a file in {self._place}: {error.strerror}") from None
        with contextlib.suppress(OSError):  # without locks, a killed process's directory stays
            fcntl.flock(self._lock, fcntl.LOCK_EX)

    def finish(self) -> int:
        """Renames it to the target, unless something new has that name. After an error nothing has changed.
        Returns the number of replaced files or directories of an earlier output."""
        if self._earlier == CURVES:
            return _move_curves(self.path, self.target)
        with contextlib.suppress(OSError):
            self.target.rmdir()  # if it is an empty directory
        _rename(os.rename if self._earlier == FILE else _rename_new, self.path, self.target)
        return int(self._earlier == FILE)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            shutil.rmtree(self._place, ignore_errors=True)
        os.close(self._lock)


def _kind_at(target: Path) -> str:
    """NOTHING, FILE or CURVES; "" for anything that no conversion makes."""
    try:
        mode = target.lstat().st_mode
    except OSError:
        return NOTHING
    if stat.S_ISREG(mode):
        return FILE
    if not target.is_dir():
        return ""
    return CURVES if any(target.iterdir()) else NOTHING


def _remove_abandoned(parent: Path) -> None:
    """The directories of killed processes are unlocked. One without a lock file is empty: its process is just
    making it, or was killed then."""
    for place in parent.iterdir():
        if not _PLACE.fullmatch(place.name):
            continue
        with contextlib.suppress(OSError):
            if not (place / _LOCK).exists() and time.time() - place.stat().st_mtime > _LONGEST_START:
                place.rmdir()
            lock = os.open(place / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(place, ignore_errors=True)
            finally:
                os.close(lock)


def _rename_by(flags: int, source: Path, target: Path) -> bool:
    """renameat2(); False where the system or the file system does not know the flags."""
    if _RENAME is None:
        return False
    if _RENAME(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), flags) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS):
        return False
    raise OSError(number, os.strerror(number))


def _rename_new(source: Path, target: Path) -> None:
    """Replaces nothing."""
    if not _rename_by(_NO_REPLACE, source, target):
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        os.rename(source, target)


def _exchange(source: Path, target: Path) -> None:
    """Some file systems cannot exchange: then the old one is missing for a moment."""
    if _rename_by(_EXCHANGE, source, target):
        return
    aside = source.with_name(source.name + ".old")
    os.rename(target, aside)
    try:
        os.rename(source, target)
    except OSError:
        os.rename(aside, target)
        raise
    os.rename(aside, source)


def _rename(how: Any, source: Path, target: Path) -> None:
    try:
        how(source, target)
    except OSError as error:
        raise CommandError(f"cannot give {source} the name {target}: {error.strerror}") from None


def _move_curves(source: Path, target: Path) -> int:
    """Moves each directory rank{R}/{prefix}; replaces one that has only event files. At any moment each of
    them is the old one or the new one, complete."""
    moves = {}
    for directory in sorted(source.glob("*/*")):
        new = target / directory.relative_to(source)
        moves[directory, new] = _rename_new
        if os.path.lexists(new):
            _check_event_directory(new)
            moves[directory, new] = _exchange
    with contextlib.ExitStack() as undo:
        for (directory, new), how in moves.items():
            undo.callback(_undo, Path.rmdir, new.parent)  # if it was made here, and is empty then
        for (directory, new), how in moves.items():
            make_directories(new.parent)
            _rename(how, directory, new)
            undo.callback(_undo, os.rename if how == _rename_new else how, new, directory)
        undo.pop_all()
    return sum(how == _exchange for how in moves.values())


def _undo(action: Any, *paths: Path) -> None:
    with contextlib.suppress(OSError):
        action(*paths)


def _check_event_directory(directory: Path) -> None:
    if directory.is_symlink() or not directory.is_dir():
        raise CommandError(f"{directory} is there already; expected a directory of event files")
    for entry in sorted(directory.iterdir()):
        if entry.is_symlink() or not entry.is_file() or not entry.name.startswith(EVENT_FILE):
            raise CommandError(
                f"{entry} is no event file; expected nothing else in a directory that is replaced"
            )


class Interrupted(Exception):
    """One of the signals was received."""


class Meter:
    """Counts what is converted; shows it on a terminal. Its methods are called often."""

    _INTERVAL = 0.25  # s

    def __init__(self, bytes_of_all: int) -> None:
        self.rows = 0
        self.repeated = 0  # of steps that a later start of the job has collected again
        self.bytes = 0  # read
        self.signal = 0  # received
        self._bytes_of_all = bytes_of_all
        self._began = self._shown = time.monotonic()
        self._is_shown = sys.stderr.isatty()

    def add(self, rows: int = 0, repeated: int = 0, bytes: int = 0) -> None:
        """Raises Interrupted."""
        self.rows += rows
        self.repeated += repeated
        self.bytes += bytes
        if self.signal:
            raise Interrupted
        now = time.monotonic()
        if self._is_shown and now - self._shown >= self._INTERVAL:
            self._shown = now
            text = progress_text(self.rows, self.bytes, self._bytes_of_all, now - self._began)
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self._shown != self._began:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def progress_text(rows: int, bytes_read: int, bytes_of_all: int, seconds: float) -> str:
    """ "45 %, 1230000 rows, 310000 rows/s, 12 s left". `seconds`: since the beginning."""
    share = min(1.0, bytes_read / bytes_of_all) if bytes_of_all else 1.0
    text = f"{int(100 * share)} %, {rows} rows"
    if seconds > 0:
        text += f", {round(rows / seconds)} rows/s"
        if share >= 0.01:  # of less, nothing can be said
            text += f", {round(seconds * (1 - share) / share)} s left"
    return text


@contextlib.contextmanager
def _signals_noted(meter: Meter) -> "Iterator[None]":
    """Notes signals meanwhile; one that came ends the process afterwards, as if it came then."""

    def note(number: int, _: Any) -> None:
        meter.signal = meter.signal or number

    before = {}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            before[number] = signal.signal(number, note)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if meter.signal:
            sys.stdout.flush()
            sys.stderr.flush()
            signal.signal(meter.signal, signal.SIG_DFL)
            os.kill(os.getpid(), meter.signal)


def run_conversion(
    input: str,
    ranks: "list[int]",
    size: int,
    target: Path,
    earlier: str,
    write: "Callable[[Path, Meter, Problems], None]",
    problems: Problems,
) -> int:
    """Converts, and reports `problems`, those found so far and those of the conversion. Afterwards the target
    is complete or missing; a signal that ends the process does so here. Returns the exit code; raises
    CommandError.

    `input`: its name. `ranks`: ascending. `size`: bytes of the input. `target`: the file or directory to
    make. `earlier`: NOTHING, FILE or CURVES. `write`: makes the file or directory; raises CommandError."""
    keep_freed_memory()
    meter = Meter(size)
    with _signals_noted(meter), contextlib.closing(Unfinished(target, earlier)) as output:
        failure: Optional[Exception] = None
        try:
            write(output.path, meter, problems)
        except (CommandError, Interrupted, MemoryError) as error:
            failure = error
        meter.clear()
        if meter.signal:
            report("interrupted; nothing was written")
            return FAILED
        for message in problems.messages():
            report(message)
        if isinstance(failure, MemoryError):
            raise CommandError("cannot convert: out of memory")
        if failure:
            raise failure
        if meter.rows == 0:
            raise CommandError(
                f"found no rows in {input}; expected files such as grad_reduced_0-0.csv in the "
                "directories of its ranks"
            )
        replaced = output.finish()
        print(f"{meter.rows} rows of {rank_ranges(ranks)} in {printable(str(output.target))}")
        if meter.repeated:
            also = "of steps that a later start of the job has collected again"
            print(f"{meter.repeated} rows are left out, {also}")
        if replaced:
            print(f"{replaced} files or directories of an earlier conversion are replaced")
    return DONE


class RankInput(NamedTuple):
    rank: int
    starts: "list[Path]"  # its directories, from the first start on


def chosen_directories(
    path: Path, first: Optional[int], last: Optional[int], problems: Problems
) -> "list[RankInput]":
    """Ascending by rank. `path`: as find_run() takes it. `first`, `last`: the earliest and the latest time in
    a directory's name, as seconds_in_year(); None: no limit. Raises CommandError with the found and the
    expected input."""
    runs = runs_in(path, problems) if path.is_dir() else []
    runs = runs or [find_run(path, "", problems)]  # a rank's own directory, or a run-ID.json
    directories = [directory for run in runs for directory in run.ranks]
    ranks: "dict[int, list[Path]]" = {}
    for rank, directory in directories:
        name = parse_rank_directory(directory_name(directory))
        no_limit = first is None and last is None
        after = name is not None and (first is None or name.in_year >= first)
        if no_limit or name and after and (last is None or name.in_year <= last):
            ranks.setdefault(rank, []).append(directory)
    if not ranks:
        raise CommandError(
            f"{path}: none of {len(directories)} directories of ranks is in the time range; expected "
            f"one as {directory_name(directories[0].path)}"
        )
    return [RankInput(rank, ranks[rank]) for rank in sorted(ranks)]


FilesIn = Callable[[Path, Problems], "dict[str, list[KindFile]]"]


class Task(NamedTuple):
    """The rows that are converted together: those of one rank and kind."""

    rank: RankInput
    kind: str
    files_in: FilesIn

    def rows(self, meter: Meter, problems: Problems) -> "RankRows":
        # Problems of the directories are known.
        files = chosen_files(self.rank, Problems(), self.files_in)[self.kind]
        return RankRows(self.kind, files, meter, problems)


def chosen_files(rank: RankInput, problems: Problems, files_in: FilesIn) -> "dict[str, list[KindFile]]":
    """The files of each kind; by first step, revision, last step, start."""
    files: "dict[str, list[KindFile]]" = {}
    for start, directory in enumerate(rank.starts):
        for kind, of_kind in files_in(directory, problems).items():
            files.setdefault(kind, []).extend(file._replace(start=start) for file in of_kind)
    for of_kind in files.values():
        of_kind.sort(key=lambda file: (*file[:3], file.start))
    return {kind: files[kind] for kind in ROW_KINDS if kind in files}


def tasks_of(
    ranks: "list[RankInput]", kinds: "list[str]", problems: Problems, files_in: FilesIn = kind_files_in
) -> "tuple[list[Task], int]":
    """Rank by rank, kinds in their order; and the bytes of all files. `files_in`: of a directory, by
    default the CSV files."""
    tasks = []
    size = 0
    for rank in ranks:
        for kind, files in chosen_files(rank, problems, files_in).items():
            if not kinds or kind in kinds:
                tasks.append(Task(rank, kind, files_in))
                size += sum(file.path.stat().st_size for file in files if file.path.is_file())
    return tasks, size


class Target(NamedTuple):
    vpp_stage: int
    name: bytes
    micro_step: int  # -1: the file has no micro steps


class RankRows:
    """The rows of one kind and rank, from the files of all its starts, with ascending steps if they ascend in
    each file. If several starts of the job have collected a step, the rows of the last start are taken; the
    others are counted. A second row of a target in a step is a problem, and skipped. Skips rows without a
    value, and rows of more than `most` names and micro steps, which are a problem.

    `name` of its batches is a number of a name and micro step, which target() knows."""

    def __init__(
        self, kind: str, files: "list[KindFile]", meter: Meter, problems: Problems, most: int = Names.MOST
    ) -> None:
        self._kind, self._files, self._meter, self._problems, self._most = kind, files, meter, problems, most
        self._names = Names(most, f"more than {most} names and micro steps")
        self._pairs: "dict[int, int]" = {}  # numbers of names and micro steps
        self._all_pairs: "list[int]" = []
        self._last_steps = numpy.full(1024, -1)  # by number
        self._greatest_step = -1

    def target(self, number: int) -> Target:
        """Even numbers are of names without micro steps."""
        pair = self._all_pairs[number >> 1] if number & 1 else number >> 1 << 32
        return Target(*self._names.all[pair >> 32], (pair & 2**32 - 1) - 1)

    def __iter__(self) -> "Iterator[Batch]":
        """Raises Interrupted."""
        reader = KindReader(self._problems, self._names, self._meter)
        for batch in reader.batches(self._kind, self._files):
            batch = self._of_last_start(batch)
            if len(batch.absent) == len(batch.values):
                measured = numpy.zeros(batch.rows, bool)
                for field in batch.values:
                    measured |= batch.has(field)
                batch = batch if measured.all() else batch.take(measured)
            if batch.rows:
                batch = self._once(self._numbered(batch))
            if batch.rows:
                self._meter.add(rows=batch.rows)
                yield batch

    def _of_last_start(self, batch: Batch) -> Batch:
        """A step of several starts is within one batch."""
        starts = numpy.array([file.start for file in batch.files])
        if (starts == starts[0]).all():
            return batch
        start = starts[batch.file]
        steps, step = numpy.unique(batch.step, return_inverse=True)
        last = numpy.zeros(len(steps), starts.dtype)
        numpy.maximum.at(last, step, start)
        taken = start == last[step]
        self._meter.add(repeated=int(batch.rows - taken.sum()))
        return batch.take(taken)

    def _numbered(self, batch: Batch) -> Batch:
        number = batch.name * 2
        has_micro_step = batch.micro_step >= 0
        if has_micro_step.any():
            all_pairs = batch.name << 32 | batch.micro_step + numpy.int64(1)
            pairs, pair = numpy.unique(all_pairs[has_micro_step], return_inverse=True)
            number[has_micro_step] = numpy.array([self._number(one) for one in pairs.tolist()])[pair]
        return batch._replace(name=number)

    def _number(self, pair: int) -> int:
        if pair not in self._pairs:
            if len(self._all_pairs) >= self._most:
                return -1
            self._pairs[pair] = 2 * len(self._all_pairs) + 1
            self._all_pairs.append(pair)
        return self._pairs[pair]

    def _once(self, batch: Batch) -> Batch:
        """Without second rows of a target in a step."""
        number, steps = batch.name, batch.step
        most = int(number.max())
        least_step, greatest_step = int(steps.min()), int(steps.max())
        is_later = least_step > self._greatest_step
        self._greatest_step = max(self._greatest_step, greatest_step)
        self._last_steps = grown(self._last_steps, most + 1)
        if greatest_step - least_step < 2**40 and number.min() >= 0 and (steps[1:] >= steps[:-1]).all():
            places = (steps - least_step) * (most + 1) + number
            if (places[1:] <= places[:-1]).any():
                places = numpy.sort(places)
            once = (places[1:] != places[:-1]).all()
            if once and (is_later or (self._last_steps[number] != steps).all()):
                self._last_steps[number] = steps
                return batch
        good = numpy.ones(batch.rows, bool)
        for i, (one, step) in enumerate(zip(number.tolist(), steps.tolist())):
            text = ""
            if one < 0:
                text = self._names.too_many
            elif self._last_steps[one] == step:
                name = text_of(self.target(one).name[:100])
                text = f'found a second row of "{name}" in step {step}; expected one'
            else:
                self._last_steps[one] = step
            if text:
                good[i] = False
                path, line = batch.files[batch.file[i]].path, int(batch.line[i])
                self._problems.add(path, line, f"{text}; the row is left out")
        return batch.take(good)


class Request(NamedTuple):
    """The checked options of csv2tb and csv2db."""

    path: Path
    first: Optional[int]
    last: Optional[int]
    kinds: "list[str]"
    output: Optional[Path]  # None: a new directory

    def new_directory(self, name: str, is_beside: bool) -> Path:
        """`{time}_{name}` in the input, or beside the job's output directory."""
        directory = self.path if self.path.is_dir() else self.path.parent
        if is_beside:
            directory = Path(os.path.abspath(directory))
            if parse_rank_directory(directory.name):
                directory = directory.parent
            directory = directory.parent
            directory = Path() if directory == Path.cwd() else directory
        return directory / f"{time.strftime('%b%d_%H-%M-%S')}_{name}"


def request_of(arguments: argparse.Namespace) -> Request:
    """`arguments`: of csv2tb, or some of these. Raises UsageError with the found and the expected value."""
    options: "dict[str, Any]" = vars(arguments)
    times = []
    for option in ("time_start", "time_end"):
        text = options.get(option) or "None"
        times.append(None if text == "None" else seconds_in_year(text))
        if text != "None" and times[-1] is None:
            raise UsageError(
                f'--{option.replace("_", "-")}: found "{text}"; expected a time as in the names of '
                "directories, such as Dec03_21-34-40, or None"
            )
    first, last = times
    if first is not None and last is not None and first > last:
        raise UsageError(
            f"--time-start {options['time_start']} is later than --time-end {options['time_end']}; "
            "expected a time before it"
        )
    # "actv,grad_reduced", or as Python prints a list.
    names = [name for text in options.get("data_type_list", ()) for name in re.split(r"[\[\](), '\"]+", text)]
    names = [name for name in names if name and name != "None"]
    for name in names:
        if name not in ROW_KINDS:
            raise UsageError(f'--data-type-list: found "{name}"; expected {", ".join(ROW_KINDS)}')
    path, output = options["RUN"] or options.get("monitor_path"), options.get("output_dirpath")
    output = Path(output) if output and output != "None" else None
    return Request(Path(path) if path else default_output_dir(), first, last, names, output)


def converted(
    request: Request, target: Path, earlier: str, write: Any, other: Optional[FilesIn] = None
) -> int:
    """`write`: of the tasks into a path, with a meter and problems. `other`: finds files if there are no CSV
    files."""
    problems = Problems()
    ranks = chosen_directories(request.path, request.first, request.last, problems)
    tasks, size = tasks_of(ranks, request.kinds, problems)
    if not tasks and other:
        tasks, size = tasks_of(ranks, request.kinds, problems, other)[0], 0
    numbers, write = [rank.rank for rank in ranks], partial(write, tasks)
    return run_conversion(str(request.path), numbers, size, target, earlier, write, problems)
