# SPDX-License-Identifier: Apache-2.0
"""Parameters that forward replaces by gathered tensors (SimpleFSDP, FlexShard), and gradients in several
parts (FSDPGrad): a row is right, or absent with its reason, and no operator runs on a wrapper."""
import json
from pathlib import Path
from typing import Any

import jobs
import pytest
import torch
from training import gradmonctl

WHY = "forward uses another tensor, and autograd reduces the gradient on the way to it"
RANKS = 4  # over which the stand-ins' gathering pretends to reduce


class Gathered(torch.autograd.Function):
    """As an all-gather and its reduce-scatter: what arrives at the parameter is reduced."""

    @staticmethod
    def forward(_: Any, part: torch.Tensor) -> torch.Tensor:
        return part.clone()

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return gradient * RANKS


class FlexShardLinear(torch.nn.Linear):
    """torchtitan's FlexShard leaves a plain tensor with marks at the module."""

    @property
    def weight(self) -> torch.Tensor:  # type: ignore[override]
        return Gathered.apply(self._parameters["weight"])


class SimpleFSDPLinear(torch.nn.Linear):
    """torchtitan's SimpleFSDP leaves a DTensor at the module."""

    @property
    def weight(self) -> torch.Tensor:  # type: ignore[override]
        return Gathered.apply(self._parameters["weight"].to_local())  # type: ignore[union-attr]


@pytest.fixture
def mesh(group: Any) -> Any:
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("cpu", (1,))


def reasons(output: Path) -> "dict[str, str]":
    """Why targets are silent, by kind and name."""
    asked = gradmonctl("targets", "--json", "--output-dir", output)
    if asked.returncode != 0:
        return {}
    listed = json.loads(asked.stdout)["ranks"][0]["targets"]
    return {f"{one['kind']} {one['name']}": one.get("why", "") for one in listed}


@pytest.mark.parametrize("kind", ["FlexShard", "SimpleFSDP"])
def test_a_gradient_that_autograd_reduces_is_no_unreduced_one(tmp_path: Path, mesh: Any, kind: str) -> None:
    from torch.distributed.tensor import Shard, distribute_tensor

    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))
    own: Any = model[0]._parameters
    model[0].__class__ = FlexShardLinear if kind == "FlexShard" else SimpleFSDPLinear
    if kind == "FlexShard":
        own["weight"]._placements = (Shard(0),)
    else:
        own["weight"] = torch.nn.Parameter(distribute_tensor(own["weight"].detach(), mesh, [Shard(0)]))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    monitor = jobs.monitor(tmp_path, jobs.ALONE, wg_distribution=True, param_distribution=True)
    truth = {}

    def note(step: int) -> None:
        gradient = own["weight"].grad
        truth[step] = getattr(gradient, "_local_tensor", gradient).norm().item()

    with monitor.watch(model, optimizer):
        jobs.train(model, optimizer, 2, reduced=note)
        said = f"no rows in grad_unreduced of 0.weight: {WHY}"
        assert jobs.eventually(lambda: said in jobs.warnings_of(monitor))
        assert jobs.eventually(lambda: reasons(tmp_path / "out").get("grad_unreduced 0.weight") == WHY)
    rows = jobs.rows(tmp_path / "out", "grad_unreduced")
    assert {name for name, _, _ in rows} == {"0.bias", "1.weight", "1.bias"}
    rows = jobs.rows(tmp_path / "out", "grad_reduced")
    assert {step: rows["0.weight", step, 0]["norm"] for step in truth} == pytest.approx(truth)
    scopes = json.loads(next((tmp_path / "out").glob("*-rank0-*/scopes.json")).read_text())["targets"]
    assert scopes["0:0.weight"]["grad_reduced"]["scope"] == ("local" if kind == "FlexShard" else "whole")
    assert "grad_unreduced" not in scopes["0:0.weight"]


def test_a_property_of_a_programs_own_changes_nothing(tmp_path: Path) -> None:
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3))
    model[0].__class__ = FlexShardLinear  # its parameter is no part of anything
    jobs.collect(tmp_path, 1, *jobs.with_sgd(model), options=jobs.ALONE, **jobs.GRADIENTS)
    assert ("0.weight", 0, 0) in jobs.rows(tmp_path / "out", "grad_unreduced")


def parts_class() -> Any:
    """A class as torch's FSDPGrad, which no release has yet: derived from DTensor, without its attributes."""
    from torch.distributed.tensor import DTensor

    class FSDPGrad(DTensor):
        operators: "list[str]" = []

        @staticmethod
        def __new__(cls: Any, reduced: Any, unreduced: Any, partial: Any) -> Any:
            part = reduced if reduced is not None else unreduced
            made = torch.Tensor._make_wrapper_subclass(cls, part.shape, dtype=part.dtype, device=part.device)
            made.reduced, made.unreduced, made.partial = reduced, unreduced, partial
            return made

        def __init__(self, *_: Any) -> None:
            pass

        def local_components(self) -> Any:
            parts = {name: getattr(self, name) for name in ("reduced", "unreduced", "partial")}
            return {name: part._local_tensor for name, part in parts.items() if part is not None}

        @property
        def placements(self) -> Any:
            raise RuntimeError("has no single placement")

        def to_local(self, **_: Any) -> Any:
            raise AssertionError("may run a collective")

        @classmethod
        def __torch_dispatch__(cls, func: Any, *_: Any, **__: Any) -> Any:
            cls.operators.append(str(func))
            raise AssertionError(f"{func} may run a collective")

    return FSDPGrad


class OfParts(torch.optim.Optimizer):
    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__(model.parameters(), {})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        with torch.no_grad():
            for parameter in self.param_groups[0]["params"]:
                if parameter.grad is not None and parameter.grad.reduced is not None:
                    parameter._local_tensor.sub_(parameter.grad.reduced._local_tensor, alpha=0.1)


def test_a_gradient_of_parts_is_read_where_it_is_reduced(
    tmp_path: Path, mesh: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    from torch.distributed.tensor import Shard, distribute_tensor

    kind = parts_class()
    model = torch.nn.Linear(4, 3, bias=False)
    model.weight = torch.nn.Parameter(distribute_tensor(model.weight.detach(), mesh, [Shard(0)]))

    def part(value: float) -> Any:
        return distribute_tensor(torch.full((3, 4), value), mesh, [Shard(0)])

    optimizer = OfParts(model)
    monitor = jobs.monitor(tmp_path, jobs.ALONE, wg_distribution=True, param_distribution=True)
    with monitor.watch(model, optimizer):
        for parts in [(2.0, None, None), (2.0, 1.0, None), (None, 1.0, 3.0), (3.0, None, None)]:
            model.weight.grad = kind(*[None if one is None else part(one) for one in parts])
            optimizer.step()
    rows = jobs.rows(tmp_path / "out", "grad_reduced")
    assert {step: row["max"] for (_, step, _), row in rows.items()} == {0: 2.0, 3: 3.0}
    assert {step for _, step, _ in jobs.rows(tmp_path / "out", "param_updated")} == {0, 1, 2, 3}
    assert kind.operators == []
    assert "it has a part that is unreduced (FSDPGrad)" in capfd.readouterr().err
