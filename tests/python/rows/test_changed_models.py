# SPDX-License-Identifier: Apache-2.0
"""A model that changes after watch(): from the next collected step on, rows are of the changed model."""
from pathlib import Path
from typing import Any, Callable

import jobs
import pytest
import torch
import twice


AFTER = 2  # the model is changed after this many steps, when the next one has begun
STEPS = 5
Change = Callable[[torch.nn.Module, torch.optim.Optimizer], None]


def updates(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Gives the optimizer the model's new parameters, as the program must."""
    optimizer.param_groups[0]["params"] = list(model.parameters())


def replace_a_layer(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model.fc2 = torch.nn.Linear(6, 3)
    updates(model, optimizer)


def replace_a_parameter(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model.fc2.weight = torch.nn.Parameter(torch.full((2, 6), 0.25))
    updates(model, optimizer)


def add_a_layer(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model.act = torch.nn.Sequential(torch.nn.Tanh(), torch.nn.Linear(6, 6))
    updates(model, optimizer)


def drop_a_bias(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model.fc2.bias = None
    updates(model, optimizer)


def drop_a_bias_that_the_optimizer_keeps(model: torch.nn.Module, _: torch.optim.Optimizer) -> None:
    model.fc2.bias = None


def double(model: torch.nn.Module, _: torch.optim.Optimizer) -> None:
    model.double()


def load(model: torch.nn.Module, _: torch.optim.Optimizer) -> None:
    """Keeps the tensors and changes their values."""
    torch.manual_seed(99)
    for parameter in model.parameters():
        parameter.data = torch.randn_like(parameter)


@pytest.mark.parametrize(
    "change",
    [
        replace_a_layer,
        replace_a_parameter,
        add_a_layer,
        drop_a_bias,
        drop_a_bias_that_the_optimizer_keeps,
        double,
        load,
    ],
)
@pytest.mark.parametrize("explicit", [False, True], ids=["by_optimizer", "by_program"])
def test_rows_are_of_the_parameters_of_the_model(tmp_path: Path, change: Change, explicit: bool) -> None:
    """`explicit`: the program changes the model before it ends the step."""

    def training(noted: twice.Noted, monitor: Any) -> None:
        model = jobs.make_net()
        del model.spare
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        monitor.watch(model, optimizer)
        model.register_forward_pre_hook(lambda _, x: (x[0].to(model.fc1.weight.dtype),))

        def reduced(step: int) -> None:
            noted.gradients(model, step)
            noted.weights(model, step, "param_origin")

        def updated(step: int) -> None:
            noted.weights(model, step, "param_updated")
            if step + 1 == AFTER:
                change(model, optimizer)
            if explicit:
                monitor.step()

        jobs.train(model, optimizer, STEPS, updated, reduced)
        noted.stop(monitor, model, optimizer)

    plain = twice.both(tmp_path, training)
    for kind, tensors in plain.tensors.items():
        found = twice.read(tmp_path / "out", kind)
        if not explicit:  # that step may lack rows of new parameters, and have rows of removed ones
            both = {key for key in found.keys() | tensors.keys() if key[1] != AFTER}
            both |= found.keys() & tensors.keys()
            found = {key: row for key, row in found.items() if key in both}
            tensors = {key: tensor for key, tensor in tensors.items() if key in both}
        twice.check_rows(found, tensors, kind)


@pytest.mark.parametrize("change", [replace_a_layer, add_a_layer])
def test_activations_are_of_the_layers_that_the_model_has(tmp_path: Path, change: Change) -> None:
    def training(noted: twice.Noted, monitor: Any) -> None:
        model, optimizer = jobs.make()
        monitor.watch(model, optimizer)
        for step in range(STEPS):
            optimizer.zero_grad()
            output = model(jobs.batch(step))
            noted.note("actv", "fc2.output", step, output)
            output.pow(2).mean().backward()
            optimizer.step()
            if step + 1 == AFTER:
                change(model, optimizer)
            monitor.step()
        noted.stop(monitor, model, optimizer)

    plain = twice.both(tmp_path, training)
    found = twice.read(tmp_path / "out", "actv")
    of_output = {key: row for key, row in found.items() if key[0] == "fc2.output"}
    twice.check_rows(of_output, plain.tensors["actv"], "actv")
    if change is add_a_layer:
        assert {step for name, step, _ in found if name == "act.1.output"} == set(range(AFTER, STEPS))


# --- parameters whose shape changes ---


KEYS: "dict[str, Any]" = {**jobs.GRADIENTS, "mv_distribution": True, **jobs.ACTIVATIONS}


def train(
    tmp_path: Path, model: torch.nn.Module, before: Callable[[int], Any], explicit: bool = False, **keys: Any
) -> "dict[str, list[int]]":
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with jobs.monitor(tmp_path, **KEYS, **keys).watch(model, optimizer) as monitor:

        def each(step: int) -> None:
            before(step + 1)
            if explicit:
                monitor.step()

        jobs.train(model, optimizer, 6, each)
    return jobs.steps_of(jobs.rows(tmp_path / "out", "grad_unreduced"))


def test_a_lazy_layer_is_watched_once_it_has_a_shape(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.LazyLinear(5), torch.nn.Linear(5, 2))
    steps = train(tmp_path, model, lambda _: None)
    assert steps["1.weight"] == [0, 1, 2, 3, 4, 5]
    assert steps["0.weight"] == [0, 1, 2, 3, 4, 5]
    reduced = jobs.rows(tmp_path / "out", "grad_reduced")
    assert reduced and reduced == jobs.rows(tmp_path / "out", "grad_unreduced")


def test_another_shape_while_nothing_is_collected(tmp_path: Path) -> None:
    model, optimizer = jobs.with_sgd(torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Linear(5, 2)))
    monitor = jobs.monitor(tmp_path, **KEYS, step_interval=6).watch(model, optimizer)

    def between(step: int) -> None:
        if step == 1:
            monitor.set("ops", ["norm"])  # hooks are attached again in a step that is not collected
        if step == 3:
            grow(model)
            optimizer.zero_grad(set_to_none=True)

    jobs.train(model, optimizer, 7, between)
    monitor.stop()
    assert jobs.steps_of(jobs.rows(tmp_path / "out", "grad_unreduced"))["0.weight"] == [0, 6]


def grow(model: torch.nn.Sequential) -> None:
    with torch.no_grad():
        model[0].weight.data, model[0].bias.data = torch.ones(7, 4), torch.zeros(7)
        model[1].weight.data = torch.ones(2, 7)


@pytest.mark.parametrize("explicit, interval", [(True, 1), (False, 3)])
def test_another_shape_before_the_end_of_a_collected_step(
    tmp_path: Path, explicit: bool, interval: int
) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Linear(5, 2))
    at = 2 if explicit else 1
    steps = train(
        tmp_path, model, lambda step: grow(model) if step == at else None, explicit, step_interval=interval
    )
    assert steps["0.weight"] == list(range(0, 6, interval))
    assert jobs.rows(tmp_path / "out", "grad_unreduced")["0.weight", 3, 0]["zeros"] < 1
