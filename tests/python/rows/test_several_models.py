# SPDX-License-Identifier: Apache-2.0
"""Several models and optimizers in one loop."""
import contextlib
import re
import time
from pathlib import Path
from typing import Any

import gradmon
import jobs
import pytest
import torch
import twice
from gradmon._optimizer_rounds import IdleOptimizers
from gradmon._optimizer_steps import OptimizerSteps
from torch.nn.functional import softplus


def mlp(inputs: int, outputs: int) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(inputs, 5), torch.nn.Tanh(), torch.nn.Linear(5, outputs))


@pytest.mark.parametrize("frozen", [False, True], ids=["open", "frozen"])
@pytest.mark.parametrize("discriminator_first", [False, True])
def test_a_gan_whose_steps_the_program_ends(tmp_path: Path, frozen: bool, discriminator_first: bool) -> None:
    """`frozen`: the discriminator is frozen while the generator learns from it. Otherwise the generator's
    backward adds gradients to the discriminator that its optimizer never uses: no row shows them."""

    def training(noted: twice.Noted, monitor: Any) -> None:
        generator, discriminator = mlp(4, 4), mlp(4, 1)
        of_generator = torch.optim.Adam(generator.parameters(), lr=0.01)
        of_discriminator = torch.optim.AdamW(discriminator.parameters(), lr=0.01)
        pairs = [(generator, of_generator), (discriminator, of_discriminator)]
        for pair in reversed(pairs) if discriminator_first else pairs:
            monitor.watch(*pair)
        at_generator, at_discriminator = ("1:", "") if discriminator_first else ("", "1:")
        for step in range(3):
            real, noise = jobs.batch(step), jobs.batch(step, 1)
            discriminator.requires_grad_(True)
            of_discriminator.zero_grad()
            fake = generator(noise)
            softplus(-discriminator(real)).mean().backward()
            softplus(discriminator(fake.detach())).mean().backward()
            noted.gradients(discriminator, step, prefix=at_discriminator)
            of_discriminator.step()
            noted.weights(discriminator, step, "param_updated", at_discriminator)
            discriminator.requires_grad_(not frozen)
            of_generator.zero_grad()
            softplus(-discriminator(fake)).mean().backward()
            noted.gradients(generator, step, prefix=at_generator)
            of_generator.step()
            noted.weights(generator, step, "param_updated", at_generator)
            monitor.step()
        noted.stop(monitor, generator, of_generator)
        noted.end(discriminator, of_discriminator)

    noted = twice.compare(tmp_path, training)
    assert len(noted.tensors["grad_reduced"]) == len(noted.tensors["param_updated"]) == 3 * 8


@pytest.mark.parametrize("updates", [1, 3])
@pytest.mark.parametrize("micro_batches", [1, 2])
def test_a_critic_that_steps_often_in_an_iteration(tmp_path: Path, updates: int, micro_batches: int) -> None:
    """As in a Wasserstein GAN. The rows of the critic are those of its last update, and hold nothing of
    the backward that comes after it. (It is known from the first step() on that the program ends the
    iterations.)"""

    def training(noted: twice.Noted, monitor: Any) -> None:
        generator, critic = mlp(4, 4), mlp(4, 1)
        of_generator = torch.optim.RMSprop(generator.parameters(), lr=0.01)
        of_critic = torch.optim.RMSprop(critic.parameters(), lr=0.01)
        monitor.watch(generator, of_generator).watch(critic, of_critic)
        for step in range(3):
            for update in range(updates if step > 0 else 1):
                of_critic.zero_grad()
                for micro in range(micro_batches):
                    fake = generator(jobs.batch(step, 10 * update + micro)).detach()
                    (critic(fake) - critic(jobs.batch(step, micro))).mean().backward()
                noted.gradients(critic, step, prefix="1:")
                of_critic.step()
            noted.weights(critic, step, "param_updated", "1:")
            of_generator.zero_grad()
            (-critic(generator(jobs.batch(step, 1)))).mean().backward()
            noted.gradients(generator, step)
            of_generator.step()
            noted.weights(generator, step, "param_updated")
            monitor.step()
        noted.stop(monitor, generator, of_generator)
        noted.end(critic, of_critic)

    twice.compare(tmp_path, training)


