# SPDX-License-Identifier: Apache-2.0
"""Communication that is not a call of c10d has rows, or a sentence in status() says why not."""
import sys
import types
from pathlib import Path
from typing import Any, Callable, Iterator

import jobs
import pytest
import torch
import torch.distributed as dist
from gradmon._communication import _UNREAD

# What is read of each operator of torch.ops.symm_mem: the arguments with the input and the output; None:
# there is none, "": the result.
READ = {
    "fused_all_gather_matmul": ("A", ""),
    "fused_all_gather_scaled_matmul": ("A", ""),
    "fused_matmul_reduce_scatter": (None, ""),
    "fused_scaled_matmul_reduce_scatter": (None, ""),
    "multimem_all_gather_out": ("input", "out"),
    "multimem_all_reduce_": ("input", "input"),
    "multimem_one_shot_all_reduce": ("input", ""),
    "multimem_one_shot_all_reduce_out": ("input", "out"),
    "multimem_one_shot_reduce_out": ("input", "out"),
    "nvshmem_all_to_all": ("input", "out"),
    "nvshmem_broadcast": ("input", "input"),
    "one_shot_all_reduce": ("input", ""),
    "one_shot_all_reduce_copy": ("local_input", ""),
    "one_shot_all_reduce_copy_out": ("local_input", "out"),
    "one_shot_all_reduce_out": ("input", "out"),
    "reduce_scatter_out": ("input", "output"),
    "two_shot_all_reduce_": ("input", "input"),
    "two_shot_all_reduce_out": ("input", "output"),
}
# Those that pass no values of tensors.
SILENT = set(
    """
    _async_input_mm _barrier _rendezvous get_remote_tensors memset32_ nccl_wait_for_signal
    nccl_wait_signal nvshmem_wait_for_signal stream_write_value32_
""".split()
)


def schema_of(name: str) -> Any:
    return torch._C._jit_get_schemas_for_operator(f"symm_mem::{name}")[0]


def operators() -> "list[str]":
    """All of this torch; those in Python come with the module."""
    import torch.distributed._symmetric_memory  # noqa: F401

    names = [name.partition(".")[0] for name in torch._C._dispatch_get_all_op_names()]
    return sorted({name.partition("::")[2] for name in names if name.startswith("symm_mem::")})


def has_stand_in(name: str) -> bool:
    """Others take an object that only a GPU has."""
    return "SymmetricMemory" not in str(schema_of(name))


