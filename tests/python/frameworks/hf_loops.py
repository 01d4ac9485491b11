# SPDX-License-Identifier: Apache-2.0
"""Trainings by transformers' Trainer, in one rank or in one of several. Run by test_hf.py."""
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, Optional

import gradmon
import loops
import torch
import torch.distributed as dist
import transformers
import twice
from accelerate.state import AcceleratorState, GradientState


class Net(loops.Net):
    def forward(self, x: torch.Tensor) -> "dict[str, torch.Tensor]":  # type: ignore[override]
        return {"loss": super().forward(x)}


class Steps(transformers.TrainerCallback):
    """Stops the training when `edits` says so."""

    def __init__(self, edits: loops.Edits) -> None:
        self.edits = edits

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        control.should_training_stop = self.edits()


def make_trainer(model: torch.nn.Module, optimizer: Any, callbacks: "list[Any]", **keys: Any) -> Any:
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    given: "dict[str, Any]" = {
        "num_train_epochs": loops.EPOCHS,
        "per_device_train_batch_size": loops.BATCH,
        "gradient_accumulation_steps": loops.MICRO,
        "max_grad_norm": loops.CLIP,
        "lr_scheduler_type": "constant",
        "train_sampling_strategy": "sequential",
        "eval_strategy": "steps",
        "eval_steps": 1,
        "save_strategy": "no",
        "logging_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
        "remove_unused_columns": False,
        "prediction_loss_only": True,
        "use_cpu": True,
        "ddp_backend": "gloo" if "LOCAL_RANK" in os.environ else None,
    }
    with_place = {"output_dir": tempfile.mkdtemp(), **given, **keys}
    return transformers.Trainer(
        model,
        transformers.TrainingArguments(**with_place),
        data_collator=lambda rows: {"x": torch.stack(rows)},
        train_dataset=loops.Data(),
        eval_dataset=loops.Data(4, 90),
        optimizers=(optimizer, None),
        callbacks=callbacks,
    )


def callbacks_for(options: loops.Options) -> "list[Any]":
    if options is None:
        return []
    own = dict(options)
    return [gradmon.hf.Callback(own.pop("config"), **own)]


def train(noted: twice.Noted, options: loops.Options) -> None:
    """With accumulation, short at the end of an epoch; clipped; with an evaluation after each step."""
    model = Net()
    optimizer = loops.NotingAdamW(model, noted)
    loops.note_activations(noted, model, optimizer)
    make_trainer(model, optimizer, callbacks_for(options)).train()
    loops.end(noted, model, optimizer)


def switch(directory: Path) -> None:
    """Trains until both edits of the config have been collected."""
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    edits = Steps(loops.Edits(directory))
    options = {"config": directory / "config.json", "output_dir": directory / "out", "dynamic": True}
    make_trainer(
        model, optimizer, [*callbacks_for(options), edits], max_steps=1_000_000, eval_strategy="no"
    ).train()
    assert not optimizer._optimizer_step_pre_hooks and not optimizer._optimizer_step_post_hooks


def main(options: "Optional[dict[str, Any]]" = None) -> None:
    given = json.loads(sys.argv[1]) if options is None else options
    os.environ["LOCAL_RANK"] = os.environ["RANK"]
    directory = Path(given["directory"])
    torch.set_num_threads(1)
    transformers.TrainingArguments(
        tempfile.mkdtemp(), use_cpu=True, ddp_backend="gloo"
    ).device  # joins the group
    if given["what"] == "train":
        loops.compare(directory, train)
    else:
        switch(directory)
    dist.destroy_process_group()
