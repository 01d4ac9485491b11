# SPDX-License-Identifier: Apache-2.0
"""gradmonctl finds a job from any directory and environment of the host, and no other user's socket."""
import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Any, Iterator, Optional

import jobs
import pytest

BIN = Path(os.environ["GRADMON_BIN"])
WITHIN = 60  # seconds
OTHER_USER = 65534
AS_OTHER_USER = ("setpriv", f"--reuid={OTHER_USER}", f"--regid={OTHER_USER}", "--clear-groups")
# Sees no process of the job: the output directory alone says where the job's socket is.
AMONG_OTHER_PROCESSES = ("unshare", "--pid", "--fork", "--mount-proc")
LOGIN = "/run/user/0"  # where pam_systemd makes the runtime directory of root

if os.geteuid() != 0:
    pytest.skip("needs root, to make a host of its own with other users", allow_module_level=True)


class Host:
    """Processes, /run and /dev/shm of its own, so that only the jobs of this test are found there."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.jobs: "list[Job]" = []
        made = f"mount -t tmpfs tmpfs /dev/shm && mount -t tmpfs tmpfs /run && mkdir -p -m 700 {LOGIN}"
        script = f"{made} && chmod 1777 /dev/shm && echo made && exec sleep infinity"
        spaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        self.process = subprocess.Popen([*spaces, "sh", "-c", script], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None and self.process.stdout.readline() == "made\n"
        pid = self.process.pid
        self.first = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0]

    def close(self) -> None:
        """Kills all processes of the host."""
        self.process.kill()
        self.process.wait()
        for job in self.jobs:
            job.process.wait(WITHIN)

    def command(self, *words: str, runtime: Optional[str] = None, **env: str) -> "list[str]":
        kept = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", **env}
        if runtime is not None:
            kept["XDG_RUNTIME_DIR"] = runtime
        set_variables = [f"{name}={value}" for name, value in kept.items()]
        return ["nsenter", "-t", self.first, "-m", "-p", "env", "-i", *set_variables, *words]

    def ctl(
        self,
        *words: str,
        at: str = "/",
        within: "tuple[str, ...]" = (),
        runtime: Optional[str] = None,
        **env: str,
    ) -> "subprocess.CompletedProcess[str]":
        # By a descriptor: another user may not reach the program's path.
        script = 'cd "$0" && exec 3<"$1" && shift && exec "$@"'
        program = ["sh", "-c", script, at, str(BIN / "gradmonctl"), *within, "/proc/self/fd/3", *words]
        command = self.command(*program, runtime=runtime, **env)
        return subprocess.run(command, capture_output=True, text=True, timeout=WITHIN)

    def start(self, name: str, runtime: Optional[str] = None, **env: str) -> "Job":
        self.jobs.append(Job(self, name, runtime, env))
        return self.jobs[-1]


class Job:
    """One rank, which begins to collect."""

    def __init__(self, host: Host, name: str, runtime: Optional[str], env: "dict[str, str]") -> None:
        self.host = host
        place = host.directory / name
        place.mkdir()
        self.out = place / "monitor_output"
        self.log = place / "log"
        self.config = jobs.write_config(place, dynamic_on=True, wg_distribution=True)
        env = {"DYNAMIC_MONITOR": "1", "MONITOR_OUTPUT_DIR": str(self.out), **env}
        train = [str(BIN / "gradmon-train"), "--config", str(self.config)]
        words = [*train, "--steps", "1000000", "--step-ms", "20", "--layers", "1"]
        with self.log.open("w") as log:
            command = host.command(*words, runtime=runtime, **env)
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def status(self, *words: str, **keys: Any) -> "dict[str, Any]":
        done = self.host.ctl("status", "--json", *(words or ("--output-dir", str(self.out))), **keys)
        return dict(json.loads(done.stdout)) if done.returncode == 0 else {"stderr": done.stderr}

    def until_on(self, *words: str, **keys: Any) -> "dict[str, Any]":
        seen: "dict[str, Any]" = {}

        def on() -> bool:
            seen.clear()
            seen.update(self.status(*words, **keys))
            return seen.get("state") == "on"

        assert jobs.eventually(on, WITHIN), f"{seen} {self.log.read_text()[-2000:]}"
        return seen


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def short() -> Iterator[Path]:
    """A directory whose path fits into a socket's address, for runtime directories."""
    made = Path(tempfile.mkdtemp(prefix="places", dir="/tmp"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def private(directory: Path) -> str:
    directory.mkdir(mode=0o700)
    return str(directory)


def test_a_job_is_found_by_its_output_directory_whoevers_environment_it_has(host: Host, short: Path) -> None:
    session, other = private(short / "session"), private(short / "other")
    long = private(short / ("l" * 120))
    runtimes = {"login": LOGIN, "session": session, "cron": None, "long": long, "missing": str(short / "no")}
    started = {name: host.start(name, runtime) for name, runtime in runtimes.items()}
    for name, job in started.items():
        for runtime in (None, other):
            job.until_on(runtime=runtime)
        job.until_on(runtime=other, within=AMONG_OTHER_PROCESSES)
        off = host.ctl("off", "--wait", "--output-dir", str(job.out), runtime=other)
        assert off.returncode == 0, name + off.stderr
        assert json.loads(job.config.read_text())["dynamic_on"] is False, name


def test_from_any_directory_the_only_job_is_taken_and_several_are_listed(host: Host, short: Path) -> None:
    one = host.start("one", private(short / "session"))
    status = one.until_on("--job", "gradmon-train")
    assert status["name"] == "gradmon-train" and status["output_dir"] == str(one.out)
    alone = host.ctl("status", at=str(short))
    assert alone.returncode == 0
    assert alone.stderr == (
        "gradmonctl: no live job with the output directory monitor_output: "
        "this is your only one, gradmon-train\n"
    )
    elsewhere = host.ctl("status", MONITOR_OUTPUT_DIR=str(short / "nothing"))
    assert elsewhere.returncode == 4 and "no live job with the output directory" in elsewhere.stderr
    assert host.ctl("status", within=AS_OTHER_USER).returncode == 4
    for command in (("off",), ("on",), ("cancel",), ("status",), ("watch",)):
        wrong = host.ctl(*command, str(short / "nothing"))
        assert wrong.returncode == 4 and wrong.stdout == "", command
        assert wrong.stderr == (
            f"gradmonctl: no live job with the output directory {short}/nothing "
            "(gradmonctl jobs lists yours; --job, --output-dir or --endpoint chooses one)\n"
            "gradmonctl: your only live job is gradmon-train, with another output directory: "
            f"leave {short}/nothing out to choose that job\n"
        ), command
    refused = host.ctl("set", "step_interval=2", "--output-dir", str(short / "nothing"))
    assert refused.returncode == 4 and "your only live job is gradmon-train" in refused.stderr
    assert one.status()["state"] == "on" and one.status()["step_interval"] == 1

    two = host.start("two", GRADMON_JOB="the second")
    two.until_on()
    assert "your only" not in host.ctl("off", str(short / "nothing")).stderr
    both = host.ctl("off", at=str(short))
    assert both.returncode == 2
    assert "2 live jobs of this user on this host; choose one with --job or --endpoint" in both.stderr
    assert "gradmon-train" in both.stderr and "the second" in both.stderr
    assert one.status()["state"] == two.status()["state"] == "on"
    here = host.ctl("status", "--json", at=str(two.out.parent))
    assert here.returncode == 0 and here.stderr == "" and json.loads(here.stdout)["name"] == "the second"
    assert host.ctl("off", "--wait", "--job", "the second").returncode == 0
    assert two.status()["state"] == "off" and one.status()["state"] == "on"


class Planted:
    """A socket that listens in a job directory of the given owner and mode, and counts who connects."""

    def __init__(self, base: Path, owner: int, mode: int = 0o700) -> None:
        self.directory = base / "gradmon" / "job"
        self.directory.mkdir(parents=True)
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(str(self.directory / "hub.sock"))
        self.socket.listen()
        for path in (base, base / "gradmon", self.directory):
            os.chown(path, owner, -1)
            path.chmod(mode)
        self.connected = 0
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            try:
                self.socket.accept()[0].close()
            except OSError:
                return
            self.connected += 1


def test_a_note_in_a_shared_directory_leads_to_no_socket_of_another_user(host: Host, short: Path) -> None:
    (host.directory / "job").mkdir()
    out = host.directory / "job" / "out"
    notes = out / ".gradmon" / "jobs"
    notes.mkdir(parents=True)
    planted = {
        "another user's": Planted(short / "a", OTHER_USER),
        "open to others": Planted(short / "b", 0, 0o777),
    }
    for path in (out, out / ".gradmon", notes):
        path.chmod(0o777)
    node = subprocess.run(host.command("uname", "-n"), capture_output=True, text=True, check=True).stdout
    for name, place in planted.items():
        note = notes / f"{place.directory.parent.parent.name}.json"
        endpoint = f"ipc://{place.directory}/hub.sock"
        entry = {"epoch": "0", "launch_id": "job", "host": node.strip(), "endpoint": endpoint, "started": 1}
        for owner in (OTHER_USER, 0):
            note.write_text(json.dumps(entry))
            note.chmod(0o644)
            os.chown(note, owner, -1)
            found = host.ctl("off", "--output-dir", str(out))
            assert found.returncode == 4 and "no live job" in found.stderr, found
        assert place.connected == 0, name
    own = Planted(short / "c", 0)  # The notes do lead somewhere: this one is of the same user.
    entry["endpoint"] = f"ipc://{own.directory}/hub.sock"
    (notes / "c.json").write_text(json.dumps(entry))
    (notes / "c.json").chmod(0o644)
    assert host.ctl("off", "--output-dir", str(out)).returncode == 4
    assert own.connected > 0
    for place in (*planted.values(), own):
        place.socket.close()


def test_a_job_outlives_its_runtime_directory(host: Host, short: Path) -> None:
    session = private(short / "session")
    job = host.start("job", session)
    before = job.until_on()
    Path(session).rename(short / "removed")  # as at a logout: at once, with all that is in it
    shutil.rmtree(short / "removed")
    after: "dict[str, Any]" = {}

    def collects_on() -> bool:
        after.update(job.status())
        step = after["ranks"][0]["step"] if after.get("ranks") else -1
        return after.get("state") == "on" and step > before["ranks"][0]["step"] + 20

    assert jobs.eventually(collects_on, WITHIN), f"{after} {job.log.read_text()[-2000:]}"
    assert after["epoch"] == before["epoch"]
    assert after["ranks"][0]["pid"] == before["ranks"][0]["pid"]
    assert host.ctl("off", "--wait").returncode == 0
    private(Path(session))  # the next login
    assert host.ctl("on", "--wait", "--output-dir", str(job.out), runtime=session).returncode == 0
    assert job.status()["epoch"] == before["epoch"]
