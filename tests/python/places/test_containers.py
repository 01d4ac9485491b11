# SPDX-License-Identifier: Apache-2.0
"""Ranks of one host, each in a container: with /dev/shm, runtime directory and processes of its own.

Root is needed, because the ranks make these namespaces.
"""
import json
import os
from pathlib import Path

import jobs
import pytest
import ranks

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")

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
model = jobs.make_net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
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


def test_containers_agree_over_the_output_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADMON_STORE", "none")
    collect(tmp_path, monkeypatch, processes=False, share_output=True)


def test_containers_with_processes_of_their_own_and_no_shared_directory_agree_over_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collect(tmp_path, monkeypatch, processes=True, share_output=False)
