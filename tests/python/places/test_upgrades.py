# SPDX-License-Identifier: Apache-2.0
"""A job and gradmonctl of two releases: a job runs for weeks while gradmonctl is upgraded.

recorded_033d9d74.tar.gz holds what the programs of commit 033d9d74 sent and wrote: each command of gradmonctl
with the hub's reply, the decision log, the output directory. With GRADMON_OLD_BINARIES, a directory of such
programs, they also run against the programs of this tree. record() makes the archive.
"""
import json
import os
import shutil
import signal
import socket
import sys
import tarfile
import tempfile
import threading
from pathlib import Path
from typing import Any, Iterator, Optional

import jobs
import pytest
from trained_place import BIN, WITHIN, TrainedPlace

OLD = Path(os.environ.get("GRADMON_OLD_BINARIES", ""))
ARCHIVE = Path(__file__).with_name("recorded_033d9d74.tar.gz")
CONFIG = {
    "dynamic_on": False,
    "wg_distribution": True,
    "targets": {"head": {}},
    "format": "sqlite",
    "alert": {"rules": [{"rule_name": "AnomalyNan", "args": {"threshold": 1e-30}}]},
}
STATUS, ON, OFF, SET, HISTORY, CONFIG_VERB, ALERTS = 0, 1, 2, 3, 4, 6, 12


def varint(data: bytes, at: int) -> "tuple[int, int]":
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def fields(data: bytes) -> "dict[int, Any]":
    """The fields of a protobuf message by number; of a repeated one the last."""
    found: "dict[int, Any]" = {}
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        if tag & 7 == 0:
            found[tag >> 3], at = varint(data, at)
            continue
        size, at = varint(data, at) if tag & 7 == 2 else ((8, at) if tag & 7 == 1 else (4, at))
        found[tag >> 3] = data[at : at + size]
        at += size
    return found


def text_field(number: int, text: bytes) -> bytes:
    return bytes([number << 3 | 2, len(text)]) + text


def command_in(frame: bytes) -> "dict[int, Any]":
    """A command's fields: 1 the verb, 2 the request id, 11 the release."""
    return fields(fields(frame)[2])


def reply_in(frame: bytes) -> "dict[int, Any]":
    """A reply's fields: 1 the request id, 2 the outcome, 3 the message, 8 the status, 15 the release."""
    return fields(fields(frame)[3])


def send(stream: socket.socket, frame: bytes) -> None:
    stream.sendall(len(frame).to_bytes(4, "little") + frame)


def receive(stream: socket.socket) -> Optional[bytes]:
    """The next frame; None at the end of the stream."""
    data = b""
    for size in (4, None):
        wanted = size or int.from_bytes(data, "little")
        data = b""
        while len(data) < wanted:
            piece = stream.recv(wanted - len(data))
            if not piece:
                return None
            data += piece
    return data


@pytest.fixture(scope="module")
def running() -> Iterator[TrainedPlace]:
    """A job of this release, off."""
    with TrainedPlace(CONFIG) as made:
        made.train()
        assert jobs.eventually(lambda: made.ctl("get").returncode == 0), made.log()
        yield made


@pytest.fixture
def place() -> Iterator[TrainedPlace]:
    with TrainedPlace(CONFIG) as made:
        yield made


class Hub:
    """A hub's socket in the job's directory, served by a thread until close()."""

    def __init__(self, place: TrainedPlace) -> None:
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(place.job / "hub.sock"))
        self.listener.listen()
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.listener.close()

    def _serve(self) -> None:
        while True:
            try:
                stream, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=[stream], daemon=True).start()

    def _answer(self, stream: socket.socket) -> None:
        with stream:
            while (asked := receive(stream)) is not None:
                answer = self.answer_to(asked)
                if answer is None:
                    return  # as a hub of 033d9d74 does after a command that it does not know
                send(stream, answer)

    def answer_to(self, asked: bytes) -> Optional[bytes]:
        raise NotImplementedError


class RecordedHub(Hub):
    """Answers as the hub of the recorded job did."""

    def __init__(self, place: TrainedPlace, recorded: Path) -> None:
        self.recorded = recorded
        super().__init__(place)

    def answer_to(self, asked: bytes) -> Optional[bytes]:
        command = command_in(asked)
        file = self.recorded / "replies" / str(command.get(1, STATUS))
        if not file.exists():
            return None
        reply = file.read_bytes()
        return reply.replace(reply_in(reply)[1], command[2])  # of one length


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path / "recorded")
    return tmp_path / "recorded"


def ask(place: TrainedPlace, frame: bytes) -> "dict[int, Any]":
    with socket.socket(socket.AF_UNIX) as stream:
        stream.settimeout(WITHIN)
        stream.connect(str(place.job / "hub.sock"))
        send(stream, frame)
        reply = receive(stream)
    assert reply is not None, "the hub has closed the connection"
    return reply_in(reply)


