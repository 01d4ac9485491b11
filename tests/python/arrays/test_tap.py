# SPDX-License-Identifier: Apache-2.0
"""Monitor.tap(): rows of arrays of other libraries are those of torch tensors with the same elements."""
import array
import ctypes
import gc
import json
import sys
import textwrap
import weakref
from pathlib import Path
from typing import Any, Callable

import gradmon
import jobs
import numpy as np
import pytest
import ranks
import torch
import twice

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
    flat = torch.tensor(contiguous.ravel().tolist(), dtype=kinds[contiguous.dtype.name])
    return flat.reshape(contiguous.shape)


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


def tapped(directory: Path, values: "dict[str, Any]", kind: str = "grad_reduced", **keys: Any) -> Any:
    """The rows of one step in which the values were handed in, by name."""
    with twice.monitor_by_hand(directory, **keys).watch() as monitor:
        for name, value in values.items():
            monitor.tap(kind, name, value)
        monitor.step()
    return {name: row for (name, _, _), row in twice.read(directory / "out", kind).items()}


def check(found: "dict[str, Any]", tensor: torch.Tensor, what: str) -> None:
    """As the row of the torch tensor, but for the order of a sum."""
    assert found["dtype"] == str(tensor.dtype), what
    x = (torch.view_as_real(tensor) if tensor.is_complex() else tensor).double().flatten()
    assert (found["min"], found["max"]) == (x.min().item(), x.max().item()), what
    tolerance = 1e-6 if tensor.dtype in (torch.float16, torch.bfloat16) else 1e-12
    assert abs(found["mean"] - x.mean().item()) <= tolerance * x.abs().mean().item(), what
    assert abs(found["norm"] - x.norm().item()) <= tolerance * x.norm().item(), what
    assert found["zeros"] == (x.abs() < 1e-8).double().mean().item(), what


def test_at_least_40_arrays_have_the_rows_of_torch_tensors(tmp_path: Path) -> None:
    names = [*READ, "of_file"]
    assert len(names) >= 40
    made = {name: make(name, tmp_path) for name in names}
    found = tapped(tmp_path, {name: array for name, (array, _) in made.items()})
    assert found.keys() == made.keys()
    for name, (_, tensor) in made.items():
        check(found[name], tensor.detach(), name)


def test_shapes_are_those_of_the_arrays(tmp_path: Path) -> None:
    negative = waves(3, 4, 5)[::-1, :, ::-1]
    tapped(tmp_path, {"negative": negative, "scalar": np.array(1.0), "structure": of_structure()[0]})
    (file,) = (tmp_path / "out").rglob("grad_reduced_*.csv")
    assert all(text in file.read_text() for text in ('"[3, 4, 5]"', "[],", "[7],"))


