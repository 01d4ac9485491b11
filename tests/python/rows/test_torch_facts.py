# SPDX-License-Identifier: Apache-2.0
"""What torch itself does with gradients, forward calls, optimizers and DistributedDataParallel, in each
supported version; hooks/TORCH.md lists it. Plain torch: no test here needs gradmon."""
import datetime
import warnings
from typing import Any, Callable

import pytest
import ranks
import torch
from torch import nn
from torch.distributed import TCPStore
from torch.utils.checkpoint import checkpoint


VERSION = tuple(int(part) for part in torch.__version__.split("+")[0].split("a")[0].split(".")[:2])


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
    weight.register_post_accumulate_grad_hook(say("accumulated"))
    accumulator.register_prehook(say("pre-hook"))
    weight.register_hook(say("tensor"))
    (weight * 2).sum().backward()
    assert said == ["tensor before", "pre-hook before", "accumulated after", "post-hook after"]


def test_a_post_hook_gets_the_gradient_of_this_backward_alone() -> None:
    weight = nn.Parameter(torch.ones(2))
    accumulator = accumulator_of(weight)
    weight.register_hook(lambda gradient: gradient * 10)
    given: "list[float]" = []
    accumulator.register_hook(lambda _, inputs: given.append(inputs[0][0].item()))
    for _ in range(2):
        (weight * 2).sum().backward()
    assert given == [20.0, 20.0]  # after the user's hook
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


def data_of_another_type(module: nn.Linear) -> None:
    module.weight.data = torch.zeros(2, 2, dtype=torch.double)
    module.bias.data = module.bias.data.double()


def assigned_state(module: nn.Linear) -> None:
    state = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    module.load_state_dict(state, assign=True)


# A change of a layer, whether the layer keeps its parameter, and whether that keeps its accumulator.
CHANGES: "dict[str, tuple[Callable[[nn.Linear], object], bool, bool]]" = {
    "to_double": (lambda layer: layer.double(), True, False),
    "to_bfloat16_and_back": (lambda layer: layer.bfloat16().float(), True, False),
    "data_of_another_type": (data_of_another_type, True, False),
    "other_data": (lambda layer: setattr(layer.weight, "data", torch.zeros(2, 2)), True, True),
    "frozen_for_a_while": (lambda layer: layer.requires_grad_(False).requires_grad_(True), True, True),
    "assigned_state": (assigned_state, False, False),
}


@pytest.mark.parametrize("name", CHANGES)
def test_which_changes_replace_an_accumulator(name: str) -> None:
    change, keeps_parameter, keeps_accumulator = CHANGES[name]
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


def test_zero_grad_leaves_none() -> None:
    module = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for zero_grad in (module.zero_grad, optimizer.zero_grad):
        module(torch.ones(1, 2)).sum().backward()
        zero_grad()
        assert module.weight.grad is None


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
    assert (len(given), len(of_tensor)) == (0, 1)  # autograd.grad() accumulates nothing
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
    assert torch.equal(seen[1], after.grad)


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


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_recomputation_runs_inside_a_pass_of_backward(reentrant: bool) -> None:
    seen: "list[tuple[bool, bool, bool]]" = []  # in a pass of backward, gradients are on, input is a leaf

    def part(x: torch.Tensor) -> torch.Tensor:
        seen.append((torch._C._current_graph_task_id() >= 0, torch.is_grad_enabled(), x.is_leaf))
        return x.sin()

    checkpoint(part, torch.ones(2, requires_grad=True) * 2, use_reentrant=reentrant).sum().backward()
    assert seen == [(False, not reentrant, False), (True, True, reentrant)]


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
    fired, graphs = hook_counts(small_net(), backend)
    assert fired == ["accumulator", "accumulator", "wrapper", "accumulator"]
    assert graphs == [1, 1, 1, 1]  # no hook causes a recompilation


def test_compiled_autograd_runs_the_programs_hooks_of_accumulators() -> None:
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


# --- optimizers ---


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


