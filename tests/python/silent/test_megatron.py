# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for Megatron: CUDA graphs of a step, whose replays call no hook; weight shards (GTP) beside
tensor parallelism; layer-wise optimizers. frameworks/test_megatron.py has Megatron's own classes."""
import contextlib
import gc
import sys
import types
import weakref
from pathlib import Path
from typing import Any, Callable, Iterator, Optional

import gradmon
import jobs
import pytest
import ranks
import torch
import twice
from gradmon._communication import reduces_to_parts
from gradmon._framework_monitor import labels_of
from gradmon.megatron import all_pieces


STEPS = 5
WARM_UP = 2  # steps that the graph calls


class BucketGroup:
    def __init__(self, parameters: "list[Any]") -> None:
        self.buckets = [types.SimpleNamespace(params_list=parameters)]
        self.grad_reduce_handle = None

    def start_grad_sync(self) -> None:
        pass


class DistributedDataParallel:
    """Adds each gradient to `main_grad`."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module
        self.config = types.SimpleNamespace(cuda_graph_impl="none")
        self.used = [one for name, one in module.named_parameters() if not name.startswith("spare")]
        for one in self.used:
            one.main_grad = torch.zeros_like(one)
        self.bucket_groups = [BucketGroup(self.used)]
        self.expert_parallel_bucket_groups: "list[Any]" = []

    def parameters(self) -> "Iterator[Any]":
        return self.module.parameters()

    def backward(self, step: int) -> None:
        self.module(jobs.batch(step)).pow(2).mean().backward()
        for one in self.used:
            one.main_grad.copy_(one.grad)
            one.grad = None


class MegatronOptimizer:
    """Updates a copy of each parameter."""

    def __init__(self, chunk: DistributedDataParallel) -> None:
        self.copies = [one.detach().clone() for one in chunk.used]
        self.float16_groups = [chunk.used]
        self.fp32_from_float16_groups = [self.copies]
        self.fp32_from_fp32_groups: "list[Any]" = []
        self.optimizer = torch.optim.AdamW(self.copies, lr=0.01)

    def zero_grad(self) -> None:
        for copy in self.copies:
            copy.grad = None

    def step(self) -> "tuple[bool, float, int]":
        for one, copy in zip(self.float16_groups[0], self.copies):
            copy.grad = one.main_grad.clone()
        self.optimizer.step()
        with torch.no_grad():
            for one, copy in zip(self.float16_groups[0], self.copies):
                one.copy_(copy)
        return True, 1.0, 0


@contextlib.contextmanager
def without_hooks(optimizer: MegatronOptimizer) -> "Iterator[None]":
    """A replay launches kernels and runs no Python: no hook, and `grad` stays what it was."""
    inner: Any = optimizer.optimizer
    hooks = inner._optimizer_step_pre_hooks, inner._optimizer_step_post_hooks
    gradients = [copy.grad for copy in optimizer.copies]
    inner._optimizer_step_pre_hooks, inner._optimizer_step_post_hooks = {}, {}
    try:
        yield
    finally:
        inner._optimizer_step_pre_hooks, inner._optimizer_step_post_hooks = hooks
        for copy, gradient in zip(optimizer.copies, gradients):
            copy.grad = gradient


class OptimizerCudaGraphWrapper:
    """Calls the function in the first steps, then replays: the optimizer's own step, without hooks."""

    cuda_graph: "Optional[object]" = None  # of the class, as Megatron's

    def __init__(self, optimizer_step_func: "Callable[[], Any]", optimizer: MegatronOptimizer) -> None:
        self.optimizer_step_func, self.optimizer, self.calls = optimizer_step_func, optimizer, 0

    def __call__(self) -> Any:
        self.calls += 1
        if self.calls <= WARM_UP:
            return self.optimizer_step_func()
        with without_hooks(self.optimizer):
            return MegatronOptimizer.step(self.optimizer)


