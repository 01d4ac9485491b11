# SPDX-License-Identifier: Apache-2.0
"""Trainings by Lightning's Trainer and by Fabric, in one rank or in one of several. Run by test_lightning.py
and test_fabric.py."""
import contextlib
import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any, Optional

import gradmon
import lightning
import loops
import torch
import torch.distributed as dist
import twice
from lightning.fabric.plugins.environments import TorchElasticEnvironment
from torch.optim.optimizer import _global_optimizer_pre_hooks

warnings.filterwarnings("ignore", module="lightning")


class Net(loops.Net, lightning.LightningModule):
    def __init__(self, noted: twice.Noted, first: int = 0) -> None:
        super().__init__()
        self.noted = noted
        self.first = first

    def configure_optimizers(self) -> Any:
        self.noting = loops.NotingAdamW(self, self.noted, first=self.first)
        loops.note_activations(self.noted, self, self.noting)
        return self.noting

    def training_step(self, batch: torch.Tensor, _: int) -> Any:
        return self(batch)

    def validation_step(self, batch: torch.Tensor, _: int) -> None:
        self(batch)


class Steps(lightning.Callback):
    """Stops the training when `edits` says so."""

    def __init__(self, edits: loops.Edits) -> None:
        self.edits = edits

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        if self.edits():
            trainer.should_stop = True


def make_trainer(callbacks: "list[Any]", **keys: Any) -> Any:
    many = {"devices": 2, "strategy": "ddp", "plugins": [TorchElasticEnvironment()]} if in_job() else {}
    given: "dict[str, Any]" = {
        "accelerator": "cpu",
        "devices": 1,
        "max_epochs": loops.EPOCHS,
        "accumulate_grad_batches": loops.MICRO,
        "gradient_clip_val": loops.CLIP,
        "val_check_interval": 2,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "use_distributed_sampler": False,
    }
    return lightning.Trainer(callbacks=callbacks, **{**given, **many, **keys})


def in_job() -> bool:
    return "LOCAL_RANK" in os.environ


def own_rows() -> int:
    return 40 if os.environ.get("RANK") == "1" else 0


def callbacks_for(options: loops.Options) -> "list[Any]":
    if options is None:
        return []
    own = dict(options)
    return [gradmon.lightning.Callback(own.pop("config"), **own)]


def train(noted: twice.Noted, options: loops.Options) -> None:
    """With accumulation, short at the end of an epoch; clipped; with a validation in between."""
    module = Net(noted)
    trainer = make_trainer(callbacks_for(options))
    trainer.fit(module, loops.loader(first=own_rows()), loops.loader(4, 90))
    loops.end(noted, module, module.noting)


def train_by_fabric(noted: twice.Noted, options: loops.Options) -> None:
    """The same with Fabric."""
    model = loops.Net()
    noting = loops.NotingAdamW(model, noted)
    loops.note_activations(noted, model, noting)
    fabric, callback = make_fabric(options)
    wrapped, optimizer = fabric.setup(model, noting)
    for _ in range(loops.EPOCHS):
        for group in loops.groups(loops.loader(first=own_rows())):
            for number, x in enumerate(group):
                last = number + 1 == len(group)
                with contextlib.nullcontext() if last else fabric.no_backward_sync(wrapped):
                    fabric.backward(wrapped(x) / len(group))
            fabric.clip_gradients(wrapped, optimizer, max_norm=loops.CLIP)
            optimizer.step()
            optimizer.zero_grad()
    if callback is not None:
        callback.stop()
    loops.end(noted, model, noting)


def make_fabric(options: loops.Options, **keys: Any) -> "tuple[Any, Any]":
    """A Fabric and its FabricCallback, if it has one."""
    callback = None
    if options is not None:
        own = {"grad_acc_steps": loops.MICRO, **options}
        callback = gradmon.lightning.FabricCallback(own.pop("config"), **own)
    many = {"devices": 2, "strategy": "ddp", "plugins": [TorchElasticEnvironment()]} if in_job() else {}
    given = {"accelerator": "cpu", "devices": 1, "callbacks": [] if callback is None else [callback]}
    fabric = lightning.Fabric(**{**given, **many, **keys})
    fabric.launch()
    return fabric, callback


def switch(directory: Path) -> None:
    """Trains until both edits of the config have been collected."""
    if in_job():  # rank() must be right before the trainer is made
        dist.init_process_group("gloo")
    edits = Steps(loops.Edits(directory))
    options = {"config": directory / "config.json", "output_dir": directory / "out", "dynamic": True}
    module = Net(twice.Noted())
    trainer = make_trainer([*callbacks_for(options), edits], max_epochs=-1, limit_val_batches=0)
    trainer.fit(module, loops.loader())
    assert not module.noting._optimizer_step_pre_hooks and not module.noting._optimizer_step_post_hooks


def switch_by_fabric(directory: Path) -> None:
    options = {"config": directory / "config.json", "output_dir": directory / "out", "dynamic": True}
    model = loops.Net()
    fabric, callback = make_fabric(options)
    edits = loops.Edits(directory)
    wrapped, optimizer = fabric.setup(model, torch.optim.AdamW(model.parameters(), lr=0.01))
    while True:
        fabric.backward(wrapped(torch.ones(2, 4)))
        optimizer.step()
        optimizer.zero_grad()
        if edits():
            break
    callback.stop()
    assert not _global_optimizer_pre_hooks


TRAININGS = {"train": train, "train_by_fabric": train_by_fabric}
SWITCHES = {"switch": switch, "switch_by_fabric": switch_by_fabric}


def main(options: "Optional[dict[str, Any]]" = None) -> None:
    given = json.loads(sys.argv[1]) if options is None else options
    os.environ["LOCAL_RANK"] = os.environ["RANK"]
    os.environ["LOCAL_WORLD_SIZE"] = os.environ["WORLD_SIZE"]
    directory = Path(given["directory"])
    torch.set_num_threads(1)
    if given["what"] in TRAININGS:
        dist.init_process_group("gloo")
        loops.compare(directory, TRAININGS[given["what"]])
    else:
        SWITCHES[given["what"]](directory)
    if dist.is_initialized():
        dist.destroy_process_group()
