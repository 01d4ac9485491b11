# SPDX-License-Identifier: Apache-2.0
"""AnomalyRankDivergence with two ranks and gloo: a flipped bit on one of them, and healthy runs."""
import json
from pathlib import Path
from typing import Any

import jobs
import pytest
import ranks
import torch

STEPS, FLIPPED = 60, 20

SCRIPT = """
import hashlib, json, os, subprocess, sys, time, torch, torch.distributed as dist, gradmon, jobs
options = json.loads(sys.argv[1])
dist.init_process_group("gloo")
rank = dist.get_rank()
model = jobs.make_net()
del model.spare
model = model.to(getattr(torch, options["dtype"]))
ddp = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
monitor = None
if options["config"]:
    monitor = gradmon.Monitor(options["config"], output_dir=options["out"], dynamic=False)
    group = dist.group.WORLD if options["by"] == "dp_group" else None
    watched = ddp if options["by"] == "ddp" else model
    monitor.watch(watched, optimizer, dp_group=group)
for step in range(options["steps"]):
    optimizer.zero_grad()
    batch = jobs.batch(step + 100 * rank).to(next(model.parameters()).dtype)
    ddp(batch).pow(2).mean().backward()
    if step == options["flip"] and rank == 1:
        bits = model.fc2.weight.detach().view(torch.int32)
        bits[1, 2] ^= 1 << options["bit"]
    optimizer.step()
state = b"".join(p.detach().float().numpy().tobytes() for p in model.parameters())
answers = {}
if monitor is not None:
    end = time.monotonic() + 20
    while options["flip"] >= 0 and options["wanted"] and time.monotonic() < end:
        told = subprocess.run(
            [os.environ["GRADMON_BIN"] + "/gradmonctl", "alerts", "--json", "--output-dir", options["out"]],
            capture_output=True, timeout=60)
        answers = json.loads(told.stdout) if told.returncode == 0 else {}
        if len(answers.get("alerts", [])) >= options["wanted"]:
            break
        time.sleep(0.05)
    time.sleep(options["linger"])
    answers["warnings"] = monitor.status().warnings
    answers["own"] = [[a.rule, a.step, a.tag_name, a.op, a.message] for a in monitor.alerts()]
    dist.barrier()
    monitor.stop()
answers["state"] = hashlib.sha256(state).hexdigest()
print(json.dumps(answers))
dist.barrier()
"""
RULE: "dict[str, Any]" = {"rule_name": "AnomalyRankDivergence"}


def train(tmp_path: Path, by: str = "ddp", monitored: bool = True, **options: Any) -> "list[dict[str, Any]]":
    keys = {"wg_distribution": True, "param_distribution": True, "ops": ["norm", "mean"]}
    config = jobs.write_config(tmp_path, alert={"rules": [options.pop("rule", RULE)], "dump": True}, **keys)
    defaults: "dict[str, Any]" = {
        "steps": STEPS,
        "flip": -1,
        "bit": 27,
        "dtype": "float32",
        "wanted": 0,
        "linger": 0.0,
    }
    defaults.update(options)
    said = ranks.run(
        tmp_path,
        SCRIPT,
        config=str(config) if monitored else "",
        out=str(tmp_path / "out"),
        by=by,
        **defaults,
    )
    return [json.loads(out.splitlines()[-1]) for out in said]


@pytest.mark.parametrize("by", ["ddp", "dp_group"])
def test_a_flipped_bit_raises_an_alert_on_the_rank_that_differs(tmp_path: Path, by: str) -> None:
    first, second = train(tmp_path, by, flip=FLIPPED, wanted=2)
    assert {alert["rule"] for alert in first["alerts"]} == {"AnomalyRankDivergence"}
    alert = first["alerts"][0]
    assert (alert["rank"], alert["step"]) == (1, FLIPPED)
    prefix = "module." if by == "ddp" else ""
    tags = [f"0:{prefix}fc2.weight/rank1/{kind}" for kind in ("param_origin", "param_updated")]
    assert alert["message"].startswith(f"Rule AnomalyRankDivergence reports anomaly signal in ('{tags[0]}', ")
    assert "rank 1 has " in alert["message"] and "rank 0 has " in alert["message"]
    assert alert["value"] != alert["history_mean"]
    assert [alert["tag_name"] for alert in first["alerts"]] == tags
    assert first["own"] == []
    assert [own[4] for own in second["own"]] == [alert["message"] for alert in first["alerts"]]
    dump = json.loads((tmp_path / "out" / "anomaly_detected" / "rank1" / "anomaly.json").read_text())
    assert {entry["step"] for entry in dump.values()} == {FLIPPED}


@pytest.mark.parametrize("by, dtype", [("ddp", "float32"), ("dp_group", "bfloat16")])
def test_a_healthy_run_raises_nothing_and_trains_the_same_bits(tmp_path: Path, by: str, dtype: str) -> None:
    if dtype == "bfloat16" and torch.__version__.startswith("1."):
        pytest.skip("this torch's Gloo has no bfloat16")
    plain = train(tmp_path, monitored=False, dtype=dtype)
    watched = train(tmp_path, by, dtype=dtype, linger=3.0)
    assert [rank["own"] for rank in watched] == [[], []]
    assert not (tmp_path / "out" / "anomaly_detected").exists()
    assert {rank["state"] for rank in plain} == {rank["state"] for rank in watched}


def test_a_difference_within_the_threshold_raises_nothing(tmp_path: Path) -> None:
    rule = {**RULE, "args": {"threshold": 0.5}}
    said = train(tmp_path, flip=FLIPPED, bit=0, linger=3.0, rule=rule)
    assert [rank["own"] for rank in said] == [[], []]


def test_a_model_whose_replicas_are_unknown_is_not_compared_and_a_warning_says_so(tmp_path: Path) -> None:
    said = train(tmp_path, by="model", flip=FLIPPED, steps=30)
    assert [rank["own"] for rank in said] == [[], []]
    assert any("AnomalyRankDivergence has no effect" in line for line in said[0]["warnings"])