def test_torch_has_step_hooks_for_its_own_classes_and_derived_ones() -> None:
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
        lambda: with_step_hooks(optimizer, said),
    ]
    made = [maker() for maker in (makers if scheduler_first else reversed(makers))]
    scheduler = made[0 if scheduler_first else 1]
    backward(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the scheduler warns about a step that it does not see
        optimizer.step()
        scheduler.step()
    assert said == ["before", "after"]


def test_a_scheduler_replaces_step_and_wraps_bound_methods_only() -> None:
    _, optimizer = make()
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    assert "step" in vars(optimizer) and hasattr(optimizer.step, "_wrapped_by_lr_sched")
    _, optimizer = make()
    original = optimizer.step
    optimizer.step = lambda *arguments: original(*arguments)
    with pytest.raises(AttributeError, match="'function' object has no attribute"):
        torch.optim.lr_scheduler.StepLR(optimizer, 1)


def test_the_pre_hook_of_a_step_comes_before_all_calls_of_a_closure() -> None:
    model, optimizer = make(torch.optim.LBFGS, max_iter=3)
    said: "list[str]" = []
    with_step_hooks(optimizer, said)

    def closure() -> torch.Tensor:
        said.append("closure")
        optimizer.zero_grad()
        return backward(model)

    optimizer.step(closure)
    assert said.count("closure") >= 2
    # The gradients that the pre-hook sees are not those of the update.
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


def test_sgd_reads_grad_scale_in_its_own_step() -> None:
    read: "list[int]" = []

    class Scaled(torch.optim.SGD):
        @property
        def grad_scale(self) -> None:
            read.append(1)

    model, optimizer = make(Scaled)
    backward(model)
    optimizer.step()
    assert len(read) == 1 or (not read and VERSION < (2, 13))


def scaled_steps(fused: bool) -> "list[tuple[bool, bool, bool]]":
    """Three iterations, the second without a finite gradient: whether the pre-hook of the step ran, whether
    it saw the scaled gradient, and whether the weights changed."""
    model, optimizer = make(torch.optim.AdamW, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
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
    assert scaled_steps(fused=False) == [(True, False, True), (False, False, False), (True, False, True)]
    assert scaled_steps(fused=True) == [(True, True, True), (True, True, False), (True, True, True)]


# --- two ranks with gloo ---


@pytest.fixture(scope="module")
def found(tmp_path_factory: Any) -> "list[Any]":
    """What each rank found."""
    return ranks.reports(tmp_path_factory.mktemp("facts"), "import ddp_facts; ddp_facts.main()")


def alike(found: "list[Any]", part: str) -> "dict[str, Any]":
    assert found[0][part] == found[1][part]
    return dict(found[0][part])


@pytest.mark.parametrize("mode", ["views", "accumulated", "static graph"])
def test_ddp_changes_views_in_a_post_hook_of_the_accumulator(found: "list[Any]", mode: str) -> None:
    """A post-hook made after DDP reads a gradient that DDP has divided already."""
    read = alike(found, "hooks")
    assert read[f"{mode}, hooks first"] == {"node": "own", "tensor": "own"}
    assert read[f"{mode}, hooks last"] == {"node": "changed", "tensor": "own"}


@pytest.mark.parametrize("order", ["first", "last"])
def test_without_views_ddp_writes_gradients_after_all_hooks(found: "list[Any]", order: str) -> None:
    assert alike(found, "hooks")[f"copies, hooks {order}"] == {"node": "own", "tensor": "own"}


def test_a_static_graph_and_no_sync_in_its_first_steps_end_in_an_error(found: "list[Any]") -> None:
    error = alike(found, "hooks")["static graph, accumulated"]
    assert "expect_autograd_hooks_ INTERNAL ASSERT FAILED" in error


def test_the_reducer_in_python_reduces_before_any_post_hook_of_the_accumulator(found: "list[Any]") -> None:
    """It is a post-accumulate hook of the tensor; torch._dynamo.config.optimize_ddp switches it on."""
    read = alike(found, "hooks")
    if VERSION < (2, 13):
        assert read["reducer in Python, hooks first"] == {"node": "own", "tensor": "own"}
        assert read["reducer in Python, hooks last"] == {"node": "own", "tensor": "own"}
        return
    assert read["reducer in Python, hooks first"] == {"node": "changed", "tensor": "own"}
    assert read["reducer in Python, hooks last"] == {"node": "changed", "tensor": "changed"}


def test_which_collectives_gloo_has_and_whose_work_has_a_future(found: "list[Any]") -> None:
    outcome = alike(found, "collectives")
    assert outcome["all_reduce"] == "future, completed"
    assert outcome["all_gather_into_tensor"] == "future, completed"
    assert outcome["point to point"] == "no future, completed"
    for name in ("reduce_scatter_tensor", "reduce_scatter"):
        if VERSION >= (2, 13):
            assert outcome[name] == "no future, never completed"  # not even after wait()


def test_a_sharded_optimizer_keeps_its_moments_in_the_inner_one(found: "list[Any]") -> None:
    sharded = [of_rank["sharded"] for of_rank in found]
    assert [of_rank["outer"] for of_rank in sharded] == [0, 0]
    assert all(of_rank["held"] for of_rank in sharded)
    assert sorted(sharded[0]["held"] + sharded[1]["held"]) == ["0.bias", "0.weight", "1.bias", "1.weight"]
    for of_rank in sharded:
        assert of_rank["said"] == ["outer", "inner"]


@pytest.mark.parametrize("name", ["allreduce_", "broadcast_", "reduce_scatter_"])
def test_arguments_of_collectives_have_names(name: str) -> None:
    (schema,) = torch._C._jit_get_schemas_for_operator("c10d::" + name)
    names = [argument.name for argument in schema.arguments]
    assert "process_group" in names and names[-1] == "timeout"
    if VERSION >= (2, 13):
        assert names[-2] == "async_op"


def test_a_store_by_tcp_is_served_by_libuv_in_the_wheel() -> None:
    store = TCPStore("127.0.0.1", 0, 1, True, datetime.timedelta(seconds=60), **ranks.STORE_OPTIONS)
    store.set("key", "value")
    assert store.get("key") == b"value"
    assert getattr(store, "libuvBackend", False) == (VERSION >= (2, 13))
