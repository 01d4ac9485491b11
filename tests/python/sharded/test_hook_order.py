# SPDX-License-Identifier: Apache-2.0
"""Other code frees gradients in post-accumulate hooks, or divides them in hooks that come and go.
job/test_user_hooks.py has hooks that stay."""
from pathlib import Path
from typing import Any, Callable

import gradmon
import jobs
import pytest
import torch


Hook = Callable[[torch.Tensor], None]


def divide(parameter: torch.Tensor) -> None:
    assert parameter.grad is not None
    parameter.grad.div_(4)


def free(parameter: torch.Tensor) -> None:
    moved.append(parameter.grad)
    parameter.grad = None


moved: "list[Any]" = []


def watch(tmp_path: Path, model: torch.nn.Module, optimizer: Any) -> gradmon.Monitor:
    return jobs.monitor(tmp_path, **jobs.EVERYTHING, collect_times=100).watch(model, optimizer)


def truth(steps: int) -> "list[dict[str, torch.Tensor]]":
    """The gradients of each step, before anything changes them."""
    model, optimizer = jobs.make()
    found = []

    def note(_: int) -> None:
        found.append({n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None})
        for parameter in model.parameters():
            if parameter.grad is not None:
                divide(parameter)

    jobs.train(model, optimizer, steps, reduced=note)
    return found


def hooked(model: torch.nn.Module, hook: Hook) -> "list[Any]":
    return [parameter.register_post_accumulate_grad_hook(hook) for parameter in model.parameters()]


def hooks_of(model: torch.nn.Module) -> "list[list[Any]]":
    return [list((p._post_accumulate_grad_hooks or {}).values()) for p in model.parameters()]


def check(tmp_path: Path, steps: int) -> None:
    rows = jobs.rows(tmp_path / "out", "grad_unreduced")
    for step, gradients in enumerate(truth(steps)):
        for name, gradient in gradients.items():
            jobs.check(rows[name, step, 0], gradient)


@pytest.mark.parametrize("when", ["before", "within a step"])
def test_a_gradient_is_read_before_a_hook_that_takes_it_away(tmp_path: Path, when: str) -> None:
    model, optimizer = jobs.with_sgd(jobs.make_net(), lr=0.0)
    if when == "before":
        hooked(model, free)
    with watch(tmp_path, model, optimizer):
        if when != "before":
            hooked(model, free)
        jobs.train(model, optimizer, 1)
    check(tmp_path, 1)


def test_hooks_that_are_removed_or_added_in_between_are_as_they_would_be(tmp_path: Path) -> None:
    model, optimizer = jobs.make()
    handles = hooked(model, divide)
    order: "list[str]" = []
    with watch(tmp_path, model, optimizer):
        jobs.train(model, optimizer, 1)
        late = hooked(model, lambda _: order.append("late"))
        jobs.train(model, optimizer, 1)
        for handle in handles:
            handle.remove()
        jobs.train(model, optimizer, 1)
        for handle in late:
            handle.remove()
    assert order == ["late"] * 8
    assert hooks_of(model) == [[]] * 6
    assert len(jobs.rows(tmp_path / "out", "grad_unreduced")) == 12


def test_a_reading_is_kept_if_a_hook_comes_after_it(tmp_path: Path) -> None:
    model, optimizer = jobs.make()
    with watch(tmp_path, model, optimizer):
        jobs.train(model, optimizer, 1, reduced=lambda _: hooked(model, divide))
    check(tmp_path, 1)


def test_hooks_that_come_and_go_in_each_step_run_after_the_reading(tmp_path: Path) -> None:
    model, optimizer = jobs.make()
    with watch(tmp_path, model, optimizer):
        for step in range(2):
            handles = hooked(model, divide)
            optimizer.zero_grad()
            model(jobs.batch(step)).pow(2).mean().backward()
            optimizer.step()
            for handle in handles:
                handle.remove()
    check(tmp_path, 2)


def test_a_pass_that_delivers_no_gradient_is_no_part_in_the_step(tmp_path: Path) -> None:
    """Since torch 2.7 it calls post-accumulate hooks, too."""

    class Nothing(torch.autograd.Function):
        @staticmethod
        def forward(_: Any, weight: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(_: Any, *gradients: torch.Tensor) -> "tuple[None, torch.Tensor]":
            return None, gradients[0]

    model, optimizer = jobs.make()
    spare = model.spare.weight
    spare.grad = torch.ones_like(spare)  # of an earlier step
    with watch(tmp_path, model, optimizer):
        for step in range(2):
            for layer in (model.fc1, model.fc2):
                layer.zero_grad()
            Nothing.apply(spare, model(jobs.batch(step))).pow(2).mean().backward()
            optimizer.step()
    for kind in ("grad_unreduced", "grad_reduced"):
        found = jobs.steps_of(jobs.rows(tmp_path / "out", kind))
        assert "spare.weight" not in found and found["fc1.weight"] == [0, 1]


def test_a_gradient_that_is_the_same_memory_in_each_step_is_read(tmp_path: Path) -> None:
    """As the replay of a CUDA graph leaves it: nothing at the memory tells that it was filled anew."""
    static = torch.zeros(6, 4)

    class Replay(torch.autograd.Function):
        @staticmethod
        def forward(_: Any, weight: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(_: Any, *gradients: torch.Tensor) -> "tuple[torch.Tensor, torch.Tensor]":
            static.data.fill_(float(len(filled) + 1))
            filled.append(static.clone())
            return static.detach(), gradients[0]

    filled: "list[torch.Tensor]" = []
    model, optimizer = jobs.make()
    with watch(tmp_path, model, optimizer):
        for step in range(3):
            optimizer.zero_grad()
            Replay.apply(model.fc1.weight, model.fc2(torch.ones(3, 6) * step)).pow(2).mean().backward()
            optimizer.step()
    for kind in ("grad_unreduced", "grad_reduced"):
        rows = jobs.rows(tmp_path / "out", kind)
        for step in range(3):
            jobs.check(rows["fc1.weight", step, 0], filled[step])