def test_a_job_answers_gradmonctl_of_the_release_before(running: TrainedPlace, recorded: Path) -> None:
    commands = {int(path.name): path.read_bytes() for path in (recorded / "commands").iterdir()}
    assert STATUS in commands and OFF in commands
    for verb in (STATUS, HISTORY, CONFIG_VERB, ALERTS, SET, ON, OFF):
        reply = ask(running, commands[verb])
        assert (reply[1], reply.get(2, 0)) == (command_in(commands[verb])[2], 0), (verb, reply)
    assert b"" != ask(running, commands[STATUS])[8]
    assert jobs.eventually(lambda: running.json("status")["state"] == "off")
    assert json.loads(running.config.read_text())["dynamic_on"] is False


def test_a_command_of_a_later_release_is_refused_with_both_releases(running: TrainedPlace) -> None:
    later = bytes([1 << 3, 99]) + text_field(2, b"id") + text_field(11, b"9.9.9")
    reply = ask(running, text_field(2, later))
    assert reply[2] == 1
    own = running.ctl("--version").stdout.split()[-1]
    wanted = f"the job runs gradmon {own}, which does not know this command of gradmon 9.9.9"
    assert reply[3].decode() == wanted


def test_gradmonctl_understands_a_job_of_the_release_before(place: TrainedPlace, recorded: Path) -> None:
    epoch = json.loads((recorded / "status.json").read_text())["epoch"]
    place.env["GRADMON_ENDPOINT"] = f"ipc://{place.job}/hub.sock"
    hub = RecordedHub(place, recorded)
    try:
        assert place.json("status")["epoch"] == epoch
        for command in ("status", "off"):
            said = place.ctl(command)
            assert said.returncode == 0 and "this is gradmonctl" not in said.stderr, said
        for arguments in (["history"], ["alerts"], ["get", "format"], ["targets"]):
            said = place.ctl(*arguments)
            own = place.ctl("--version").stdout.split()[-1]
            known = arguments != ["targets"]  # its reply is left out, as if the job did not know the command
            assert (said.returncode == 0) is known, said
            both = f"this is gradmonctl {own}, and the job runs an earlier gradmon"
            assert said.stderr.count(both) == 1, said
    finally:
        hub.close()


def continue_recorded(place: TrainedPlace, recorded: Path) -> None:
    """Puts what a killed job has left where a job of the same launch finds it."""
    shutil.copy(recorded / "decisions", place.job / "decisions")
    (place.job / "decisions").chmod(0o600)
    shutil.copytree(recorded / "out", place.out)


def test_a_hub_continues_the_epoch_that_the_release_before_began(place: TrainedPlace, recorded: Path) -> None:
    continue_recorded(place, recorded)
    before = json.loads((recorded / "history.json").read_text())["revisions"]
    offline = place.json("history")["revisions"]
    assert [entry["revision"] for entry in offline] == [entry["revision"] for entry in before]
    place.train()
    old = json.loads((recorded / "status.json").read_text())
    status = place.json("status")
    assert status["epoch"] == old["epoch"]
    history = place.json("history")["revisions"]
    kept = [(one["revision"], one["verdict"], one["effective_step"]) for one in before]
    assert [(one["revision"], one["verdict"], one["effective_step"]) for one in history][: len(kept)] == kept
    alerts = json.loads((recorded / "alerts.json").read_text())["alerts"]
    assert alerts and place.json("alerts")["alerts"][: len(alerts)] == alerts


def test_a_database_of_the_release_before_is_read_and_continued(place: TrainedPlace, recorded: Path) -> None:
    shutil.copytree(recorded / "out", place.out)
    database = next(place.out.glob("*-rank0-*/monitor_metrics.db"))
    query = ["query", "--metric", "grad_reduced", "--op", "norm", "--format", "csv", str(place.out)]
    before = place.ctl(*query)
    assert before.returncode == 0 and len(before.stdout.splitlines()) > 1, before
    config = {**CONFIG, "dynamic_on": True, "append_output": ["Jan01_00-00-00", "Dec31_23-59-59"]}
    place.config.write_text(json.dumps(config))
    size = len(before.stdout.splitlines())
    place.train(BIN, "--start-iteration", "1000000")
    assert jobs.eventually(lambda: len(place.ctl(*query).stdout.splitlines()) > size + 5), place.log()
    assert place.ctl(*query).stdout.startswith(before.stdout.rstrip("\n"))
    assert [path.name for path in database.parent.glob("*.db")] == [database.name]  # none was moved aside


