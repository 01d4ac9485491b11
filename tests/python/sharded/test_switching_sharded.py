# SPDX-License-Identifier: Apache-2.0
"""Collection is switched on and off again and again while two ranks train under FSDP2."""
import json
import os
from pathlib import Path

import jobs
import pytest
import ranks
import torch

pytestmark = pytest.mark.skipif(
    tuple(map(int, torch.__version__.split(".")[:2])) < (2, 6), reason="tried from torch 2.6 on"
)

SWITCHES = 50 if os.environ.get("GRADMON_TEST_SCALE") == "full" else 10
SCRIPT = """
import json, sys, torch, torch.distributed as dist, gradmon, jobs, sharded_loops
from pathlib import Path
from torch.distributed.fsdp import fully_shard
options = json.loads(sys.argv[1])
config, keys = Path(options["config"]), options["keys"]
dist.init_process_group("gloo")
rank = dist.get_rank()
def make():
    model = sharded_loops.make_net()
    fully_shard(model.first)
    fully_shard(model)
    return model, torch.optim.Adam((p for p in model.parameters() if p.requires_grad), lr=0.001)
def train(model, optimizer, step):
    optimizer.zero_grad()
    sharded_loops.loss_of(model, step, 0, rank).backward()
    optimizer.step()
def both_say(true):
    flag = torch.tensor(1.0 if true else 0.0)
    dist.broadcast(flag, 0)
    return bool(flag.item())
model, optimizer = make()
steps = 0
with gradmon.Monitor(config, output_dir=options["out"], dynamic=True).watch(model, optimizer):
    for _ in range(options["switches"]):
        if rank == 0:
            jobs.write_config(config.parent, dynamic_on=True, collect_times=1, **keys)
        while not both_say(rank == 0 and '"dynamic_on": false' in config.read_text()):
            train(model, optimizer, steps)
            steps += 1
    hooks = jobs.hooks_of(model)
plain, plain_optimizer = make()
for step in range(steps):
    train(plain, plain_optimizer, step)
equal = all(torch.equal(sharded_loops.local(a), sharded_loops.local(b))
            for a, b in zip(plain.parameters(), model.parameters()))
left = sharded_loops.difference(
    sharded_loops.attached(model, optimizer), sharded_loops.attached(plain, plain_optimizer))
sharded_loops.report(equal=equal, left=left, hooks=[hooks, jobs.hooks_of(plain)])
"""


def test_switches_are_at_agreed_steps_and_leave_nothing(tmp_path: Path) -> None:
    config = jobs.write_config(tmp_path, dynamic_on=False, **jobs.EVERYTHING)
    told = ranks.run(
        tmp_path,
        SCRIPT,
        config=str(config),
        out=str(tmp_path / "out"),
        keys=jobs.EVERYTHING,
        switches=SWITCHES,
    )
    for out in told:
        found = json.loads(out.splitlines()[-1])
        assert found["equal"] and found["left"] == []
        assert found["hooks"][0] == found["hooks"][1]  # while it is off
    for kind in ("grad_unreduced", "grad_reduced", "actv"):
        name = "first.output" if kind == "actv" else "first.weight"
        steps = [jobs.steps_of(jobs.rows(tmp_path / "out", kind, rank))[name] for rank in range(2)]
        assert steps[0] == steps[1] and len(steps[0]) == SWITCHES