def test_the_micro_batches_of_a_discriminator_end_with_its_update(tmp_path: Path) -> None:
    """With `monitor_mbs_grad` the generator's backward makes no further row of the discriminator."""
    generator, discriminator = mlp(4, 4), mlp(4, 1)
    of_generator = torch.optim.SGD(generator.parameters(), lr=0.1)
    of_discriminator = torch.optim.SGD(discriminator.parameters(), lr=0.1)
    noted = twice.Noted()
    with jobs.monitor(tmp_path, **twice.EVERYTHING, monitor_mbs_grad=True) as monitor:
        monitor.watch(generator, of_generator).watch(discriminator, of_discriminator)
        for step in range(2):
            for micro in range(2):
                of_discriminator.zero_grad()
                discriminator(jobs.batch(step, micro)).mean().backward()
                noted.gradients(discriminator, step, "grad_unreduced", "1:", micro)
            of_discriminator.step()
            of_generator.zero_grad()
            discriminator(generator(jobs.batch(step))).mean().backward()
            noted.gradients(generator, step, "grad_unreduced")
            of_generator.step()
            monitor.step()
    twice.check_rows(twice.read(tmp_path / "out", "grad_unreduced"), noted.tensors["grad_unreduced"], "")


def test_two_trainings_side_by_side_have_rows_of_their_own(tmp_path: Path) -> None:
    plain = twice.Noted()
    pairs = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        model, optimizer = jobs.with_sgd(mlp(4, 2))
        monitor = jobs.monitor(tmp_path / name, **twice.EVERYTHING)
        pairs.append((name, model, optimizer, monitor.watch(model, optimizer)))
    for step in range(4):
        for name, model, optimizer, monitor in pairs:
            if name == "other" and step >= 2:
                continue
            optimizer.zero_grad()
            model(jobs.batch(step)).pow(2).mean().backward()
            plain.gradients(model, step, name)
            optimizer.step()
            if name == "other" and step == 1:
                monitor.stop()
    pairs[0][3].stop()
    for name, steps in (("one", 4), ("other", 2)):
        assert len(plain.tensors[name]) == 4 * steps
        for kind in ("grad_unreduced", "grad_reduced"):
            twice.check_rows(twice.read(tmp_path / name / "out", kind), plain.tensors[name], kind)


def test_a_teacher_that_is_not_trained_is_left_alone(tmp_path: Path) -> None:
    def training(noted: twice.Noted, monitor: Any) -> None:
        teacher, student = mlp(4, 2), mlp(4, 2)
        optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
        monitor.watch(student, optimizer)
        teacher[1].register_forward_hook(noted.fire("teacher"))
        for step in range(3):
            with torch.no_grad():
                target = teacher.eval()(jobs.batch(step))
            optimizer.zero_grad()
            (student(jobs.batch(step)) - target).pow(2).mean().backward()
            noted.gradients(student, step)
            optimizer.step()
            with torch.no_grad():  # a moving average, as of self-distillation
                for of_teacher, of_student in zip(teacher.parameters(), student.parameters()):
                    of_teacher.lerp_(of_student, 0.1)
        noted.stop(monitor, student, optimizer)
        noted.end(teacher)

    noted = twice.compare(tmp_path, training)
    assert noted.fired == ["teacher"] * 3


def test_parameters_that_no_optimizer_holds_are_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The warning comes after the program's last watch()."""
    model, other = jobs.make_net(), mlp(4, 2)
    of_model = torch.optim.SGD(model.fc1.parameters(), lr=0.1)
    of_other = torch.optim.SGD(other.parameters(), lr=0.1)
    with jobs.monitor(tmp_path, wg_distribution=True) as monitor:
        monitor.watch(model, of_model).watch(other, of_other)
        for step in range(3):
            (model(jobs.batch(step)).sum() + other(jobs.batch(step)).sum()).backward()
            of_model.step()
            of_other.step()
        named = "of Net are in no watched optimizer"
        assert jobs.eventually(lambda: any(named in one for one in jobs.warnings_of(monitor)))
    said = capfd.readouterr().err
    assert said.count("in no watched optimizer") == 1
    assert "fc2.weight, fc2.bias, spare.weight and 1 more of Net are " in said
    assert {name for name, _, _ in jobs.rows(tmp_path / "out", "grad_reduced")} >= {"fc1.weight", "0.weight"}


