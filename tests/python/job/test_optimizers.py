# SPDX-License-Identifier: Apache-2.0
"""Optimizers that share parameters, replace or wrap others, or step several times in an iteration."""
import threading
from pathlib import Path
from typing import Any

import gradmon
import jobs
import pytest
import torch
from gradmon import _gradmon


def sgd(*modules: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD([p for module in modules for p in module.parameters()], lr=0.01)


def make_monitor(tmp_path: Path) -> gradmon.Monitor:
    return jobs.monitor(tmp_path, jobs.ALONE, **jobs.UPDATES)


def updated(tmp_path: Path) -> "dict[str, list[int]]":
    """The steps in which each parameter was updated."""
    return jobs.steps_of(jobs.rows(tmp_path / "out", "param_updated"))


def backward(model: torch.nn.Module) -> None:
    model.zero_grad()
    model(jobs.batch(0)).pow(2).mean().backward()


def test_three_optimizers_of_which_one_holds_what_the_others_hold(tmp_path: Path) -> None:
    """As in InfoGAN."""
    model = jobs.make_net()
    first, second, both = sgd(model.fc1), sgd(model.fc2), sgd(model.fc1, model.fc2)
    with make_monitor(tmp_path) as monitor:
        monitor.watch(model, first).watch(model, second).watch(model, both)
        for _ in range(3):
            for optimizer in (second, first, both):
                backward(model)
                optimizer.step()
    steps = updated(tmp_path)
    assert steps["fc1.weight"] == steps["fc2.weight"] == [0, 1, 2]


def test_updates_on_several_threads_at_once(tmp_path: Path) -> None:
    """As on autograd's threads, one for each device, where a program updates in its hooks."""
    model = torch.nn.ModuleList(jobs.make_net() for _ in range(4))
    optimizers = [sgd(part.fc1, part.fc2) for part in model]
    together = threading.Barrier(len(optimizers))

    def train(part: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        for _ in range(50):
            backward(part)
            together.wait()
            optimizer.step()
            together.wait()

    with make_monitor(tmp_path) as monitor:
        for optimizer in optimizers:
            monitor.watch(model, optimizer)
        threads = [threading.Thread(target=train, args=of_one) for of_one in zip(model, optimizers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    steps = updated(tmp_path)
    assert all(steps[f"{part}.fc1.weight"] == list(range(50)) for part in range(4))


def test_an_update_that_comes_after_the_end_of_its_step_is_not_of_the_next_one(tmp_path: Path) -> None:
    """As below, where the other optimizer has stepped before the encoder's came: its first update after that
    has no rows."""
    model = jobs.make_net()
    whole, encoder = sgd(model.fc1, model.fc2), sgd(model.fc1)
    norms = []
    with jobs.monitor(tmp_path, param_distribution=True) as monitor:
        monitor.watch(model, whole)
        for number, optimizer in enumerate((whole, encoder, whole, encoder, whole, encoder, whole)):
            if number == 1:
                monitor.watch(model, encoder)
            backward(model)
            norms.append(model.fc2.weight.norm().item())
            optimizer.step()
    found = jobs.rows(tmp_path / "out", "param_origin")
    of_fc2 = {step: row["norm"] for (name, step, _), row in found.items() if name == "fc2.weight"}
    assert of_fc2 == {step: pytest.approx(norms[2 * step], rel=1e-6) for step in (0, 2, 3)}


@pytest.mark.parametrize("shared_last", [True, False])
def test_an_encoder_that_two_optimizers_update(tmp_path: Path, shared_last: bool) -> None:
    """As in CURL. Where the one that came last steps first, the first iteration has both updates, too."""
    model = jobs.make_net()
    whole, encoder = sgd(model.fc1, model.fc2), sgd(model.fc1)
    with make_monitor(tmp_path) as monitor:
        monitor.watch(model, whole).watch(model, encoder)
        for _ in range(3):
            for optimizer in (whole, encoder) if shared_last else (encoder, whole):
                backward(model)
                optimizer.step()
    names = [f"{layer}.{part}" for layer in ("fc1", "fc2") for part in ("weight", "bias")]
    assert updated(tmp_path) == {name: [0, 1, 2] for name in names}


def test_an_optimizer_of_more_parameters_replaces_one(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Layers are unfrozen."""
    model = jobs.make_net()
    with make_monitor(tmp_path) as monitor:
        optimizer = sgd(model.fc2)
        for iteration in range(6):
            if iteration == 2:
                optimizer = sgd(model.fc1, model.fc2)
            monitor.watch(model, optimizer)
            backward(model)
            optimizer.step()
    steps = updated(tmp_path)
    assert (steps["fc1.weight"], steps["fc2.weight"]) == ([2, 3, 4, 5], [0, 1, 2, 3, 4, 5])
    assert "no longer steps" not in capfd.readouterr().err


class Schedule:
    """In the shape of an optimizer, as in the Annotated Transformer."""

    def __init__(self, optimizer: Any, **forwarded: Any) -> None:
        self.optimizer = optimizer
        vars(self).update(forwarded)

    def step(self) -> None:
        self.optimizer.step()


@pytest.mark.parametrize("has_groups", [False, True])
def test_the_optimizer_in_a_schedule_is_watched(tmp_path: Path, has_groups: bool) -> None:
    model = jobs.make_net()
    inner = torch.optim.Adam(model.parameters())
    forwarded = {"param_groups": inner.param_groups} if has_groups else {}
    schedule = Schedule(inner, **forwarded)
    with make_monitor(tmp_path) as monitor:
        monitor.watch(model, schedule)
        for _ in range(2):
            backward(model)
            schedule.step()
    assert updated(tmp_path)["fc1.weight"] == [0, 1]
    assert jobs.steps_of(jobs.rows(tmp_path / "out", "exp_avg"))["fc1.weight"] == [1]
    assert jobs.steps_of(jobs.rows(tmp_path / "out", "grad_reduced"))["fc1.weight"] == [0, 1]


@pytest.mark.parametrize("explicit", [True, False])
def test_an_iteration_of_several_updates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, explicit: bool
) -> None:
    """As in PPO."""
    said: "list[str]" = []
    monkeypatch.setattr(_gradmon, "warn_once", said.append)  # another test may have been told already
    model = jobs.make_net()
    optimizer = sgd(model)
    with make_monitor(tmp_path) as monitor:
        monitor.watch(model, optimizer, explicit_steps=explicit)
        for _ in range(2):
            for _ in range(3):
                backward(model)
                optimizer.step()
            monitor.step()
    assert updated(tmp_path)["fc1.weight"] == ([0, 1] if explicit else [0, 1, 2, 3])
    assert any("Pass explicit_steps=True to watch()" in text for text in said) is not explicit
