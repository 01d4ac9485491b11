# SPDX-License-Identifier: Apache-2.0
"""Steps that the replaced step() does not see: bound or compiled before, listed, left out, in two halves."""
import math
import warnings
from pathlib import Path
from typing import Any, Callable

import gradmon
import jobs
import pytest
import torch
from torch import nn

KINDS = {"wg_distribution": True, "param_distribution": True, "mv_distribution": True, "squash_name": False}
Values = dict[tuple[str, str, int], float]


class Job:
    """A monitor in static mode, and what plain torch has beside it: norms by kind, name and step."""

    def __init__(self, place: Path, net: nn.Module, **keys: Any) -> None:
        self.monitor = jobs.monitor(place, ops=["norm", "nans"], ndigits=16, **{**KINDS, **keys})
        self.want: Values = {}
        self._net = net
        self._out = place / "out"

    def note(self, kind: str, step: int) -> None:
        for name, parameter in self._net.named_parameters():
            tensor = parameter.grad if kind.startswith("grad") else parameter
            if tensor is not None:
                self.want[kind, name, step] = tensor.detach().norm().item()

    def train(self, count: int, *steps: Callable[[], Any], end: Callable[[], Any] = lambda: None) -> None:
        """So many steps, each of these calls after a backward; notes what they use and make."""
        for number in range(count):
            self._net.zero_grad()
            backward(self._net, number)
            self.note("grad_reduced", number)
            self.note("param_origin", number)
            for each in steps:
                each()
            self.note("param_updated", number)
            end()

    def rows(self) -> Values:
        self.monitor.stop()
        try:
            table = gradmon.load(self._out)
        except FileNotFoundError:
            return {}
        table = table[table["op"] == "norm"]
        return dict(zip(zip(table["kind"], table["name"], table["step"]), table["value"]))

    def check(self, kinds: "set[str]") -> None:
        """Exactly the wanted rows of these kinds are there, with torch's values."""
        rows = {key: value for key, value in self.rows().items() if key[0] in kinds}
        wanted = {key: value for key, value in self.want.items() if key[0] in kinds}
        assert sorted(rows) == sorted(wanted)
        for key, value in wanted.items():
            assert rows[key] == pytest.approx(value, rel=1e-5, nan_ok=True), key


OF_UPDATE = {"grad_reduced", "param_origin", "param_updated"}


def job_of(place: Path, **keys: Any) -> "tuple[Job, nn.Sequential]":
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 1))
    return Job(place, net, **keys), net


def backward(net: nn.Module, seed: int) -> None:
    torch.manual_seed(seed)
    net(torch.randn(6, 4)).square().mean().backward()


class Twice(torch.optim.SGD):
    """Torch calls the hooks for this class's step, and again for the parent's."""

    def step(self, closure: Any = None) -> Any:
        return super().step(closure)


def compiled_eagerly(step: Callable[[], Any]) -> Callable[[], Any]:
    compiled: Callable[[], Any] = torch.compile(step, backend="aot_eager")
    return compiled


@pytest.mark.parametrize("kind", [torch.optim.Adam, Twice])
@pytest.mark.parametrize("taken", [lambda step: step, compiled_eagerly], ids=["bound", "compiled"])
def test_a_step_that_was_bound_or_compiled_before_watch_has_all_rows_and_ends_one_step(
    tmp_path: Path, kind: Any, taken: Any
) -> None:
    if kind is Twice:
        Twice([nn.Parameter(torch.ones(1))], lr=0.1), torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    job, net = job_of(tmp_path)
    optimizer = kind(net.parameters(), lr=0.1)
    step = taken(optimizer.step)
    job.monitor.watch(net, optimizer)
    job.train(3, step)
    job.check(OF_UPDATE)


@pytest.mark.parametrize("given", [list, tuple, lambda some: dict(enumerate(some))])
def test_a_list_tuple_or_dict_of_optimizers_is_watched_as_its_optimizers(tmp_path: Path, given: Any) -> None:
    job, net = job_of(tmp_path)
    sgd = torch.optim.SGD([p for p in net.parameters() if p.dim() == 2], lr=0.1)
    adam = torch.optim.AdamW([p for p in net.parameters() if p.dim() < 2], lr=0.1)
    job.monitor.watch(net, given([sgd, adam]))
    job.train(3, sgd.step, adam.step)
    job.check(OF_UPDATE)


@pytest.mark.parametrize("wrong", ["bound", "parameters", "nested", "model"])
def test_what_is_no_optimizer_is_refused_before_anything_is_watched(tmp_path: Path, wrong: str) -> None:
    job, net = job_of(tmp_path)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    given = {"bound": sgd.step, "parameters": net.parameters(), "nested": [[sgd]], "model": net}[wrong]
    with pytest.raises(TypeError, match="optimizer: expected an optimizer, with step.. and param_groups"):
        job.monitor.watch(net, given)
    job.monitor.watch(net, sgd)
    backward(net, 0)
    job.note("grad_reduced", 0)
    sgd.step()
    job.check({"grad_reduced"})


@pytest.mark.parametrize("in_loop", [False, True])
def test_a_step_that_makes_the_state_for_a_checkpoint_is_not_counted(tmp_path: Path, in_loop: bool) -> None:
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

    job, net = job_of(tmp_path)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
    job.monitor.watch(net, optimizer, explicit_steps=in_loop)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        get_optimizer_state_dict(net, optimizer)
    job.train(2, optimizer.step, end=job.monitor.step if in_loop else lambda: None)
    job.check(OF_UPDATE)


