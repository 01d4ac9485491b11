# SPDX-License-Identifier: Apache-2.0
"""Files in unusual places: mounted, on dead mounts, shared by containers."""
import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Iterator

import jobs
import pytest
import ranks
from trained_place import BIN, TrainedPlace
from training import Training


def write_config(path: Path, **keys: Any) -> None:
    path.write_text(json.dumps({"wg_distribution": True, **keys}, indent=2) + "\n")


@contextlib.contextmanager
def mounted(source: Path, target: Path) -> Iterator[None]:
    """Mounts one file on another. The test is skipped where that is not allowed."""
    bind = subprocess.run(["mount", "--bind", str(source), str(target)], capture_output=True, text=True)
    if bind.returncode != 0:
        pytest.skip("this process may not mount: " + bind.stderr.strip())
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(target)], check=True)


def test_a_mounted_config_is_written_back_and_set(tmp_path: Path) -> None:
    config, source = tmp_path / "config.json", tmp_path / "source.json"
    write_config(source, dynamic_on=True, collect_times=2)
    config.touch()
    with mounted(source, config):
        before = config.stat()
        training = Training(config, tmp_path / "out")
        training.until(lambda: not training.is_on_in_file())
        done = training.ctl("set", "collect_times=7")
        training.monitor.stop()
        after = config.stat()
        again = Training(config, tmp_path / "again")
        again.until(lambda: again.state() == "off")
        again.monitor.stop()
        assert jobs.eventually(
            lambda: not list(tmp_path.glob(".*"))
        )  # the hubs have ended and left nothing beside the file
    assert (done.returncode, done.stderr) == (0, "gradmonctl: saved; collecting stays off\n")
    expected = '{\n  "wg_distribution": true,\n  "dynamic_on": false,\n  "collect_times": 7\n}\n'
    assert source.read_text() == expected
    assert (after.st_ino, after.st_mode, after.st_uid) == (before.st_ino, before.st_mode, before.st_uid)
    assert not list((tmp_path / "again").rglob("*.csv"))


class HangingDisk:
    """A FUSE file system that shows the directory `backing`."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="gp-"))
        self.mount = self.path / "mount"
        self.backing = self.path / "backing"
        self.mount.mkdir()
        self.backing.mkdir()
        self.server = subprocess.Popen([BIN / "hanging-disk", self.mount, self.backing])

    def is_mounted(self) -> bool:
        return os.path.ismount(self.mount)

    def hang(self) -> None:
        self.server.send_signal(signal.SIGUSR1)

    def remove(self) -> None:
        self.server.kill()  # which ends the calls that hang
        self.server.wait()
        subprocess.run(["umount", "--lazy", str(self.mount)], capture_output=True)
        shutil.rmtree(self.path, ignore_errors=True)


@pytest.fixture
def disk() -> Iterator[HangingDisk]:
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        pytest.skip("a file system that hangs needs root and FUSE")
    made = HangingDisk()
    try:
        assert jobs.eventually(made.is_mounted)
        yield made
    finally:
        made.remove()


def threads_of(pid: int) -> "list[str]":
    return [(task / "comm").read_text().strip() for task in Path(f"/proc/{pid}/task").iterdir()]


def test_training_ends_in_time_while_the_start_of_a_hub_hangs(tmp_path: Path, disk: HangingDisk) -> None:
    shutil.copy(BIN / "gradmon-train", tmp_path)  # without a hub beside it
    shutil.copy(BIN / "gradmon-hub", disk.backing)
    with TrainedPlace({"dynamic_on": False, "wg_distribution": True}) as place:
        place.env["GRADMON_HUB"] = str(disk.mount / "gradmon-hub")
        training = place.train(tmp_path, steps=900)
        disk.hang()
        os.kill(place.hub(), signal.SIGKILL)
        assert jobs.eventually(lambda: "gradmon-call" in threads_of(training.pid)), place.log()
        assert training.wait(40) == 0, place.log()


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")

# Becomes a process in namespaces of its own, as `unshare --mount --pid --fork --mount-proc` makes them. Only
# this rank sees what is mounted at the `private` places.
SCRIPT = """
import ctypes, json, os, subprocess, sys, torch, torch.distributed as dist
options = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
new_mounts, new_processes, recursive, private = 0x20000, 0x20000000, 0x4000, 0x40000

def check(result):
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

def mount(kind, place, flags=0, options=None):
    check(libc.mount(kind.encode(), place.encode(), kind.encode(), flags, options))

check(libc.unshare(new_mounts | (new_processes if options["processes"] else 0)))
mount("none", "/", recursive | private)
for place in options["private"]:
    mount("tmpfs", place, options=b"mode=700")
if options["processes"]:
    child = os.fork()
    if child != 0:
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 255)
    mount("proc", "/proc")

import gradmon, jobs, time
from pathlib import Path
dist.init_process_group("gloo")
rank = dist.get_rank()
model, optimizer = jobs.make()
out = Path(options["out"])
monitor = gradmon.Monitor(options["config"], output_dir=out, dynamic=True)
until = time.monotonic() + options["seconds"]
with monitor.watch(model, optimizer):
    over = torch.zeros(1)
    while over.item() == 0:
        jobs.train(model, optimizer, 1)
        written_back = not json.loads(Path(options["config"]).read_text())["dynamic_on"]
        over.fill_(written_back or time.monotonic() > until)
        dist.all_reduce(over, op=dist.ReduceOp.MIN)
    command = [options["gradmonctl"], "status", "--json", "--output-dir", str(out)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=20)
    dist.barrier()
print(json.dumps({
    "steps": jobs.steps_of(jobs.rows(out, "grad_reduced", rank)).get("fc1.weight", []),
    "status": json.loads(said.stdout) if said.returncode == 0 else said.stderr,
}))
"""


def collect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: bool, share_output: bool) -> None:
    """Both ranks collect three steps, the same ones, and `gradmonctl status` in each container shows both."""
    out, runtime = tmp_path / "out", tmp_path / "runtime"
    out.mkdir()
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    config = jobs.write_config(tmp_path, dynamic_on=True, collect_times=3, wg_distribution=True)
    private = ["/dev/shm", str(runtime)] + ([] if share_output else [str(out)])
    found = ranks.run(
        tmp_path,
        SCRIPT,
        out=str(out),
        config=str(config),
        private=private,
        processes=processes,
        gradmonctl=str(Path(os.environ["GRADMON_BIN"], "gradmonctl")),
        seconds=30,
    )
    first, second = (json.loads(text) for text in found)
    assert len(first["steps"]) == 3 and first["steps"] == second["steps"], (first, second)
    for container in (first, second):
        status = container["status"]
        assert isinstance(status, dict), status
        assert [rank["state"] == "absent" for rank in status["ranks"]] == [False, False], status


@needs_root
def test_containers_agree_over_the_output_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADMON_STORE", "none")
    collect(tmp_path, monkeypatch, processes=False, share_output=True)


@needs_root
def test_containers_with_processes_of_their_own_and_no_shared_directory_agree_over_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collect(tmp_path, monkeypatch, processes=True, share_output=False)
