# SPDX-License-Identifier: Apache-2.0
"""gradmon.hf.Callback with the real Trainer: what test_loops.py does not have."""
from pathlib import Path
from typing import Any

import gradmon
import hf_loops
import jobs
import loops
import pytest
import torch
import twice


def test_a_training_that_resumes_goes_on_with_its_step_numbers(tmp_path: Path) -> None:
    bare, watched = twice.Noted(), twice.Noted()
    for noted, name in ((bare, "bare"), (watched, "watched")):
        torch.manual_seed(7)
        model = hf_loops.Net()
        optimizer = loops.NotingAdamW(model, twice.Noted())
        place = {"output_dir": str(tmp_path / name), "save_strategy": "steps", "save_steps": 2}
        hf_loops.make_trainer(model, optimizer, [], max_steps=2, **place).train()
        again = hf_loops.Net()
        options = {"config": jobs.write_config(tmp_path, **twice.EVERYTHING), "output_dir": tmp_path / "out"}
        callbacks = hf_loops.callbacks_for({**options, "dynamic": False} if noted is watched else None)
        noting = loops.NotingAdamW(again, noted, first=2)
        trainer = hf_loops.make_trainer(again, noting, callbacks, max_steps=5, **place)
        trainer.train(resume_from_checkpoint=str(tmp_path / name / "checkpoint-2"))
        loops.end(noted, again, noting)
    twice.check_same_training(bare, watched)
    for kind in ("grad_unreduced", "grad_reduced", "param_updated"):
        twice.check_rows(twice.read(tmp_path / "out", kind), bare.tensors[kind], kind)
    assert {step for _, step, _ in bare.tensors["grad_reduced"]} == {2, 3, 4}


def test_what_the_trainer_logs_is_a_scalar_of_its_step(tmp_path: Path) -> None:
    names = ["loss", "grad_norm", "learning_rate", "eval_runtime"]
    config = jobs.write_config(tmp_path, scalars={name: "records" for name in names}, step_interval=2)
    callback = gradmon.hf.Callback(config, output_dir=tmp_path / "out", dynamic=False)
    model = hf_loops.Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    keys = {"logging_strategy": "steps", "logging_steps": 1}
    trainer = hf_loops.make_trainer(model, optimizer, [callback], **keys)
    trainer.train()
    found = scalar_rows(tmp_path / "out")
    logged = {
        (name, log["step"] - 1): log[name]
        for log in trainer.state.log_history
        for name in names
        if name in log
    }
    assert {step for _, step in found} == {0, 2, 4}
    assert {name for name, _ in found} == set(names)
    assert found == {key: pytest.approx(logged[key], abs=1e-6) for key in found}


def scalar_rows(out: Path) -> "dict[tuple[str, int], float]":
    rows = gradmon.load(out, kind="scalar")
    return {(name, step): value for name, step, value in zip(rows["name"], rows["step"], rows["value"])}


def test_training_stops_where_the_requested_output_is_complete(tmp_path: Path) -> None:
    model = hf_loops.Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    config = jobs.write_config(tmp_path, print_struct=True)
    callback = gradmon.hf.Callback(config, output_dir=tmp_path / "out", dynamic=False)
    trainer = hf_loops.make_trainer(model, optimizer, [callback])
    trainer.train()
    assert callback.monitor.may_end and trainer.state.global_step < 6


def test_the_callback_can_train_again(tmp_path: Path) -> None:
    config = jobs.write_config(tmp_path, wg_distribution=True)
    callback = gradmon.hf.Callback(config, output_dir=tmp_path / "out", dynamic=False)
    assert callback.monitor is None
    for _ in range(2):
        model = hf_loops.Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        hf_loops.make_trainer(model, optimizer, [callback], max_steps=2).train()
    found = sorted((tmp_path / "out").glob("*/grad_reduced_[0-9]*.csv"))
    assert len(found) == 2
    assert all(text.count("fc1.weight") == 2 for text in (path.read_text() for path in found))


def test_an_error_in_training_passes_and_the_next_training_is_watched(tmp_path: Path) -> None:
    config = jobs.write_config(tmp_path, wg_distribution=True)
    callback = gradmon.hf.Callback(config, output_dir=tmp_path / "out", dynamic=False)
    model = hf_loops.Net()
    model.fc2.register_forward_hook(fail)
    with pytest.raises(RuntimeError, match="the program's own"):
        hf_loops.make_trainer(model, torch.optim.SGD(model.parameters(), lr=0.1), [callback]).train()
    fresh = hf_loops.Net()
    optimizer = torch.optim.SGD(fresh.parameters(), lr=0.1)
    hf_loops.make_trainer(fresh, optimizer, [callback], max_steps=1).train()
    assert jobs.steps_of(jobs.rows(tmp_path / "out", "grad_reduced"))["fc1.weight"] == [0]


def fail(*_: Any) -> None:
    raise RuntimeError("the program's own")
