# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel with two ranks and gloo."""
import json
from pathlib import Path

import jobs
import pytest
import ranks

SCRIPT = """
import json, sys, torch, torch.distributed as dist, gradmon, jobs
options = json.loads(sys.argv[1])
dist.init_process_group("gloo")
rank = dist.get_rank()
model = jobs.make_net()
del model.spare
ddp = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=options["bucket_view"])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
own = {}
def note(name):
    return lambda g: own.setdefault((name, step), []).append(g.norm().item())
step = 0
for name, parameter in model.named_parameters():
    parameter.register_hook(note(name))
with gradmon.Monitor(options["config"], output_dir=options["out"], dynamic=False).watch(
        model, optimizer, grad_acc_steps=options["micro"]):
    for step in range(3):
        optimizer.zero_grad(set_to_none=options["to_none"])
        for micro in range(options["micro"]):
            last = micro + 1 == options["micro"]
            with ddp.no_sync() if not last else torch.enable_grad():
                ddp(jobs.batch(step + 10 * rank, micro)).pow(2).mean().backward()
        optimizer.step()
print(json.dumps({f"{name} {step}": values for (name, step), values in own.items()}))
dist.barrier()
"""


def run(tmp_path: Path, **options: object) -> "list[dict]":
    said = ranks.run(tmp_path, SCRIPT, out=str(tmp_path / "out"), **options)
    return [json.loads(out.splitlines()[-1]) for out in said]


@pytest.mark.parametrize("bucket_view", [False, True])
@pytest.mark.parametrize("micro", [1, 3])
def test_gradients_before_reduction_are_each_ranks_own_and_after_it_alike(
    tmp_path: Path, bucket_view: bool, micro: int
) -> None:
    config = jobs.write_config(tmp_path, wg_distribution=True, monitor_mbs_grad=True)
    own = run(tmp_path, config=str(config), bucket_view=bucket_view, micro=micro, to_none=bucket_view)
    unreduced = [jobs.rows(tmp_path / "out", "grad_unreduced", rank) for rank in range(2)]
    reduced = [jobs.rows(tmp_path / "out", "grad_reduced", rank) for rank in range(2)]
    assert reduced[0] and reduced[0] == reduced[1]
    assert len(unreduced[0]) == 4 * 3 * micro
    for rank in range(2):
        for (name, step, micro_step), values in unreduced[rank].items():
            assert values["norm"] == pytest.approx(own[rank][f"{name} {step}"][micro_step], rel=1e-5)
    assert all(unreduced[0][key] != unreduced[1][key] for key in unreduced[0])