def test_values_that_are_not_finite_are_counted(tmp_path: Path) -> None:
    values = np.array([1.0, np.nan, -np.inf, 2.0])[::-1]
    row = tapped(tmp_path, {"x": values})["x"]
    assert row["nans"] == 1 and str(row["norm"]) == "nan" and str(row["max"]) == "nan"


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_array_of_numbers_has_no_row_and_a_logged_reason(
    tmp_path: Path, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    array, reason = REFUSED[name]
    found = tapped(tmp_path, {name: array, "other": np.ones(3)})
    assert found.keys() == {"other"}
    said = capfd.readouterr().err
    assert f"{name}: no row: " in said and reason in said


def test_empty_arrays_have_no_row(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert tapped(tmp_path, {**EMPTY, "other": np.ones(3)}).keys() == {"other"}
    assert "no row" not in capfd.readouterr().err


def test_each_kind_has_its_rows(tmp_path: Path) -> None:
    kinds = ["grad_unreduced", "grad_reduced", "param_origin", "param_updated", "exp_avg", "exp_avg_sq"]
    with twice.monitor_by_hand(tmp_path).watch() as monitor:
        for step in range(2):
            for number, kind in enumerate(kinds):
                monitor.tap(kind, "w", np.full(4, number + step + 1.0))
            for micro in range(3):
                monitor.tap("actv", "block.output", np.full(4, 10.0 * step + micro), micro_step=micro)
                monitor.tap("actv_grad", "block.output", np.ones(2), micro_step=micro)
            monitor.step()
    for number, kind in enumerate(kinds):
        found = twice.read(tmp_path / "out", kind)
        assert {key: row["norm"] for key, row in found.items()} == {
            ("w", step, 0): 2 * (number + step + 1.0) for step in range(2)
        }
    activations = twice.read(tmp_path / "out", "actv")
    assert {key: row["max"] for key, row in activations.items()} == {
        ("block.output", step, micro): 10.0 * step + micro for step in range(2) for micro in range(3)
    }
    assert twice.read(tmp_path / "out", "actv_grad").keys() == activations.keys()


def test_rows_stand_beside_those_of_a_torch_model(tmp_path: Path) -> None:
    model, optimizer = jobs.make()
    with twice.monitor_by_hand(tmp_path).watch(model, optimizer) as monitor:

        def tap(step: int) -> None:
            monitor.tap("grad_reduced", "of_numpy", np.full(4, 1.0 + step))

        jobs.train(model, optimizer, 3, reduced=tap)
    found = twice.read(tmp_path / "out", "grad_reduced")
    assert {name for name, _, _ in found} == {"of_numpy", "fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"}
    assert [found["of_numpy", step, 0]["norm"] for step in range(3)] == [2.0, 4.0, 6.0]


def test_off_it_looks_at_one_flag(tmp_path: Path) -> None:
    class Untouchable:
        def __getattribute__(self, name: str) -> Any:
            raise AssertionError(f"{name} was looked at")

    monitor = twice.monitor_by_hand(tmp_path, start_step=1, collect_times=1)
    monitor.tap("grad_reduced", "before", Untouchable())
    with monitor.watch():
        monitor.tap("grad_reduced", "off", Untouchable())
        monitor.step()
        monitor.tap("grad_reduced", "on", np.ones(2))
        monitor.step()
        monitor.tap("grad_reduced", "over", Untouchable())
    monitor.tap("grad_reduced", "stopped", Untouchable())
    assert list(twice.read(tmp_path / "out", "grad_reduced")) == [("on", 1, 0)]


def test_wrong_arguments_are_logged_and_end_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    class Interrupting:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            raise KeyboardInterrupt

    with twice.monitor_by_hand(tmp_path).watch() as monitor:
        monitor.tap("grad", "x", np.ones(2))
        monitor.tap(7, "x", np.ones(2))  # type: ignore[arg-type]
        monitor.tap("actv", "x", np.ones(2), micro_step="first")  # type: ignore[arg-type]
        with pytest.raises(KeyboardInterrupt):
            monitor.tap("actv", "x", Interrupting())
        monitor.tap("actv", "x", np.ones(2))
        monitor.step()
    assert len(twice.read(tmp_path / "out", "actv")) == 1
    said = capfd.readouterr().err
    assert 'kind "grad", expected one of actv, actv_grad, grad_unreduced' in said
    assert said.count("incompatible function arguments") == 2


def test_no_reference_to_an_array_is_kept(tmp_path: Path) -> None:
    class Array(np.ndarray):  # type: ignore[type-arg]
        pass

    kept = np.ones((3, 4)).view(Array)
    exporter = Exporter(torch.ones(5))
    gone = weakref.ref(kept)
    with twice.monitor_by_hand(tmp_path).watch() as monitor:
        before = sys.getrefcount(exporter.tensor)
        for _ in range(10):
            monitor.tap("actv", "x", kept)
            monitor.tap("actv", "y", exporter)
            monitor.tap("actv", "z", kept[:, ::-1])
        del kept
        gc.collect()
        assert gone() is None
        after = sys.getrefcount(exporter.tensor)  # an assertion would hold one itself
        assert after == before
        assert exporter.tensor.storage().data_ptr() != 0 and exporter.tensor.sum() == 5
        monitor.step()


def test_a_job_is_switched_on_without_a_model(tmp_path: Path) -> None:
    """In dynamic mode a plan is accepted though no name is known before the first tap()."""
    config = jobs.write_config(tmp_path, **twice.HANDED_IN, dynamic_on=True, targets={"w": {}})
    with gradmon.Monitor(config, output_dir=tmp_path / "out", dynamic=True) as monitor:
        monitor.watch()

        def collected() -> bool:
            monitor.tap("grad_reduced", "w", np.ones(4))
            monitor.step()
            status = monitor.status()
            return status is not None and status.collected > 2

        assert jobs.eventually(collected)
    found = twice.read(tmp_path / "out", "grad_reduced")
    assert len(found) > 2 and all(name == "w" and row["norm"] == 2 for (name, _, _), row in found.items())


HOSTILE = """
    import ctypes, json, sys
    from pathlib import Path
    import gradmon

    class Tensor(ctypes.Structure):
        _fields_ = [
            ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
            ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
            ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
            ("byte_offset", ctypes.c_uint64),
        ]

    class Managed(ctypes.Structure):
        _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]

    class Versioned(ctypes.Structure):
        _fields_ = [
            ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
            ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", Tensor),
        ]

    new_capsule = ctypes.pythonapi.PyCapsule_New
    new_capsule.restype = ctypes.py_object
    new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    values = (ctypes.c_float * 6)(1, 2, 3, 4, 5, 6)
    alive = []

    def array_of(*numbers):
        made = (ctypes.c_int64 * len(numbers))(*numbers)
        alive.append(made)
        return ctypes.addressof(made)

    def capsule(name=b"dltensor", kind=Managed, pointer=None, **changes):
        tensor = Tensor(ctypes.addressof(values), 1, 0, 2, 2, 32, 1, array_of(2, 3), None, 0)
        for key, value in changes.items():
            setattr(tensor, key, value)
        # A deleter that ends the process if anybody calls it.
        managed = kind(tensor=tensor, deleter=0xdead)
        if kind is Versioned:
            managed.major = changes.get("major", 1)
        alive.append((managed, name))
        return new_capsule(ctypes.addressof(managed) if pointer is None else pointer, name, None)

    class Lying:
        def __init__(self, device, made):
            self.device, self.made = device, made
        def __dlpack_device__(self):
            return self.device
        def __dlpack__(self, **_):
            return self.made

    lies = {
        "name": capsule(name=b"something"),
        "used": capsule(name=b"used_dltensor"),
        "no_name": capsule(name=None),
        "pointer": capsule(pointer=0x10),
        "pointer_high": capsule(pointer=2**64 - 8),
        "device": capsule(device_type=2),
        "version": capsule(name=b"dltensor_versioned", kind=Versioned, major=7),
        "versioned_data": capsule(name=b"dltensor_versioned", kind=Versioned, data=0x20),
        "device_is_no_tuple": Lying("cpu", capsule()),
        "device_is_empty": Lying((), capsule()),
        "device_is_huge": Lying((2**80, 0), capsule()),
        "no_capsule": Lying((1, 0), None),
        "lying_device": Lying((1, 0), capsule(device_type=13)),
    }
    truths = {
        "plain": capsule(),
        "versioned": capsule(name=b"dltensor_versioned", kind=Versioned),
        "reversed": capsule(data=ctypes.addressof(values) + 20, strides=array_of(-3, -1)),
        "odd_address": capsule(data=ctypes.addressof(values) + 1, shape=array_of(1, 5)),
        "used_twice": Lying((1, 0), capsule()),
    }
    directory = Path(sys.argv[1])
    with gradmon.Monitor(directory / "config.json", output_dir=directory / "out", dynamic=False) as monitor:
        monitor.watch()
        for _ in range(3):
            for name, lie in {**lies, **truths}.items():
                monitor.tap("actv", name, lie)
            monitor.step()
    print(json.dumps(sorted(truths)))
"""


def test_lying_capsules_end_nothing(tmp_path: Path) -> None:
    jobs.write_config(tmp_path, **twice.HANDED_IN)
    child = jobs.python("-X", "faulthandler", "-c", textwrap.dedent(HOSTILE), tmp_path)
    assert child.returncode == 0, (child.returncode, child.stderr)
    found = twice.read(tmp_path / "out", "actv")
    assert {name for name, _, _ in found} == set(json.loads(child.stdout))
    assert {step for _, step, _ in found} == {0, 1, 2}
    assert found["reversed", 2, 0]["norm"] == found["plain", 2, 0]["norm"] == found["versioned", 0, 0]["norm"]


OF_TWO_RANKS = """
weight = torch.arange(8.0).reshape(4, 2)
box = {"scope": "shard", "shape": [4, 2], "offset": [2 * rank, 0], "size": [2, 2]}
with gradmon.Monitor(options["config"], output_dir=options["out"], dynamic=False).watch() as monitor:
    jobs.reach_the_hub(monitor)  # both directories are of one run
    for _ in range(2):
        monitor.tap("grad_reduced", "w", weight[2 * rank :][:2].numpy(), scope=box)
        monitor.tap("param_origin", "w", weight.numpy(), scope="replica")
        monitor.tap("actv", "part", weight, scope="local")
        monitor.tap("exp_avg", "unknown", weight)
        monitor.step()
dist.barrier()
"""


def test_what_the_program_says_of_a_value_is_in_scopes_json(tmp_path: Path) -> None:
    config = jobs.write_config(tmp_path, **{**twice.HANDED_IN, "ndigits": 100})
    ranks.run(tmp_path, ranks.GLOO + OF_TWO_RANKS, 2, config=str(config), out=str(tmp_path / "out"))
    (file,) = (tmp_path / "out").glob("*-rank1-*/scopes.json")
    box = {"scope": "shard", "shape": [4, 2], "offset": [2, 0], "size": [2, 2]}
    assert json.loads(file.read_text())["targets"] == {
        "0:w": {"grad_reduced": box, "param_origin": {"scope": "replica"}},
        "0:part": {"actv": {"scope": "local"}},
    }
    rows = gradmon.load(tmp_path / "out", kind=["grad_reduced", "param_origin"], whole=True)
    norms = rows[(rows["op"] == "norm") & (rows["step"] == 0)]
    assert sorted(norms["kind"]) == ["grad_reduced", "param_origin"]
    for norm in norms["value"]:
        assert abs(norm - torch.arange(8.0).double().norm().item()) <= 1e-14 * norm


@pytest.mark.parametrize(
    ("scope", "why"),
    [
        ("shared", "found 'shared'; expected one of whole, replica"),
        ({"scope": "piece", "shape": [4], "begin": 0}, "a piece needs shape, begin, count; count not found"),
        ({"scope": "replica", "ranks": {1}}, "not JSON serializable"),
        ({"scope": "whole", "scale": float("inf")}, "not JSON compliant"),
    ],
)
def test_a_scope_that_is_none_is_named_and_the_value_has_no_row(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], scope: Any, why: str
) -> None:
    with twice.monitor_by_hand(tmp_path).watch() as monitor:
        monitor.tap("grad_reduced", "w", np.ones(4), scope=scope)
        monitor.tap("grad_reduced", "other", np.ones(4))
        monitor.step()
    assert why in capfd.readouterr().err
    assert {name for name, _, _ in twice.read(tmp_path / "out", "grad_reduced")} == {"other"}
