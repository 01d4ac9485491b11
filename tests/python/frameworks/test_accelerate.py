# SPDX-License-Identifier: Apache-2.0
"""gradmon.accelerate.watch with the real Accelerate: what test_loops.py does not have."""
import copy
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import accelerate_loops
import gradmon
import jobs
import loops
import pytest
import torch
import twice

FRAMEWORKS = ("accelerate", "transformers", "lightning", "pytorch_lightning")


def scaled(noted: twice.Noted, options: loops.Options) -> None:
    """With a GradScaler, which leaves out the update of step 1."""
    accelerator = accelerate_loops.make_accelerator(gradient_accumulation_steps=loops.MICRO)
    accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    model = loops.Net()
    inner = torch.optim.AdamW(model.parameters(), lr=0.01)
    prepared, optimizer = accelerator.prepare(model, inner)
    monitor = accelerate_loops.watched(accelerator, options, prepared, optimizer)
    for step in range(4):
        for micro in range(loops.MICRO):
            with accelerator.accumulate(prepared):
                loss = prepared(jobs.batch(step, micro)) * (3e38 if step == 1 else 1)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    note_unscaled(noted, model, step, accelerator.scaler)
                optimizer.step()
                if accelerator.sync_gradients and step != 1:
                    noted.weights(model, step, "param_updated")
                optimizer.zero_grad()
    monitor.stop()
    loops.end(noted, model, inner, optimizer)
    assert inner.state[model.fc1.weight]["step"] == 3


def note_unscaled(noted: twice.Noted, model: torch.nn.Module, step: int, scaler: Any) -> None:
    if step != 1:
        for name, parameter in model.named_parameters():
            noted.note("grad_reduced", name, step, parameter.grad / scaler.get_scale())


def test_a_step_that_the_scaler_leaves_out_counts(tmp_path: Path) -> None:
    """Accelerate puts back the inner optimizer's step after each call: torch's hooks stay."""
    loops.check_scaled(tmp_path, scaled)


def test_with_several_optimizers_a_step_ends_when_all_have_stepped(tmp_path: Path) -> None:
    accelerator = accelerate_loops.make_accelerator(gradient_accumulation_steps=loops.MICRO)
    models = [loops.Net(), loops.Net()]
    inner = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    *prepared, first, second = accelerator.prepare(*models, *inner)
    options = {"config": jobs.write_config(tmp_path, wg_distribution=True), "output_dir": tmp_path / "out"}
    monitor = accelerate_loops.watched(accelerator, {**options, "dynamic": False}, prepared, [first, second])
    for step in range(3):
        for micro in range(loops.MICRO):
            with accelerator.accumulate(*prepared):
                for model, optimizer in zip(prepared, (first, second)):
                    accelerator.backward(model(jobs.batch(step, micro)))
                    optimizer.step()
                    optimizer.zero_grad()
    monitor.stop()
    found = twice.read(tmp_path / "out", "grad_reduced")
    names = loops.NAMES | {f"1:{name}" for name in loops.NAMES}
    assert {(name, step) for name, step, _ in found} == {(name, step) for name in names for step in range(3)}
    assert all("step" not in vars(optimizer) for optimizer in (first, second, *inner))


def test_copies_of_a_watched_optimizer_are_not_watched(tmp_path: Path) -> None:
    accelerator = accelerate_loops.make_accelerator()
    model = loops.Net()
    optimizer = accelerator.prepare(torch.optim.SGD(model.parameters(), lr=0.1))
    config = jobs.write_config(tmp_path, wg_distribution=True)
    with gradmon.accelerate.watch(
        accelerator, config, model, optimizer, output_dir=tmp_path / "out", dynamic=False
    ):
        for copied in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
            copied.step()
        model(jobs.batch(0)).backward()
        optimizer.step()
    assert jobs.steps_of(jobs.rows(tmp_path / "out", "grad_reduced"))["fc1.weight"] == [0]


class DeepSpeedOptimizerWrapper(torch.optim.SGD):
    """Has the name of Accelerate's class."""


def test_deepspeeds_optimizer_is_refused_by_name(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    accelerator = accelerate_loops.make_accelerator()
    model = loops.Net()
    optimizer = DeepSpeedOptimizerWrapper(model.parameters(), lr=0.1)
    config = jobs.write_config(tmp_path, wg_distribution=True)
    monitor = gradmon.accelerate.watch(accelerator, config, model, optimizer, dynamic=False)
    model(jobs.batch(0)).backward()
    optimizer.step()
    monitor.stop()
    assert monitor.status() is None and "step" not in vars(optimizer)
    assert "DeepSpeed makes the steps" in capfd.readouterr().err


@pytest.mark.parametrize("code", ["import gradmon", "import gradmon; gradmon.accelerate.watch"])
def test_no_framework_is_imported_before_the_program_does(code: str) -> None:
    check = f"import sys; print([name for name in {FRAMEWORKS} if name in sys.modules])"
    out = subprocess.run(
        [sys.executable, "-B", "-c", f"{code}; {check}"], capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == "[]"
