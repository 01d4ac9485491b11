# SPDX-License-Identifier: Apache-2.0
"""Megatron's weight shards (GTP) beside tensor parallelism, and layer-wise optimizers: which part of a weight
a rank's rows are of. test_megatron.py has the same with Megatron's own classes."""
import json
import types
from typing import Any

import pytest
import ranks
import torch
from gradmon.communication.process_groups import reduces_to_parts
from gradmon.engines.labels import labels_of
from gradmon.megatron.shards import all_pieces

# Four ranks, two of tensor parallelism times two that share a weight of 24 rows, filled up to 32.
SCRIPT = """
import json, sys, types, torch, torch.distributed as dist
from gradmon.megatron.scopes import description_of
from gradmon.megatron.shards import all_pieces
dist.init_process_group("gloo")
rank = dist.get_rank()
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
print(json.dumps(description_of(model, all_pieces(optimizer)).labels))
dist.barrier()
"""


@pytest.fixture(scope="module")
def labels(tmp_path_factory: Any) -> "list[dict[str, Any]]":
    """By rank."""
    said = ranks.run(tmp_path_factory.mktemp("shards"), SCRIPT, world=4)
    return [json.loads(out.splitlines()[-1]) for out in said]


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


def test_gradients_before_reduction_belong_to_the_ranks_that_share_the_weight(
    labels: "list[dict[str, Any]]",
) -> None:
    meshes = [of_rank["grad_unreduced"]["column"]["mesh"] for of_rank in labels]
    assert [mesh.pop("coordinate") for mesh in meshes] == [[0, 0], [1, 0], [0, 1], [1, 1]]
    assert meshes == [{"dims": ["tp", "gtp_remat"], "shape": [2, 2], "ranks": [0, 1, 2]}] * 4
    assert "mesh" not in labels[0]["param_updated"]["column"]


def test_the_shard_of_a_gated_layer_says_that_it_has_a_part_of_each_half(
    labels: "list[dict[str, Any]]",
) -> None:
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
