# SPDX-License-Identifier: Apache-2.0
"""What is found in the wrappers of frameworks, by stand-ins of the same names."""
from types import SimpleNamespace
from typing import Any

import gradmon
import pytest
import torch
from gradmon.colossalai import watching as of_colossalai
from gradmon.deepspeed import watching as of_deepspeed
from gradmon.loops.wrappers import refusal, replicating


class DistributedDataParallel(torch.nn.Module):
    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module


class _FabricModule(torch.nn.Module):
    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self._forward_module = module


class DeepSpeedEngine(torch.nn.Module):
    pass


def test_replicas_are_found_behind_a_compiled_wrapper() -> None:
    ddp = DistributedDataParallel(torch.nn.Linear(2, 2))
    compiled: Any = type("OptimizedModule", (torch.nn.Module,), {})()
    compiled._orig_mod = ddp
    assert replicating(_FabricModule(compiled)) is ddp
    assert replicating(compiled) is ddp


def test_an_engine_that_makes_the_steps_is_refused_in_a_loop() -> None:
    engine = DeepSpeedEngine()
    assert refusal(engine) == refusal(_FabricModule(engine)) == "DeepSpeed makes the steps"
    assert refusal(torch.nn.Linear(2, 2)) is None


def scaler_of(scale: float) -> Any:
    return SimpleNamespace(get_scale=lambda: scale)


@pytest.mark.parametrize(
    ("engine", "scale"),
    [
        (SimpleNamespace(optimizer=SimpleNamespace(loss_scale=1024.0)), 1024.0),
        (SimpleNamespace(optimizer=SimpleNamespace()), 1.0),
        # With torch_autocast in float16; below, with ZeRO stage 0.
        (
            SimpleNamespace(
                optimizer=SimpleNamespace(loss_scale=1.0, torch_autocast_gradscaler=scaler_of(8))
            ),
            8.0,
        ),
        (SimpleNamespace(optimizer=SimpleNamespace(), torch_autocast_z0_gradscaler=scaler_of(16)), 16.0),
    ],
)
def test_the_loss_scale_of_deepspeed_is_that_of_the_scaler_that_is_used(engine: Any, scale: float) -> None:
    assert of_deepspeed._loss_scale(engine) == scale


def test_the_loss_scale_of_colossalai_is_that_of_the_scaler_that_is_used() -> None:
    own = SimpleNamespace(grad_scaler=SimpleNamespace(scale=32.0))
    assert of_colossalai._loss_scale(SimpleNamespace(mixed_precision_mixin=own)) == 32.0
    assert of_colossalai._loss_scale(SimpleNamespace(scaler=scaler_of(64))) == 64.0
    assert of_colossalai._loss_scale(SimpleNamespace()) == 1.0


def test_what_tensor_parallelism_splits_is_local_under_colossalai() -> None:
    model = torch.nn.Linear(2, 2)
    model.weight.dist_layout = "columns"  # type: ignore[assignment]
    optimizer = SimpleNamespace(optim=torch.optim.SGD(model.parameters(), lr=0.1))
    labels = gradmon.colossalai.scopes(model, optimizer)
    for kind in ("grad_unreduced", "grad_reduced", "exp_avg"):
        assert labels[kind]["weight"] == {"scope": "local"}
        assert labels[kind]["bias"]["scope"] in ("whole", "replica")
