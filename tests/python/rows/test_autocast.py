# SPDX-License-Identifier: Apache-2.0
"""Mixed precision: bfloat16 autocast, and scaled losses."""
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Optional

import jobs
import pytest
import torch
import twice
from gradmon import _scaler_updates
from gradmon._scaler_updates import ScalerUpdates, left_out_by_scaler
from torch.utils.checkpoint import checkpoint

# Since torch 2.3 there is one that works without a GPU.
GRAD_SCALER = getattr(torch.amp, "GradScaler", None)


class Net(torch.nn.Module):
    def __init__(self, reentrant: Optional[bool] = None) -> None:
        super().__init__()
        self.fc1 = torch.nn.Linear(4, 6)
        self.act = torch.nn.Tanh()
        self.fc2 = torch.nn.Linear(6, 2)
        self.reentrant = reentrant

    def middle(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.fc1(x))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.reentrant is None:
            return self.fc2(self.middle(x))
        return self.fc2(checkpoint(self.middle, x.requires_grad_(), use_reentrant=self.reentrant))


def loss_of(model: torch.nn.Module, step: int) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = model(jobs.batch(step))
    return output.float().pow(2).mean()


@pytest.mark.parametrize("reentrant", [None, False, True])
def test_values_have_the_types_that_they_have_in_autocast(tmp_path: Path, reentrant: Optional[bool]) -> None:
    def training(noted: twice.Noted, monitor: Any) -> None:
        model = Net(reentrant)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        monitor.watch(model, optimizer)
        for step in range(3):
            optimizer.zero_grad()
            loss_of(model, step).backward()
            noted.gradients(model, step)
            noted.weights(model, step, "param_origin")
            optimizer.step()
        monitor.stop()
        noted.end(model, optimizer)

    twice.compare(tmp_path, training)
    torch.manual_seed(7)
    model = Net()
    expected = twice.plain_activations(model, lambda: loss_of(model, 0))
    assert expected[0]["fc1.output"].dtype == expected[1]["fc1.output"].dtype == torch.bfloat16
    assert expected[0]["fc1.input"].dtype == torch.float32
    for kind, tensors in zip(("actv", "actv_grad"), expected):
        found = twice.read(tmp_path / "out", kind)
        for name, tensor in tensors.items():
            if "input" not in name:
                twice.check_bits(found[name, 0, 0], tensor, name)


def test_a_model_in_bfloat16_throughout(tmp_path: Path) -> None:
    def training(noted: twice.Noted, monitor: Any) -> None:
        model = Net().bfloat16()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        monitor.watch(model, optimizer)
        for step in range(3):
            optimizer.zero_grad()
            model(jobs.batch(step).bfloat16()).pow(2).mean().backward()
            noted.gradients(model, step)
            optimizer.step()
            noted.weights(model, step, "param_updated")
        monitor.stop()
        noted.end(model, optimizer)

    twice.compare(tmp_path, training)


class OwnScaler:
    """A scaler as programs write it: like torch's, it skips an update if a gradient is not finite."""

    def __init__(self) -> None:
        self.factor = 1024.0
        self.finite = True

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        return loss * self.factor

    def unscale_(self, optimizer: Any) -> None:
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"]]
        self.finite = all(bool(gradient.isfinite().all()) for gradient in gradients)
        for gradient in gradients:
            gradient.div_(self.factor)

    def step(self, optimizer: Any) -> None:
        if self.finite:
            optimizer.step()

    def update(self) -> None:
        self.factor *= 1.0 if self.finite else 0.5


def make(model: torch.nn.Module, scaler: str, fused: bool) -> "tuple[torch.optim.Optimizer, Any]":
    if scaler == "torch" and GRAD_SCALER is None:
        pytest.skip("this torch has no GradScaler without a GPU")
    try:
        options = {"fused": True} if fused else {}
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, **options)
    except (RuntimeError, TypeError) as error:
        pytest.skip(f"this torch has no fused AdamW without a GPU: {error}")
    return optimizer, GRAD_SCALER("cpu", init_scale=1024.0) if scaler == "torch" else OwnScaler()


