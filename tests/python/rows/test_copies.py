# SPDX-License-Identifier: Apache-2.0
"""Copies that the program makes of a watched model are not watched."""
import copy
import pickle
from pathlib import Path
from typing import Callable, Iterator

import jobs
import pytest
import torch
import twice
from gradmon._attributes import replaced_around


Watched = "tuple[torch.nn.Module, torch.optim.Optimizer, gradmon.Monitor]"


@pytest.fixture
def watched(tmp_path: Path) -> "Iterator[Watched]":
    model, optimizer = jobs.with_sgd(jobs.make_net(), momentum=0.9)
    with jobs.monitor(tmp_path, **twice.EVERYTHING).watch(model, optimizer) as monitor:
        jobs.train(model, optimizer, 1)
        yield model, optimizer, monitor


def test_a_copy_of_the_model_is_not_recorded(tmp_path: Path, watched: Watched) -> None:
    model, optimizer, monitor = watched
    copied = copy.deepcopy(model)
    jobs.train(copied, torch.optim.SGD(copied.parameters(), lr=0.1), 3)
    optimizer.zero_grad()
    output = model(jobs.batch(5))
    output.pow(2).mean().backward()
    copied(jobs.batch(6)).pow(2).mean().backward()
    gradient = model.fc1.weight.grad.clone()
    optimizer.step()
    monitor.stop()
    assert set(jobs.steps_of(twice.read(tmp_path / "out", "actv"))["fc1.output"]) == {0, 1}
    twice.check_bits(twice.read(tmp_path / "out", "actv")["fc2.output", 1, 0], output)
    twice.check_bits(twice.read(tmp_path / "out", "grad_unreduced")["fc1.weight", 1, 0], gradient)


def test_a_copy_is_left_without_our_hooks_once_it_is_used(watched: Watched) -> None:
    model, _, monitor = watched
    assert jobs.hooks_of(model) > 0
    copied = copy.deepcopy(model)
    monitor.stop()
    assert jobs.hooks_of(model) == 0
    jobs.train(copied, torch.optim.SGD(copied.parameters(), lr=0.1), 1)
    copied.spare(torch.zeros(1, 2))
    assert jobs.hooks_of(copied) == 0


def test_a_copy_of_the_optimizer_is_not_patched(watched: Watched) -> None:
    _, optimizer, _ = watched
    assert "step" in vars(optimizer)
    assert "step" not in vars(copy.deepcopy(optimizer))


def test_a_model_saved_whole_needs_no_gradmon_to_be_read(tmp_path: Path, watched: Watched) -> None:
    model, _, _ = watched
    saved = tmp_path / "model.pt"
    torch.save(torch.nn.Sequential(model.fc1, model.fc2), saved)
    script = f"""
import sys, torch
sys.modules["gradmon"] = None  # cannot be imported
print(torch.load({str(saved)!r}, weights_only=False)(torch.zeros(1, 4)).shape)
"""
    result = jobs.python("-c", script)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "torch.Size([1, 2])\n"


class Stepper:
    def step(self) -> str:
        return "own"


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda owner: pickle.loads(pickle.dumps(owner))])
def test_a_copy_of_an_object_calls_the_method_of_its_class(copied: "Callable[[Stepper], Stepper]") -> None:
    stepper = Stepper()
    replaced = replaced_around(stepper, "step", lambda original: f"around {original()}")
    assert stepper.step() == "around own"
    assert copied(stepper).step() == "own"
    replaced.remove()
    assert stepper.step() == "own"


def test_a_replaced_method_that_other_code_has_wrapped_passes_calls_through_once_it_is_removed() -> None:
    stepper = Stepper()
    replaced = replaced_around(stepper, "step", lambda original: f"around {original()}")
    wrapped = stepper.step
    stepper.step = lambda: f"wrapped {wrapped()}"  # type: ignore[method-assign]
    assert stepper.step() == "wrapped around own"
    replaced.remove()
    assert stepper.step() == "wrapped own"


def test_a_replica_of_data_parallel_is_warned_of(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model, optimizer = jobs.make()
    with jobs.monitor(tmp_path, **jobs.EVERYTHING).watch(model, optimizer):
        replica = model.fc1._replicate_for_data_parallel()
        replica.weight, replica.bias = model.fc1.weight, model.fc1.bias
        model.fc2(replica(jobs.batch(0))).sum().backward()
        optimizer.step()
    assert "activations within nn.DataParallel have no rows" in capfd.readouterr().err
    names = {name for name, _, _ in jobs.rows(tmp_path / "out", "grad_reduced")}
    assert names >= {"fc1.weight", "fc2.weight"}
