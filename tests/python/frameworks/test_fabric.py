# SPDX-License-Identifier: Apache-2.0
"""gradmon.lightning.FabricCallback with the real Fabric: what test_loops.py does not have."""
from pathlib import Path
from typing import Any

import jobs
import lightning_loops
import loops
import torch
import twice
from lightning.fabric.plugins import MixedPrecision
from torch.optim.optimizer import _global_optimizer_pre_hooks


def make_watched(tmp_path: Path, **keys: Any) -> "tuple[Any, Any]":
    plugins = {"plugins": keys.pop("plugins")} if "plugins" in keys else {}
    config = jobs.write_config(tmp_path, **twice.EVERYTHING)
    options = {"config": config, "output_dir": tmp_path / "out", "dynamic": False, **keys}
    return lightning_loops.make_fabric(options, **plugins)


def test_a_step_that_the_scaler_leaves_out_counts(tmp_path: Path) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    own = sorted(vars(scaler))
    fabric, callback = make_watched(tmp_path, plugins=[MixedPrecision("16-mixed", "cpu", scaler)])
    model = loops.Net()
    noted = twice.Noted()
    wrapped, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for step in range(4):
        fabric.backward(wrapped(jobs.batch(step)) * (3e38 if step == 1 else 1))
        for name, parameter in model.named_parameters():
            noted.note("grad_reduced", name, step, parameter.grad / scaler.get_scale())
        optimizer.step()
        optimizer.zero_grad()
    callback.stop()
    assert sorted(vars(scaler)) == own
    reduced = twice.read(tmp_path / "out", "grad_reduced")
    assert {(name, step) for name, step, _ in reduced} == {
        (name, step) for name in loops.NAMES for step in range(4)
    }
    for key, row in reduced.items():
        if key[1] != 1:
            twice.check_bits(row, noted.tensors["grad_reduced"][key])
    assert jobs.steps_of(jobs.rows(tmp_path / "out", "param_updated"))["fc1.weight"] == [0, 2, 3]


def test_two_models_with_two_optimizers_make_one_step(tmp_path: Path) -> None:
    fabric, callback = make_watched(tmp_path, optimizer_steps=2)
    models = [loops.Net(), loops.Net()]
    pairs = [fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1)) for model in models]
    other = torch.optim.SGD(loops.Net().parameters(), lr=0.1)  # of no watched model
    for step in range(3):
        for model, optimizer in pairs:
            optimizer.zero_grad()
            fabric.backward(model(jobs.batch(step)))
            optimizer.step()
        other.step()
    callback.monitor.stop()  # the callback learns of it
    late = loops.Net()
    fabric.setup(late, torch.optim.SGD(late.parameters(), lr=0.1))  # no effect
    assert callback._models == []
    names = loops.NAMES | {f"1:{name}" for name in loops.NAMES}
    found = twice.read(tmp_path / "out", "grad_reduced")
    assert {(name, step) for name, step, _ in found} == {(name, step) for name in names for step in range(3)}
    assert not _global_optimizer_pre_hooks and not other._optimizer_step_pre_hooks
