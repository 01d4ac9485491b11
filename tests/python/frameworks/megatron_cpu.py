# SPDX-License-Identifier: Apache-2.0
"""Lets Megatron core's own classes run on a CPU: they ask for the device "cuda", its streams and its types.

Everything else is Megatron's: buffers, buckets, collectives (gloo), optimizers."""
import contextlib
from typing import Any, Iterator, Optional

import torch
import torch.distributed as dist
from megatron.core import optimizer as optimizers
from megatron.core.optimizer.layer_wise_optimizer import LayerWiseDistributedOptimizer
from megatron.core.tensor_parallel import generalized_tensor_parallelism, gtp_api
from megatron.core.tensor_parallel.random import CudaRNGStatesTracker
from megatron.core.transformer import torch_norm
from torch.overrides import TorchFunctionMode


class _Stream:
    """There is one stream, and it is in order. Also an event on it."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def record(self, *_: Any) -> None:
        pass

    def wait(self, *_: Any) -> None:
        pass

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
    replaced = ("current_stream", "current_device", "synchronize", "stream", "Event", "Stream")
    kept = {name: getattr(torch.cuda, name) for name in replaced}
    torch.cuda.Event = torch.cuda.Stream = _Stream
    torch.cuda.stream = lambda *_: contextlib.nullcontext()
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


def with_weight_shards() -> None:
    """Lets GTP run without Transformer Engine: its collectives are torch's, and gloo sums in place of AVG.
    They are done when they return: there is one stream."""
    sum_over = dist.all_reduce

    def all_reduce(tensor: torch.Tensor, op: Any = dist.ReduceOp.SUM, group: Any = None, **how: Any) -> Any:
        if op != dist.ReduceOp.AVG:
            return sum_over(tensor, op=op, group=group, **how)
        sum_over(tensor, group=group)
        return tensor.div_(dist.get_world_size(group))

    def gather(
        shard: torch.Tensor,
        group: Any,
        async_op: bool = False,
        quantizer: Any = None,
        output_tensor: Any = None,
    ) -> Any:
        out: torch.Tensor = output_tensor
        if out is None:
            out = shard.new_empty((shard.shape[0] * group.size(), *shard.shape[1:]))
        dist.all_gather_into_tensor(out, shard.detach(), group=group)
        return out, _Stream()

    def scatter(
        whole: torch.Tensor, group: Any, async_op: bool = False, output: "Optional[torch.Tensor]" = None
    ) -> Any:
        if output is None:
            output = whole.new_empty((whole.shape[0] // group.size(), *whole.shape[1:]))
        dist.reduce_scatter_tensor(output, whole, group=group)
        return output, _Stream()

    dist.all_reduce = all_reduce
    gtp: Any = generalized_tensor_parallelism
    gtp.gather_along_first_dim, gtp.reduce_scatter_along_first_dim = gather, scatter
    gtp.in_fp8_activation_recompute_phase = lambda: False
    gtp.get_dummy_wgrad = lambda shape, dtype, zero=False: torch.zeros(shape, dtype=dtype)
    gtp.nvtx_range_push = gtp.nvtx_range_pop = lambda *_: None
    gtp.QuantizedTensor = _Stream  # no tensor is one
    gtp.HAVE_TE = gtp_api.HAVE_GTP = True
    # Weights of one padded shape share a buffer. So small a model has such weights one after the other.
    gtp.update_gtp_config(weight_prefetch=False, async_reduction=False)


class _Norm(torch.nn.LayerNorm):
    """As Apex's: Megatron's own LayerNorm refuses sequence parallelism."""

    def __init__(self, config: Any, hidden_size: int, eps: float = 1e-5, **_: Any) -> None:
        super().__init__(hidden_size, eps)
        for one in self.parameters():
            one.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]


def with_norms_of_sequences() -> None:
    torch_norm.WrappedTorchNorm.__new__ = lambda _, *given, **options: _Norm(*given, **options)


def with_muon(lr: float) -> None:
    """torch's Muon in place of emerging_optimizers'. gloo has no all_gather of different sizes."""
    entry = optimizers.emerging_optimizers.EmergingOptimizerEntry(
        optimizer_cls=torch.optim.Muon, init_state_fn=lambda *_: None, config_to_kwargs=lambda *_: {"lr": lr}
    )
    optimizers.HAVE_EMERGING_OPTIMIZERS = True
    optimizers._EMERGING_OPTIMIZERS["muon"] = entry
    LayerWiseDistributedOptimizer.allgather_params = LayerWiseDistributedOptimizer.broadcast_params
