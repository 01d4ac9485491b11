# SPDX-License-Identifier: Apache-2.0
"""Arrays of other libraries, each with the torch tensor of the same elements, made by plain copies."""
import array
import ctypes
from pathlib import Path
from typing import Any, Callable

import numpy as np
import torch

Made = "tuple[Any, torch.Tensor]"


class Exporter:
    """An array that has nothing but DLPack, of a torch tensor."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def __dlpack_device__(self) -> "tuple[int, int]":
        return (1, 0)

    def __dlpack__(self, stream: Any = None) -> Any:
        return torch.utils.dlpack.to_dlpack(self.tensor)


class WithVersion(Exporter):
    """It also takes the argument of DLPack 1.0."""

    def __dlpack__(self, stream: Any = None, max_version: Any = None) -> Any:
        assert max_version == (1, 0)
        return torch.utils.dlpack.to_dlpack(self.tensor)


class OnDevice(Exporter):
    """Its memory is on a device; a copy can be had."""

    def __dlpack_device__(self) -> "tuple[int, int]":
        return (2, 0)

    def __dlpack__(self, stream: Any = None) -> Any:
        raise AssertionError("its memory is not for the CPU")

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.tensor.numpy().copy()


class LikeMindSpore:
    def __init__(self, values: Any) -> None:
        self.values = values

    def asnumpy(self) -> Any:
        return self.values


def waves(*sizes: int) -> Any:
    return np.sin(np.arange(float(np.prod(sizes))) * 0.7 + 0.3).reshape(sizes)


def copied(values: Any) -> torch.Tensor:
    """Element by element: torch's own conversion of arrays is not used."""
    contiguous = np.array(values, order="C", copy=True)
    kinds = {"float16": torch.float16, "float32": torch.float32, "float64": torch.float64, "bool": torch.bool}
    kinds.update({name: getattr(torch, name) for name in ("int8", "int16", "int32", "int64", "uint8")})
    kinds.update({name: getattr(torch, name) for name in ("complex64", "complex128")})
    return torch.tensor(contiguous.ravel().tolist(), dtype=kinds[contiguous.dtype.name]).reshape(
        contiguous.shape
    )


def of_type(name: str) -> Callable[[], Made]:
    def make() -> Made:
        values = waves(3, 5) * 100
        typed = values > 0 if name == "bool" else (values + 1j * values[::-1] if name[0] == "c" else values)
        typed = (np.abs(typed) if name == "uint8" else typed).astype(name)
        return typed, copied(typed)

    return make


def view(values: Any) -> Callable[[], Made]:
    return lambda: (values, copied(values))


def read_only() -> Made:
    values = waves(4, 6)
    values.flags.writeable = False
    return values, copied(values)


def of_structure() -> Made:
    values = np.zeros(7, dtype=[("flag", "i1"), ("x", "f8"), ("y", "f4")])
    values["x"] = waves(7)
    assert values["x"].strides == (13,)
    return values["x"], copied(values["x"])


def misaligned() -> Made:
    raw = bytearray(1 + 8 * 9)
    raw[1:] = waves(9).tobytes()
    values = np.frombuffer(raw, dtype="f8", offset=1)
    return values, copied(values)


def exported(kind: Any, tensor: torch.Tensor) -> Callable[[], Made]:
    return lambda: (kind(tensor), tensor.clone())


def ctypes_matrix() -> Made:
    matrix = ((ctypes.c_double * 3) * 2)((1.5, -2.0, 3.0), (0.0, 5.25, -6.0))
    return matrix, torch.tensor([[1.5, -2.0, 3.0], [0.0, 5.25, -6.0]], dtype=torch.float64)


def of_file(directory: Path) -> Made:
    values = np.memmap(directory / "values", dtype="f4", mode="w+", shape=(5, 3))
    values[:] = waves(5, 3)
    values.flush()
    return np.memmap(directory / "values", dtype="f4", mode="r", shape=(5, 3)), copied(values)


