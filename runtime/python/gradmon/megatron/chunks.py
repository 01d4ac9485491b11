# SPDX-License-Identifier: Apache-2.0
"""Finds the parts of a Megatron model: its wrappers, its bucket groups, the global numbers of its layers."""
import re
from typing import Any, Iterator, Optional

from gradmon.sharded.sharding import class_names

_WRAPPERS = {"DistributedDataParallel", "Float16Module"}


def inner_model(chunk: Any) -> Any:
    """The chunk without Megatron's wrappers: its parameters have the names of the model itself."""
    while _WRAPPERS & class_names(chunk) and hasattr(chunk, "module"):
        chunk = chunk.module
    return chunk


def wrapper_with_buckets(chunk: Any) -> "Optional[Any]":
    """Megatron's DistributedDataParallel around the chunk."""
    while chunk is not None and not hasattr(chunk, "bucket_groups"):
        chunk = getattr(chunk, "module", None)
    return chunk


def bucket_groups(wrapper: Any) -> "Iterator[Any]":
    yield from wrapper.bucket_groups
    yield from wrapper.expert_parallel_bucket_groups


def global_names(model: Any, expert_rank: int = 0) -> "dict[str, str]":
    """Names of parameters with the layers' numbers in the whole model, from 0, by the parameter's own name.

    A pipeline's rank counts its layers from 0; a layer's `layer_number` counts from 1 over all ranks. Experts
    are counted over all ranks of their group; expert_rank: this rank's place in it."""
    numbers: "dict[str, int]" = {}
    experts: "dict[str, int]" = {}
    for name, module in model.named_modules():
        layer = getattr(module, "layer_number", None)
        if isinstance(layer, int) and re.search(r"(^|\.)\d+$", name):
            numbers[name] = layer - 1
        if name.endswith("local_experts"):
            experts[name] = expert_rank * len(module)
    return {name: _global_name(name, numbers, experts) for name, _ in model.named_parameters()}


def _global_name(name: str, numbers: "dict[str, int]", experts: "dict[str, int]") -> str:
    parts = name.split(".")
    found = list(parts)
    for i, part in enumerate(parts):
        prefix, place = ".".join(parts[:i]), ".".join(parts[: i + 1])
        if place in numbers:
            found[i] = str(numbers[place])
        elif part.isdecimal() and prefix in experts:
            found[i] = str(int(part) + experts[prefix])
    return ".".join(found)