def record(binaries: Path, archive: Path) -> None:
    """Runs a job of these programs, and saves what they send and write."""

    class Proxy(Hub):
        def __init__(self, place: TrainedPlace, to: Path) -> None:
            self.to = to
            self.commands: "dict[int, bytes]" = {}
            self.replies: "dict[int, bytes]" = {}
            super().__init__(place)

        def answer_to(self, asked: bytes) -> Optional[bytes]:
            verb = command_in(asked).get(1, STATUS)
            with socket.socket(socket.AF_UNIX) as stream:
                stream.connect(str(self.to / "hub.sock"))
                send(stream, asked)
                reply = receive(stream)
            if reply is not None:
                self.commands[verb], self.replies[verb] = asked, reply
            return reply

    job, seen = TrainedPlace(CONFIG), TrainedPlace(CONFIG)
    seen.env = {**job.env, "XDG_RUNTIME_DIR": str(seen.path)}
    job.train(binaries)
    hub = Proxy(seen, job.job)
    saved = Path(tempfile.mkdtemp())
    try:
        assert seen.ctl("on", "--collect-times", "3", "--wait", binaries=binaries).returncode == 0, job.log()
        assert jobs.eventually(lambda: job.json("status", binaries=binaries)["state"] == "off"), job.log()
        assert seen.ctl("set", "collect_times=7", binaries=binaries).returncode == 0, job.log()
        for arguments in (["get"], ["off"], ["history"], ["alerts"], ["status"]):
            assert seen.ctl(*arguments, binaries=binaries).returncode == 0, job.log()
        for name in ("history", "alerts", "status"):
            (saved / f"{name}.json").write_text(job.ctl(name, "--json", binaries=binaries).stdout)
        for kind in ("commands", "replies"):
            (saved / kind).mkdir()
            for verb, frame in getattr(hub, kind).items():
                (saved / kind / str(verb)).write_bytes(frame)
        (saved / "decisions").write_bytes((job.job / "decisions").read_bytes().rstrip(b"\0"))
        job.trainings[0].send_signal(signal.SIGKILL)
        shutil.copytree(job.out, saved / "out")
        shutil.rmtree(saved / "out" / ".gradmon" / "jobs")
        with tarfile.open(archive, "w:gz", compresslevel=9) as into:
            for path in sorted(saved.iterdir()):
                into.add(path, path.name)
    finally:
        hub.close()
        for one in (job, seen):
            one.__exit__()
        shutil.rmtree(saved)


if OLD.name:  # set by `tools/test --all` where there are such programs

    def mixed(directory: Path, **programs: Path) -> Path:
        """A directory with programs of both releases."""
        directory.mkdir()
        for name, binaries in programs.items():
            shutil.copy(binaries / name.replace("_", "-"), directory)
        return directory

    @pytest.mark.parametrize("job, ctl", [(OLD, BIN), (BIN, OLD)], ids=["old-job", "old-gradmonctl"])
    def test_status_and_off_work_with_a_program_of_the_release_before(
        place: TrainedPlace, job: Path, ctl: Path
    ) -> None:
        place.train(job)
        assert place.ctl("on", "--wait", binaries=ctl).returncode == 0, place.log()
        assert place.json("status", binaries=ctl)["state"] == "on"
        said = place.ctl("off", "--wait", binaries=ctl)
        assert said.returncode == 0 and "this is gradmonctl" not in said.stderr, said
        assert place.json("status", binaries=ctl)["state"] == "off"
        print(place.ctl("history", binaries=ctl).stderr, end="")

    @pytest.mark.parametrize("rank, hub", [(OLD, BIN), (BIN, OLD)], ids=["old-rank", "old-hub"])
    def test_a_rank_works_with_a_hub_of_the_other_release_that_takes_over(
        tmp_path: Path, place: TrainedPlace, rank: Path, hub: Path
    ) -> None:
        """The hub dies, and the rank starts the program that an upgrade has put in its place."""
        programs = mixed(tmp_path / "bin", gradmon_train=rank, gradmon_hub=rank, gradmonctl=rank)
        place.train(programs)
        epoch = place.json("status")["epoch"]
        assert place.ctl("on", "--wait").returncode == 0, place.log()
        (programs / "gradmon-hub").unlink()
        shutil.copy(hub / "gradmon-hub", programs)
        os.kill(place.hub(), signal.SIGKILL)
        assert jobs.eventually(lambda: place.ctl("status").returncode == 0), place.log()
        assert place.json("status")["epoch"] == epoch
        assert jobs.eventually(lambda: place.json("status")["state"] == "on"), place.log()
        assert place.ctl("off", "--wait").returncode == 0, place.log()
        assert place.json("status", binaries=OLD)["state"] == "off"


if __name__ == "__main__":
    record(Path(sys.argv[1]), ARCHIVE)
