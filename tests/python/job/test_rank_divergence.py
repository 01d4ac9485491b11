# SPDX-License-Identifier: Apache-2.0
"""AnomalyRankDivergence with real ranks and gloo: a flipped bit on one of them, and healthy runs."""
import json
from pathlib import Path
from typing import Any

import jobs
import pytest
import ranks

STEPS, FLIPPED = 60, 20

COMMON = """
import hashlib, subprocess

def told(command):
    answer = subprocess.run(
        [os.environ["GRADMON_BIN"] + "/gradmonctl", command, "--json", "--output-dir", options["out"]],
        capture_output=True, timeout=60)
    return json.loads(answer.stdout) if answer.returncode == 0 else {}

def settled():
    # What the hub says once it has compared the last step and has the alerts, or says why it will not.
    end = time.monotonic() + 40
    while True:
        alerts, status = told("alerts").get("alerts", []), told("status")
        compared, warnings = status.get("replicas_compared") or {}, status.get("warnings", [])
        done = compared.get("last_step") == options["steps"] - 1 and len(alerts) >= options["wanted"]
        if done or any("has no effect" in line for line in warnings) or time.monotonic() > end:
            return {"alerts": alerts, "compared": compared, "warnings": warnings}
        time.sleep(0.05)

def watched(model, optimizer, group=dist.group.WORLD):
    monitor = gradmon.Monitor(options["config"], output_dir=options["out"], dynamic=False)
    return monitor.watch(model, optimizer, dp_group=group)

def report(monitor, **answer):
    if monitor is not None:
        answer.update(settled() if rank == 0 else {})
        dist.barrier()
        answer["own"] = [[a.rule, a.step, a.tag_name, a.op, a.message] for a in monitor.alerts()]
        dist.barrier()
        monitor.stop()
    print(json.dumps(answer))
    dist.barrier()

model = jobs.make_net()
del model.spare
"""
SCRIPT = """
model = model.to(getattr(torch, options["dtype"]))
ddp = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
monitor = None
if options["config"]:
    group = dist.group.WORLD if options["by"] == "dp_group" else None
    monitor = watched(ddp if options["by"] == "ddp" else model, optimizer, group)
for step in range(options["steps"]):
    optimizer.zero_grad()
    batch = jobs.batch(step + 100 * rank).to(next(model.parameters()).dtype)
    ddp(batch).pow(2).mean().backward()
    if step == options["flip"] and rank == 1:
        bits = model.fc2.weight.detach().view(torch.int32)
        bits[1, 2] ^= 1 << 27
    optimizer.step()
state = b"".join(p.detach().float().numpy().tobytes() for p in model.parameters())
report(monitor, state=hashlib.sha256(state).hexdigest())
"""
# Layers whose values differ between the ranks from the start, marked as a framework marks its own.
MARKED_SCRIPT = """
if options["placed"]:
    from torch.distributed.tensor import Replicate, Shard
    marks = {"shard": ("placements", (Shard(0),)), "mixed": ("placements", (Replicate(), Shard(0))),
             "whole": ("placements", (Replicate(),))}
else:
    marks = {"expert": ("allreduce", False), "dense": ("allreduce", True), "plain": ("unknown", None),
             "stage3": ("ds_id", 7), "rows": ("is_gtp_weight_remat", True)}
for name, (mark, value) in marks.items():
    layer = torch.nn.Linear(2, 2, bias=False)
    torch.nn.init.constant_(layer.weight, 0.5 + rank)
    setattr(layer.weight, mark, value)
    model.add_module(name, layer)
# Small: weights that grow to hundreds would no longer differ by more than the rule's relative threshold.
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
monitor = watched(model, optimizer)
for step in range(options["steps"]):
    optimizer.zero_grad()
    out = model(jobs.batch(step + 100 * rank))
    (out.pow(2).mean() + sum(getattr(model, name)(out).sum() for name in marks)).backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
report(monitor)
"""
# Each of two ranks reduces the gradients of its own parameters only, and gets the others' weights (ZeRO-2).
PARTS_SCRIPT = """
module, name = options["optimizer"]
kind = type(name, (torch.optim.SGD,), {"__module__": module})
optimizer = kind(model.parameters(), lr=0.01)
monitor = watched(model, optimizer)
for step in range(options["steps"]):
    optimizer.zero_grad()
    model(jobs.batch(step + 100 * rank)).pow(2).mean().backward()
    for i, parameter in enumerate(model.parameters()):
        dist.reduce(parameter.grad, i % 2)
    optimizer.step()
    for i, parameter in enumerate(model.parameters()):
        dist.broadcast(parameter.detach(), i % 2)
report(monitor)
"""


def config_of(tmp_path: Path) -> str:
    keys = {"wg_distribution": True, "param_distribution": True, "ops": ["norm", "mean"]}
    rules = [{"rule_name": "AnomalyRankDivergence"}]
    return str(jobs.write_config(tmp_path, alert={"rules": rules, "dump": True}, **keys))


