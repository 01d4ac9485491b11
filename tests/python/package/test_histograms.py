# SPDX-License-Identifier: Apache-2.0
"""Histograms of Adam's update and ratio against torch.histc, read with the real tensorboard package."""
from pathlib import Path
from typing import Any, Callable

import gradmon
import jobs
import numpy as np
import pytest
import torch

pytest.importorskip("tensorboard")

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: E402

STEPS = 5
KINDS = ("update", "ratio")
# {(kind, name, step): counts of the bins}
Histograms = dict[tuple[str, str, int], list[float]]


def make_net(dtype: torch.dtype = torch.float32) -> torch.nn.Module:
    torch.manual_seed(11)
    return torch.nn.Sequential(torch.nn.Linear(20, 300), torch.nn.Tanh(), torch.nn.Linear(300, 3)).to(dtype)


def histogram_of(values: torch.Tensor) -> "list[float]":
    return torch.histc(values, bins=30, min=-1, max=1).tolist()


def expected_of(
    name: str, step: int, group: "dict[str, Any]", state: "dict[str, Any]", found: Histograms
) -> None:
    """The formula, in double from the optimizer's own moments just before its step."""
    if "exp_avg" not in state:
        return
    taken = float(state["step"])
    (beta1, beta2), eps = group["betas"], group["eps"]
    first, second = (state[moment].cpu().double() for moment in ("exp_avg", "exp_avg_sq"))
    mean = first / (1 - beta1**taken)
    # Not torch's sqrt: with MKL its last bit may be wrong, which decides whether a first ratio is 1.
    root = torch.from_numpy(np.sqrt((second / (1 - beta2**taken)).numpy()))
    found["update", name, step] = histogram_of(mean / (root + eps))
    found["ratio", name, step] = histogram_of(mean / root)


def train(model: torch.nn.Module, optimizer: Any, steps: int = STEPS) -> Histograms:
    """Trains, and returns what the formula gives before each step."""
    found: Histograms = {}
    names = {parameter: name for name, parameter in model.named_parameters()}
    for step in range(steps):
        optimizer.zero_grad()
        batch = torch.sin(torch.arange(80.0) * 0.3 + step).reshape(4, 20).to(next(model.parameters()).dtype)
        model(batch).pow(2).mean().backward()
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                expected_of(names[parameter], step, group, optimizer.state[parameter], found)
        optimizer.step()
    return found


def events_of(out: Path) -> EventAccumulator:
    (directory,) = out.glob("*-rank0-*/tensorboard")
    return EventAccumulator(str(directory), size_guidance={"histograms": 0}).Reload()


def histograms_of(out: Path) -> Histograms:
    found: Histograms = {}
    events = events_of(out)
    for tag in events.Tags()["histograms"]:
        kind, _, name = tag.partition("/")
        for event in events.Histograms(tag):
            assert event.histogram_value.bucket_limit[-1] == 1
            found[kind, name, event.step] = list(event.histogram_value.bucket)
    return found


def collect(
    directory: Path, model: torch.nn.Module, optimizer: Any, steps: int = STEPS, **keys: Any
) -> "tuple[Path, Histograms]":
    out = directory / "out"
    monitor = jobs.monitor(directory, **{"ur_distribution": True, "format": "tensorboard", **keys})
    with monitor.watch(model, optimizer):
        expected = train(model, optimizer, steps)
    return out, expected


def check(out: Path, expected: Histograms) -> None:
    found = histograms_of(out)
    assert found.keys() == expected.keys()
    # There are no moments before the first step.
    assert {step for _, _, step in found} == set(range(1, STEPS))
    assert found == expected
    assert any(len([count for count in counts if count > 0]) > 5 for counts in found.values())


Make = Callable[[Any], Any]
OPTIMIZERS: "dict[str, Make]" = {
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01, betas=(0.8, 0.95), eps=1e-3),
    "amsgrad": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "maximize": lambda p: torch.optim.AdamW(p, lr=0.01, maximize=True),
    "foreach": lambda p: torch.optim.Adam(p, lr=0.01, foreach=True),
    "fused": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
    "RAdam": lambda p: torch.optim.RAdam(p, lr=0.01),
}


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_histograms_are_those_of_torch_in_each_step(tmp_path: Path, kind: str) -> None:
    model = make_net()
    check(*collect(tmp_path, model, OPTIMIZERS[kind](model.parameters())))


def test_each_group_has_its_own_betas_and_eps(tmp_path: Path) -> None:
    model = make_net()
    assert isinstance(model, torch.nn.Sequential)
    groups = [
        {"params": model[0].parameters(), "betas": (0.5, 0.7)},
        {"params": model[2].parameters(), "eps": 0.1},
    ]
    check(*collect(tmp_path, model, torch.optim.AdamW(groups, lr=0.01)))


