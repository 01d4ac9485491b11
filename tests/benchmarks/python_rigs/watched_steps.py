# SPDX-License-Identifier: Apache-2.0
"""Pairs of equal optimizer steps, of which a monitor watches one, to measure what an idle monitor adds."""
from pathlib import Path
from typing import Any, Callable, NamedTuple

import torch
from sharded_model import one_rank

import gradmon


class Pair(NamedTuple):
    monitor: Any
    bare: "Callable[[], Any]"
    watched: "Callable[[], Any]"


class EmptyStep:
    """An optimizer that does nothing. It does not derive from torch's class, which calls the
    profiler in each step: those microseconds vary by more than the measured time."""

    def __init__(self, parameters: "list[torch.nn.Parameter]") -> None:
        self.param_groups = [{"params": parameters}]
        self.state: "dict[Any, Any]" = {}

    def step(self) -> None:
        pass


class _MegatronOptimizer(EmptyStep):
    """Like a chained optimizer of Megatron core: its own step ends a step of training."""

    chained_optimizers: "list[Any]" = []


class _DistributedDataParallel(torch.nn.Module):
    """Like Megatron core's class: a model with groups of buckets."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module
        self.bucket_groups: "list[Any]" = []
        self.expert_parallel_bucket_groups: "list[Any]" = []


def plain(config: Path, options: "dict[str, Any]") -> Pair:
    return _by_monitor(torch.nn.Linear(4, 3), config, options)


def under_fsdp2(config: Path, options: "dict[str, Any]") -> Pair:
    from torch.distributed.fsdp import fully_shard

    one_rank()
    model = torch.nn.Linear(4, 3)
    fully_shard(model)
    return _by_monitor(model, config, options)


def under_megatron(config: Path, options: "dict[str, Any]") -> Pair:
    chunk = _DistributedDataParallel(torch.nn.Linear(4, 3))
    bare, watched = (_MegatronOptimizer(list(chunk.parameters())) for _ in range(2))
    monitor = gradmon.megatron.watch(chunk, watched, config, **options)
    return Pair(monitor, lambda: bare.step(), lambda: watched.step())


def _by_monitor(model: torch.nn.Module, config: Path, options: "dict[str, Any]") -> Pair:
    bare, watched = EmptyStep(list(model.parameters())), EmptyStep(list(model.parameters()))
    monitor = gradmon.Monitor(config, **options).watch(model, watched)
    return Pair(monitor, lambda: bare.step(), lambda: watched.step())