def answers(tmp_path: Path, script: str, config: str, **options: Any) -> "list[dict[str, Any]]":
    out = str(tmp_path / "out")
    return ranks.reports(tmp_path, ranks.GLOO + COMMON + script, config=config, out=out, **options)


def train(tmp_path: Path, by: str = "ddp", monitored: bool = True, **options: Any) -> "list[dict[str, Any]]":
    """flip: the step in which rank 1 flips a bit."""
    options = {"steps": STEPS, "flip": -1, "dtype": "float32", "wanted": 0, **options}
    return answers(tmp_path, SCRIPT, config_of(tmp_path) if monitored else "", by=by, **options)


@pytest.mark.parametrize("by", ["ddp", "dp_group"])
def test_a_flipped_bit_raises_an_alert_on_the_rank_that_differs(tmp_path: Path, by: str) -> None:
    first, second = train(tmp_path, by, flip=FLIPPED, wanted=2)
    assert {alert["rule"] for alert in first["alerts"]} == {"AnomalyRankDivergence"}
    alert = first["alerts"][0]
    assert (alert["rank"], alert["step"]) == (1, FLIPPED)
    tags = [f"0:fc2.weight/rank1/{kind}" for kind in ("param_origin", "param_updated")]
    assert alert["message"].startswith(f"Rule AnomalyRankDivergence reports anomaly signal in ('{tags[0]}', ")
    assert "rank 1 has " in alert["message"] and "rank 0 has " in alert["message"]
    assert alert["value"] != alert["history_mean"]
    assert [alert["tag_name"] for alert in first["alerts"]] == tags
    assert first["own"] == []
    assert [own[4] for own in second["own"]] == [alert["message"] for alert in first["alerts"]]
    dump = json.loads((tmp_path / "out" / "anomaly_detected" / "rank1" / "anomaly.json").read_text())
    assert {entry["step"] for entry in dump.values()} == {FLIPPED}


def diverging(tmp_path: Path, placed: bool, wanted: int) -> "set[str]":
    """The names of the marked parameters that raise alerts."""
    config = config_of(tmp_path)
    said = answers(tmp_path, MARKED_SCRIPT, config, world=3, steps=10, placed=placed, wanted=wanted)
    alerts = said[0]["alerts"]
    assert {(alert["rank"], alert["step"]) for alert in alerts} == {(2, 0)}
    assert {alert["tag_name"].split("/")[2] for alert in alerts} == {"param_origin", "param_updated"}
    return {alert["tag_name"].split("/")[0] for alert in alerts}


def test_experts_and_split_weights_are_not_compared_over_the_data_parallel_group(tmp_path: Path) -> None:
    assert diverging(tmp_path, placed=False, wanted=4) == {"0:dense.weight", "0:plain.weight"}


def test_a_parameter_that_is_placed_in_parts_is_not_compared_and_a_replicated_one_is(tmp_path: Path) -> None:
    assert diverging(tmp_path, placed=True, wanted=2) == {"0:whole.weight"}


@pytest.mark.parametrize(
    "module, name, alerts",
    [
        ("deepspeed.runtime.zero.stage_1_and_2", "DeepSpeedZeroOptimizer", False),
        ("megatron.core.optimizer.distrib_optimizer", "DistributedOptimizer", False),
        ("megatron.core.optimizer.layer_wise_optimizer", "LayerWiseDistributedOptimizer", False),
        ("anything.else", "DistributedOptimizer", True),
    ],
)
def test_ranks_that_reduce_parts_are_not_compared(
    tmp_path: Path, module: str, name: str, alerts: bool
) -> None:
    config, wanted = config_of(tmp_path), 1 if alerts else 0
    answer = answers(tmp_path, PARTS_SCRIPT, config, optimizer=[module, name], steps=5, wanted=wanted)[0]
    assert bool(answer["alerts"]) == alerts
    assert alerts or any("AnomalyRankDivergence has no effect" in line for line in answer["warnings"])


@pytest.mark.parametrize("by, dtype", [("ddp", "float32"), ("dp_group", "bfloat16")])
def test_a_healthy_run_raises_nothing_and_trains_the_same_bits(tmp_path: Path, by: str, dtype: str) -> None:
    plain = train(tmp_path, monitored=False, dtype=dtype)
    watched = train(tmp_path, by, dtype=dtype)
    assert watched[0]["compared"].pop("comparisons") > 2 * STEPS
    counts = {"groups": 1, "ranks": 2, "last_step": STEPS - 1, "incomplete": 0, "unresolved": 0}
    assert watched[0]["compared"] == {**counts, "not_compared": []}
    assert [rank["own"] for rank in watched] == [[], []]
    assert not (tmp_path / "out" / "anomaly_detected").exists()
    assert {rank["state"] for rank in plain} == {rank["state"] for rank in watched}


def test_a_model_whose_replicas_are_unknown_is_not_compared_and_a_warning_says_so(tmp_path: Path) -> None:
    said = train(tmp_path, by="model", flip=FLIPPED, steps=30)
    assert [rank["own"] for rank in said] == [[], []]
    assert any("AnomalyRankDivergence has no effect" in line for line in said[0]["warnings"])