def idle_in(monitor: gradmon.Monitor) -> list[str]:
    return [warning for warning in jobs.warnings_of(monitor) if "no longer steps" in warning]


def unseen_steps(optimizer: Any) -> OptimizerSteps:
    return OptimizerSteps(optimizer, lambda _: None, lambda: None)


@pytest.mark.parametrize("explicit", [False, True])
def test_an_optimizer_that_stops_stepping_is_named_until_it_steps(tmp_path: Path, explicit: bool) -> None:
    """The warning comes after two steps of all other optimizers."""
    model, other = jobs.make_net(), mlp(4, 2)
    stopping = torch.optim.SGD(model.parameters(), lr=0.1)
    going_on = torch.optim.Adam(other.parameters(), lr=0.1)

    def iterate(monitor: gradmon.Monitor, *optimizers: Any) -> None:
        (model(jobs.batch(0)).sum() + other(jobs.batch(0)).sum()).backward()
        for optimizer in optimizers:
            optimizer.step()
        if explicit:
            monitor.step()

    with jobs.monitor(tmp_path, collect_times=1000, wg_distribution=True) as monitor:
        monitor.watch(model, stopping).watch(other, going_on)
        for _ in range(4):
            iterate(monitor, stopping, going_on)
        assert not idle_in(monitor)
        for _ in range(4):
            iterate(monitor, going_on)
        said = "the watched optimizer SGD no longer steps: "
        assert jobs.eventually(lambda: [one.startswith(said) for one in idle_in(monitor)] == [True])
        for _ in range(4):
            iterate(monitor, stopping, going_on)
        assert jobs.eventually(lambda: not idle_in(monitor))


def test_an_optimizer_that_stops_stepping_is_named_after_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program ends the steps. An evaluation of any length causes no warning."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    looks = IdleOptimizers()
    optimizer = torch.optim.SGD(jobs.make_net().parameters(), lr=0.1)
    watched = unseen_steps(optimizer)
    assert looks.look([watched]) == []
    now[0] = 600  # an evaluation
    optimizer.step()
    assert looks.look([watched]) == []
    now[0] = 659
    assert looks.look([watched]) == []
    now[0] = 660
    assert "the watched optimizer SGD no longer steps: " in looks.look([watched])[0]
    optimizer.step()
    assert looks.look([watched]) == []


