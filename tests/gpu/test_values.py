# SPDX-License-Identifier: Apache-2.0
"""Every statistic of every element type against float64."""
import math

import pytest
import torch
from reading import Started, check, same

NARROW = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"]
TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
TYPES += [getattr(torch, name) for name in NARROW if hasattr(torch, name)]
# Tensors of one element, of less and more than a vector, a tile (16 KiB) and a chunk (64 KiB), of many chunks.
SIZES = [1, 2, 3, 15, 16, 17, 255, 4095, 4096, 4097, 16383, 65536, 65537, 1 << 20, (1 << 22) + 5]


def values(size: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return torch.randn(size, device="cuda", generator=generator).to(dtype)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_sizes(dtype: torch.dtype) -> None:
    tensors = [values(size, dtype, size) for size in SIZES]
    for grouped in (True, False):
        started = Started(tensors, grouped=grouped)
        assert started.by_kernel == len(tensors), torch.ops.gradmon_device.problem()
        for row, tensor in zip(started.rows(), tensors):
            check(row, tensor)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_unaligned(dtype: torch.dtype) -> None:
    whole = values(100_000, dtype)
    tensors = [whole[begin : begin + size] for begin in range(1, 20) for size in (1, 7, 16, 40, 70_001)]
    started = Started(tensors)
    assert started.by_kernel == len(tensors)
    for row, tensor in zip(started.rows(), tensors):
        check(row, tensor)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_unaligned_about_the_size_of_chunks(dtype: torch.dtype) -> None:
    """The vectors of 16 bytes begin after the first few elements: none is in two chunks."""
    chunk = 65536 // dtype.itemsize
    whole = values(3 * chunk + 100, dtype)
    whole[2 * chunk + 40 :] = math.nan
    sizes = [count * chunk + more for count in (1, 2) for more in range(9)]
    tensors = [whole[begin : begin + size] for begin in (1, 2, 3, 7) for size in sizes]
    started = Started(tensors)
    assert started.by_kernel == len(tensors)
    for row, tensor in zip(started.rows(), tensors):
        check(row, tensor)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_special_values(dtype: torch.dtype) -> None:
    info = torch.finfo(dtype)
    lists = [
        [0.0, -0.0],
        [-0.0] * 40,
        [0.0] * 5000,
        [math.nan] * 33,
        [math.inf, 1.0],
        [-math.inf, math.inf, 1.0],
        [math.inf] + [0.5] * 5000 + [math.nan],
        [info.max] * 100,
        [-info.max, info.max] * 50,
        [info.tiny] * 100,
        [info.smallest_normal / 2] * 100,
        [info.smallest_normal / 4, 1.0] * 3000,
        [1e-8] * 20 + [9e-9] * 20 + [1.1e-8] * 20,
        [1e-30] * 100 + [1e30] * 3,
        [1e-20] * 1000,
    ]
    tensors = [torch.tensor(numbers, dtype=torch.float64, device="cuda").to(dtype) for numbers in lists]
    started = Started(tensors)
    assert started.by_kernel == len(tensors)
    for row, tensor in zip(started.rows(), tensors):
        check(row, tensor)


@pytest.mark.parametrize("dtype", [t for t in TYPES if t.itemsize <= 2], ids=str)
def test_every_bit_pattern(dtype: torch.dtype) -> None:
    """Each pattern of the type alone among ones, and all of them together."""
    kind = torch.uint8 if dtype.itemsize == 1 else torch.int16
    patterns = torch.arange(256 if dtype.itemsize == 1 else 65536, device="cuda").to(kind).view(dtype)
    check(Started([patterns]).rows()[0], patterns)
    if dtype.itemsize > 1:
        patterns = patterns[::97]
    rows = Started([pattern.reshape(1) for pattern in patterns]).rows()
    for row, value in zip(rows, patterns.double().tolist()):
        assert same(row["min"], value) and same(row["max"], value), (row, value)
        assert row["nans"] == (1 if math.isnan(value) else 0)


@pytest.mark.parametrize("eps", [0.0, 1e-8, 0.1, 1.0, 1e30, math.inf])
def test_zeros_are_below_eps_in_double(eps: float) -> None:
    tensors = [values(10_000, dtype) for dtype in TYPES]
    tensors += [torch.tensor([0.1, -0.1, 0.0999, 0.10001] * 10, device="cuda").to(dtype) for dtype in TYPES]
    for row, tensor in zip(Started(tensors, eps).rows(), tensors):
        check(row, tensor, eps)


def test_strides() -> None:
    whole = values(64 * 96 * 10, torch.float32).reshape(64, 96, 10)
    dense = [
        whole.transpose(0, 2),
        whole.permute(1, 2, 0),
        whole[5],
        whole.reshape(4, 16, 96, 10).contiguous(memory_format=torch.channels_last),
    ]
    with_holes = [whole[:, ::2], whole[:, :, 0], whole[0, 0, 0].expand(7, 9), whole[:, 3:50]]
    started = Started(dense)
    assert started.by_kernel == len(dense)
    for row, tensor in zip(started.rows(), dense):
        check(row, tensor)
    started = Started(with_holes)
    assert started.by_kernel == 0
    for row, tensor in zip(started.rows(), with_holes):
        check(row, tensor)


def test_other_types_are_read_by_torch() -> None:
    tensors = [
        torch.arange(100, device="cuda", dtype=dtype) for dtype in (torch.int64, torch.int32, torch.uint8)
    ]
    started = Started(tensors)
    assert started.by_kernel == 0
    for row, tensor in zip(started.rows(), tensors):
        check(row, tensor)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_torch_ops_agree(dtype: torch.dtype) -> None:
    """The second implementation."""
    tensors = [values(size, dtype, size) for size in (1, 100, 70_000)]
    tensors.append(torch.tensor([1.0, math.nan, 2.0], device="cuda").to(dtype))
    rows = Started(tensors, kernel=False).rows()
    for row, tensor in zip(rows, tensors):
        check(row, tensor)


@pytest.mark.parametrize("dtype", TYPES[:4], ids=str)
def test_scalar_reference_agrees(dtype: torch.dtype) -> None:
    """The CPU's loop, of one element after the other."""
    tensors = [values(size, dtype, size) for size in (1, 100, 70_001)]
    tensors.append(torch.tensor([1.0, math.nan, -math.inf, 0.0], device="cuda").to(dtype))
    for row, tensor in zip(Started(tensors).rows(), tensors):
        found = torch.ops.gradmon_device.reference(tensor.cpu(), 1e-8).tolist()
        least, greatest, total, squares, nans, zeros = found
        assert row["nans"] == nans and row["zeros"] == zeros / tensor.numel()
        assert nans or (row["min"] == least and row["max"] == greatest)
        assert same(row["norm"], math.sqrt(squares)) or math.isclose(
            row["norm"], math.sqrt(squares), rel_tol=1e-6
        )
        magnitudes = float(tensor.double().abs().sum())
        assert same(row["mean"], total / tensor.numel()) or (
            abs(row["mean"] * tensor.numel() - total) <= 1e-6 * magnitudes
        )


def test_accuracy_of_many_elements() -> None:
    """2^30 of float32: sums and norms right to 1e-6; the same bits in each run."""
    tensor = torch.rand(1 << 30, device="cuda")
    first, second = Started([tensor]).rows()[0], Started([tensor], grouped=False).rows()[0]
    assert first == second
    double = tensor.view(64, -1)
    total = sum(float(part.double().sum()) for part in double)
    squares = sum(float(part.double().square().sum()) for part in double)
    assert math.isclose(first["mean"], total / tensor.numel(), rel_tol=1e-6)
    assert math.isclose(first["norm"], math.sqrt(squares), rel_tol=1e-6)


def test_more_than_2_to_the_31_elements() -> None:
    tensor = torch.ones((1 << 31) + 100_003, dtype=torch.bfloat16, device="cuda")
    tensor[-1] = -3
    tensor[1 << 31] = math.inf
    row = Started([tensor]).rows()[0]
    assert row["min"] == -3 and row["max"] == math.inf and row["norm"] == math.inf
    tensor[1 << 31] = 0
    row = Started([tensor]).rows()[0]
    count = tensor.numel()
    assert row["mean"] == (count - 2 - 3) / count
    assert row["norm"] == math.sqrt(count - 2 + 9)
    assert row["zeros"] == 1 / count


def test_result_depends_on_the_tensor_alone() -> None:
    """Not on what is read beside it, nor on the order of blocks: the same bits."""
    tensors = [values(size, dtype, size) for dtype in TYPES[:4] for size in (1000, 300_000, 5_000_000)]
    alone = [Started([tensor], grouped=False).rows()[0] for tensor in tensors]
    for _ in range(5):
        assert Started(tensors).rows() == alone
        assert Started(tensors[::-1]).rows() == alone[::-1]
