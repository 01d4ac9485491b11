# SPDX-License-Identifier: Apache-2.0
"""Describes the scopes of the rows of a Megatron model's parameters. Runs no collective."""
import sys
from typing import Any, NamedTuple, Optional

import torch
import torch.distributed as dist

from gradmon.engines.labels import Description, Scope, is_expert, labels_of
from gradmon.engines.pieces import Piece
from gradmon.megatron.chunks import global_names
from gradmon.megatron.shards import rows_of
from gradmon.sharded.scopes import LOCAL, ranks_in

# Parameters whose gradient is summed over the ranks of tensor parallelism.
_SUMMED = ("sequence_parallel", "average_gradients_across_tp_domain")
_SUMMED_PARTS = {"q_layernorm", "k_layernorm"}


class Group(NamedTuple):
    """The ranks of a process group, and this rank's place in it."""

    ranks: "list[int]"
    place: int


_ALONE = Group([0], 0)


class Groups(NamedTuple):
    """How this rank's parameters are split."""

    tensor: Group
    expert_tensor: Group
    expert: Group
    rows: Group  # of GTP, which splits weights by their rows once more
    expert_rows: Group


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
            if not _is_padding(named[name])
        }
        for kind, of_kind in labels.items()
    }
    split = max(len(groups.tensor.ranks), len(groups.expert_tensor.ranks)) > 1
    return Description(of_kinds, LOCAL if split else None)


def _is_padding(parameter: Any) -> bool:
    rows = rows_of(parameter)
    return rows is not None and rows.held == 0


def _with_groups(
    scope: Scope, kind: str, name: str, parameter: Any, global_name: str, groups: Groups
) -> Scope:
    found: Scope = {**scope, "global_name": global_name}
    expert = is_expert(parameter)
    if expert and len(groups.expert.ranks) > 1 and "local_experts" not in name:
        return {"scope": "local", "global_name": global_name}  # several experts in one tensor
    group = groups.expert_tensor if expert else groups.tensor
    of_rows = groups.expert_rows if expert else groups.rows
    before = kind == "grad_unreduced"
    split = bool(getattr(parameter, "tensor_model_parallel", False))
    rows = rows_of(parameter)
    owned = not before and found["scope"] == "whole"
    if split or rows is not None:
        found.update(_box(parameter, group if split else _ALONE))
        if found["scope"] != "piece" and not (owned and found["size"] == found["shape"]):
            found["scope"] = "shard"
    if owned and found["scope"] == "whole" and max(len(of_rows.ranks), split or len(group.ranks)) > 1:
        found["scope"] = "replica"  # the owner's, on each rank of these groups
    if before and len(group.ranks) > 1 and not split:
        summed = any(getattr(parameter, one, False) for one in _SUMMED) or _SUMMED_PARTS & set(
            name.split(".")
        )
        if summed or rows is None:
            found["scope"] = "partial" if summed else "replica"
    if before:  # each group has the gradient of its own batch
        split_by = {"tp": group} if len(group.ranks) > 1 else {}
        if rows is not None:
            split_by["gtp_remat"] = Group(rows.ranks, rows.place)
        if split_by:
            found["mesh"] = _mesh(split_by)
    return found


def _mesh(groups: "dict[str, Group]") -> "dict[str, Any]":
    """As scopes.json has it. No rank but this one is in two of the groups."""
    ranks = [next(group.ranks[group.place] for group in groups.values())]
    for group in groups.values():
        own = group.ranks[group.place]
        ranks = [rank + other - own for rank in ranks for other in group.ranks]
    shape = [len(group.ranks) for group in groups.values()]
    return {
        "dims": list(groups),
        "shape": shape,
        "coordinate": [group.place for group in groups.values()],
        "ranks": ranks_in(torch.tensor(ranks).view(shape)),
    }


def _box(parameter: Any, group: Group) -> Scope:
    """The box of the whole parameter that this rank has. group: splits it by tensor parallelism."""
    size = list(parameter.shape)
    shape, offset = list(size), [0] * len(size)
    rows = rows_of(parameter)
    if rows is not None:
        size[0], shape[0], offset[0] = rows.held, rows.whole, rows.first
    dim = int(parameter.partition_dim) if len(group.ranks) > 1 else 0
    offset[dim] += shape[dim] * group.place
    shape[dim] *= len(group.ranks)
    stride = int(getattr(parameter, "partition_stride", 1)) if len(group.ranks) > 1 else 1
    return {"shape": shape, "offset": offset, "size": size, **({"stride": stride} if stride > 1 else {})}


def _groups() -> Groups:
    state = sys.modules.get("megatron.core.parallel_state")
    return Groups(
        _group(state, "get_tensor_model_parallel_group"),
        _group(state, "get_expert_tensor_parallel_group"),
        _group(state, "get_expert_model_parallel_group"),
        _group(state, "get_gtp_weight_remat_group"),
        _group(state, "get_expert_gtp_weight_remat_group"),
    )


def _group(state: Any, getter: str) -> Group:
    get: "Optional[Any]" = getattr(state, getter, None)
    group = None if get is None else get(check_initialized=False)
    return _ALONE if group is None else Group(dist.get_process_group_ranks(group), dist.get_rank(group))
