# SPDX-License-Identifier: Apache-2.0
"""Alerts, and the flight recorder (keep_last): the steps before an alert, with torch's own values."""
import csv
import json
import math
from pathlib import Path
from typing import Any

import jobs
import pytest
import torch

STEPS = 40
POISONED = 33
KEPT = 8
SPIKE = {"rules": [{"rule_name": "AnomalySpike"}], "dump": True}


def train(tmp_path: Path, factor: float = 1000.0, **keys: Any) -> "tuple[Any, dict[int, Any]]":
    """Trains 40 steps, of which one has its loss multiplied. Returns the monitor and what torch has."""
    model, optimizer = jobs.with_sgd(jobs.make_net(), lr=0.01)
    monitor = jobs.monitor(tmp_path, **{"ops": ["norm"], "alert": SPIKE, "keep_last": KEPT, **keys})
    known: "dict[int, Any]" = {}
    with monitor.watch(model, optimizer):
        for step in range(STEPS):
            optimizer.zero_grad()
            loss = model(jobs.batch(step % 3)).pow(2).mean()
            (loss * (factor if step == POISONED else 1.0)).backward()
            gradients = {
                name: parameter.grad.double().norm().item()
                for name, parameter in model.named_parameters()
                if parameter.grad is not None
            }
            known[step] = {"loss": loss.item(), **gradients}
            monitor.scalar("loss", loss.item())
            optimizer.param_groups[0]["lr"] = 0.0 if step == POISONED else 0.01
            optimizer.step()
        monitor.stop()
    return monitor, known


def dump(tmp_path: Path) -> "dict[str, Any]":
    return dict(json.loads((tmp_path / "out" / "anomaly_detected" / "rank0" / "anomaly.json").read_text()))


def flight(tmp_path: Path, kind: str) -> "dict[tuple[str, int], dict[str, str]]":
    found: "dict[tuple[str, int], dict[str, str]]" = {}
    for path in tmp_path.glob(f"out/*-rank0-*/flight/{kind}_0-999.csv"):
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                key = (row["name"], int(row["step"]))
                assert key not in found, f"{key} twice"
                found[key] = row
    return found


def check(tmp_path: Path, known: "dict[int, Any]") -> None:
    """The file holds the alert's step and those before it, all gradients, torch's norms."""
    rows = flight(tmp_path, "grad_reduced")
    names = set(known[0]) - {"loss"}
    assert len(names) == 4
    assert set(rows) == {(name, step) for name in names for step in range(POISONED + 1 - KEPT, POISONED + 1)}
    for (name, step), row in rows.items():
        assert math.isclose(float(row["norm"]), known[step][name], rel_tol=1e-5, abs_tol=2e-9), (name, step)
        assert row["nans"] == "0" and row["dtype"] == "torch.float32" and row["shape"].startswith("[")


@pytest.mark.parametrize("interval", [1, 10, 1000])
@pytest.mark.parametrize("gradients", [True, False])
def test_the_steps_before_a_spike_are_there(interval: int, gradients: bool, tmp_path: Path) -> None:
    monitor, known = train(tmp_path, step_interval=interval, wg_distribution=gradients)
    alerts = monitor.alerts()
    assert {(alert.step, alert.rule) for alert in alerts} == {(POISONED, "AnomalySpike")}
    assert "0:fc1.weight/rank0/post_grad" in {alert.tag_name for alert in alerts}
    assert {entry["step"] for entry in dump(tmp_path).values()} == {POISONED}
    assert len(dump(tmp_path)) == len(alerts)
    check(tmp_path, known)
    collected = set(range(0, STEPS, interval)) if gradients else set()
    assert {step for _, step, _ in jobs.rows(tmp_path / "out", "grad_reduced")} == collected