READ: "dict[str, Callable[[], Made]]" = {
    **{
        name: of_type(name)
        for name in (
            *("float64", "float32", "float16", "int8", "int16", "int32", "int64", "uint8", "bool"),
            *("complex64", "complex128"),
        )
    },
    "reversed": view(waves(11)[::-1]),
    "both_reversed": view(waves(4, 6)[::-1, ::-1]),
    "one_reversed": view(waves(3, 4, 5)[:, ::-1]),
    "reversed_steps": view(waves(40)[35:2:-3]),
    "every_second": view(waves(40)[::2]),
    "column": view(waves(9, 4)[:, 2]),
    "transposed": view(waves(4, 6).T),
    "axes_moved": view(np.moveaxis(waves(3, 4, 5), 0, 2)),
    "column_major": view(np.asfortranarray(waves(4, 6))),
    "broadcast": view(np.broadcast_to(waves(5), (7, 5))),
    "broadcast_reversed": view(np.broadcast_to(waves(5, 1)[::-1], (2, 5, 3))),
    "windows": view(np.lib.stride_tricks.sliding_window_view(waves(20), 6)),
    "large": view(waves(300, 1000).astype("float32")[::-1, 1::2]),
    "zero_dimensional": view(np.array(-2.5)),
    "number_of_numpy": view(np.float32(3.25)),
    "read_only": read_only,
    "one_byte_of_the_other_order": view(waves(5).astype(">i1")),
    "of_structure": of_structure,
    "misaligned": misaligned,
    "standard_array": lambda: (array.array("f", [1.5, -2.0]), torch.tensor([1.5, -2.0])),
    "bytes": lambda: (b"\x00\x05\xff", torch.tensor([0, 5, 255], dtype=torch.uint8)),
    "memory_view": lambda: (
        memoryview(array.array("d", [1.0, -2.0, 0.5, 4.0]))[::-2],
        torch.tensor([4.0, -2.0], dtype=torch.float64),
    ),
    "ctypes": ctypes_matrix,
    "torch": lambda: (torch.arange(6.0).reshape(2, 3).t() - 2, torch.arange(6.0) - 2),
    "torch_with_gradient": lambda: (torch.ones(3, requires_grad=True) * 2, torch.ones(3) * 2),
    "dlpack_float32": exported(Exporter, torch.sin(torch.arange(12.0)).reshape(3, 4)),
    "dlpack_strided": exported(Exporter, torch.sin(torch.arange(24.0)).reshape(4, 6).t()[1:, ::2]),
    "dlpack_expanded": exported(Exporter, torch.tensor([1.0, -2.0]).expand(3, 2)),
    "dlpack_float16": exported(Exporter, torch.sin(torch.arange(12.0)).half()),
    "dlpack_bfloat16": exported(Exporter, torch.sin(torch.arange(12.0)).bfloat16()),
    "dlpack_int64": exported(Exporter, torch.arange(-5, 6)),
    "dlpack_scalar": exported(Exporter, torch.tensor(0.125)),
    "dlpack_with_version": exported(WithVersion, torch.sin(torch.arange(12.0))),
    "dlpack_capsule": lambda: (torch.utils.dlpack.to_dlpack(torch.ones(2, 3)), torch.ones(2, 3)),
    "on_a_device": exported(OnDevice, torch.sin(torch.arange(12.0))),
    "like_mindspore": lambda: (LikeMindSpore(waves(3, 4)[::-1]), copied(waves(3, 4)[::-1])),
}

EMPTY: "dict[str, Any]" = {
    "empty": np.zeros((0,)),
    "empty_matrix": np.zeros((3, 0, 2)),
    "empty_dlpack": Exporter(torch.zeros(0, 4)),
}


class Raising:
    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise ValueError("deleted\nby its owner")


class GivesText:
    def __dlpack__(self, stream: Any = None) -> Any:
        return "no capsule"


# With a part of the reason that the log gives.
REFUSED: "dict[str, tuple[Any, str]]" = {
    "other_order": (waves(5).astype(">f8"), "the other byte order"),
    "other_order_half": (waves(5).astype(">f2"), "the other byte order"),
    "other_order_integers": (np.arange(5, dtype=">i4"), "the other byte order"),
    "objects": (np.array([1, "x"], dtype=object), '"O"'),
    "text": (np.array(["a", "bc"]), "no numbers that can be read"),
    "structure": (np.zeros(3, dtype=[("x", "f4")]), "no numbers that can be read"),
    "long_double": (waves(5).astype("longdouble"), '"g"'),
    "dates": (np.array(["2026-11-25"], dtype="datetime64[D]"), "no row"),
    "list": ([1.0, 2.0], "list is no array"),
    "nothing": (None, "NoneType is no array"),
    "raising": (Raising(), "deleted"),
    "gives_text": (GivesText(), "__dlpack__() gave str, no capsule"),
}


def make(name: str, directory: Path) -> Made:
    return of_file(directory) if name == "of_file" else READ[name]()
