# SPDX-License-Identifier: Apache-2.0
"""A sharded model that the program moves, or releases, while it is watched or after that."""
import json
from pathlib import Path

import jobs
import pytest
import ranks
import torch

pytestmark = pytest.mark.skipif(
    tuple(map(int, torch.__version__.split(".")[:2])) < (2, 6), reason="tried from torch 2.6 on"
)

# Between two steps the model goes to another type and back, as one that is offloaded goes to the CPU.
SCRIPT = """
import gc, json, sys, weakref, torch, torch.distributed as dist, gradmon, fsdp2_on_cpu, sharded_loops
options = json.loads(sys.argv[1])
dist.init_process_group("gloo")
fsdp2_on_cpu.prepare()

def make():
    torch.manual_seed(3)
    model = sharded_loops.make_net()
    if options["how"] == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        model = FSDP(model, use_orig_params=True, device_id=torch.device("cpu"))
    else:
        from torch.distributed.fsdp import fully_shard
        fully_shard(model)
    return model, torch.optim.Adam((p for p in model.parameters() if p.requires_grad), lr=0.05)

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
    config = jobs.write_config(
        tmp_path, **{**jobs.EVERYTHING, "dynamic_on": state == "on", "collect_times": 6}
    )
    options = {"config": str(config), "out": str(tmp_path / "out"), "dynamic": state != "on", "zero": zero}
    told = ranks.run(tmp_path, SCRIPT, 2, how="fsdp2", moves=True, **options)
    assert [json.loads(text.splitlines()[-1])["same"] for text in told] == [True, True]
    if state == "on":
        for kind in ("grad_reduced", "param_updated"):  # Autograd delivers to what the model was before.
            assert {step for _, step, _ in jobs.rows(tmp_path / "out", kind)} == set(range(6)), kind


@pytest.mark.parametrize("how", ["fsdp1", "fsdp2"])
def test_a_sharded_model_can_go_once_its_monitor_has_stopped(tmp_path: Path, how: str) -> None:
    config = jobs.write_config(tmp_path, **{**jobs.EVERYTHING, "collect_times": 6})
    options = {"config": str(config), "out": str(tmp_path / "out"), "dynamic": False, "zero": True}
    told = ranks.run(tmp_path, SCRIPT, 2, how=how, moves=False, **options)
    assert [json.loads(text.splitlines()[-1]) for text in told] == [{"same": True, "released": True}] * 2
