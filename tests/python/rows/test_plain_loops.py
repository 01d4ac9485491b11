# SPDX-License-Identifier: Apache-2.0
"""Common training loops in one process, also with gradients in main_grad: the values are plain torch's."""
from pathlib import Path
from typing import Any

import jobs
import oracle_loops
import oracle_optimizers
import pytest
import torch
import twice


FC1 = {"fc1.weight", "fc1.bias"}


def loss_of(model: torch.nn.Module, step: int, micro: int = 0) -> torch.Tensor:
    return model(jobs.batch(step, micro)).pow(2).mean()


def test_a_module_that_throws_when_called_by_itself_changes_no_row(tmp_path: Path) -> None:
    """As in a validation of a part of the model, on a batch that is not right."""

    encoder = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Linear(6, 2))
    model, optimizer = jobs.with_sgd(jobs.Parts(lambda m, x: m.encoder(x), encoder=encoder))
    with jobs.monitor(tmp_path, **jobs.ACTIVATIONS).watch(model, optimizer):
        jobs.train(model, optimizer, 1)
        with torch.no_grad(), pytest.raises(RuntimeError):
            encoder(torch.ones(3, 5))
        jobs.train(model, optimizer, 2)
    for kind in ("actv", "actv_grad"):
        steps = jobs.steps_of(jobs.rows(tmp_path / "out", kind))
        assert len(steps) > 3 and set(map(tuple, steps.values())) == {(0, 1, 2)}, (kind, steps)


@pytest.mark.parametrize("to_none", [True, False])
@pytest.mark.parametrize("said", [1, 3])
def test_micro_batches_that_are_accumulated(tmp_path: Path, said: int, to_none: bool) -> None:
    def training(noted: twice.Noted, monitor: Any) -> None:
        model, optimizer = jobs.with_sgd(jobs.make_net(), momentum=0.9)
        monitor.watch(model, optimizer, grad_acc_steps=said)
        for step in range(3):
            optimizer.zero_grad(set_to_none=to_none)
            for micro in range(3):
                (loss_of(model, step, micro) / 3).backward()
            noted.gradients(model, step)
            optimizer.step()
        noted.stop(monitor, model, optimizer)

    twice.compare(tmp_path, training)


def test_each_micro_batch_by_itself(tmp_path: Path) -> None:
    def training(noted: twice.Noted, monitor: Any) -> None:
        model, optimizer = jobs.make()
        monitor.watch(model, optimizer, grad_acc_steps=3)
        used = {name: p for name, p in model.named_parameters() if "spare" not in name}
        for step in range(2):
            optimizer.zero_grad()
            for micro in range(3):
                alone = torch.autograd.grad(loss_of(model, step, micro), list(used.values()))
                for name, gradient in zip(used, alone):
                    noted.note("grad_unreduced", name, step, gradient, micro)
            for micro in range(3):
                loss_of(model, step, micro).backward()
            optimizer.step()
        noted.stop(monitor, model, optimizer)

    twice.compare(tmp_path, training, monitor_mbs_grad=True, xy_distribution=False)


def test_a_layer_unfrozen_in_mid_training_has_rows_at_once_but_unreduced_ones_perhaps_a_step_later(
    tmp_path: Path,
) -> None:
    def training(noted: twice.Noted, monitor: Any) -> None:
        model = jobs.make_net()
        model.fc1.requires_grad_(False)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        monitor.watch(model, optimizer)
        jobs.train(
            model,
            optimizer,
            4,
            lambda step: model.fc1.requires_grad_(step >= 1),  # from the next one on
            lambda step: noted.gradients(model, step, "grad_reduced"),
        )
        noted.stop(monitor, model, optimizer)

    noted = twice.compare(tmp_path, training)
    reduced = noted.tensors["grad_reduced"]
    assert [step for name, step, _ in reduced if name == "fc1.weight"] == [2, 3]
    unreduced = twice.read(tmp_path / "out", "grad_unreduced")
    later = {key: tensor for key, tensor in reduced.items() if key[0] not in FC1 or key[1] == 3}
    at_once = {key: tensor for key, tensor in reduced.items() if key in unreduced}
    twice.check_rows(unreduced, {**later, **at_once}, "grad_unreduced")


@pytest.mark.parametrize("in_training_mode", [False, True])
@pytest.mark.parametrize("when", ["between", "before backward"])
def test_evaluation_between_steps_leaves_no_rows(tmp_path: Path, in_training_mode: bool, when: str) -> None:
    def evaluate(model: torch.nn.Module) -> None:
        model.train(in_training_mode)
        with torch.no_grad():
            model(jobs.batch(100))
        model.train()

    def training(noted: twice.Noted, monitor: Any) -> None:
        model, optimizer = jobs.with_sgd(
            torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Dropout(0.5), torch.nn.Linear(6, 2))
        )
        monitor.watch(model, optimizer)
        for step in range(3):
            optimizer.zero_grad()
            output = model(jobs.batch(step))
            noted.note("actv", "model.output", step, output)
            if when == "before backward":
                evaluate(model)
            output.pow(2).mean().backward()
            noted.gradients(model, step)
            optimizer.step()
            if when == "between":
                evaluate(model)
        noted.stop(monitor, model, optimizer)

    target = {"": {"output": "tensor"}}
    twice.compare(tmp_path, training, all_xy=False, forward_only=True, targets=target, invert=False)


# --- gradients that are kept in main_grad (test_oracle.py compares their values) ---


def train(tmp_path: Path, model: torch.nn.Module, **keys: Any) -> "dict[tuple[str, int, int], Any]":
    """Trains two steps of two micro batches; returns the rows of grad_unreduced."""
    monitor = jobs.monitor(tmp_path, wg_distribution=True, **keys)
    oracle_optimizers.train_on_main_gradients(oracle_loops.Run(monitor, False), model)
    monitor.stop()
    return jobs.rows(tmp_path / "out", "grad_unreduced")


def test_what_a_kernel_adds_has_no_row_of_one_micro_batch(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = torch.nn.Sequential(oracle_optimizers.FusedLinear(4, 5), torch.nn.Linear(5, 2))
    found = train(tmp_path, model, monitor_mbs_grad=True)
    assert {name for name, _, _ in found} == {"0.bias", "1.weight", "1.bias"}
    assert {micro for _, _, micro in found} == {0, 1}
    said = capfd.readouterr().err
    assert "0.weight: no row: a fused kernel adds each micro batch to main_grad directly" in said


def test_main_gradients_that_come_later_are_read_from_the_next_step_on(tmp_path: Path) -> None:
    model, optimizer = jobs.with_sgd(torch.nn.Linear(4, 2))
    with jobs.monitor(tmp_path, wg_distribution=True).watch(model, optimizer):
        jobs.train(model, optimizer, 1)
        held = oracle_optimizers.given_main_gradients(model)
        jobs.train(model, optimizer, 1)
        optimizer.zero_grad()
        model(jobs.batch(0)).sum().backward()
        kept = model.weight.main_grad.clone()
        optimizer.step()
        del held
    jobs.check(jobs.rows(tmp_path / "out", "grad_unreduced")["weight", 2, 0], kept)
