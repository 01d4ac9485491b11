#!/bin/bash
# One would guess: a custom operator that torch is told to run in order (an effectful operator) may return a tensor
# that the backward pass uses, in a checkpointed part of a compiled function as well as outside of one.
# What happens: outside, it does. In a checkpointed part, compiling succeeds and the call raises an AssertionError:
# "expected all tensors_saved_with_vc_check to be Tensors, got types: [NoneType, ...]". Results of effectful operators
# must be saved there, not recomputed; the partitioner marks all results of the node, and the token that orders the
# effects is one of them. At run time a token is None. An operator without a result is fine in both places, since the
# backward pass then needs nothing of the node; so is a second operator without effect that returns the value.
# Seen with torch 2.13.0 on the CPU (_functorch/partitioners.py, force_save_effectful_ops; runtime_wrappers.py).
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.3.5 2>/dev/null
"$place/venv/bin/python" - 2>/dev/null <<'END'
import torch
from torch._higher_order_ops.effects import _EffectType, _register_effectful_op
from torch.utils.checkpoint import checkpoint


@torch.library.custom_op("finding::number", mutates_args=())
def number(x: torch.Tensor) -> torch.Tensor:
    return torch.tensor(3)


@number.register_fake
def _(x):
    return torch.empty((), dtype=torch.int64)


_register_effectful_op(torch.ops.finding.number.default, _EffectType.ORDERED)


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, n):
        ctx.save_for_backward(n)
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0], None


def part(x):
    return Scaled.apply(x.sin(), torch.ops.finding.number(x))


def gradient(function):
    torch._dynamo.reset()
    x = torch.zeros(1, requires_grad=True)
    try:
        torch.compile(function, backend="aot_eager", fullgraph=True)(x).sum().backward()
        return x.grad.item()
    except AssertionError as error:
        return "AssertionError: " + str(error)[:92]


plain = gradient(lambda x: part(part(x)))
within = gradient(lambda x: checkpoint(part, checkpoint(part, x, use_reentrant=False), use_reentrant=False))
print("torch", torch.__version__, "| outside of a checkpoint:", plain)
print("within one:", within)
assert plain == 9.0 and "NoneType" in str(within), "this has changed"
END
