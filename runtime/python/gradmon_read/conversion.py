# SPDX-License-Identifier: Apache-2.0
"""The course of a conversion: its progress, its signals, and an output that appears when it is complete."""
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
from pathlib import Path
from typing import Any, Callable, Iterator, Optional

from gradmon_read.command_line import DONE, FAILED, CommandError, report
from gradmon_read.listing import Problems, printable, rank_ranges
from gradmon_read.csv_tables import keep_freed_memory

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
