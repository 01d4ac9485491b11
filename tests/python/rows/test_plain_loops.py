# SPDX-License-Identifier: Apache-2.0
"""Common training loops in one process: the same values as plain torch, bit for bit."""
from pathlib import Path
from typing import Any, Callable

import gradmon
import jobs
import pytest
import torch
import twice

FC1 = {"fc1.weight", "fc1.bias"}


def loss_of(model: torch.nn.Module, step: int, micro: int = 0) -> torch.Tensor:
    return model(jobs.batch(step, micro)).pow(2).mean()


def test_gradients_and_weights_are_plain_torchs_to_the_bit_after_clipping_too(tmp_path: Path) -> None:
    def training(noted: twice.Noted, monitor: Any) -> None:
        model = jobs.make_net()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        monitor.watch(model, optimizer)
        for step in range(3):
            optimizer.zero_grad()
            loss_of(model, step).backward()
            noted.gradients(model, step, "grad_unreduced")
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
            noted.gradients(model, step, "grad_reduced")
            noted.weights(model, step, "param_origin")
            optimizer.step()
            noted.weights(model, step, "param_updated")
        monitor.stop()
        noted.end(model, optimizer)

    noted = twice.compare(tmp_path, training)
    before, after = (noted.tensors[kind]["fc2.weight", 0, 0] for kind in ("grad_unreduced", "grad_reduced"))
    assert before.norm() > 0.01 > after.norm()


def test_a_module_that_throws_when_called_by_itself_changes_no_row(tmp_path: Path) -> None:
    """As in a validation of a part of the model, on a batch that is not right."""

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Linear(6, 2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.encoder(x)

    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    config = jobs.write_config(tmp_path, xy_distribution=True, all_xy=True)
    with gradmon.Monitor(config, output_dir=tmp_path / "out", dynamic=False).watch(model, optimizer):
        for step in range(3):
            if step == 1:
                with torch.no_grad(), pytest.raises(RuntimeError):
                    model.encoder(torch.ones(3, 5))
            optimizer.zero_grad()
            loss_of(model, step).backward()
            optimizer.step()
    for kind in ("actv", "actv_grad"):
        steps = jobs.steps_of(jobs.rows(tmp_path / "out", kind))
        assert len(steps) > 3 and set(map(tuple, steps.values())) == {(0, 1, 2)}, (kind, steps)


@pytest.mark.parametrize("to_none", [True, False])
@pytest.mark.parametrize("said", [1, 3])
def test_micro_batches_that_are_accumulated(tmp_path: Path, said: int, to_none: bool) -> None:
    def training(noted: twice.Noted, monitor: Any) -> None:
        model = jobs.make_net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        monitor.watch(model, optimizer, grad_acc_steps=said)
        for step in range(3):
            optimizer.zero_grad(set_to_none=to_none)
            for micro in range(3):
                (loss_of(model, step, micro) / 3).backward()
            noted.gradients(model, step)
            optimizer.step()
        monitor.stop()
        noted.end(model, optimizer)

    twice.compare(tmp_path, training)


def test_each_micro_batch_by_itself(tmp_path: Path) -> None:
    def training(noted: twice.Noted, monitor: Any) -> None:
        model = jobs.make_net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
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
        monitor.stop()
        noted.end(model, optimizer)

    twice.compare(tmp_path, training, monitor_mbs_grad=True, xy_distribution=False)


class Tied(torch.nn.Module):
    """Has a weight under two names, a frozen layer, and in-place activations."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Linear(4, 4)
        self.frozen = torch.nn.Linear(4, 4).requires_grad_(False)
        self.act = torch.nn.ELU(inplace=True)
        self.head = torch.nn.Linear(4, 4, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.act(self.frozen(self.embed(x)))).tanh_()


def test_tied_and_frozen_parameters_and_activations_in_place(tmp_path: Path) -> None:
    def training(noted: twice.Noted, monitor: Any) -> None:
        model = Tied()
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)
        model.embed.weight.register_hook(noted.fire("before"))
        monitor.watch(model, optimizer)
        model.head.register_forward_hook(noted.fire("head"))
        model.embed.weight.register_hook(noted.fire("after"))
        for step in range(3):
            optimizer.zero_grad()
            loss_of(model, step).backward()
            noted.gradients(model, step)
            optimizer.step()
        monitor.stop()
        noted.end(model, optimizer)

    noted = twice.compare(tmp_path, training)
    assert {name for name, _, _ in noted.tensors["grad_reduced"]} == {"embed.weight", "embed.bias"}
    assert noted.fired == ["head", "before", "after"] * 3


def test_a_layer_unfrozen_in_mid_training_has_rows_at_once_but_unreduced_ones_perhaps_a_step_later(
    tmp_path: Path,
) -> None:
    def training(noted: twice.Noted, monitor: Any) -> None:
        model = jobs.make_net()
        model.fc1.requires_grad_(False)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        monitor.watch(model, optimizer)
        for step in range(4):
            model.fc1.requires_grad_(step >= 2)
            optimizer.zero_grad()
            loss_of(model, step).backward()
            noted.gradients(model, step, "grad_reduced")
            optimizer.step()
        monitor.stop()
        noted.end(model, optimizer)

    noted = twice.compare(tmp_path, training)
    reduced = noted.tensors["grad_reduced"]
    assert [step for name, step, _ in reduced if name == "fc1.weight"] == [2, 3]
    unreduced = twice.read(tmp_path / "out", "grad_unreduced")
    later = {key: tensor for key, tensor in reduced.items() if key[0] not in FC1 or key[1] == 3}
    at_once = {key: tensor for key, tensor in reduced.items() if key in unreduced}
    twice.check_rows(unreduced, {**later, **at_once}, "grad_unreduced")


def evaluated(model: torch.nn.Module) -> None:
    model.eval()
    with torch.no_grad():
        model(jobs.batch(100))
    model.train()


def evaluated_in_training_mode(model: torch.nn.Module) -> None:
    with torch.no_grad():
        model(jobs.batch(100))


@pytest.mark.parametrize("evaluate", [evaluated, evaluated_in_training_mode])
@pytest.mark.parametrize("when", ["between", "before backward"])
def test_evaluation_between_steps_leaves_no_rows(
    tmp_path: Path, evaluate: "Callable[[torch.nn.Module], None]", when: str
) -> None:
    def training(noted: twice.Noted, monitor: Any) -> None:
        model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Dropout(0.5), torch.nn.Linear(6, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
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
        monitor.stop()
        noted.end(model, optimizer)

    target = {"": {"output": "tensor"}}
    twice.compare(tmp_path, training, all_xy=False, forward_only=True, targets=target, invert=False)


def test_of_a_closure_that_is_called_often_the_last_call_counts(tmp_path: Path) -> None:
    def training(noted: twice.Noted, monitor: Any) -> None:
        model = jobs.make_net()
        optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4, history_size=3)
        monitor.watch(model, optimizer)
        calls = []
        for step in range(2):

            def closure() -> torch.Tensor:
                optimizer.zero_grad()
                loss = loss_of(model, step)
                loss.backward()
                calls.append(step)
                noted.gradients(model, step)  # the last call of the closure wins
                return loss

            optimizer.step(closure)
            noted.weights(model, step, "param_updated")
        assert calls.count(0) > 1 and calls.count(1) > 1
        monitor.stop()
        noted.end(model, optimizer)

    twice.compare(tmp_path, training)