def test_an_optimizer_that_always_steps_less_often_is_not_taken_for_one_that_has_stopped(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Only before its second step nobody can know; from three times as many iterations on it has stopped."""
    often, seldom = jobs.make_net(), mlp(4, 2)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (often, seldom)]
    looks = IdleOptimizers()
    watched = [unseen_steps(optimizer) for optimizer in optimizers]
    named = []
    for iteration in range(1, 60):
        for optimizer in optimizers if iteration % 5 == 0 and iteration < 40 else optimizers[:1]:
            optimizer.step()
        named += [iteration for _ in looks.look(watched)]
    assert [iteration for iteration in named if iteration > 5] == list(range(35 + 10, 60))
    with jobs.monitor(tmp_path, collect_times=1000, wg_distribution=True) as monitor:
        monitor.watch(often, optimizers[0], explicit_steps=True).watch(seldom, optimizers[1])
        for iteration in range(1, 31):
            (often(jobs.batch(0)).sum() + seldom(jobs.batch(0)).sum()).backward()
            for optimizer in optimizers if iteration % 5 == 0 else optimizers[:1]:
                optimizer.step()
            monitor.step()
            assert iteration < 6 or not idle_in(monitor)
    said = capfd.readouterr().err
    assert said.count("no longer steps") + said.count("has not stepped yet") <= 1


def test_a_further_optimizer_may_come_without_a_model(tmp_path: Path) -> None:
    """It adds no chunk: the next model is chunk 1."""
    first, second = jobs.make_net(), mlp(4, 2)
    halves = [list(first.parameters())[:2], list(first.parameters())[2:]]
    optimizers = [torch.optim.SGD(half, lr=0.1) for half in (*halves, list(second.parameters()))]
    with jobs.monitor(tmp_path, wg_distribution=True) as monitor:
        monitor.watch(first, optimizers[0]).watch(optimizer=optimizers[1]).watch(second, optimizers[2])
        (first(jobs.batch(0)).sum() + second(jobs.batch(0)).sum()).backward()
        for optimizer in optimizers:
            optimizer.step()
    names = {name for name, _, _ in twice.read(tmp_path / "out", "grad_reduced")}
    assert {"fc1.weight", "fc2.weight"} <= names
    assert {name for name in names if name.startswith("1:")} and not any(n.startswith("2:") for n in names)


def test_an_optimizer_is_compared_with_those_that_are_watched_now() -> None:
    """A replaced optimizer no longer counts."""
    looks = IdleOptimizers()
    stopping, replaced, replacement = (unseen_steps(jobs.make()[1]) for _ in range(3))
    for _ in range(10):
        replaced.optimizer.step()
    assert looks.look([stopping, replaced]) == []
    assert looks.look([stopping, replacement]) == []
    for _ in range(2):
        replacement.optimizer.step()
    assert len(looks.look([stopping, replacement])) == 1


def test_status_and_metrics_print_their_fields(tmp_path: Path) -> None:
    model, optimizer = jobs.make()
    with jobs.monitor(tmp_path, wg_distribution=True, format=["api"]).watch(model, optimizer) as monitor:
        jobs.train(model, optimizer, 2)

        wanted = r"Status\(mode='static', state='on', .*ranks=\[RankStatus\(rank=0, host="
        assert jobs.eventually(lambda: bool(re.match(wanted, repr(monitor.status()), re.DOTALL)))
        metric = repr(monitor.metrics()[0])
    assert metric.startswith("Metric(kind='grad_") and "'norm': " in metric


@pytest.mark.parametrize("explicit", [False, True])
def test_an_optimizer_that_steps_more_often_than_another(
    tmp_path: Path, explicit: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    """From its second step on, each of its steps ends an iteration, and a warning names the slower
    optimizer. `explicit`: the program ends the iterations."""
    often, seldom = mlp(4, 2), mlp(4, 2)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (often, seldom)]
    with jobs.monitor(tmp_path, wg_distribution=True) as monitor:
        for model, optimizer in zip((often, seldom), optimizers):
            monitor.watch(model, optimizer)
        for step in range(6):
            for model, optimizer in zip((often, seldom), optimizers if step % 3 == 2 else optimizers[:1]):
                optimizer.zero_grad()
                model(jobs.batch(step)).sum().backward()
                optimizer.step()
            if explicit:
                monitor.step()
    said = capfd.readouterr().err
    assert ("SGD stepped several times while SGD did not" in said) == (not explicit)
    steps = jobs.steps_of(twice.read(tmp_path / "out", "grad_reduced"))
    assert steps["0.weight"] == [0, 1, 2, 3, 4, 5]
    if explicit:
        assert steps["1:0.weight"] == [2, 5]
    else:  # the slower one's gradients came before it was clear that a new iteration had begun
        assert 3 in steps["1:0.weight"]


def test_each_of_two_monitors_sees_the_calls_of_its_own_model(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """As in adversarial training: both models are called before the first of the two optimizers steps."""
    found = []
    with contextlib.ExitStack() as stack:
        for name in ("generator", "judge"):
            (tmp_path / name).mkdir()
            model, optimizer = jobs.with_sgd(mlp(4, 2))
            monitor = jobs.monitor(tmp_path / name, **jobs.ACTIVATIONS)
            stack.enter_context(monitor.watch(model, optimizer))
            found.append((model, optimizer))
        for step in range(6):
            for model, _ in found:
                model.zero_grad()
                model(jobs.batch(step)).sum().backward()
            for _, optimizer in found:
                optimizer.step()
    assert "no call of the modules" not in capfd.readouterr().err
    for name in ("generator", "judge"):
        assert len(jobs.rows(tmp_path / name / "out", "actv")) == 6 * 8
