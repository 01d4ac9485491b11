# SPDX-License-Identifier: Apache-2.0
"""The launch nonce: all ranks of one launch share it, however the default process group was made."""
import importlib.util
import json
import os
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from ranks import STORE_OPTIONS, free_port, run_each
from scale import if_full

SOURCE = Path(__file__).resolve().parents[3] / "runtime/python/gradmon/_launch_nonce.py"
WITHIN = 60  # seconds

RANK = """
import importlib.util, json, os, sys, time
from datetime import timedelta
import torch.distributed as dist
options = json.loads(sys.argv[1])
rank = int(os.environ["RANK"])
spec = importlib.util.spec_from_file_location("launch_nonce", options["source"])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
how = dict(options["how"])
if "store" in how:
    place = how.pop("store")
    how["store"] = dist.TCPStore("127.0.0.1", place, 2, rank == 0, timedelta(seconds=30), **options["store"])
dist.init_process_group("gloo", rank=rank, world_size=2, **how)
if rank == 0 and options["late"]:
    dist.barrier()
said = []
for monitor in range(2):
    nonce = module.launch_nonce()
    found = nonce.wait()
    at_first = found is not None
    if rank == 1 and options["late"] and monitor == 0:
        dist.barrier()
    while found is None:
        found = nonce.poll()
        time.sleep(0.05)
    said.append([found, at_first])
print(json.dumps(said))
dist.barrier()
"""


def load() -> Any:
    spec = importlib.util.spec_from_file_location("launch_nonce", SOURCE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def environment(*without: str) -> "dict[str, str]":
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("MASTER_", *without))}
    return {**kept, "USE_LIBUV": "0", "OMP_NUM_THREADS": "1"}


def launch(how: "dict[str, Any]", late: bool = False) -> "list[list[Any]]":
    options = json.dumps({"how": how, "late": late, "source": str(SOURCE), "store": STORE_OPTIONS})
    said = run_each(RANK, options, [{**environment(), "RANK": str(rank)} for rank in range(2)])
    return [json.loads(of_rank.splitlines()[-1]) for of_rank in said]


def ids(said: "list[list[Any]]") -> "list[str]":
    of_rank = [[found for found, _ in rank] for rank in said]
    assert of_rank[0] == of_rank[1]
    return of_rank[0]


def how_by(kind: str, directory: Path) -> "dict[str, Any]":
    if kind == "tcp":
        return {"init_method": f"tcp://127.0.0.1:{free_port()}"}
    if kind == "file":
        return {"init_method": f"file://{directory}/rendezvous-{time.monotonic_ns()}"}
    return {"store": free_port()}


@pytest.mark.parametrize("kind", ["tcp", "file", "store"])
def test_all_ranks_have_the_same_and_two_launches_and_monitors_differ(kind: str, tmp_path: Path) -> None:
    first = ids(launch(how_by(kind, tmp_path)))
    second = ids(launch(how_by(kind, tmp_path)))
    assert len({*first, *second}) == 4


@pytest.mark.parametrize("kind", ["tcp", "file"])
def test_a_rank_0_that_comes_late_is_heard_later(kind: str, tmp_path: Path) -> None:
    said = launch(how_by(kind, tmp_path), late=True)
    ids(said)
    assert said[1][0][1] is False
    assert said[0][0][1] is True


def test_wait_takes_three_seconds_at_most_and_poll_takes_none() -> None:
    module = load()
    store = dist.HashStore()
    now = [0.0]
    nonce = module.LaunchNonce(store, 1, lambda: now[0])
    module.time = type("Time", (), {"sleep": lambda seconds: now.__setitem__(0, now[0] + seconds)})
    assert nonce.wait() is None
    assert 2.5 <= now[0] <= 3.0
    before = now[0]
    assert nonce.poll() is None
    now[0] = before + 1.0
    assert nonce.poll() is None
    assert now[0] == before + 1.0
    store.add("gradmon/launch/0/1", 255)
    assert nonce.poll() is None  # within the second
    now[0] = before + 2.0
    assert nonce.poll() == "ff"


def test_a_store_that_raises_is_no_store() -> None:
    class Broken:
        def add(self, key: str, number: int) -> int:
            raise RuntimeError("gone")

    assert load().LaunchNonce(Broken(), 0).wait() is None


def test_the_groups_store_stays_usable_after_a_wait_in_vain() -> None:
    store = dist.TCPStore("127.0.0.1", free_port(), 1, True, timedelta(seconds=10), **STORE_OPTIONS)
    module = load()
    nonce = module.LaunchNonce(store, 1)
    module._FIRST_S = 0.1
    assert nonce.wait() is None
    store.set("key", "value")
    assert store.get("key") == b"value"


def test_without_a_process_group_there_is_nothing_to_ask() -> None:
    assert load().launch_nonce() is None


JOB = """
import json, sys, time
import torch, torch.distributed as dist
import gradmon
port, rank, late, config, output = sys.argv[1:]
rank, late = int(rank), late == "True"
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
if rank == 0 and late:
    dist.barrier()
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
monitor = gradmon.Monitor(config, dynamic=True, output_dir=output)
monitor.watch(model, optimizer)
if rank == 1 and late:
    dist.barrier()  # It has waited for rank 0 in vain.
end = time.monotonic() + 60
done = torch.zeros(1)
while time.monotonic() < end and not done:
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    time.sleep(0.02)
    if rank == 0:
        ranks = monitor.status().ranks
        done[0] = len(ranks) == 2 and all(each.state != "absent" for each in ranks)
    dist.broadcast(done, 0)
print(bool(done), monitor.status().reason)
monitor.stop()
"""


@pytest.mark.parametrize("late", [if_full(False), True])
def test_ranks_that_only_the_process_group_names_are_one_job(late: bool, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text('{"dynamic_on": false}')
    env = {**environment("GRADMON_RUN_ID"), "XDG_RUNTIME_DIR": str(tmp_path)}
    # Each under a shell of its own: a common parent process would identify the launch.
    program = ["sh", "-c", '"$@"; true', "sh", sys.executable, "-B", "-c", JOB, str(free_port())]
    places = [str(config), str(tmp_path / "out")]
    ranks = [
        subprocess.Popen([*program, rank, str(late), *places], env=env, stdout=subprocess.PIPE, text=True)
        for rank in ("0", "1")
    ]
    try:
        said = [rank.communicate(timeout=2 * WITHIN)[0].strip() for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [line.split()[0] for line in said] == ["True", "True"], said


def test_ranks_outlive_the_store_that_they_still_ask(tmp_path: Path) -> None:
    """Rank 0, which serves the store, may end first."""
    (tmp_path / "config.json").write_text('{"wg_distribution": true}')
    train = [os.environ["GRADMON_BIN"] + "/gradmon-train", "--config", str(tmp_path / "config.json")]
    command = [*train, *"--steps 5 --threads 1 --layers 1 --width 8 --context 8 --batch 1".split()]
    env = {**os.environ, "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1"}
    env["MONITOR_OUTPUT_DIR"] = str(tmp_path / "out")
    for _ in range(4):
        env["MASTER_PORT"] = str(free_port())
        ranks = [
            subprocess.Popen(command, env={**env, "RANK": str(rank)}, stderr=subprocess.DEVNULL)
            for rank in range(3)
        ]
        assert [rank.wait(WITHIN) for rank in ranks] == [0, 0, 0]
