# SPDX-License-Identifier: Apache-2.0
"""Callbacks around an optimizer's step, and the optimizer after them."""
import copy
import sys
import warnings
from pathlib import Path
from typing import Any

import jobs
import pytest
import torch
from gradmon._optimizer_steps import OptimizerSteps


class Told:
    def __init__(self) -> None:
        self.said: "list[str]" = []

    def watch(self, optimizer: Any) -> OptimizerSteps:
        return OptimizerSteps(
            optimizer, lambda _: self.said.append("before"), lambda: self.said.append("after")
        )


def make(kind: Any = torch.optim.SGD, **options: Any) -> Any:
    model = jobs.make_net()
    return model, kind(model.parameters(), lr=0.1, **options)


@pytest.mark.parametrize("scheduler_first", [True, False])
def test_a_scheduler_may_be_made_before_or_after(scheduler_first: bool) -> None:
    model, optimizer = make()
    told = Told()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1) if scheduler_first else None
    original = optimizer.step
    steps = told.watch(optimizer)
    if scheduler is None:
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the scheduler warns about steps that it does not see
        jobs.train(model, optimizer, 2, lambda _: scheduler.step())
    assert told.said == ["before", "after"] * 2
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1 * 0.1 * 0.1)
    steps.remove()
    jobs.train(model, optimizer, 1)
    assert told.said == ["before", "after"] * 2
    if scheduler_first:
        assert optimizer.step is original or optimizer.step == original


def test_without_a_scheduler_the_optimizer_is_as_it_was() -> None:
    model, optimizer = make()
    steps = Told().watch(optimizer)
    steps.remove()
    steps.remove()
    assert "step" not in vars(optimizer)


def test_before_comes_after_the_last_call_of_a_closure() -> None:
    model, optimizer = make(torch.optim.LBFGS, max_iter=3)
    told = Told()
    told.watch(optimizer)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(jobs.batch(0)).pow(2).mean()
        loss.backward()
        told.said.append("closure")
        return loss

    loss = optimizer.step(closure)
    assert loss is not None
    assert told.said[0] == "closure" and told.said[-2:] == ["before", "after"]
    assert told.said.count("before") == told.said.count("closure") >= 2


def test_an_optimizer_that_is_no_torch_optimizer_is_met() -> None:
    class Own:
        def step(self, scale: float, *, twice: bool = False) -> float:
            return scale * (2 if twice else 1)

    optimizer, told = Own(), Told()
    steps = told.watch(optimizer)
    assert optimizer.step(3.0, twice=True) == 6.0
    assert told.said == ["before", "after"]
    steps.remove()
    assert "step" not in vars(optimizer)


def test_a_step_of_a_copy_is_the_copys() -> None:
    class Own:  # a copy has the same __dict__, and so our `step`
        def __init__(self) -> None:
            self.steps = 0

        def step(self) -> None:
            self.steps += 1

    optimizer, told = Own(), Told()
    told.watch(optimizer)
    copied = copy.deepcopy(optimizer)
    copied.step()
    assert (copied.steps, optimizer.steps, told.said) == (1, 0, [])
    optimizer.step()
    assert (copied.steps, optimizer.steps, told.said) == (1, 1, ["before", "after"])


def test_a_step_that_calls_the_step_of_its_base_is_one() -> None:
    class Clipped(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            return super().step(closure)

    make()  # torch 2.x hooks a class when its first instance is made
    model, optimizer = make(Clipped)
    told = Told()
    told.watch(optimizer)
    jobs.train(model, optimizer, 2)
    assert told.said == ["before", "after"] * 2


def test_a_closure_gets_what_it_is_called_with() -> None:
    class Searching:
        def step(self, closure: Any) -> float:
            with torch.no_grad():
                return closure(backward=False)

    optimizer, told = Searching(), Told()
    told.watch(optimizer)
    seen = []
    optimizer.step(lambda backward: seen.append((backward, torch.is_grad_enabled())))
    assert seen == [(False, False)]
    assert told.said == ["before", "after"]


def test_exceptions_of_the_optimizer_pass_through() -> None:
    class Failing:
        def step(self) -> None:
            raise RuntimeError("no more memory")

    optimizer, told = Failing(), Told()
    told.watch(optimizer)
    with pytest.raises(RuntimeError, match="no more memory"):
        optimizer.step()
    assert told.said == ["before"]


def test_reading_an_optimizer_runs_no_code_of_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A signal handler would run in it, and gradmon would catch the handler's exception."""
    model, optimizer = jobs.with_sgd(jobs.make_net(), momentum=0.9)
    monitor = jobs.monitor(tmp_path, wg_distribution=True, mv_distribution=True)
    with monitor.watch(model, optimizer):
        jobs.train(model, optimizer, 1)
        model(jobs.batch(1)).pow(2).mean().backward()
        seen = []
        sys.setprofile(lambda frame, event, _: seen.append(frame.f_code.co_name) if event == "call" else None)
        try:
            monitor._steps.core.before_update(optimizer)
            monitor._steps.core.after_update(optimizer)
        finally:
            sys.setprofile(None)
    assert seen == []
    assert "cannot read" not in capfd.readouterr().err


def test_after_an_update_only_the_parameters_are_read(tmp_path: Path) -> None:
    """To read the scale would be to wait for the device."""
    model = jobs.make_net()
    read = []

    class Scaled(torch.optim.SGD):
        @property
        def grad_scale(self) -> None:
            read.append("grad_scale")

    optimizer = Scaled(model.parameters(), lr=0.1)
    jobs.train(model, optimizer, 1)
    by_torch = len(read)  # none before torch 2.13
    jobs.collect(tmp_path, 1, model, optimizer, param_distribution=True)
    assert len(read) == 2 * by_torch + 1
    assert jobs.rows(tmp_path / "out", "param_updated")


def test_a_moment_that_an_optimizer_keeps_under_another_name_is_said_to_be_missing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Adamax has exp_avg and exp_inf."""
    model, optimizer = make(torch.optim.Adamax)
    jobs.collect(tmp_path, 3, model, optimizer, mv_distribution=True, collect_times=3)
    assert jobs.rows(tmp_path / "out", "exp_avg") and not jobs.rows(tmp_path / "out", "exp_avg_sq")
    assert capfd.readouterr().err.count("its optimizer keeps no exp_avg_sq that gradmon can read") == 1
