# SPDX-License-Identifier: Apache-2.0
"""What torch itself does with gradients and forward calls, in each supported version; hooks/TORCH.md
lists it. Plain torch: no test here needs gradmon."""
import inspect
import warnings
from typing import Any, Callable

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

VERSION = tuple(int(part) for part in torch.__version__.split("+")[0].split("a")[0].split(".")[:2])
TORCH_2 = VERSION >= (2, 0)


def accumulator_of(parameter: torch.Tensor) -> Any:
    return parameter.view_as(parameter).grad_fn.next_functions[0][0]


def small_net() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(2, 2), nn.ReLU(inplace=True), nn.Linear(2, 1))


def test_a_post_hook_of_the_accumulator_runs_after_everything_else() -> None:
    weight = nn.Parameter(torch.ones(2))
    accumulator = accumulator_of(weight)
    said: "list[str]" = []

    def say(what: str) -> Callable[..., None]:
        return lambda *_: said.append(what + (" before" if weight.grad is None else " after"))

    accumulator.register_hook(say("post-hook"))
    if TORCH_2:
        weight.register_post_accumulate_grad_hook(say("accumulated"))
    accumulator.register_prehook(say("pre-hook"))
    weight.register_hook(say("tensor"))
    (weight * 2).sum().backward()
    if TORCH_2:
        assert said == ["tensor before", "pre-hook before", "accumulated after", "post-hook after"]
    else:  # in the order in which they were made
        assert said == ["pre-hook before", "tensor before", "post-hook after"]


def test_a_post_hook_gets_the_gradient_of_this_backward_alone() -> None:
    weight = nn.Parameter(torch.ones(2))
    accumulator = accumulator_of(weight)
    weight.register_hook(lambda gradient: gradient * 10)
    given: "list[float]" = []
    accumulator.register_hook(lambda _, inputs: given.append(inputs[0][0].item()))
    for _ in range(2):
        (weight * 2).sum().backward()
    assert given == ([20.0, 20.0] if TORCH_2 else [2.0, 2.0])  # after the user's hook, or before it
    assert weight.grad is not None and weight.grad.tolist() == [40.0, 40.0]


def test_the_first_gradient_of_a_step_is_kept_and_not_copied() -> None:
    weight = nn.Parameter(torch.ones(2))
    accumulator = accumulator_of(weight)
    same: "list[bool]" = []
    accumulator.register_hook(lambda _, given: same.append(given[0].data_ptr() == weight.grad.data_ptr()))
    for _ in range(2):
        (weight * weight).sum().backward()
    assert same == [True, False]  # what a hook keeps of the first one changes with the second


def test_a_parameter_holds_its_accumulator_weakly() -> None:
    weight = nn.Parameter(torch.ones(2))
    fired: "list[str]" = []
    accumulator_of(weight).register_hook(lambda *_: fired.append("lost"))
    held = accumulator_of(weight)
    held.register_hook(lambda *_: fired.append("held"))
    (weight * 2).sum().backward()
    assert fired == ["held"]


def to_double(module: nn.Linear) -> None:
    module.double()


def to_bfloat16_and_back(module: nn.Linear) -> None:
    module.bfloat16().float()


def other_data(module: nn.Linear) -> None:
    module.weight.data = torch.zeros(2, 2)


def data_of_another_type(module: nn.Linear) -> None:
    module.weight.data = torch.zeros(2, 2, dtype=torch.double)
    module.bias.data = module.bias.data.double()


def frozen_for_a_while(module: nn.Linear) -> None:
    module.requires_grad_(False).requires_grad_(True)


def assigned_state(module: nn.Linear) -> None:
    state = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    module.load_state_dict(state, **({"assign": True} if VERSION >= (2, 1) else {}))


@pytest.mark.parametrize(
    "change, keeps_parameter, keeps_accumulator",
    [
        (to_double, True, False),
        (to_bfloat16_and_back, True, False),
        (data_of_another_type, True, False),
        (other_data, True, True),
        (frozen_for_a_while, True, True),
        (assigned_state, VERSION < (2, 1), VERSION < (2, 1)),  # earlier torch only copies the values
    ],
)
def test_which_changes_replace_an_accumulator(
    change: "Callable[[nn.Linear], None]", keeps_parameter: bool, keeps_accumulator: bool
) -> None:
    module = nn.Linear(2, 2)
    weight, accumulator = module.weight, accumulator_of(module.weight)
    fired: "list[int]" = []
    accumulator.register_hook(lambda *_: fired.append(1))
    change(module)
    assert (module.weight is weight) == keeps_parameter
    assert (accumulator_of(module.weight) is accumulator) == keeps_accumulator
    module(torch.ones(1, 2, dtype=module.weight.dtype)).sum().backward()
    assert len(fired) == keeps_accumulator  # no error says that the hook is gone