def test_a_nan_is_reported_with_msprobes_message_and_key(tmp_path: Path) -> None:
    alert = {"rules": [{"rule_name": "AnomalyNan"}], "dump": True}
    monitor, _ = train(tmp_path, math.nan, alert=alert, wg_distribution=True)
    first = next(one for one in monitor.alerts() if one.tag_name == "0:fc1.weight/rank0/post_grad")
    assert first.step == POISONED and first.op == "norm" and math.isnan(first.value)
    place = f"('{first.tag_name}', 'norm') at step {POISONED}"
    assert first.message.startswith(f"Rule AnomalyNan reports anomaly signal in {place}")
    key = f"{first.tag_name}_step_{POISONED}_call_{first.call_id}_norm"
    assert dump(tmp_path)[key]["message"] == first.message


@pytest.mark.parametrize("interval", [1, 10])
def test_recorded_scalars_are_there_with_the_reported_values(interval: int, tmp_path: Path) -> None:
    scalars = {"loss": "records", "grad-norm": "records", "weight_norm": "records", "iteration-time": "log"}
    _, known = train(tmp_path, step_interval=interval, scalars=scalars)
    check(tmp_path, known)
    rows = flight(tmp_path, "scalar")
    steps = range(POISONED + 1 - KEPT, POISONED + 1)
    assert {step for name, step in rows if name == "loss"} == set(steps)
    assert {step for name, step in rows if name == "grad-norm"} == set(steps)
    of_weights = {step for name, step in rows if name == "weight_norm"}
    assert of_weights == {step for step in steps if step % interval == 0}
    for step in steps:
        assert math.isclose(float(rows["loss", step]["value"]), known[step]["loss"], rel_tol=1e-6)
        whole = math.sqrt(sum(value**2 for name, value in known[step].items() if name != "loss"))
        assert math.isclose(float(rows["grad-norm", step]["value"]), whole, rel_tol=1e-5)


def test_counts_in_status_are_those_of_the_sinks(tmp_path: Path) -> None:
    monitor, _ = train(tmp_path, step_interval=10, wg_distribution=True)
    status = monitor.status()
    in_files = sum(len(jobs.rows(tmp_path / "out", kind)) for kind in ("grad_unreduced", "grad_reduced"))
    assert in_files == 4 * 4 * 2  # steps, gradients, kinds
    assert (status.ranks[0].records, status.ranks[0].dropped) == (in_files, 0)
    assert not [line for line in status.warnings if "flight" in line]


def test_training_computes_the_same_bits(tmp_path: Path) -> None:
    def trained(directory: Path, keep_last: int) -> "list[torch.Tensor]":
        directory.mkdir()
        model, optimizer = jobs.with_sgd(jobs.make_net(), lr=0.01)
        keys = {"alert": SPIKE, "keep_last": keep_last, "wg_distribution": True, "step_interval": 3}
        with jobs.monitor(directory, **keys).watch(model, optimizer):
            jobs.train(model, optimizer, 10)
        return [parameter.detach() for parameter in model.parameters()]

    for a, b in zip(trained(tmp_path / "a", 0), trained(tmp_path / "b", 5)):
        assert torch.equal(a, b)


def test_a_job_that_is_switched_on_records_from_then_on(tmp_path: Path) -> None:
    model, optimizer = jobs.with_sgd(jobs.make_net(), lr=0.01)
    keys = {"dynamic_on": False, "wg_distribution": True, "step_interval": 1000, "keep_last": 1000}
    monitor = jobs.monitor(tmp_path, {"dynamic": True}, alert=SPIKE, **keys)
    steps = 0

    def train_a_step(factor: float = 1.0) -> None:
        nonlocal steps
        optimizer.zero_grad()
        (model(jobs.batch(steps % 3)).pow(2).mean() * factor).backward()
        optimizer.step()
        steps += 1

    with monitor.watch(model, optimizer):
        train_a_step()
        monitor.on()
        assert jobs.eventually(lambda: train_a_step() or monitor.status().effective_step >= 0)
        began = monitor.status().effective_step
        while steps < began + 30:
            train_a_step()
        train_a_step(1000.0)
        monitor.stop()
    assert {alert.step for alert in monitor.alerts()} == {steps - 1}
    assert {step for _, step in flight(tmp_path, "grad_reduced")} == set(range(began, steps))