class Training:
    def __init__(self) -> None:
        self.chunk = DistributedDataParallel(jobs.make_net())
        self.optimizer: Any = MegatronOptimizer(self.chunk)
        self.noted = twice.Noted()
        self.taken = 0  # steps

    def watch(self, tmp_path: Path, **options: Any) -> Any:
        config = jobs.write_config(tmp_path, **{**twice.EVERYTHING, "squash_name": False})
        return gradmon.megatron.watch(
            [self.chunk], self.optimizer, config, output_dir=tmp_path / "out", **{"dynamic": False, **options}
        )

    def capture(self) -> None:
        self.optimizer.step = OptimizerCudaGraphWrapper(self.optimizer.step, self.optimizer)

    def run(self, steps: int = STEPS, each: "Callable[[], Any]" = lambda: None) -> None:
        for _ in range(steps):
            self.step(self.taken)
            each()

    def step(self, number: int, update: "Optional[Callable[[], Any]]" = None) -> None:
        self.optimizer.zero_grad()
        self.chunk.backward(number)
        for group in self.chunk.bucket_groups:
            group.start_grad_sync()
        self.note("grad_unreduced", number, [one.main_grad for one in self.chunk.used])
        self.note("param_origin", number, self.optimizer.copies)
        state = self.optimizer.optimizer.state
        for key in ("exp_avg", "exp_avg_sq"):
            self.note(key, number, [state[one][key] for one in self.optimizer.copies if one in state])
        (update or self.optimizer.step)()
        self.note("param_updated", number, self.optimizer.copies)
        self.taken = number + 1

    def note(self, kind: str, number: int, tensors: "list[Any]") -> None:
        names = [name for name, _ in self.chunk.module.named_parameters() if not name.startswith("spare")]
        for name, tensor in zip(names, tensors):
            self.noted.note(kind, name, number, tensor)

    def check(self, out: Path, *absent: str) -> None:
        for kind, tensors in self.noted.tensors.items():
            if kind not in absent:
                twice.check_rows(twice.read(out, kind), tensors, kind)


def warnings_of(monitor: Any) -> str:
    return "\n".join(jobs.warnings_of(monitor))


def steps_in(output: Path, kind: str) -> "set[int]":
    return {step for _, step, _ in twice.read(output, kind)}


@pytest.mark.parametrize("when", ["before watch()", "after watch()"])
def test_steps_end_outside_a_captured_optimizer_step_and_have_rows(tmp_path: Path, when: str) -> None:
    training = Training()
    if when == "before watch()":
        training.capture()
    with training.watch(tmp_path):
        if when == "after watch()":
            training.capture()
        training.run()
    training.check(tmp_path / "out")
    reduced = twice.read(tmp_path / "out", "grad_reduced")
    assert {step for _, step, _ in reduced} == set(range(WARM_UP))
    assert all(key in training.noted.tensors["grad_unreduced"] for key in reduced)
    assert type(training.optimizer.step).__name__ == "OptimizerCudaGraphWrapper"


def test_what_a_captured_optimizer_step_leaves_out_is_in_the_status(tmp_path: Path) -> None:
    training = Training()
    captured_by = gradmon.megatron.captured_by
    with training.watch(tmp_path) as monitor:
        assert captured_by(training.optimizer, training.chunk) is None and warnings_of(monitor) == ""
        training.capture()
        assert "OptimizerCudaGraphWrapper" in str(captured_by(training.optimizer, training.chunk))
        training.run()
        assert jobs.eventually(lambda: "no rows in grad_reduced and mg_direction" in warnings_of(monitor))
        assert "train without --optimizer-cuda-graph" in warnings_of(monitor)


def test_the_graph_goes_where_megatron_deletes_the_replaced_step(tmp_path: Path) -> None:
    training = Training()
    monitor = training.watch(tmp_path)
    training.capture()
    graph = weakref.ref(training.optimizer.step)
    training.run()
    assert graph() is not None
    gc.disable()
    try:
        del training.optimizer.step
        assert graph() is None
    finally:
        gc.enable()
    monitor.stop()
    assert "step" not in vars(training.optimizer)


def test_an_agreed_switch_comes_in_a_rank_whose_step_is_replayed(tmp_path: Path) -> None:
    training = Training()
    monitor = training.watch(tmp_path, dynamic=True)
    training.capture()
    jobs.reach_the_hub(monitor)

    def collected() -> bool:
        training.run(1)
        return bool(twice.read(tmp_path / "out", "param_updated"))

    training.run(WARM_UP + 2)
    monitor.on(collect_times=2)
    assert jobs.eventually(collected)
    monitor.stop()