def double(into: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """As a kernel does: the version stays."""
    into.detach().numpy()[...] = value.detach().numpy() * 2
    return into


def kernel_of(name: str) -> "Callable[..., Any]":
    """A stand-in, since those of torch need a GPU: the output is twice the first tensor that is an input."""
    schema = schema_of(name)
    names = [argument.name for argument in schema.arguments]
    source, output = READ.get(name, (names[0], ""))

    def kernel(*values: Any, **keywords: Any) -> Any:
        given = {**dict(zip(names, values)), **keywords}
        value = given[source or names[0]]
        value = value[0] if isinstance(value, list) else value
        result = double(given[output] if output else torch.empty_like(value), value)
        if len(schema.returns) == 2:  # of fused operators: what is gathered, and products with it
            return result, [result.clone()]
        lists = [str(one.type) == "List[Tensor]" for one in schema.returns]
        return ([result] if lists[0] else result) if lists else None

    return kernel


def argument_of(argument: Any) -> Any:
    kind = str(argument.type)
    if kind == "Tensor":
        return torch.full((4,), 3.0)
    if kind in ("List[Tensor]", "Tensor[]"):
        return [torch.full((4,), 3.0)]
    if kind == "str":
        return dist.distributed_c10d._get_default_group().group_name if "group" in argument.name else "sum"
    return {"int": 0, "SymInt": 0, "bool": True}.get(kind, [] if kind.startswith("List") else None)


def call(name: str) -> None:
    schema = schema_of(name)
    values = [argument_of(one) for one in schema.arguments if not one.kwarg_only]
    keywords = {one.name: argument_of(one) for one in schema.arguments if one.kwarg_only}
    getattr(torch.ops.symm_mem, name)(*values, **keywords)


@pytest.fixture
def kernels(group: None) -> Iterator[None]:
    library = torch.library.Library("symm_mem", "IMPL")
    for name in operators():
        if has_stand_in(name):
            library.impl(name, kernel_of(name), "CPU")
    yield
    library._destroy()


def collected(
    tmp_path: Path, calls: "Callable[[], Any]", said: "list[str]" = []
) -> "dict[str, dict[str, float]]":
    """The rows, without the place, of one step in which the calls are made. said: the sentences of status()
    and of the log about this communication, each once."""
    model, optimizer = jobs.make()
    log = tmp_path / "log"
    monitor = jobs.monitor(tmp_path, jobs.ALONE, cc_distribution={"enable": True, "cc_pre_hook": True})
    with jobs.stderr_to(log), monitor.watch(model, optimizer):
        calls()
        jobs.train(model, optimizer, 2)

        def sentences() -> "list[str]":
            return [one for one in jobs.warnings_of(monitor) if "cc_distribution" in one]

        assert not said or jobs.eventually(lambda: len(sentences()) == len(said))
        assert sorted(sentences()) == sorted(said)
    logged = [line for line in log.read_text().splitlines() if "cc_distribution" in line]
    assert len(logged) == len(said) and all(any(one in line for line in logged) for one in said), logged
    return {name.partition("@")[0]: row for (name, _, _), row in jobs.rows(tmp_path / "out", "other").items()}


def test_tensors_of_symmetric_memory_have_rows(tmp_path: Path, kernels: None) -> None:
    known = [name for name in operators() if name in READ]
    assert torch.__version__ < "2.13" or len(known) == len(READ)
    rows = collected(tmp_path, lambda: [call(name) for name in known])
    expected = {}
    for name in known:
        op = name.strip("_")
        expected[f"{op}.post_0"] = 12.0  # norm
        if READ[name][0] is not None:
            expected[f"{op}.pre_0"] = 6.0
    found = {name: row["norm"] for name, row in rows.items()}
    # In-place operators double the input itself; the others' kernels have made the output of it.
    assert found == pytest.approx(expected)


def test_operators_that_are_not_read_are_named_once(tmp_path: Path, kernels: None) -> None:
    others = [name for name in operators() if name not in READ and has_stand_in(name)]
    silent = SILENT - {"_barrier", "_rendezvous", "nccl_wait_signal"}
    assert set(others) >= silent or torch.__version__ < "2.13"
    said = [
        f"cc_distribution: torch.ops.symm_mem.{name} is not read: gradmon does not know when its tensors are "
        "complete"
        for name in others
        if name not in SILENT
    ]
    assert len(said) > 3
    assert collected(tmp_path, lambda: [call(name) for name in 2 * others], said) == {}


def summed(model: Any, x: torch.Tensor) -> torch.Tensor:
    """Sums what the layer returns over the ranks, in place."""
    y = model.layer(x)
    name = dist.distributed_c10d._get_default_group().group_name
    torch.ops.symm_mem.two_shot_all_reduce_(y.detach(), "sum", name)
    result: torch.Tensor = model.next(y)
    return result


def test_an_activation_is_read_again_after_symmetric_memory_changed_it(tmp_path: Path, kernels: None) -> None:
    model = jobs.Parts(summed, layer=torch.nn.Linear(4, 4, bias=False), next=torch.nn.ReLU())
    jobs.collect(
        tmp_path, 1, *jobs.with_sgd(model), options=jobs.ALONE, **jobs.ACTIVATIONS, forward_only=True
    )
    rows = {name: row["norm"] for (name, _, _), row in jobs.rows(tmp_path / "out", "actv").items()}
    assert rows["next.input"] == pytest.approx(2 * rows["layer.output"])


def functional_calls(name: str) -> None:
    ops, x = torch.ops._c10d_functional, torch.full((4,), 3.0)
    for result in (
        ops.all_reduce(x, "sum", name),
        ops.all_reduce_(x.clone(), "sum", name),
        ops.all_gather_into_tensor(x, 1, name),
        ops.reduce_scatter_tensor(x, "sum", 1, name),
        ops.all_to_all_single(x, [4], [4], name),
        ops.broadcast(x, 0, name),
        ops.broadcast_(x.clone(), 0, name),
        *ops.all_reduce_coalesced([x, x], "sum", name),
        *ops.all_gather_into_tensor_coalesced([x], 1, name),
    ):
        ops.wait_tensor(result)


def test_functional_collectives_have_rows(tmp_path: Path, group: None) -> None:
    name = dist.distributed_c10d._get_default_group().group_name
    rows = collected(tmp_path, lambda: functional_calls(name))
    # Some call c10d's coalesced operators.
    ops = {one.partition(".")[0].replace("_coalesced", "").replace("_into_tensor", "") for one in rows}
    expected = {"all_reduce", "all_gather", "reduce_scatter_tensor", "all_to_all_single", "broadcast"}
    assert {one.replace("allgather", "all_gather") for one in ops} == expected
    assert all(row["norm"] == 6.0 for row in rows.values())


@pytest.mark.parametrize("module", ["torchcomms", "torchft"])
def test_libraries_that_communicate_by_themselves_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, types.ModuleType(module))
    said = [sentence for name, sentence in _UNREAD.items() if name == module]
    assert len(said) == 1 and module in said[0]
    collected(tmp_path, lambda: None, said)
