# SPDX-License-Identifier: Apache-2.0
"""LoRA by the real peft, in a loop of its own and in transformers' Trainer: rows of the parameters that are
trained, and of no others, under the names that the model has them by; training is the same."""
from pathlib import Path
from typing import Any

import gradmon
import hf_loops
import jobs
import loops
import peft
import torch
import twice

BEFORE = "base_model.model."
LORA = {f"{BEFORE}{layer}.lora_{part}.default.weight" for layer in ("fc1", "fc2") for part in "AB"}
# Layers that peft copies and trains as a whole.
SAVED = {f"{BEFORE}norm.modules_to_save.default.{part}" for part in ("weight", "bias")}
KINDS = ("grad_unreduced", "grad_reduced", "param_origin", "param_updated", "exp_avg")


def with_lora(model: torch.nn.Module) -> Any:
    keys = {"r": 2, "target_modules": ["fc1", "fc2"], "modules_to_save": ["norm"]}
    return peft.get_peft_model(model, peft.LoraConfig(**keys))


def by_hand(noted: twice.Noted, options: loops.Options) -> None:
    model = with_lora(loops.Net())
    optimizer = loops.NotingAdamW(model, noted)
    monitor: Any = twice.NoMonitor()
    if options is not None:
        own = dict(options)
        monitor = gradmon.Monitor(own.pop("config"), **own).watch(model, optimizer)
    for _epoch in range(loops.EPOCHS):
        for x in loops.loader():
            model(x).backward()
            optimizer.step()
            optimizer.zero_grad()
    monitor.stop()
    loops.end(noted, model, optimizer)


def by_trainer(noted: twice.Noted, options: loops.Options) -> None:
    model = with_lora(hf_loops.Net())
    optimizer = loops.NotingAdamW(model, noted)
    hf_loops.make_trainer(model, optimizer, hf_loops.callbacks_for(options)).train()
    loops.end(noted, model, optimizer)


def plain_noted() -> twice.Noted:
    """The Trainer's steps, in a loop of plain torch."""
    noted = twice.Noted()
    torch.manual_seed(7)
    model = with_lora(loops.Net())
    optimizer = loops.NotingAdamW(model, noted)
    for _epoch in range(loops.EPOCHS):
        for group in loops.groups(loops.loader()):
            for x in group:
                (model(x) / len(group)).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), loops.CLIP)
            optimizer.step()
            optimizer.zero_grad()
    return noted


def check_names(noted: twice.Noted) -> None:
    for kind in KINDS:
        assert {name for name, _, _ in noted.tensors[kind]} == LORA | SAVED, kind


def test_only_what_is_trained_has_rows(tmp_path: Path) -> None:
    check_names(loops.compare(tmp_path, by_hand, squash_name=False))


def test_rows_in_the_trainer_are_plain_torchs(tmp_path: Path) -> None:
    noted = loops.compare(tmp_path, by_trainer, squash_name=False)
    check_names(noted)
    twice.check_equal(noted, plain_noted())


def test_another_adapter_is_seen_from_the_step_on_in_which_it_is_trained(tmp_path: Path) -> None:
    model = with_lora(loops.Net())
    model.add_adapter("other", peft.LoraConfig(r=2, target_modules=["fc1", "fc2"]))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)  # also of what is frozen now
    with jobs.monitor(tmp_path, wg_distribution=True, param_distribution=True).watch(model, optimizer):
        for step in range(4):
            model.set_adapter("default" if step < 2 else "other")
            model(torch.stack([loops.Data()[step]])).backward()
            optimizer.step()
            optimizer.zero_grad()
    steps = {kind: jobs.steps_of(jobs.rows(tmp_path / "out", kind)) for kind in KINDS[:4]}
    for name in LORA:
        other = name.replace("default", "other")
        # The B of an adapter is zero at first, and so is the gradient of its A. Within step 2, which has
        # begun with a frozen parameter, no hook can see a gradient delivered.
        first = [3] if "lora_A" in name else [2, 3]
        assert steps["grad_reduced"][name] == steps["grad_unreduced"][name] == [0, 1], name
        assert (steps["grad_reduced"][other], steps["grad_unreduced"][other]) == (first, [3]), name
        for kind in ("param_origin", "param_updated"):  # the optimizer has them all
            assert steps[kind][name] == steps[kind][other] == [0, 1, 2, 3], (kind, name)