def test_a_step_that_the_programs_own_graph_replays_ends_by_hand(tmp_path: Path) -> None:
    training = Training()
    monitor = training.watch(tmp_path)

    def replay() -> None:
        with without_hooks(training.optimizer):
            MegatronOptimizer.step(training.optimizer)

    for number in range(STEPS):
        training.step(number, None if number == 0 else replay)
        monitor.step()
    monitor.stop()
    # Weights and moments of a step are read when it begins. The first replay came without a call before it.
    later = {kind: {k: t for k, t in of.items() if k[1] > 1} for kind, of in training.noted.tensors.items()}
    for kind, tensors in later.items():
        found = twice.read(tmp_path / "out", kind)
        twice.check_rows({key: row for key, row in found.items() if key[1] > 1}, tensors, kind)
    assert steps_in(tmp_path / "out", "grad_reduced") == {0}
    assert steps_in(tmp_path / "out", "grad_unreduced") == set(range(STEPS))


def test_a_step_is_not_ended_twice_where_the_program_calls_step(tmp_path: Path) -> None:
    training = Training()
    with training.watch(tmp_path) as monitor:
        training.run(each=monitor.step)
    training.check(tmp_path / "out")


def test_after_a_captured_backward_updates_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrapper = types.SimpleNamespace(cuda_graph={"training": None, "validation": object()})
    monkeypatch.setitem(
        sys.modules, "megatron.core.full_cuda_graph", types.SimpleNamespace(FullCudaGraphWrapper=wrapper)
    )
    training = Training()
    with training.watch(tmp_path) as monitor:
        training.run(WARM_UP)
        wrapper.cuda_graph["training"] = object()
        captured = training.chunk.bucket_groups
        for _ in range(WARM_UP, STEPS):
            training.chunk.bucket_groups = []  # start_grad_sync() is in the graph
            training.run(1)
            training.chunk.bucket_groups = captured
        said = "no rows in grad_unreduced, actv and actv_grad"
        assert jobs.eventually(lambda: said in warnings_of(monitor))
    training.check(tmp_path / "out", "grad_unreduced")
    assert steps_in(tmp_path / "out", "grad_reduced") == set(range(STEPS))
    assert steps_in(tmp_path / "out", "grad_unreduced") == set(range(WARM_UP))


@pytest.mark.parametrize(
    "way, said",
    [
        ("none", None),
        ("full_iteration", "no rows in grad_unreduced, actv and actv_grad"),
        ("local", "no rows in actv and actv_grad within the layers"),
    ],
)
def test_the_config_of_megatron_tells_at_once_what_will_be_captured(
    tmp_path: Path, way: str, said: "Optional[str]"
) -> None:
    training = Training()
    training.chunk.config.cuda_graph_impl = way
    with training.watch(tmp_path) as monitor:
        found = gradmon.megatron.captured_by(training.optimizer, [training.chunk])
        assert (found is None) if said is None else (found or "").startswith(said)
        assert jobs.eventually(lambda: (found or "") in warnings_of(monitor))


# --- which part of a weight a rank's rows are of ---


# Four ranks, two of tensor parallelism times two that share a weight of 24 rows, filled up to 32.
SCRIPT = """
import types
from gradmon.megatron import all_pieces, description_of
made = {name: [dist.new_group(of) for of in ranks] for name, ranks in
        {"tensor": [[0, 1], [2, 3]], "rows": [[0, 2], [1, 3]], "alone": [[0], [1], [2], [3]]}.items()}
tensor, rows, alone = made["tensor"][rank // 2], made["rows"][rank % 2], made["alone"][rank]
state = types.SimpleNamespace(
    get_tensor_model_parallel_group=lambda check_initialized: tensor,
    get_gtp_weight_remat_group=lambda check_initialized: rows)
for name in ("get_expert_tensor_parallel_group", "get_expert_model_parallel_group",
             "get_expert_gtp_weight_remat_group"):
    setattr(state, name, lambda check_initialized: alone)
sys.modules["megatron.core.parallel_state"] = state
model = torch.nn.Module()
sizes = {"column": ((16, 8), 0), "row": ((16, 8), 1), "small": ((32, 8), 0), "gated": ((6, 8), 0)}
for name, (size, dim) in sizes.items():
    weight = torch.nn.Parameter(torch.ones(size))
    weight.tensor_model_parallel, weight.partition_dim = True, dim
    if name == "gated":
        weight.partition_stride = 2
    else:
        weight.is_gtp_weight_remat, weight.group = True, rows
        weight.pad_length = {"column": 8, "row": 8, "small": 40}[name]
    setattr(model, name, weight)
optimizer = types.SimpleNamespace(optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
labels, _ = description_of(model, all_pieces(optimizer))
print(json.dumps(labels))
dist.barrier()
"""