def test_a_shape_that_changes_under_a_held_accumulator_is_an_error() -> None:
    module = nn.Linear(2, 2)
    accumulator = accumulator_of(module.weight)
    module.weight.data, module.bias.data = torch.zeros(3, 2), torch.zeros(3)
    with pytest.raises(RuntimeError, match="invalid gradient"):
        module(torch.ones(1, 2)).sum().backward()
    del accumulator
    module(torch.ones(1, 2)).sum().backward()
    assert module.weight.grad is not None and module.weight.grad.shape == (3, 2)


def test_zero_grad_leaves_none_from_torch_2_on() -> None:
    module = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for zero_grad in (module.zero_grad, optimizer.zero_grad):
        module(torch.ones(1, 2)).sum().backward()
        zero_grad()
        assert (module.weight.grad is None) == TORCH_2


def test_an_exception_of_a_hook_leaves_backward() -> None:
    weight = nn.Parameter(torch.ones(2))
    accumulator = accumulator_of(weight)

    def failing(*_: Any) -> None:
        raise ValueError("of the hook")

    accumulator.register_hook(failing)
    with pytest.raises(ValueError, match="of the hook"):
        (weight * 2).sum().backward()


def test_which_passes_run_the_hooks_of_an_accumulator() -> None:
    class NoGradient(torch.autograd.Function):
        @staticmethod
        def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(_: Any, *__: Any) -> None:
            return None

    weight = nn.Parameter(torch.ones(2))
    accumulator = accumulator_of(weight)
    given: "list[Any]" = []
    of_tensor: "list[int]" = []
    accumulator.register_hook(lambda _, inputs: given.append(inputs[0]))
    weight.register_hook(lambda _: of_tensor.append(1))
    torch.autograd.grad((weight * 2).sum(), weight)
    # autograd.grad() accumulates nothing; from torch 2 on it runs the hooks of the tensor.
    assert (len(given), len(of_tensor)) == (0, int(TORCH_2))
    NoGradient.apply(weight).sum().backward()
    assert given == [None] and weight.grad is None  # a pass may deliver nothing and still run the hook


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_tied_weight_is_delivered_once_for_each_graph(reentrant: bool) -> None:
    first, second = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
    second.weight = first.weight
    accumulator = accumulator_of(first.weight)
    seen: "list[torch.Tensor]" = []
    accumulator.register_hook(lambda *_: seen.append(first.weight.grad.clone()))
    x = torch.ones(1, 2, requires_grad=True)
    checkpoint(second, first(x), use_reentrant=reentrant).sum().backward()
    assert len(seen) == (2 if reentrant else 1)
    assert torch.equal(seen[-1], first.weight.grad)


def test_a_bfloat16_parameter_may_gather_a_float32_gradient() -> None:
    weight = nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
    if not hasattr(weight, "grad_dtype"):
        assert VERSION < (2, 13)
        return
    weight.grad_dtype = torch.float32
    accumulator = accumulator_of(weight)
    given: "list[torch.dtype]" = []
    accumulator.register_hook(lambda _, inputs: given.append(inputs[0].dtype))
    (weight.float() * 2).sum().backward()
    assert given == [torch.float32] and weight.grad is not None and weight.grad.dtype == torch.float32


def test_tensor_hooks_around_a_module_in_place() -> None:
    model = small_net()
    seen: "dict[int, torch.Tensor]" = {}
    for index in (0, 1):

        def hook(_: Any, __: Any, output: torch.Tensor, index: int = index) -> None:
            output.register_hook(lambda gradient: seen.__setitem__(index, gradient.clone()))

        model[index].register_forward_hook(hook)
    x = torch.tensor([[1.0, -2.0]])
    model(x).sum().backward()
    before = nn.functional.linear(x, model[0].weight, model[0].bias)
    before.retain_grad()
    after = torch.relu(before)
    after.retain_grad()
    model[2](after).sum().backward()
    assert before.grad is not None and after.grad is not None and not torch.equal(before.grad, after.grad)
    assert torch.equal(seen[0], before.grad)
    assert torch.equal(seen[1], after.grad) == TORCH_2  # 1.13 gives the second hook the gradient before


