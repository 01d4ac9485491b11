# SPDX-License-Identifier: Apache-2.0
"""gradmon.lightning.Callback with the real Lightning: what test_loops.py does not have."""
from pathlib import Path
from typing import Any

import gradmon
import jobs
import lightning
import lightning_loops
import loops
import pytest
import torch
import twice
from lightning.pytorch.plugins import MixedPrecision


class Scaled(lightning_loops.Net):
    """The scaler leaves out the update of step 1."""

    def configure_optimizers(self) -> Any:
        self.noting = torch.optim.SGD(self.parameters(), lr=0.1)
        return self.noting

    def training_step(self, batch: torch.Tensor, number: int) -> Any:
        return self(batch) * (3e38 if number == 1 else 1)

    def on_before_optimizer_step(self, _: Any) -> None:
        if self.global_step != 1:
            self.noted.gradients(self, self.global_step, "grad_reduced")

    def on_train_batch_end(self, *_: Any) -> None:
        if self.global_step != 2:
            self.noted.weights(self, self.global_step - 1, "param_updated")


def scaled(noted: twice.Noted, options: loops.Options) -> None:
    module = Scaled(noted)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    lightning_loops.make_trainer(
        lightning_loops.callbacks_for(options),
        plugins=[MixedPrecision("16-mixed", "cpu", scaler)],
        accumulate_grad_batches=1,
        gradient_clip_val=None,
        max_epochs=1,
        limit_val_batches=0,
        limit_train_batches=4,
    ).fit(module, loops.loader())
    loops.end(noted, module, module.noting)
    noted.hooks.append(sorted(vars(scaler)))


def test_a_step_that_the_scaler_leaves_out_counts(tmp_path: Path) -> None:
    loops.check_scaled(tmp_path, scaled)


class Manual(lightning.LightningModule):
    """Two optimizers, both stepped in each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.first, self.second = loops.Net(), loops.Net()

    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD(net.parameters(), lr=0.1) for net in (self.first, self.second)]

    def training_step(self, batch: torch.Tensor, _: int) -> None:
        for net, optimizer in zip((self.first, self.second), self.optimizers()):
            optimizer.zero_grad()
            self.manual_backward(net(batch))
            optimizer.step()


class Logging(lightning_loops.Net):
    """Logs what the test expects."""

    def training_step(self, batch: torch.Tensor, number: int) -> Any:
        loss = self(batch)
        self.log("train_loss", 2 * loss.detach())
        self.expected = getattr(self, "expected", {})
        self.expected[self.global_step] = loss.item()
        return loss

    def validation_step(self, batch: torch.Tensor, _: int) -> None:
        self.log("val_loss", self(batch))


def test_the_loss_and_what_is_logged_are_scalars_of_their_step(tmp_path: Path) -> None:
    scalars = {name: "records" for name in ("loss", "train_loss", "val_loss")}
    config = jobs.write_config(tmp_path, scalars=scalars)
    callback = gradmon.lightning.Callback(config, output_dir=tmp_path / "out", dynamic=False)
    module = Logging(twice.Noted())
    trainer = lightning_loops.make_trainer([callback], accumulate_grad_batches=1)
    trainer.fit(module, loops.loader(), loops.loader(4, 90))
    rows = gradmon.load(tmp_path / "out", kind="scalar")
    found = {(name, step): value for name, step, value in zip(rows["name"], rows["step"], rows["value"])}
    assert len(module.expected) == 10
    for step, loss in module.expected.items():
        assert found["loss", step] == pytest.approx(loss, abs=1e-6)
        assert found["train_loss", step] == pytest.approx(2 * loss, abs=1e-6)
    assert 0 < sum(name == "val_loss" for name, _ in found) < 10


def test_two_optimizers_of_a_manual_optimization_make_one_step(tmp_path: Path) -> None:
    config = jobs.write_config(tmp_path, wg_distribution=True)
    callback = gradmon.lightning.Callback(config, output_dir=tmp_path / "out", dynamic=False)
    module = Manual()
    trainer = lightning_loops.make_trainer(
        [callback], accumulate_grad_batches=1, gradient_clip_val=None, max_epochs=1, limit_val_batches=0
    )
    trainer.fit(module, loops.loader())
    steps = jobs.steps_of(jobs.rows(tmp_path / "out", "grad_reduced"))
    assert steps == {name: [0, 1, 2, 3, 4] for name, _ in module.named_parameters()}
    assert trainer.global_step == 10


def test_a_training_that_resumes_goes_on_with_its_step_numbers(tmp_path: Path) -> None:
    module = lightning_loops.Net(twice.Noted())
    trainer = lightning_loops.make_trainer([], max_epochs=1, limit_val_batches=0)
    trainer.fit(module, loops.loader())
    trainer.save_checkpoint(tmp_path / "saved.ckpt")
    config = jobs.write_config(tmp_path, wg_distribution=True)
    callback = gradmon.lightning.Callback(config, output_dir=tmp_path / "out", dynamic=False)
    again = lightning_loops.Net(noted := twice.Noted(), first=3)
    trainer = lightning_loops.make_trainer([callback], max_epochs=2, limit_val_batches=0)
    trainer.fit(again, loops.loader(), ckpt_path=tmp_path / "saved.ckpt")
    assert jobs.steps_of(jobs.rows(tmp_path / "out", "grad_reduced"))["fc1.weight"] == [3, 4, 5]
    for key, row in jobs.rows(tmp_path / "out", "grad_reduced").items():
        jobs.check(row, noted.tensors["grad_reduced"][key])


def test_training_stops_where_the_requested_output_is_complete(tmp_path: Path) -> None:
    config = jobs.write_config(tmp_path, print_struct=True)
    callback = gradmon.lightning.Callback(config, output_dir=tmp_path / "out", dynamic=False)
    trainer = lightning_loops.make_trainer([callback], limit_val_batches=0)
    trainer.fit(lightning_loops.Net(twice.Noted()), loops.loader())
    assert callback.monitor.may_end and trainer.global_step < 6


class Failing(lightning_loops.Net):
    def training_step(self, batch: torch.Tensor, number: int) -> Any:
        if number == 3:
            raise RuntimeError("the program's own")
        return self(batch)


def test_an_error_in_training_passes_and_ends_the_watching(tmp_path: Path) -> None:
    config = jobs.write_config(tmp_path, wg_distribution=True)
    callback = gradmon.lightning.Callback(config, output_dir=tmp_path / "out", dynamic=False)
    module = Failing(twice.Noted())
    with pytest.raises(RuntimeError, match="the program's own"):
        lightning_loops.make_trainer([callback], limit_val_batches=0).fit(module, loops.loader())
    assert not module.noting._optimizer_step_pre_hooks
    assert jobs.steps_of(jobs.rows(tmp_path / "out", "grad_reduced"))["fc1.weight"] == [0]
