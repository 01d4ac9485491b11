# SPDX-License-Identifier: Apache-2.0
"""Reads memory and does nothing else, as a Triton kernel. Raises ImportError without Triton."""
import torch
import triton
import triton.language as tl

BLOCK = 8192


@triton.jit
def _read(data, sums, count, block: tl.constexpr):  # type: ignore[no-untyped-def]
    place = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    tl.store(sums + tl.program_id(0), tl.sum(tl.load(data + place, mask=place < count, other=0)))


def read(numbers: torch.Tensor) -> torch.Tensor:
    """A sum for each 32 KiB of the int32 numbers."""
    blocks = triton.cdiv(numbers.numel(), BLOCK)
    sums = torch.empty(blocks, dtype=torch.int32, device=numbers.device)
    _read[(blocks,)](numbers, sums, numbers.numel(), block=BLOCK)
    return sums
