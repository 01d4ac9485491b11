# SPDX-License-Identifier: Apache-2.0
"""Trainings by Accelerate's loop, in one rank or in one of several. Run by test_accelerate.py."""
import json
import os
import sys
from pathlib import Path
from typing import Any, Optional

import loops
import torch
import torch.distributed as dist
import twice
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState

import gradmon


def make_accelerator(**keys: Any) -> Accelerator:
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    return Accelerator(cpu=True, **keys)


def watched(accelerator: Accelerator, options: loops.Options, model: Any, optimizer: Any) -> Any:
    if options is None:
        return twice.NoMonitor()
    own = dict(options)
    return gradmon.accelerate.watch(accelerator, own.pop("config"), model, optimizer, **own)


def train(noted: twice.Noted, options: loops.Options, sync_each: bool = False) -> None:
    """With accumulation, short at the end of an epoch; clipped; with an evaluation in between."""
    accelerator = make_accelerator(gradient_accumulation_steps=loops.MICRO)
    model = loops.Net()
    noting = loops.NotingAdamW(model, noted)
    loops.note_activations(noted, model, noting)
    batches = loops.loader(first=0 if loops.rank() == 0 else 40) if dist.is_initialized() else loops.loader()
    scheduler = torch.optim.lr_scheduler.LambdaLR(noting, lambda _: 1.0)
    prepared, optimizer, loader, scheduler = accelerator.prepare(model, noting, batches, scheduler)
    monitor = watched(accelerator, options, prepared, optimizer)
    for _ in range(loops.EPOCHS):
        for x in loader:
            with accelerator.accumulate(prepared):
                accelerator.backward(prepared(x))
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(prepared.parameters(), loops.CLIP)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
        prepared.eval()
        with torch.no_grad():
            prepared(torch.ones(1, 4))
        prepared.train()
    monitor.stop()
    loops.end(noted, model, noting, optimizer)


def switch(directory: Path) -> None:
    """Trains until both edits of the config have been collected."""
    accelerator = make_accelerator(gradient_accumulation_steps=loops.MICRO)
    model = loops.Net()
    parts = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.01), loops.loader())
    edits = loops.Edits(directory)
    options = {"config": directory / "config.json", "output_dir": directory / "out", "dynamic": True}
    prepared, optimizer, loader = parts
    monitor = watched(accelerator, options, prepared, optimizer)
    done = False
    while not done:
        for x in loader:
            with accelerator.accumulate(prepared):
                accelerator.backward(prepared(x))
                optimizer.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients and edits():
                done = True
                break
    monitor.stop()
    assert "step" not in vars(optimizer) and not vars(optimizer.optimizer)["_optimizer_step_pre_hooks"]


def main(options: "Optional[dict[str, Any]]" = None) -> None:
    given = json.loads(sys.argv[1]) if options is None else options
    os.environ["LOCAL_RANK"] = os.environ["RANK"]
    directory = Path(given["directory"])
    torch.set_num_threads(1)
    make_accelerator()
    if given["what"] == "train":
        loops.compare(directory, train)
    else:
        switch(directory)
    dist.destroy_process_group()
