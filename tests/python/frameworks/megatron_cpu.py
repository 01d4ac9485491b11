# SPDX-License-Identifier: Apache-2.0
"""Lets Megatron core's own classes run on a CPU: they ask for the device "cuda", its streams and its types.

Everything else is Megatron's: buffers, buckets, collectives (gloo), optimizers."""
import contextlib
from typing import Any, Iterator

import torch
from megatron.core.tensor_parallel.random import CudaRNGStatesTracker
from torch.overrides import TorchFunctionMode


class _Stream:
    """There is one stream, and it is in order."""

    def wait_event(self, _event: Any) -> None:
        pass

    def wait_stream(self, _stream: Any) -> None:
        pass


class OnCpu(TorchFunctionMode):
    """Makes tensors for "cuda" on the CPU, and calls a CPU tensor's type by its CUDA name."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        keywords = dict(kwargs or {})
        if str(keywords.get("device", "")).startswith("cuda"):
            keywords["device"] = "cpu"
        if func is torch.Tensor.cuda:
            return args[0]
        found = func(*args, **keywords)
        if func is torch.Tensor.type and len(args) == 1 and not keywords:
            return found.replace("torch.", "torch.cuda.")
        return found


@contextlib.contextmanager
def on_cpu() -> "Iterator[None]":
    kept = {name: getattr(torch.cuda, name) for name in ("current_stream", "current_device", "synchronize")}
    torch.cuda.current_stream = lambda *_: _Stream()
    torch.cuda.current_device = lambda: "cpu"
    torch.cuda.synchronize = lambda *_: None
    fork = CudaRNGStatesTracker.fork  # random states are a GPU's; nothing here is random
    CudaRNGStatesTracker.fork = lambda *_: contextlib.nullcontext()
    try:
        with OnCpu():
            yield
    finally:
        CudaRNGStatesTracker.fork = fork
        for name, function in kept.items():
            setattr(torch.cuda, name, function)
