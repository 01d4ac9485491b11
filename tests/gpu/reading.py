# SPDX-License-Identifier: Apache-2.0
"""Reads tensors through the operators of device_operators.cc, and by double arithmetic beside them."""
import math
from typing import List, Sequence

import torch

EPS = 1e-8


class Started:
    """Statistics that the device may still be computing."""

    def __init__(
        self, tensors: Sequence[torch.Tensor], eps: float = EPS, grouped: bool = True, kernel: bool = True
    ):
        self._handle = torch.ops.gradmon_device.start(list(tensors), eps, grouped, kernel)
        self.by_kernel: int = torch.ops.gradmon_device.by_kernel(self._handle)

    def ready(self) -> bool:
        return bool(torch.ops.gradmon_device.ready(self._handle))

    def rows(self) -> "List[dict[str, float]]":
        """Waits, and returns the statistics of each tensor by name."""
        names = torch.ops.gradmon_device.ops()
        return [dict(zip(names, row)) for row in torch.ops.gradmon_device.take(self._handle).tolist()]


def in_double(tensor: torch.Tensor, eps: float = EPS) -> "dict[str, float]":
    """The same by torch in float64, part by part, so that large tensors need little memory."""
    flat = tensor.detach().reshape(-1)
    nans = zeros = 0
    total = squares = 0.0
    least, greatest = math.inf, -math.inf
    for part in flat.split(1 << 26):
        wide = part.double()
        nans += int(wide.isnan().sum())
        zeros += int((wide.abs() < eps).sum())
        total += float(wide.sum())
        squares += float((wide * wide).sum())
        kept = wide[~wide.isnan()]
        if kept.numel():
            least, greatest = min(least, float(kept.min())), max(greatest, float(kept.max()))
    if nans:
        least = greatest = math.nan
    count = flat.numel()
    return {
        "min": least,
        "max": greatest,
        "mean": total / count,
        "norm": math.sqrt(squares),
        "nans": float(nans),
        "zeros": zeros / count,
        "absmax": max(abs(least), abs(greatest)),
    }


def check(row: "dict[str, float]", tensor: torch.Tensor, eps: float = EPS) -> None:
    """Counts, min and max must be exact, norms right to 1e-6, sums to 1e-6 of the magnitudes' sum."""
    expected = in_double(tensor, eps)
    magnitudes = sum(float(part.double().abs().sum()) for part in tensor.detach().reshape(-1).split(1 << 26))
    for name in ("min", "max", "nans", "zeros", "absmax"):
        assert same(row[name], expected[name]), (name, row, expected)
    assert same(row["norm"], expected["norm"]) or math.isclose(row["norm"], expected["norm"], rel_tol=1e-6), (
        row,
        expected,
    )
    if math.isfinite(magnitudes) and not same(row["mean"], expected["mean"]):
        assert abs(row["mean"] - expected["mean"]) <= 1e-6 * magnitudes / tensor.numel(), (row, expected)


def same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))
