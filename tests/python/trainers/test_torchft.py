# SPDX-License-Identifier: Apache-2.0
"""gradmon with the real torchft: two replica groups of two ranks, in which one group leaves out a step and
takes the other's weights; a group that starts again; communication of torchft's own process groups."""
import json
import os
import uuid
from pathlib import Path
from typing import Any, Iterator

import jobs
import pytest
import ranks
import torchft  # noqa: F401  (the server of ranks imports it once)
from torchft.coordination import LighthouseServer

STEPS = 4
SCRIPT = """
import json, os, sys, torch, torch.distributed as dist, torchft, gradmon, jobs
from datetime import timedelta
given = json.loads(sys.argv[1])
group, rank = os.environ["GROUP"], int(os.environ["RANK"])
port = int(os.environ["MASTER_PORT"])
store = dist.TCPStore("127.0.0.1", port, is_master=rank == 0, wait_for_workers=False, use_libuv=False)
model = jobs.make_net()
inner = torch.optim.Adam(model.parameters(), lr=0.1)
def load(state):
    model.load_state_dict(state["model"])
    inner.load_state_dict(state["optim"])
limit = timedelta(seconds=60)
manager = torchft.Manager(
    pg=torchft.ProcessGroupGloo(timeout=limit), min_replica_size=int(given["groups"]), load_state_dict=load,
    state_dict=lambda: {"model": model.state_dict(), "optim": inner.state_dict()}, timeout=limit,
    quorum_timeout=limit, replica_id=f"train_{group}", lighthouse_addr=given["lighthouse"])
wrapped = torchft.DistributedDataParallel(manager, model)
optimizer = torchft.Optimizer(manager, inner)
seen = []  # by gradmon's steps: whether committed, weights before and after, gradient
step_of_inner = inner.step
def step():
    seen[-1]["param_origin"] = model.fc1.weight.norm().item()
    step_of_inner()
inner.step = step
monitor = None
if given["watch"]:
    monitor = gradmon.Monitor(given["config"], output_dir=given["out"], dynamic=False)
    monitor.watch(wrapped, optimizer)
    assert monitor.rank == rank
failed = False
while manager.current_step() < int(given["steps"]):
    number = manager.current_step()
    optimizer.zero_grad()
    wrapped(jobs.batch(number) + int(group) + 0.1 * rank).pow(2).mean().backward()
    if number == 2 and group == "0" and given["groups"] == 2 and not failed:
        failed = True
        manager.report_error(RuntimeError("planned"))
    seen.append({"grad_reduced": model.fc1.weight.grad.norm().item()})
    optimizer.step()
    seen[-1]["committed"] = "param_origin" in seen[-1]
    seen[-1]["param_updated"] = model.fc1.weight.norm().item()
if monitor is not None:
    monitor.stop()
    assert "step" not in vars(optimizer) and inner.step is step
manager.shutdown(wait=False)
print(json.dumps({"seen": seen, "weights": [p.tolist() for p in model.parameters()]}))
"""


@pytest.fixture(scope="module")
def lighthouse() -> "Iterator[str]":
    server = LighthouseServer(bind="127.0.0.1:0", min_replicas=1, join_timeout_ms=5000, quorum_tick_ms=20)
    yield server.address().replace(server.address().split("//")[1].split(":")[0], "127.0.0.1")
    server.shutdown()


def train(directory: Path, lighthouse: str, groups: int = 2, watch: bool = True, **more: Any) -> "list[Any]":
    """What each rank of each group has printed."""
    config = jobs.write_config(
        directory, wg_distribution=True, param_distribution=True, cc_distribution={"enable": True}
    )
    options = {"config": str(config), "out": str(directory / "out"), "lighthouse": lighthouse, "steps": STEPS}
    launch = uuid.uuid4().hex
    environments = []
    for group in range(groups):
        port = str(ranks.free_port())
        for rank in range(2):
            own = {"GROUP": str(group), "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
            run = {"MASTER_PORT": port, "GRADMON_RUN_ID": launch, "OMP_NUM_THREADS": "1"}
            environments.append({**os.environ, **own, **run})
    argument = json.dumps({**options, "groups": groups, "watch": watch, **more})
    return [json.loads(out) for out in ranks.run_each(SCRIPT, argument, environments)]


def rows_of(out: Path, group: int, rank: int, kind: str) -> "dict[int, float]":
    rows = jobs.rows(out / f"group-{group}", kind, rank)
    return {step: row["norm"] for (name, step, _), row in rows.items() if name == "fc1.weight"}


def test_groups_are_jobs_and_uncommitted_steps_have_no_update(tmp_path: Path, lighthouse: str) -> None:
    found = train(tmp_path, lighthouse)
    out = tmp_path / "out"
    assert sorted(path.name for path in out.iterdir() if not path.name.startswith(".")) == [
        "group-0",
        "group-1",
    ]
    for index, of_rank in enumerate(found):
        group, rank = divmod(index, 2)
        seen = of_rank["seen"]
        assert len({one["committed"] for one in seen}) == 2  # a busy machine may leave out more steps
        expected = {number: one for number, one in enumerate(seen)}
        reduced = rows_of(out, group, rank, "grad_reduced")
        assert reduced == pytest.approx({n: one["grad_reduced"] for n, one in expected.items()}, rel=1e-6)
        for kind in ("param_origin", "param_updated"):
            # Weights before the update: those that torchft has loaded.
            committed = {n: one[kind] for n, one in expected.items() if one["committed"]}
            rows = rows_of(out, group, rank, kind)
            assert {n: rows[n] for n in committed} == pytest.approx(committed, rel=1e-6)
            assert len(rows) == len(committed if kind == "param_updated" else expected)
        assert rows_of(out, group, rank, "grad_unreduced").keys() == expected.keys()
        names = {name.partition(".")[0] for name, _, _ in jobs.rows(out / f"group-{group}", "other", rank)}
        assert "all_reduce" in names


def test_training_is_the_same_as_without_gradmon(tmp_path: Path, lighthouse: str) -> None:
    (tmp_path / "plain").mkdir()
    plain = train(tmp_path / "plain", lighthouse, groups=1, watch=False)
    (tmp_path / "watched").mkdir()
    assert train(tmp_path / "watched", lighthouse, groups=1) == plain


def test_a_group_that_starts_again_goes_on_in_its_directory(tmp_path: Path, lighthouse: str) -> None:
    for launch in range(2):
        train(tmp_path, lighthouse, groups=1, steps=2)
    assert [path.name for path in (tmp_path / "out").glob("group-*")] == ["group-0"]
    assert len(list((tmp_path / "out" / "group-0").glob("*-rank0-*"))) == 2