def test_full_backward_hooks_refuse_modules_in_place() -> None:
    for index in (0, 1):
        model = small_net()
        model[index].register_full_backward_hook(lambda *_: None)
        with pytest.raises(RuntimeError, match="modified inplace"):
            model(torch.ones(1, 2)).sum().backward()


def test_a_full_backward_hook_gets_the_gradient_through_its_module() -> None:
    layer = nn.Linear(2, 2, bias=False)
    seen: "list[Any]" = []
    layer.register_full_backward_hook(lambda _, inputs, __: seen.append(inputs[0]))
    x = torch.ones(1, 2, requires_grad=True)
    (x + layer(x)).sum().backward()
    through = torch.ones(1, 2) @ layer.weight
    assert torch.allclose(seen[0], through) and torch.allclose(x.grad, through + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # 2.13 warns that no input needs a gradient
        layer(torch.ones(1, 2)).sum().backward()
    assert seen[1] is None


def test_a_module_in_place_has_overwritten_its_input_when_forward_hooks_run() -> None:
    module = nn.ReLU(inplace=True)
    seen: "list[list[float]]" = []
    module.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].tolist()))
    module.register_forward_hook(lambda _, inputs, __: seen.append(inputs[0].tolist()))
    module(torch.tensor([-1.0, 1.0]))
    assert seen == [[-1.0, 1.0], [0.0, 1.0]]
    assert ("with_kwargs" in inspect.signature(module.register_forward_pre_hook).parameters) == TORCH_2


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_recomputation_runs_inside_a_pass_of_backward(reentrant: bool) -> None:
    task = getattr(torch._C, "_current_graph_task_id", None)
    assert (task is not None) == TORCH_2  # 1.13 has it in C++ only
    seen: "list[tuple[bool, bool, bool]]" = []  # in a pass of backward, gradients are on, input is a leaf

    def part(x: torch.Tensor) -> torch.Tensor:
        seen.append((task is not None and task() >= 0, torch.is_grad_enabled(), x.is_leaf))
        return x.sin()

    checkpoint(part, torch.ones(2, requires_grad=True) * 2, use_reentrant=reentrant).sum().backward()
    assert seen == [(False, not reentrant, False), (TORCH_2, True, reentrant)]


def test_cpu_autocast_keeps_float32_gradients_and_casts_a_weight_once() -> None:
    layer = nn.Linear(2, 2, bias=False)
    accumulator = accumulator_of(layer.weight)
    given: "list[torch.dtype]" = []
    accumulator.register_hook(lambda _, inputs: given.append(inputs[0].dtype))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = layer(layer(torch.ones(1, 2)))
    output.float().sum().backward()
    assert output.dtype == torch.bfloat16 and given == [torch.float32]


def hook_counts(model: nn.Module, backend: str) -> "tuple[list[str], list[int]]":
    """What fired in five calls of the compiled model, while hooks were added, and the graphs so far."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    fired: "list[str]" = []
    graphs: "list[int]" = []

    def call() -> None:
        compiled(torch.ones(3, 2)).sum().backward()
        graphs.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])

    call()
    accumulator = accumulator_of(model[0].weight)
    accumulator.register_hook(lambda *_: fired.append("accumulator"))
    call()
    model[0].register_forward_hook(lambda *_: fired.append("inside"))
    call()
    compiled.register_forward_hook(lambda *_: fired.append("wrapper"))
    call()
    return fired, graphs


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_model_runs_hooks_of_accumulators_and_of_its_wrapper_only(backend: str) -> None:
    if not TORCH_2:
        assert not hasattr(torch, "compile")
        return
    fired, graphs = hook_counts(small_net(), backend)
    assert fired == ["accumulator", "accumulator", "wrapper", "accumulator"]
    assert graphs == [1, 1, 1, 1]  # no hook causes a recompilation


def test_compiled_autograd_runs_the_programs_hooks_of_accumulators() -> None:
    if not TORCH_2:
        assert not hasattr(torch, "compile")
        return
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    model = small_net()
    accumulator = accumulator_of(model[0].weight)
    fired: "list[str]" = []
    accumulator.register_hook(lambda *_: fired.append("post-hook"))
    model[0].weight.register_post_accumulate_grad_hook(lambda _: fired.append("accumulated"))
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
        model(torch.ones(3, 2)).sum().backward()
    assert torch._dynamo.utils.counters["compiled_autograd"]["captures"] == 1
    assert fired == ["accumulated", "post-hook"]
