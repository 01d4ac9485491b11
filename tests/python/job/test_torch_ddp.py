# SPDX-License-Identifier: Apache-2.0
"""What torch itself does in two ranks with gloo, in each supported version; hooks/TORCH.md lists it. Plain
torch: no test here needs gradmon."""
import datetime
import json
from typing import Any

import pytest
import ranks
import torch
from torch.distributed import TCPStore

VERSION = tuple(int(part) for part in torch.__version__.split("+")[0].split("a")[0].split(".")[:2])
TORCH_2 = VERSION >= (2, 0)
OF_TENSOR = "own" if TORCH_2 else "nothing"  # torch 1.13 has no post-accumulate hooks


@pytest.fixture(scope="module")
def found(tmp_path_factory: Any) -> "list[Any]":
    """What each rank found."""
    printed = ranks.run(tmp_path_factory.mktemp("facts"), "import ddp_facts; ddp_facts.main()")
    return [json.loads(out.strip().splitlines()[-1]) for out in printed]  # torch may print others before it


def alike(found: "list[Any]", part: str) -> "dict[str, Any]":
    assert found[0][part] == found[1][part]
    return dict(found[0][part])


@pytest.mark.parametrize("mode", ["views", "accumulated", "static graph"])
def test_ddp_changes_views_in_a_post_hook_of_the_accumulator(found: "list[Any]", mode: str) -> None:
    """A post-hook made after DDP reads a gradient that DDP has divided already."""
    read = alike(found, "hooks")
    assert read[f"{mode}, hooks first"] == {"node": "own", "tensor": OF_TENSOR}
    assert read[f"{mode}, hooks last"] == {"node": "changed", "tensor": OF_TENSOR}


@pytest.mark.parametrize("order", ["first", "last"])
def test_without_views_ddp_writes_gradients_after_all_hooks(found: "list[Any]", order: str) -> None:
    assert alike(found, "hooks")[f"copies, hooks {order}"] == {"node": "own", "tensor": OF_TENSOR}


def test_a_static_graph_and_no_sync_in_its_first_steps_end_in_an_error(found: "list[Any]") -> None:
    error = alike(found, "hooks")["static graph, accumulated"]
    assert "expect_autograd_hooks_ INTERNAL ASSERT FAILED" in error


def test_the_reducer_in_python_reduces_before_any_post_hook_of_the_accumulator(found: "list[Any]") -> None:
    """It is a post-accumulate hook of the tensor; torch._dynamo.config.optimize_ddp switches it on."""
    read = alike(found, "hooks")
    if not TORCH_2:
        assert "reducer in Python, hooks first" not in read
        return
    if VERSION < (2, 13):
        assert read["reducer in Python, hooks first"] == {"node": "own", "tensor": "own"}
        assert read["reducer in Python, hooks last"] == {"node": "own", "tensor": "own"}
        return
    assert read["reducer in Python, hooks first"] == {"node": "changed", "tensor": "own"}
    assert read["reducer in Python, hooks last"] == {"node": "changed", "tensor": "changed"}


def test_which_collectives_gloo_has_and_whose_work_has_a_future(found: "list[Any]") -> None:
    outcome = alike(found, "collectives")
    assert outcome["all_reduce"] == "future, completed"
    assert outcome["all_gather_into_tensor"] == ("future, completed" if TORCH_2 else "refused")
    assert outcome["point to point"] == "no future, completed"
    for name in ("reduce_scatter_tensor", "reduce_scatter"):
        if VERSION >= (2, 13):
            assert outcome[name] == "no future, never completed"  # not even after wait()
        elif not TORCH_2:
            assert outcome[name] == "refused"


def test_a_sharded_optimizer_keeps_its_moments_in_the_inner_one(found: "list[Any]") -> None:
    sharded = [of_rank["sharded"] for of_rank in found]
    assert [of_rank["outer"] for of_rank in sharded] == [0, 0]
    assert all(of_rank["held"] for of_rank in sharded)
    assert sorted(sharded[0]["held"] + sharded[1]["held"]) == ["0.bias", "0.weight", "1.bias", "1.weight"]
    for of_rank in sharded:
        assert of_rank["said"] == (["outer", "inner"] if TORCH_2 else [])


@pytest.mark.parametrize("name", ["allreduce_", "broadcast_", "reduce_scatter_"])
def test_arguments_of_collectives_have_names_from_torch_2_on(name: str) -> None:
    (schema,) = torch._C._jit_get_schemas_for_operator("c10d::" + name)
    names = [argument.name for argument in schema.arguments]
    if not TORCH_2:
        assert names == [f"_{i}" for i in range(len(names))]
        return
    assert "process_group" in names and names[-1] == "timeout"
    if VERSION >= (2, 13):
        assert names[-2] == "async_op"


def test_a_store_by_tcp_is_served_by_libuv_in_the_wheel() -> None:
    store = TCPStore("127.0.0.1", 0, 1, True, datetime.timedelta(seconds=60), **ranks.STORE_OPTIONS)
    store.set("key", "value")
    assert store.get("key") == b"value"
    assert getattr(store, "libuvBackend", False) == (VERSION >= (2, 13))
