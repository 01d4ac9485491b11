# SPDX-License-Identifier: Apache-2.0
"""Alert rules of the config, seen from the program: monitor.alerts(), the dump, the log."""
import json
import math
from pathlib import Path
from typing import Any

import jobs
import torch

POISONED = 30


def train(tmp_path: Path, factor: float, rules: "list[dict[str, Any]]") -> "list[Any]":
    """Trains 40 steps, of which one has its loss multiplied. Returns the alerts."""
    model = jobs.make_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    monitor = jobs.monitor(tmp_path, ops=["norm"], wg_distribution=True, alert={"rules": rules, "dump": True})
    with monitor.watch(model, optimizer):
        for step in range(40):
            optimizer.zero_grad()
            loss = model(jobs.batch(step % 3)).pow(2).mean()
            (loss * (factor if step == POISONED else 1.0)).backward()
            if step == POISONED:
                optimizer.param_groups[0]["lr"] = 0.0
            optimizer.step()
            optimizer.param_groups[0]["lr"] = 0.01
        monitor.stop()
    return list(monitor.alerts())


def dump(tmp_path: Path) -> "dict[str, Any]":
    return dict(json.loads((tmp_path / "out" / "anomaly_detected" / "rank0" / "anomaly.json").read_text()))


def test_a_spike_is_reported_at_its_step_and_nothing_before(tmp_path: Path) -> None:
    alerts = train(tmp_path, 1000.0, [{"rule_name": "AnomalySpike"}])
    assert {alert.step for alert in alerts} == {POISONED}
    assert {alert.rule for alert in alerts} == {"AnomalySpike"}
    assert "0:fc1.weight/rank0/post_grad" in {alert.tag_name for alert in alerts}
    assert {entry["step"] for entry in dump(tmp_path).values()} == {POISONED}
    assert len(dump(tmp_path)) == len(alerts)


def test_a_nan_is_reported_with_msprobes_message_and_key(tmp_path: Path) -> None:
    alerts = train(tmp_path, math.nan, [{"rule_name": "AnomalyNan"}])
    first = next(alert for alert in alerts if alert.tag_name == "0:fc1.weight/rank0/post_grad")
    assert first.step == POISONED and first.op == "norm" and math.isnan(first.value)
    wanted = "Rule AnomalyNan reports anomaly signal in ('0:fc1.weight/rank0/post_grad', 'norm') at step 30"
    assert first.message.startswith(wanted)
    key = f"0:fc1.weight/rank0/post_grad_step_30_call_{first.call_id}_norm"
    assert dump(tmp_path)[key]["message"] == first.message


def test_a_healthy_run_raises_nothing(tmp_path: Path) -> None:
    rules = [{"rule_name": name} for name in ("AnomalyNan", "AnomalySpike", "AnomalyVanish")]
    assert train(tmp_path, 1.0, rules) == []
    assert not (tmp_path / "out" / "anomaly_detected").exists()


def note_gradients(model: torch.nn.Module, seen: "list[str]") -> None:
    """Notes the names of gradients in the order of plain autograd."""

    def note_output(module: torch.nn.Module, _: Any, output: torch.Tensor) -> None:
        output.register_hook(lambda _: seen.append("fc1.output"))

    model.get_submodule("fc1").register_forward_hook(note_output)
    for name, parameter in model.named_parameters():
        parameter.register_hook(lambda _, name=name: seen.append(name))


def test_call_id_counts_in_the_order_in_which_values_were_read(tmp_path: Path) -> None:
    model = jobs.make_net()
    seen: "list[str]" = []
    note_gradients(model, seen)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    monitor = jobs.monitor(
        tmp_path,
        ops=["norm"],
        wg_distribution=True,
        xy_distribution=True,
        targets={"fc1": {}, "fc2.weight": {}},
        alert={"rules": [{"rule_name": "AnomalyNan", "args": {"threshold": 0}}]},
    )
    with monitor.watch(model, optimizer):
        for step in range(1):
            optimizer.zero_grad()
            model(jobs.batch(step)).pow(2).mean().backward()
            optimizer.step()
        monitor.stop()
    calls = {alert.tag_name: alert.call_id for alert in monitor.alerts()}  # of step 0: they last
    assert sorted(calls.values()) == list(range(len(calls)))
    backward = {
        "fc2.weight": calls["0:fc2.weight/rank0/acc_grad"],
        "fc1.output": calls["0:fc1.output:0/rank0/actv_grad"],
        "fc1.weight": calls["0:fc1.weight/rank0/acc_grad"],
    }
    assert sorted(backward, key=lambda name: backward[name]) == [name for name in seen if name in backward]
    assert calls["0:fc1.input:0/rank0/actv"] == 0
    assert calls["0:fc1.weight/rank0/post_grad"] > max(backward.values())
