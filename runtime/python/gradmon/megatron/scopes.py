# SPDX-License-Identifier: Apache-2.0
"""Says what the rows of a Megatron model's parameters are of. Runs no collective."""
import sys
from typing import Any, NamedTuple, Optional

import torch.distributed as dist

from gradmon.engines.labels import Description, Scope, is_expert, labels_of
from gradmon.engines.pieces import Piece
from gradmon.megatron.chunks import global_names
from gradmon.sharded.scopes import LOCAL

# Parameters whose gradient is summed over the ranks of tensor parallelism.
_SUMMED = ("sequence_parallel", "average_gradients_across_tp_domain")
_SUMMED_PARTS = {"q_layernorm", "k_layernorm"}


class Group(NamedTuple):
    """The ranks of a process group, and this rank's place in it."""

    ranks: "list[int]"
    place: int

    def mesh(self, name: str) -> "dict[str, Any]":
        """As scopes.json has it."""
        first, size = self.ranks[0], len(self.ranks)
        stride = self.ranks[1] - first if size > 1 else 0
        even = self.ranks == [first + stride * i for i in range(size)]
        ranks = [first, stride] if even else self.ranks
        return {"dims": [name], "shape": [size], "coordinate": [self.place], "ranks": ranks}


_ALONE = Group([0], 0)


class Groups(NamedTuple):
    """How this rank's parameters are split."""

    tensor: Group
    expert_tensor: Group
    expert: Group


def description_of(model: Any, pieces: "list[Piece]") -> Description:
    """The scopes of a chunk's parameters and activations. The groups are those that
    megatron.core.parallel_state has."""
    groups = _groups()
    named = dict(model.named_parameters())
    labels = labels_of([(name, one, tuple(one.shape)) for name, one in named.items()], pieces)
    names = global_names(model, groups.expert.place)
    of_kinds = {
        kind: {
            name: _with_groups(scope, kind, name, named[name], names[name], groups)
            for name, scope in of_kind.items()
        }
        for kind, of_kind in labels.items()
    }
    split = max(len(groups.tensor.ranks), len(groups.expert_tensor.ranks)) > 1
    return Description(of_kinds, LOCAL if split else None)


def _with_groups(
    scope: Scope, kind: str, name: str, parameter: Any, global_name: str, groups: Groups
) -> Scope:
    found: Scope = {**scope, "global_name": global_name}
    expert = is_expert(parameter)
    if expert and len(groups.expert.ranks) > 1 and "local_experts" not in name:
        return {"scope": "local", "global_name": global_name}  # several experts in one tensor
    group = groups.expert_tensor if expert else groups.tensor
    before = kind == "grad_unreduced"
    if getattr(parameter, "tensor_model_parallel", False):
        found.update(_box(parameter, group))
        if found["scope"] != "piece":
            found["scope"] = "shard"
    elif before and len(group.ranks) > 1:
        summed = any(getattr(parameter, one, False) for one in _SUMMED) or _SUMMED_PARTS & set(
            name.split(".")
        )
        found["scope"] = "partial" if summed else "replica"
    if before and len(group.ranks) > 1:  # each group has the gradient of its own batch
        found["mesh"] = group.mesh("tp")
    return found


def _box(parameter: Any, group: Group) -> "dict[str, list[int]]":
    """The box of the whole parameter that this rank has."""
    size, dim = list(parameter.shape), int(parameter.partition_dim)
    shape, offset = list(size), [0] * len(size)
    shape[dim] *= len(group.ranks)
    offset[dim] = size[dim] * group.place
    return {"shape": shape, "offset": offset, "size": size}


def _groups() -> Groups:
    state = sys.modules.get("megatron.core.parallel_state")
    return Groups(
        _group(state, "get_tensor_model_parallel_group"),
        _group(state, "get_expert_tensor_parallel_group"),
        _group(state, "get_expert_model_parallel_group"),
    )


def _group(state: Any, getter: str) -> Group:
    get: "Optional[Any]" = getattr(state, getter, None)
    group = None if get is None else get(check_initialized=False)
    return _ALONE if group is None else Group(dist.get_process_group_ranks(group), dist.get_rank(group))