@pytest.fixture(scope="module")
def labels(tmp_path_factory: Any) -> "list[dict[str, Any]]":
    """By rank."""
    return ranks.reports(tmp_path_factory.mktemp("shards"), ranks.GLOO + SCRIPT, world=4)


@pytest.mark.parametrize("kind", ["grad_unreduced", "grad_reduced", "param_updated", "exp_avg"])
def test_a_weight_shard_is_a_box_within_the_shard_of_tensor_parallelism(
    labels: "list[dict[str, Any]]", kind: str
) -> None:
    for rank in range(4):
        tensor, rows = rank % 2, rank // 2
        size = [8 if rows else 16, 8]
        column, row = labels[rank][kind]["column"], labels[rank][kind]["row"]
        assert column["scope"] == row["scope"] == "shard"
        assert (column["shape"], column["size"]) == ([48, 8], size)
        assert column["offset"] == [24 * tensor + 16 * rows, 0]
        assert (row["shape"], row["size"], row["offset"]) == ([24, 16], size, [16 * rows, 8 * tensor])


def test_rows_that_only_fill_up_a_shard_are_no_part_of_the_weight(labels: "list[dict[str, Any]]") -> None:
    found = [of_rank["param_updated"].get("small") for of_rank in labels]
    assert [one and one["offset"] for one in found] == [[0, 0], [24, 0], None, None]
    assert {tuple(one["size"]) for one in found if one} == {(24, 8)}
    assert [("small" in of_rank["grad_unreduced"]) for of_rank in labels] == [True, True, False, False]


def test_gradients_before_reduction_belong_to_the_ranks_of_the_weight(labels: "list[dict[str, Any]]") -> None:
    meshes = [of_rank["grad_unreduced"]["column"]["mesh"] for of_rank in labels]
    assert [mesh.pop("coordinate") for mesh in meshes] == [[0, 0], [1, 0], [0, 1], [1, 1]]
    assert meshes == [{"dims": ["tp", "gtp_remat"], "shape": [2, 2], "ranks": [0, 1, 2]}] * 4
    assert "mesh" not in labels[0]["param_updated"]["column"]


def test_the_shard_of_a_gated_layer_has_a_part_of_each_half(labels: "list[dict[str, Any]]") -> None:
    assert [of_rank["param_updated"]["gated"]["stride"] for of_rank in labels] == [2] * 4
    assert "stride" not in labels[0]["param_updated"]["column"]


class LayerWiseDistributedOptimizer:
    __module__ = "megatron.core.optimizer.layer_wise_optimizer"

    def __init__(self, *chained: Any) -> None:
        self.chained_optimizers = list(chained)


def test_what_a_layer_wise_optimizer_updates_is_the_ranks_own() -> None:
    owned, shared = torch.nn.Parameter(torch.ones(2, 2)), torch.nn.Parameter(torch.ones(2))
    own = types.SimpleNamespace(optimizer=torch.optim.SGD([owned], lr=0.1))
    other = types.SimpleNamespace(optimizer=torch.optim.SGD([shared], lr=0.1))
    chain = types.SimpleNamespace(chained_optimizers=[LayerWiseDistributedOptimizer(own), other])
    named = [("owned", owned, (2, 2)), ("shared", shared, (2,))]
    found = labels_of(named, all_pieces(chain))["param_updated"]
    assert {name: label["scope"] for name, label in found.items()} == {"owned": "whole", "shared": "replica"}
    assert reduces_to_parts(chain) and not reduces_to_parts(other)
