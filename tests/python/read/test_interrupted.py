# SPDX-License-Identifier: Apache-2.0
"""gradmonctl convert that is killed, interrupted or refused a call, a different one in each run: the output
is whole or not there."""
import errno
import faulthandler
import multiprocessing
import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any, Callable, Optional

import pytest
from gradmon_read import conversion, csv2tb
from gradmon_read.__main__ import main
from gradmon_read.command_line import CommandError
from gradmon_read.conversion import CURVES, NOTHING, Meter, Unfinished
from gradmon_read.csv_tables import CsvFile
from gradmon_read.rank_database import FILE
from reading import RANK0, Commands, RankWriter, points_in, query_rows, sample_job, write_files
from scale import FULL

COMMANDS = ["csv2tb", "csv2db", "merge"]


def some_of(calls: int) -> "list[int]":
    return list(range(1, calls + 1, 1 if FULL else calls // 8 + 1))


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """The sample job, and a rank that has written a database: one row in each of three steps."""
    writer = RankWriter(sample_job(tmp_path / "job"), 5)
    for step in range(3):
        writer.write(step, ["fc1.weight"])
    writer.close()
    return tmp_path / "job"


def words_of(command: str, job: Path, output: Path) -> "list[str]":
    to = "-o" if command == "merge" else "--output-dirpath"
    return ["convert", command, str(job), to, str(output)]


class Attempt:
    """A conversion in a process of its own, which does something at its n-th call."""

    def __init__(
        self, words: "list[str]", place: Path, number: int = 0, act: Optional[Callable[[], None]] = None
    ):
        place.mkdir(exist_ok=True)
        said, log = os.pipe()
        child = os.fork()
        if child == 0:
            self._run(words, place, log, number, act)
        self.code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os.close(log)
        lines = os.read(said, 1 << 16).decode().split("\n")
        os.close(said)
        self.calls = int(lines[-1]) if lines[-1].isdigit() else -1  # of a process that has ended by itself
        self.log = "\n".join(lines)

    @staticmethod
    def _run(words: "list[str]", place: Path, log: int, number: int, act: Any) -> None:
        for stream in (1, 2):
            os.dup2(log, stream)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        faulthandler.dump_traceback_later(60, exit=True)
        calls = 0

        def note(event: str, arguments: "tuple[Any, ...]") -> None:
            nonlocal calls
            paths = [os.fsdecode(one) for one in arguments if isinstance(one, (str, bytes, os.PathLike))]
            if event == "fcntl.flock" or any(path.startswith(str(place)) for path in paths):
                calls += 1
                if calls == number:
                    act()

        add = Meter.add

        def add_and_note(self: Meter, *counts: Any, **named: Any) -> None:
            note("add", (str(place),))
            add(self, *counts, **named)

        Meter.add = add_and_note  # type: ignore[method-assign]
        sys.addaudithook(note)
        code = 70
        try:
            code = main(words)
        finally:
            sys.stdout.flush()
            sys.stderr.write(f"{calls}")
            sys.stderr.flush()
            os._exit(code)


def unfinished_in(place: Path) -> "list[Path]":
    """A process that is killed before it has locked its new directory leaves it empty, for a minute."""
    return [path for path in place.iterdir() if path.name.startswith(".") and any(path.iterdir())]


def is_whole(command: str, output: Path) -> Optional[bool]:
    """True if the output has all rows; None if it is not there."""
    if not output.exists():
        return None
    if command == "csv2tb":
        return sum(len(list(points_in(directory))) for directory in output.glob("*/*")) == 29
    database = output if command == "merge" else output / FILE
    values = 29 + (6 if command == "merge" else 0)
    return query_rows(database, "PRAGMA integrity_check") == ["ok"] and query_rows(
        database, "SELECT count(*) FROM v_metrics"
    ) == [str(values)]


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def fail() -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize("command", COMMANDS)
def test_at_any_call_a_conversion_leaves_nothing_or_the_whole(
    job: Path, tmp_path: Path, command: str
) -> None:
    sound = Attempt(words_of(command, job, tmp_path / "sound/x"), tmp_path / "sound")
    assert (sound.code, is_whole(command, tmp_path / "sound/x")) == (0, True), sound.log
    assert sound.calls > 15
    ends = set()
    for act in (kill, interrupt, fail):
        for number in some_of(sound.calls):
            place = tmp_path / f"{act.__name__}{number}"
            attempt = Attempt(words_of(command, job, place / "x"), place, number, act)
            found = is_whole(command, place / "x")
            assert found in (None, True), (attempt.log, number)
            if act is not kill:
                assert found or "gradmonctl: " in attempt.log, (act, number)
            if act is interrupt:
                assert unfinished_in(place) == [], number
                assert attempt.code == -signal.SIGINT, (attempt.log, number)
                assert found or "interrupted; nothing was written" in attempt.log
            if act is fail:
                assert attempt.code == (0 if found else 1), attempt.log
            if act is kill and found is None:
                assert attempt.code == -signal.SIGKILL
                again = Attempt(words_of(command, job, place / "x"), place)
                assert (again.code, is_whole(command, place / "x")) == (0, True)
                assert unfinished_in(place) == []
            ends.add((act, found))
    assert {(act, None) for act in (kill, interrupt, fail)} <= ends


@pytest.mark.parametrize("command", COMMANDS[:2])
def test_at_any_call_an_earlier_output_is_the_old_or_the_new_one(
    job: Path, tmp_path: Path, command: str
) -> None:
    row = "vpp_stage,name,step,norm,shape,dtype\n0,old,0,1,[2],\n"
    old_job = write_files(
        tmp_path / "old", {f"{RANK0}/{kind}_0-0.csv": row for kind in ("actv", "grad_reduced")}
    )

    def made(name: str, number: int, act: Any) -> "tuple[Path, Attempt]":
        place = tmp_path / name
        assert main(words_of(command, old_job, place / "x")) == 0
        (place / "x" / "notes").write_text("mine")
        return place / "x", Attempt(words_of(command, job, place / "x"), place, number, act)

    output, sound = made("sound", 0, None)
    assert sound.code == 0
    for act in (kill, fail):
        for number in some_of(sound.calls):
            output, attempt = made(f"{act.__name__}{number}", number, act)
            assert (output / "notes").read_text() == "mine"
            if command == "csv2db":
                assert query_rows(output / FILE, "PRAGMA integrity_check") == ["ok"]
                rows = query_rows(output / FILE, "SELECT count(*) FROM v_metrics")
                assert rows == (["29"] if attempt.code == 0 else rows) and rows[0] in ("2", "29")
                continue
            actv, grad_reduced = (
                len(list(points_in(output / "rank0" / k))) for k in ("actv", "grad_reduced")
            )
            assert actv in (1, 8) and grad_reduced in (1, 14), (attempt.log, number)
            if act is fail:  # undone, or done
                assert (actv, grad_reduced) == ((8, 14) if attempt.code == 0 else (1, 1)), (
                    attempt.log,
                    number,
                )


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("size", [0, 3000, 20000])
def test_on_a_full_disk_the_cause_is_named_and_nothing_is_left(
    job: Path, tmp_path: Path, command: str, size: int
) -> None:
    rows = "".join(f"a{step % 99},{step},1.5\n" for step in range(20000))
    write_files(job, {f"{RANK0}/exp_avg_0-99999.csv": f"name,step,norm\n{rows}"})
    place = tmp_path / "place"

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    attempt = Attempt(words_of(command, job, place / "x"), place, 1, limit)
    assert attempt.code == 1
    assert ("File too large" in attempt.log) or ("disk" in attempt.log), attempt.log
    assert list(place.iterdir()) == []


def test_an_interrupted_conversion_of_several_processes_leaves_nothing(job: Path, tmp_path: Path) -> None:
    place = tmp_path / "other"
    words = [*words_of("csv2tb", job, place / "x"), "--process-num", "4"]
    attempt = Attempt(words, place, 5, lambda: os.kill(os.getpid(), signal.SIGTERM))
    assert attempt.code == -signal.SIGTERM
    assert list(place.iterdir()) == []


def test_a_killed_or_failed_process_of_several_ends_the_conversion(
    run: Commands, job: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    def refuse() -> None:
        raise CommandError("no room")

    forking = multiprocessing.get_context("fork")  # its processes have what is replaced here
    monkeypatch.setattr(multiprocessing, "get_context", lambda _: forking)
    for act, error in ((kill, "a process of the conversion was killed"), (refuse, "no room")):
        monkeypatch.setattr(csv2tb, "_write_task", lambda *_: act())  # noqa: B023
        answer = run(*words_of("csv2tb", job, tmp_path / "place/x"), "--process-num", "3")
        assert (answer.code, answer.err) == (1, f"gradmonctl: {error}\n")
        assert os.listdir(tmp_path / "place") == []


@pytest.mark.parametrize("processes", ["1", "2"])
def test_without_memory_csv2db_ends_with_an_error(
    run: Commands, job: Path, monkeypatch: Any, processes: str
) -> None:
    def tables(self: CsvFile) -> Any:
        raise MemoryError

    monkeypatch.setattr(CsvFile, "tables", tables)
    answer = run("convert", "csv2db", job, "--output-dirpath", job / "x", "--process-num", processes)
    assert (answer.code, answer.err) == (1, "gradmonctl: cannot convert: out of memory\n")
    assert not (job / "x").exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_system_that_knows_only_the_plain_rename_gets_whole_outputs(
    run: Commands, job: Path, tmp_path: Path, monkeypatch: Any, command: str
) -> None:
    monkeypatch.setattr(conversion, "_RENAME", None)
    for _ in range(1 if command == "merge" else 2):  # merge replaces nothing
        assert run(*words_of(command, job, tmp_path / "place/x")).code == 0
        assert is_whole(command, tmp_path / "place/x")
        assert os.listdir(tmp_path / "place") == ["x"]


def test_a_name_that_was_taken_meanwhile_is_not_overwritten(tmp_path: Path, monkeypatch: Any) -> None:
    for rename in (conversion._RENAME, None):
        monkeypatch.setattr(conversion, "_RENAME", rename)
        output = Unfinished(tmp_path / "made", NOTHING)
        output.path.write_text("mine")
        (tmp_path / "made").write_text("theirs")
        with pytest.raises(CommandError, match="File exists"):
            output.finish()
        output.close()
        assert (tmp_path / "made").read_text() == "theirs"
        (tmp_path / "made").unlink()
    assert list(tmp_path.iterdir()) == []


def test_an_empty_directory_is_replaced_and_anything_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    output = Unfinished(tmp_path / "empty/", NOTHING)
    write_files(output.path, {"row": "1"})
    output.finish()
    output.close()
    assert (tmp_path / "empty/row").read_text() == "1"
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to("nowhere")
    for name, earlier, expected in (
        ("empty", NOTHING, "a new name or an empty directory"),
        ("empty", conversion.FILE, "a new name, an empty directory or a file"),
        ("file", CURVES, "a new name or a directory"),
        ("link", CURVES, "a new name or a directory"),
    ):
        with pytest.raises(CommandError, match=f"{tmp_path / name} is there already; expected {expected}$"):
            Unfinished(tmp_path / name, earlier)


def test_what_a_killed_process_has_left_is_removed_and_what_a_living_one_makes_is_not(tmp_path: Path) -> None:
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:
        Unfinished(tmp_path / "theirs", NOTHING).path.write_text("half")
        os.write(told, b"x")
        time.sleep(600)
    os.read(ready, 1)
    (tmp_path / ".new.unfinished-123456").mkdir()  # of a process that is just making it
    (tmp_path / ".old.unfinished-123456").mkdir()
    os.utime(tmp_path / ".old.unfinished-123456", (1, 1))
    Unfinished(tmp_path / "mine", NOTHING).close()
    assert len(list(tmp_path.iterdir())) == 2
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    Unfinished(tmp_path / "mine", NOTHING).close()
    assert os.listdir(tmp_path) == [".new.unfinished-123456"]