@pytest.mark.parametrize(
    "kind, clips, fused",
    [
        ("own", True, False),
        ("torch", True, False),
        ("torch", False, False),
        ("torch", True, True),
        ("torch", False, True),
    ],
)
def test_a_scaler_that_leaves_an_update_out(tmp_path: Path, kind: str, clips: bool, fused: bool) -> None:
    """grad_unreduced has the scaled gradient that backward left, grad_reduced the one that the optimizer
    uses. `clips`: the program unscales. Otherwise the scaler does or, if `fused`, the optimizer."""
    bad = 2  # the step whose gradients are not finite

    def training(noted: twice.Noted, monitor: Any) -> None:
        model = Net()
        optimizer, scaler = make(model, kind, fused)
        monitor.watch(model, optimizer)
        factor = 1024.0
        for step in range(5):
            optimizer.zero_grad()
            scaler.scale(loss_of(model, step) * (float("inf") if step == bad else 1.0)).backward()
            if step != bad:
                noted.gradients(model, step, "grad_unreduced")
                for name, parameter in model.named_parameters():
                    noted.note("grad_reduced", name, step, parameter.grad / factor)
                noted.weights(model, step, "param_origin")
            if clips:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9)
            scaler.step(optimizer)
            scaler.update()
            if step == bad:
                factor /= 2
            else:
                noted.weights(model, step, "param_updated")
            monitor.step()
        monitor.stop()
        noted.end(model, optimizer)

    plain = twice.without(training)
    config = jobs.write_config(tmp_path, **twice.EVERYTHING)
    twice.check_same_training(plain, twice.with_monitor(config, tmp_path / "out", training))
    for name, tensors in plain.tensors.items():
        found = twice.read(tmp_path / "out", name)
        of_bad = sum(step == bad for _, step, _ in found)
        assert of_bad == (0 if name == "param_updated" else 4), name
        twice.check_rows({key: row for key, row in found.items() if key[1] != bad}, tensors, name)


def test_only_a_single_plain_number_says_that_an_update_was_left_out() -> None:
    """Other optimizers may have an attribute of that name, and the training step must not raise."""
    for found, left_out in (
        (torch.tensor(1.0), True),
        (torch.zeros(1), False),
        (torch.ones(2), False),
        (torch.nn.Parameter(torch.ones(1)), False),
        (True, False),
    ):
        assert left_out_by_scaler(SimpleNamespace(found_inf=found)) is left_out
    assert left_out_by_scaler(SimpleNamespace()) is False


def test_while_a_graph_is_captured_the_scale_is_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read of the scale would wait for the device, which ends the capture."""
    asked = iter([8.0, 16.0])
    scaler = SimpleNamespace(get_scale=lambda: next(asked), step=lambda _: None, update=lambda: None)
    updates = ScalerUpdates(scaler, lambda _: None, lambda _: None, lambda _: 0)
    assert updates.scale() == 8
    monkeypatch.setattr(_scaler_updates, "is_captured", lambda _: True)
    assert updates.scale() == 8
    monkeypatch.undo()
    assert updates.scale() == 16


def test_updates_left_out_where_the_optimizer_ends_the_steps(tmp_path: Path) -> None:
    """After a skipped update the step lasts until the next update."""

    def training(noted: twice.Noted, monitor: Any) -> None:
        model = Net()
        optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), OwnScaler()
        monitor.watch(model, optimizer)
        for iteration in range(5):
            optimizer.zero_grad()
            scaler.scale(loss_of(model, iteration) * (float("inf") if iteration == 2 else 1.0)).backward()
            step = iteration - (iteration > 2)  # iterations 2 and 3 are one step; its rows are of 3
            noted.gradients(model, step, "grad_unreduced")
            scaler.unscale_(optimizer)
            noted.gradients(model, step, "grad_reduced")
            scaler.step(optimizer)
            scaler.update()
        monitor.stop()
        noted.end(model, optimizer)

    twice.compare(tmp_path, training)