@pytest.mark.parametrize("zeroed", ["before", "to_none", "to_zeros"])
def test_an_iteration_without_an_update_has_all_rows_but_param_updated(tmp_path: Path, zeroed: str) -> None:
    job, net = job_of(tmp_path)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    job.monitor.watch(net, optimizer, explicit_steps=True)
    for number in range(4):
        skips = number == 2
        if zeroed == "before":
            optimizer.zero_grad()
        torch.manual_seed(number)
        x = torch.randn(6, 4)
        x[0, 0] = math.nan if skips else x[0, 0]
        net(x).square().mean().backward()
        if not skips or zeroed == "before":
            job.note("grad_reduced", number)
        job.note("param_origin", number)
        if number > 0 and not (skips and zeroed == "to_none"):
            for name, parameter in net.named_parameters():
                job.want["exp_avg", name, number] = optimizer.state[parameter]["exp_avg"].norm().item()
        if not skips:
            optimizer.step()
            job.note("param_updated", number)
        if zeroed != "before":
            optimizer.zero_grad(set_to_none=zeroed == "to_none")
        job.monitor.step()
    job.check(OF_UPDATE | ({"exp_avg"} if zeroed == "before" else set()))


class Climber(torch.optim.Optimizer):
    """Sharpness-aware minimisation: climbs, calls the closure, goes back, and another optimizer updates."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"rho": 0.2, "lr": 0.1})
        self.base = torch.optim.SGD(self.param_groups, lr=0.1)

    @torch.no_grad()
    def first_step(self) -> None:
        for group in self.param_groups:
            for one in group["params"]:
                self.state[one]["before"] = one.detach().clone()
                one.add_(one.grad, alpha=0.2)
                one.grad = None

    @torch.no_grad()
    def second_step(self) -> None:
        for group in self.param_groups:
            for one in group["params"]:
                one.copy_(self.state[one]["before"])
        self.base.step()

    def step(self, closure: Any = None) -> None:
        self.first_step()
        closure()
        self.second_step()


def climbing(tmp_path: Path, **options: Any) -> "tuple[Job, Any, Climber]":
    job, net = job_of(tmp_path)
    optimizer = Climber(net.parameters())
    job.monitor.watch(net, optimizer, **options)
    return job, net, optimizer


@pytest.mark.parametrize("halves", [False, True])
@pytest.mark.parametrize("explicit", [False, True])
def test_an_optimizer_that_moves_the_weights_before_its_closure_has_right_rows(
    tmp_path: Path, halves: bool, explicit: bool
) -> None:
    job, net, optimizer = climbing(tmp_path, explicit_steps=explicit)
    for number in range(3):
        optimizer.zero_grad()
        backward(net, number)
        if not halves:
            job.note("param_origin", number)
            optimizer.step(lambda number=number: backward(net, number))
        else:  # no row says what the weights were
            optimizer.first_step()
            backward(net, number)
            optimizer.second_step()
        job.note("grad_reduced", number)
        job.note("param_updated", number)
        if explicit or halves:
            job.monitor.step()
    job.check(OF_UPDATE)
    assert not halves or not any(kind == "exp_avg" for kind, _, _ in job.rows())


def test_passes_without_the_end_of_a_step_are_said_in_status(tmp_path: Path) -> None:
    job, net, optimizer = climbing(tmp_path)
    for number in range(70):
        backward(net, number)
        optimizer.first_step()
    sentence = "rank 0: no step has ended for "
    assert jobs.eventually(lambda: any(sentence in text for text in job.monitor.status().warnings))
    said = [text for text in job.monitor.status().warnings if sentence in text]
    assert said[0].endswith("passes; if training runs, its step is captured: call monitor.step()")
    job.monitor.step()
    assert jobs.eventually(lambda: not any(sentence in text for text in job.monitor.status().warnings))


@pytest.mark.parametrize("how", ["closure", "evaluation", "halves"])
def test_many_passes_in_one_step_of_closures_and_evaluations_are_no_warning(tmp_path: Path, how: str) -> None:
    job, net = job_of(tmp_path, xy_distribution=True)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    job.monitor.watch(net, optimizer)
    for number in range(80):
        if how == "closure":
            break
        if how == "evaluation":
            with torch.no_grad():
                net.eval()(torch.randn(6, 4))
            net.train()
        else:
            backward(net, number)
            job.monitor.step()
    if how == "closure":
        optimizer = torch.optim.LBFGS(
            net.parameters(), lr=0.01, max_iter=80, tolerance_grad=0, tolerance_change=0
        )
        job.monitor.watch(net, optimizer)

        def closure() -> Any:
            optimizer.zero_grad()
            loss = net(torch.ones(6, 4)).square().mean()
            loss.backward()
            return loss

        optimizer.step(closure)
    backward(net, 0)
    assert not any("no step has ended" in text for text in job.monitor.status().warnings)


def test_the_reason_names_the_missing_step_beside_what_the_hub_says(tmp_path: Path) -> None:
    job, net, optimizer = climbing(tmp_path)
    for number in range(2):
        backward(net, number)
        optimizer.first_step()
    assert job.monitor.status().reason.startswith("no step has ended yet: ")
    assert jobs.eventually(lambda: job.monitor.status().reason.endswith("; dynamic_on is ignored"))
    assert job.monitor.status().reason.startswith("no step has ended yet: ")
    job.monitor.step()
    assert job.monitor.status().reason == "dynamic_on is ignored"