def test_the_step_of_the_group_counts_where_the_state_has_none(tmp_path: Path) -> None:
    """As in apex' FusedAdam and MindSpeed's AdamW."""

    class GroupSteps(torch.optim.Optimizer):
        def __init__(self, parameters: Any) -> None:
            super().__init__(parameters, {"lr": 0.01, "betas": (0.9, 0.99), "eps": 1e-6})

        @torch.no_grad()
        def step(self, closure: Any = None) -> None:
            for group in self.param_groups:
                group["step"] = group.get("step", 0) + 1
                for parameter in group["params"]:
                    state = self.state[parameter]
                    mean = state.setdefault("exp_avg", torch.zeros_like(parameter))
                    square = state.setdefault("exp_avg_sq", torch.zeros_like(parameter))
                    mean.lerp_(parameter.grad, 0.1)
                    square.mul_(0.99).addcmul_(parameter.grad, parameter.grad, value=0.01)
                    parameter.sub_(mean, alpha=0.01)

    model = make_net()
    optimizer = GroupSteps(model.parameters())
    expected: Histograms = {}
    with jobs.monitor(tmp_path, ur_distribution=True, format="tensorboard").watch(model, optimizer):
        for step in range(STEPS):
            optimizer.zero_grad()
            model(torch.full((4, 20), 0.1 + step)).pow(2).mean().backward()
            for name, parameter in model.named_parameters():
                group = optimizer.param_groups[0]
                state = {**optimizer.state[parameter], "step": group.get("step", 0)}
                expected_of(name, step, group, state, expected)
            optimizer.step()
    check(tmp_path / "out", expected)


def test_master_weights_have_the_histograms_of_their_parameters(tmp_path: Path) -> None:
    model = make_net(torch.bfloat16)
    masters = [parameter.detach().clone().float().requires_grad_() for parameter in model.parameters()]
    optimizer: Any = torch.optim.Adam(masters, lr=0.01)
    optimizer.float16_groups = [list(model.parameters())]
    optimizer.fp32_from_float16_groups = [masters]
    expected: Histograms = {}
    with jobs.monitor(tmp_path, ur_distribution=True, format="tensorboard").watch(model, optimizer):
        for step in range(STEPS):
            model.zero_grad()
            model(torch.full((4, 20), 0.1 + step, dtype=torch.bfloat16)).pow(2).mean().backward()
            for (name, parameter), master in zip(model.named_parameters(), masters):
                assert parameter.grad is not None
                master.grad = parameter.grad.float()
                expected_of(name, step, optimizer.param_groups[0], optimizer.state[master], expected)
            optimizer.step()
    check(tmp_path / "out", expected)


def test_load_gives_the_histograms_that_tensorboard_reads(tmp_path: Path) -> None:
    model = make_net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    out, _ = collect(tmp_path, model, optimizer, format=["csv", "tensorboard"], wg_distribution=True)
    table = gradmon.load(out, kind=KINDS)  # from the event files, beside which there are CSV files
    found: Histograms = {}
    for (kind, name, step), rows in table.groupby(["kind", "name", "step"]):
        assert list(rows["op"]) == [f"bin_{number}" for number in range(30)]
        found[kind, name, step] = list(rows["value"])
    assert found == histograms_of(out)
    assert len(found) == 2 * 4 * (STEPS - 1)
    assert table["micro_step"].isna().all() and set(table["rank"]) == set(table["vpp_stage"]) == {0}
    events = events_of(out)
    for event in events.Histograms(events.Tags()["histograms"][0]):
        assert event.histogram_value.bucket_limit == pytest.approx([(i + 1) / 15 - 1 for i in range(30)])
    one = gradmon.load(out, kind="ratio", steps=2, names="0.weight")
    assert list(one["value"]) == found["ratio", "0.weight", 2]
    both = gradmon.load(out, form="tensorboard")
    assert set(both["kind"]) == {*KINDS, "grad_reduced", "grad_unreduced"}
    assert set(gradmon.load(out)["kind"]) == {"grad_reduced", "grad_unreduced"}
    with pytest.raises(FileNotFoundError):
        gradmon.load(tmp_path / "nowhere", kind="update")


def test_training_computes_the_same_bits(tmp_path: Path) -> None:
    plain = make_net()
    train(plain, torch.optim.AdamW(plain.parameters(), lr=0.01))
    watched = make_net()
    collect(tmp_path, watched, torch.optim.AdamW(watched.parameters(), lr=0.01))
    for one, other in zip(plain.parameters(), watched.parameters()):
        assert torch.equal(one, other)
