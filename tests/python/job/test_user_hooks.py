# SPDX-License-Identifier: Apache-2.0
"""The program's own hooks, made before and after watch(), see and change the same values as without
gradmon."""
from pathlib import Path
from typing import Any, Callable

import jobs
import pytest
import torch
import twice

Say = Callable[..., None]


def net() -> Any:
    layers = {"fc1": torch.nn.Linear(4, 6), "act": torch.nn.Tanh(), "fc2": torch.nn.Linear(6, 2)}
    return jobs.Parts(lambda m, x: m.fc2(m.act(m.fc1(x))), **layers)


def said(say: Say, tensor: torch.Tensor, result: Any) -> Any:
    say(tensor)
    return result


def changed_inputs(model: Any, _: Any, say: Say) -> None:
    model.fc2.register_forward_pre_hook(lambda _, x: said(say, x[0], (x[0] * 1.5,)))


def changed_outputs(model: Any, _: Any, say: Say) -> None:
    model.fc1.register_forward_hook(lambda _, x, y: said(say, y, y * 0.5))


def changed_gradients_of_inputs(model: Any, _: Any, say: Say) -> None:
    model.fc2.register_full_backward_hook(lambda _, g, h: said(say, h[0], (g[0] * 2,)))


def gradients_of_outputs(model: Any, _: Any, say: Say) -> None:
    model.fc2.register_full_backward_pre_hook(lambda _, h: said(say, h[0], (h[0] * 0.5,)))


def changed_gradients_of_activations(model: Any, _: Any, say: Say) -> None:
    def hook(_: Any, x: Any, y: torch.Tensor) -> None:
        if y.requires_grad:
            y.register_hook(lambda g: said(say, g, g * 3))

    model.act.register_forward_hook(hook)


def retained_gradients(model: Any, _: Any, say: Say) -> None:
    def hook(_: Any, x: Any, y: torch.Tensor) -> None:
        y.retain_grad()
        model.fc1.weight.register_hook(lambda g: say(y.grad))

    model.fc1.register_forward_hook(hook)


def changed_gradients_of_parameters(model: Any, _: Any, say: Say) -> None:
    model.fc1.weight.register_hook(lambda g: said(say, g, g * 10))


def of_accumulators(model: Any, _: Any, say: Say) -> None:
    """As in libraries that reduce gradients. The maker of the hook must keep the accumulator alive."""
    accumulator = model.fc1.weight.expand_as(model.fc1.weight).grad_fn.next_functions[0][0]
    accumulator.register_hook(lambda *_: say(model.fc1.weight.grad))
    vars(model).setdefault("accumulators", []).append(accumulator)


def changed_accumulated_gradients(model: Any, _: Any, say: Say) -> None:
    def hook(parameter: torch.Tensor) -> None:
        say(parameter.grad)
        # gradmon reads before such hooks, because frameworks reduce in them.
        vars(model).setdefault("unreduced", parameter.grad.clone())
        parameter.grad.clamp_(-0.01, 0.01)

    model.fc1.weight.register_post_accumulate_grad_hook(hook)


def of_any_module(model: Any, _: Any, say: Say) -> None:
    """A hook of the whole process; clean_up() removes it."""
    register = torch.nn.modules.module.register_module_forward_hook
    handle = register(lambda module, x, y: said(say, y, None))
    vars(model).setdefault("handles", []).append(handle)


def saved_tensors(model: Any, _: Any, say: Say) -> None:
    graph_hooks = torch.autograd.graph.saved_tensors_hooks
    hooks = graph_hooks(lambda x: said(say, x, x), lambda x: said(say, x, x))
    hooks.__enter__()
    vars(model).setdefault("hooks", []).append(hooks)


def of_steps(model: Any, optimizer: Any, say: Say) -> None:
    optimizer.register_step_pre_hook(lambda *_: say(model.fc1.weight))
    optimizer.register_step_post_hook(lambda *_: say(model.fc1.weight))


def clean_up(model: Any) -> None:
    for handle in vars(model).pop("handles", []):
        handle.remove()
    for hooks in reversed(vars(model).pop("hooks", [])):
        hooks.__exit__()


@pytest.mark.parametrize(
    "make",
    [
        changed_inputs,
        changed_outputs,
        changed_gradients_of_inputs,
        gradients_of_outputs,
        changed_gradients_of_activations,
        retained_gradients,
        changed_gradients_of_parameters,
        of_accumulators,
        changed_accumulated_gradients,
        of_any_module,
        saved_tensors,
        of_steps,
    ],
)
def test_user_hooks_see_and_change_the_same_values_as_without_gradmon(
    tmp_path: Path, make: "Callable[[Any, Any, Say], None]"
) -> None:
    def training(noted: twice.Noted, monitor: Any) -> None:
        def say(when: str) -> Say:
            return lambda x: noted.fired.append(f"{when} {float(x.detach().double().sum())!r}")

        def reduced(step: int) -> None:
            noted.gradients(model, step)
            if "unreduced" in vars(model):
                noted.note("grad_unreduced", "fc1.weight", step, vars(model).pop("unreduced"))

        model, optimizer = jobs.with_sgd(net())
        make(model, optimizer, say("before"))
        monitor.watch(model, optimizer)
        make(model, optimizer, say("after"))
        jobs.train(model, optimizer, 3, reduced=reduced)
        monitor.stop()
        jobs.train(model, optimizer, 1)  # the program's hooks are still attached
        clean_up(model)
        noted.end(model, optimizer)

    noted = twice.compare(tmp_path, training)
    for when in ("before", "after") if make is not saved_tensors else ("after",):  # only the last one runs
        assert sum(what.startswith(when) for what in noted.fired) >= 4


@pytest.mark.parametrize("watched_first", [True, False])
def test_hooks_taken_off_in_training_are_off(tmp_path: Path, watched_first: bool) -> None:
    def training(noted: twice.Noted, monitor: Any) -> None:
        def remove(step: int) -> None:
            for handle in handles if step == 1 else ():
                handle.remove()

        model, optimizer = jobs.with_sgd(net())
        if watched_first:
            monitor.watch(model, optimizer)
        handles = [
            model.fc1.register_forward_hook(noted.fire("forward")),
            model.fc1.register_forward_pre_hook(noted.fire("pre")),
            model.fc1.weight.register_hook(noted.fire("weight")),
        ]
        if not watched_first:
            monitor.watch(model, optimizer)
        jobs.train(model, optimizer, 4, remove, reduced=lambda step: noted.gradients(model, step))
        noted.stop(monitor, model, optimizer)

    noted = twice.compare(tmp_path, training)
    assert noted.fired == ["pre", "forward", "weight"] * 2
