# SPDX-License-Identifier: Apache-2.0
"""Detects that an engine with an adapter makes the updates of a model."""
import os
from typing import Any, Callable, Optional, Union

from gradmon.monitor import Monitor
from gradmon.sharded.sharding import is_kind

# Its arguments: the config, micro batches of a step, number of the first step.
Watch = Callable[[Union[str, "os.PathLike[str]"], int, int], Monitor]


def engine_watch(chunks: "list[Any]", optimizer: Any) -> Optional[Watch]:
    """Returns a function that watches them by their engine's adapter; None if no such engine updates them.

    chunks: one model, or the chunks of a pipeline. Imports an adapter, but no engine."""
    if len(chunks) == 1 and is_kind(chunks[0], "DeepSpeedEngine"):
        return lambda config, _, first: _watch_deepspeed(chunks[0], config, first)
    if is_kind(optimizer, "MegatronOptimizer") and all(_has_buckets(chunk) for chunk in chunks):
        return lambda config, steps, first: _watch_megatron(chunks, optimizer, config, steps, first)
    return None


def _has_buckets(chunk: Any) -> bool:
    from gradmon.megatron.chunks import wrapper_with_buckets

    return wrapper_with_buckets(chunk) is not None


def _watch_deepspeed(engine: Any, config: Any, first: int) -> Monitor:
    from gradmon import deepspeed

    return deepspeed.watch(engine, config, start_iteration=first or None)


def _watch_megatron(chunks: "list[Any]", optimizer: Any, config: Any, steps: int, first: int) -> Monitor:
    from gradmon import megatron

    return megatron.watch(chunks, optimizer, config, grad_acc_steps=steps, start_iteration=first)
