# SPDX-License-Identifier: Apache-2.0
"""Sharded models that are moved, and whose collection is switched in mid-run."""
from pathlib import Path

import jobs
import pytest
import ranks
from scale import FULL, if_full


SWITCHES = 50 if FULL else 10
SCRIPT = """
import sharded_loops
from pathlib import Path
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
config, keys = Path(options["config"]), options["keys"]
def make():
    model = sharded_loops.make_net()
    mesh = None
    if options["tensor_parallel"]:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        parallelize_module(model, mesh["tp"], {"first": ColwiseParallel(output_layouts=Replicate())})
        mesh = mesh["dp"]
    fully_shard(model.first, mesh=mesh)
    fully_shard(model, mesh=mesh)
    trained = [p for p in model.parameters() if p.requires_grad]
    return model, torch.optim.Adam(trained, lr=0.001, foreach=False)
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


@pytest.mark.parametrize("world", [if_full(2), 4], ids=["fsdp2", "fsdp2 with tensor parallelism"])
def test_switches_are_at_agreed_steps_and_leave_nothing(tmp_path: Path, world: int) -> None:
    config = jobs.write_config(tmp_path, dynamic_on=False, **jobs.EVERYTHING)
    options = {"config": str(config), "out": str(tmp_path / "out"), "keys": jobs.EVERYTHING}
    options.update(tensor_parallel=world == 4, switches=SWITCHES)
    told = ranks.reports(tmp_path, ranks.GLOO + SCRIPT, world, **options)
    for found in told:
        assert found["equal"] and found["left"] == []
        assert found["hooks"][0] == found["hooks"][1]  # while it is off
    for kind in ("grad_unreduced", "grad_reduced", "actv"):
        name = "first.output" if kind == "actv" else "first.weight"
        steps = [jobs.steps_of(jobs.rows(tmp_path / "out", kind, rank))[name] for rank in range(world)]
        assert steps == steps[:1] * world and len(steps[0]) == SWITCHES


# Between two steps the model goes to another type and back, as one that is offloaded goes to the CPU.
SCRIPT_MOVED = """
import weakref, sharded_loops

def make():
    torch.manual_seed(3)
    model = sharded_loops.make_net()
    if options["how"] == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        model = FSDP(model, use_orig_params=True, device_id=torch.device("cpu"))
    else:
        from torch.distributed.fsdp import fully_shard
        fully_shard(model)
    return model, sharded_loops.adam(model)

def train(watched):
    model, optimizer = make()
    monitor = None
    if watched:
        monitor = gradmon.Monitor(options["config"], output_dir=options["out"], dynamic=options["dynamic"])
        monitor.watch(model, optimizer)
    for step in range(6):
        sharded_loops.loss_of(model, step, 0, dist.get_rank()).backward()
        optimizer.step()
        if options["zero"]:
            optimizer.zero_grad()
        if options["moves"] and step % 2 == 1:
            model.to(torch.float64)
            model.to(torch.float32)
    weights = [sharded_loops.local(p).tolist() for p in model.parameters()]
    return monitor, model, weights

_, _, plain = train(False)
monitor, model, weights = train(True)
monitor.stop()
released = weakref.ref(model)
del model
gc.collect()
print(json.dumps({"same": weights == plain, "released": released() is None}))
"""


@pytest.mark.parametrize("zero", [True, False], ids=["released", "kept"])
@pytest.mark.parametrize("state", ["dynamic and off", "on"])
def test_a_watched_model_of_fsdp2_can_be_moved(tmp_path: Path, state: str, zero: bool) -> None:
    """torch.utils.swap_tensors() refuses a parameter, and its gradient, that others refer to. `kept`: there
    are gradients."""
    config = jobs.write_config(tmp_path, **jobs.EVERYTHING, dynamic_on=state == "on", collect_times=6)
    options = {"config": str(config), "out": str(tmp_path / "out"), "dynamic": state != "on", "zero": zero}
    told = ranks.reports(tmp_path, ranks.GLOO + SCRIPT_MOVED, 2, how="fsdp2", moves=True, **options)
    assert [found["same"] for found in told] == [True, True]
    if state == "on":
        for kind in ("grad_reduced", "param_updated"):  # Autograd delivers to what the model was before.
            assert {step for _, step, _ in jobs.rows(tmp_path / "out", kind)} == set(range(6)), kind


@pytest.mark.parametrize("how", ["fsdp1", "fsdp2"])
def test_a_sharded_model_can_go_once_its_monitor_has_stopped(tmp_path: Path, how: str) -> None:
    config = jobs.write_config(tmp_path, **{**jobs.EVERYTHING, "collect_times": 6})
    options = {"config": str(config), "out": str(tmp_path / "out"), "dynamic": False, "zero": True}
    told = ranks.reports(tmp_path, ranks.GLOO + SCRIPT_MOVED, 2, how=how, moves=False, **options)
    assert told == [{"same": True, "released": True}] * 2
