# SPDX-License-Identifier: Apache-2.0
"""Finds the pieces of parameters in the tensors that ColossalAI's ZeRO optimizer updates.

Runs no collective."""
from typing import Any, Iterator

from gradmon.engines.pieces import Piece, innermost, whole
from gradmon.sharded.sharding import is_kind


def is_zero(optimizer: Any) -> bool:
    """Returns True for a LowLevelZeroOptimizer (stage 1 or 2), or an instance of a derived class."""
    return is_kind(optimizer, "LowLevelZeroOptimizer")


def update_of(optimizer: Any) -> Any:
    """The optimizer that updates the carriers: the last of the wrappers' `optim`."""
    inner = getattr(optimizer, "optim", None)
    while inner is not None:
        optimizer, inner = inner, getattr(inner, "optim", None)
    return innermost(optimizer)


def pieces_of(parameters: "list[Any]", optimizer: Any) -> "list[Piece]":
    """The pieces of these parameters that this rank updates."""
    if is_zero(optimizer):
        return list(_of_zero(parameters, optimizer))
    return [whole(parameter, parameter) for parameter in parameters]


def _of_zero(parameters: "list[Any]", optimizer: Any) -> "Iterator[Piece]":
    """Each parameter is flattened, padded to a multiple of the ranks, and cut into as many equal runs."""
    masters = optimizer.get_working_to_master_map()  # by the parameter's id
    for parameter in parameters:
        master = masters.get(id(parameter))
        if master is None:  # not trained
            continue
        padded = parameter.numel() + optimizer.get_param_padding_size(parameter)
        bucket = optimizer.pid_to_bucket_store[id(parameter)]
        run = padded // bucket.world_size
        first = min(int(bucket.local_rank) * run, parameter.numel())
        numel = min(run, parameter.numel() - first)
        yield Piece(parameter, master, 0, numel, first, tuple(parameter.shape))
