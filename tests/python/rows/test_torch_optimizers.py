# SPDX-License-Identifier: Apache-2.0
"""What torch itself does around an optimizer's step, in each supported version; hooks/TORCH.md lists it.
Plain torch: no test here needs gradmon."""
import warnings
from typing import Any, Callable

import pytest
import torch

VERSION = tuple(int(part) for part in torch.__version__.split("+")[0].split("a")[0].split(".")[:2])
TORCH_2 = VERSION >= (2, 0)
HAS_STEP_HOOKS = hasattr(torch.optim.Optimizer, "register_step_pre_hook")
GRAD_SCALER = getattr(torch.amp, "GradScaler", None)


def make(kind: Any = torch.optim.SGD, **options: Any) -> "tuple[torch.nn.Module, Any]":
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 2)
    return model, kind(model.parameters(), lr=0.1, **options)


def backward(model: torch.nn.Module) -> torch.Tensor:
    loss = model(torch.ones(1, 2)).pow(2).mean()
    loss.backward()
    return loss


def with_step_hooks(optimizer: Any, said: "list[str]") -> None:
    optimizer.register_step_pre_hook(lambda *_: said.append("before"))
    optimizer.register_step_post_hook(lambda *_: said.append("after"))


class Own(torch.optim.Optimizer):
    def __init__(self, parameters: Any, lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    def step(self, closure: Any = None) -> None:
        return None


class Derived(torch.optim.SGD):
    def step(self, closure: Any = None) -> Any:
        return super().step(closure)


def test_torch_2_has_step_hooks_for_its_own_classes_and_derived_ones() -> None:
    assert HAS_STEP_HOOKS == TORCH_2
    if not HAS_STEP_HOOKS:
        return
    make()  # torch hooks a class when its first instance is made
    # A step that calls the step of its base class runs the hooks twice.
    for kind, passes in ((torch.optim.SGD, 1), (Own, 1), (Derived, 2)):
        model, optimizer = make(kind)
        said: "list[str]" = []
        with_step_hooks(optimizer, said)
        backward(model)
        optimizer.step()
        assert said == ["before"] * passes + ["after"] * passes


@pytest.mark.parametrize("scheduler_first", [True, False])
def test_step_hooks_and_schedulers_come_in_any_order(scheduler_first: bool) -> None:
    model, optimizer = make()
    said: "list[str]" = []
    makers: "list[Callable[[], Any]]" = [
        lambda: torch.optim.lr_scheduler.StepLR(optimizer, 1),
        lambda: with_step_hooks(optimizer, said) if HAS_STEP_HOOKS else None,
    ]
    made = [maker() for maker in (makers if scheduler_first else reversed(makers))]
    scheduler = made[0 if scheduler_first else 1]
    backward(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the scheduler warns about a step that it does not see
        optimizer.step()
        scheduler.step()
    assert said == (["before", "after"] if HAS_STEP_HOOKS else [])


def test_a_scheduler_replaces_step_and_wraps_bound_methods_only() -> None:
    _, optimizer = make()
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    marked = "_wrapped_by_lr_sched" if TORCH_2 else "_with_counter"
    assert "step" in vars(optimizer) and hasattr(optimizer.step, marked)
    _, optimizer = make()
    original = optimizer.step
    optimizer.step = lambda *arguments: original(*arguments)
    with pytest.raises(AttributeError, match="'function' object has no attribute"):
        torch.optim.lr_scheduler.StepLR(optimizer, 1)


def test_the_pre_hook_of_a_step_comes_before_all_calls_of_a_closure() -> None:
    model, optimizer = make(torch.optim.LBFGS, max_iter=3)
    said: "list[str]" = []
    if HAS_STEP_HOOKS:
        with_step_hooks(optimizer, said)

    def closure() -> torch.Tensor:
        said.append("closure")
        optimizer.zero_grad()
        return backward(model)

    optimizer.step(closure)
    assert said.count("closure") >= 2
    if HAS_STEP_HOOKS:  # so the gradients that it sees are not those of the update
        assert said[0] == "before" and said[-1] == "after" and said.count("before") == 1


def test_the_state_of_each_optimizer_has_these_names() -> None:
    names = {
        "SGD": {"momentum_buffer"},
        "Adam": {"step", "exp_avg", "exp_avg_sq"},
        "AdamW": {"step", "exp_avg", "exp_avg_sq"},
        "NAdam": {"step", "exp_avg", "exp_avg_sq", "mu_product"},
        "RAdam": {"step", "exp_avg", "exp_avg_sq"},
        "Adamax": {"step", "exp_avg", "exp_inf"},
        "RMSprop": {"step", "square_avg"},
        "Adagrad": {"step", "sum"},
        "Adadelta": {"step", "square_avg", "acc_delta"},
        "Adafactor": {"step", "row_var", "col_var"},
        "Muon": {"momentum_buffer"},
    }
    assert hasattr(torch.optim, "Muon") or VERSION < (2, 13)
    for name, expected in names.items():
        if not hasattr(torch.optim, name):
            continue
        model = torch.nn.Linear(2, 2, bias=False)  # Muon takes matrices only
        momentum = {"momentum": 0.9} if name == "SGD" else {}
        optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.1, **momentum)
        backward(model)
        optimizer.step()
        state = optimizer.state[model.weight]
        assert {key for key, value in state.items() if value is not None} == expected, name


def test_sgd_reads_grad_scale_in_its_own_step_from_torch_2_on() -> None:
    read: "list[int]" = []

    class Scaled(torch.optim.SGD):
        @property
        def grad_scale(self) -> None:
            read.append(1)

    model, optimizer = make(Scaled)
    backward(model)
    optimizer.step()
    if VERSION in ((1, 13), (2, 13)):
        assert len(read) == TORCH_2
    else:
        assert len(read) <= 1


def scaled_steps(fused: bool) -> "list[tuple[bool, bool, bool]]":
    """Three iterations, the second without a finite gradient: whether the pre-hook of the step ran, whether
    it saw the scaled gradient, and whether the weights changed."""
    assert GRAD_SCALER is not None
    model, optimizer = make(torch.optim.AdamW, fused=fused)
    scaler = GRAD_SCALER("cpu", init_scale=1024.0)
    norms: "list[float]" = []
    optimizer.register_step_pre_hook(lambda *_: norms.append(float(model.weight.grad.norm())))
    found = []
    for factor in (1.0, float("inf"), 1.0):
        norms.clear()
        optimizer.zero_grad()
        before = model.weight.detach().clone()
        (own,) = torch.autograd.grad(model(torch.ones(1, 2)).pow(2).mean(), [model.weight])
        scaler.scale(model(torch.ones(1, 2)).pow(2).mean() * factor).backward()
        scaler.step(optimizer)
        scaler.update()
        scaled = bool(norms) and norms[0] > 100 * float(own.norm())
        found.append((bool(norms), scaled, not torch.equal(before, model.weight)))
        assert not hasattr(optimizer, "grad_scale") and not hasattr(optimizer, "found_inf")
    return found


def test_a_grad_scaler_leaves_the_step_out_unless_the_optimizer_is_fused() -> None:
    if GRAD_SCALER is None:
        assert VERSION < (2, 3)  # only torch.cuda's, which disables itself without a GPU
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert not torch.cuda.amp.GradScaler().is_enabled()
        return
    assert scaled_steps(fused=False) == [(True, False, True), (False, False, False), (True, False, True)]
    assert scaled_steps(fused=True) == [(True, True, True), (True, True, False), (True, True, True)]
