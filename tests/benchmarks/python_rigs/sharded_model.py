# SPDX-License-Identifier: Apache-2.0
"""A model whose forward and backward cost hardly more than writing the gradients, plain or under FSDP2."""
from typing import Any

import torch
import torch.distributed as dist


def one_rank() -> None:
    """A process group of this process alone, once."""
    if not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)


class _Touch(torch.autograd.Function):
    """Uses parameters; their gradients are given."""

    @staticmethod
    def forward(ctx: Any, gradients: "list[torch.Tensor]", *parameters: torch.Tensor) -> torch.Tensor:
        ctx.gradients = gradients
        return torch.zeros(())

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        return (None, *ctx.gradients)


class Touched(torch.nn.Module):
    """Parameters of these shapes."""

    def __init__(self, shapes: "list[torch.Size]") -> None:
        super().__init__()
        for number, shape in enumerate(shapes):
            self.register_parameter(f"p{number}", torch.nn.Parameter(torch.full(shape, 0.5)))
        self.gradients = [torch.full(shape, 1e-3) for shape in shapes]

    def forward(self) -> torch.Tensor:
        found: torch.Tensor = _Touch.apply(self.gradients, *self.parameters())
        return found

    def backward(self) -> None:
        for parameter in self.parameters():
            parameter.grad = None
        self().backward()


def sharded(shapes: "list[torch.Size]") -> Touched:
    """Under FSDP2, in one rank."""
    from torch.distributed.fsdp import fully_shard

    one_rank()
    model = Touched(shapes)
    fully_shard(model)
    return model
