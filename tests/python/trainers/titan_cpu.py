# SPDX-License-Identifier: Apache-2.0
"""Lets torchtitan's Trainer run on a CPU with gloo: without a GPU it asks for the device "cuda". Import it
before torchtitan.

Everything else is torchtitan's: its trainer, its models, FSDP2 as it applies it, its optimizers."""
import types
from typing import Any, Callable

import torch
import torch._utils
from torch.distributed.fsdp import FSDPModule
from torch.distributed.pipelining.schedules import PipelineScheduleSingle


class _Cpu(types.ModuleType):
    """torch.cpu, with what the trainer's log asks a GPU for."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cpu, name)

    def get_device_name(self, _device: Any) -> str:
        return "CPU"

    def get_device_properties(self, _device: Any) -> Any:
        return types.SimpleNamespace(total_memory=1 << 30)

    def memory_stats(self, _device: Any) -> "dict[str, int]":
        return {}

    def current_device(self) -> int:
        return 0

    def reset_peak_memory_stats(self) -> None:
        pass

    def empty_cache(self) -> None:
        pass

    def device_count(self) -> int:
        return 1


torch._utils._get_available_device_type = lambda: "cpu"
torch._utils._get_device_module = lambda _kind: _Cpu("cpu")

import torchtitan.distributed.utils  # noqa: E402  (after the lines above)

# It calls torch.distributed.set_timeout, which torch has from 2.14 on.
torchtitan.distributed.utils.set_pg_timeouts = lambda *_, **__: None


def step_of_micro_batches(original: "Callable[..., Any]") -> "Callable[..., Any]":
    """Takes torchtitan's micro batches, which torch's schedules do from 2.14 on, as one batch."""

    def step(self: Any, *arguments: Any, arg_mbs: Any = None, kwarg_mbs: Any = None, **more: Any) -> Any:
        if kwarg_mbs is None:
            return original(self, *arguments, **more)
        targets = more.pop("target_mbs")
        whole = [torch.cat(parts) for parts in zip(*arg_mbs)] if arg_mbs else []
        target = torch.cat(targets) if targets else None
        return original(self, *whole, target=target, **kwarg_mbs[0], **more)

    return step


setattr(PipelineScheduleSingle, "step", step_of_micro_batches(PipelineScheduleSingle.step))


def summing(parallelize: "Callable[..., Any]") -> "Callable[..., Any]":
    """torchtitan sums gradients, by a reduction that gloo does not have (PREMUL_SUM with the factor 1)."""

    def parallelized(model: Any, **keywords: Any) -> Any:
        model = parallelize(model, **keywords)
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.set_force_sum_reduction_for_comms(True)
        return model

    return parallelized
