# SPDX-License-Identifier: Apache-2.0
"""FSDP1: modules within a FullyShardedDataParallel, whose parameters lie in one flat parameter."""
from typing import Any, Iterator, Optional

import torch

from gradmon.sharded.scopes import REPLICA, WHOLE, piece
from gradmon.sharded.sharding import Listed, Pair, Sharding, is_kind


def is_unit(module: Any) -> bool:
    return is_kind(module, "FullyShardedDataParallel")


def gathered_module(module: Any) -> "tuple[torch.nn.Module, Optional[int]]":
    """The module whose forward begins when the parameters are gathered, and the unit that they are."""
    handle = getattr(module, "_handle", None)
    return module.module, None if handle is None else id(handle)


def listed_in(name: str, module: Any) -> Iterator[Listed]:
    """The parameters of one unit, under the program's names; `name`: that of the unit in the model."""
    handle = getattr(module, "_handle", None)
    if handle is None:  # no parameters
        return
    flat = handle.flat_param
    own = getattr(flat, "_params", None) or [flat] * len(flat._fqns)  # use_orig_params: one a parameter
    whole = zip(flat._fqns, flat._shapes, _offsets(flat), flat._shard_param_infos, own)
    for fqn, shape, offset, part, tensor in whole:
        sharding = _sharding(handle, list(shape), offset, part, in_flat=tensor is flat)
        yield Listed(f"{name}.{fqn}" if name else fqn, tensor, sharding)


def _sharding(handle: Any, shape: "list[int]", offset: int, part: Any, in_flat: bool) -> Sharding:
    flat = handle.flat_param

    def unsharded() -> Pair:
        return flat, None

    count = part.numel_in_shard if part.in_shard else 0
    begin = part.intra_param_start_idx if part.in_shard else 0
    return Sharding(
        unit=id(handle),
        unsharded=unsharded,
        unsharded_run=(offset, torch.Size(shape).numel()),
        unsharded_sizes=shape,
        run=(part.offset_in_shard if part.in_shard else 0, count) if in_flat else None,
        unreduced_scope=WHOLE,
        scope=piece(shape, begin, count) if handle.uses_sharded_strategy else REPLICA,
    )


def _offsets(flat: Any) -> "list[int]":
    """The offset of each parameter in the gathered flat parameter: padding lies between them."""
    found = []
    begin = 0
    for count, is_padding in zip(flat._numels_with_padding, flat._is_padding_mask):
        if not is_padding:
            found.append(begin)
        begin += count
    return found
