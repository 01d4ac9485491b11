# SPDX-License-Identifier: Apache-2.0
"""Rows of torchao's and Transformer Engine's tensors, and of every type of torch.

The classes here have the names and attributes of the real ones, and refuse every operator: gradmon may read
attributes alone. frameworks/test_torchao.py has the real classes of torchao."""
import csv
import enum
import json
import math
from pathlib import Path
from typing import Any, Callable, Iterator, NamedTuple, Optional

import gradmon
import jobs
import pytest
import torch
import twice

E8M0 = getattr(torch, "float8_e8m0fnu", torch.uint8)
E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0]


class Refusing(torch.Tensor):
    """A tensor without memory of its own."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.detach.default:  # torch.nn.Parameter() needs it
            return like(args[0])
        raise AssertionError(f"{func} was called on a {cls.__name__}")


def make(name: str, sizes: Any, dtype: torch.dtype = torch.float32, **attributes: Any) -> torch.Tensor:
    bases: Any = Refusing
    for part in reversed(name.split("/")):
        bases = type(part, (bases,), {})
    tensor: torch.Tensor = torch.Tensor._make_wrapper_subclass(bases, torch.Size(sizes), dtype=dtype)
    for attribute, value in attributes.items():
        setattr(tensor, attribute, value)
    return tensor


def like(tensor: Any) -> torch.Tensor:
    copy = torch.Tensor._make_wrapper_subclass(type(tensor), tensor.shape, dtype=tensor.dtype)
    for attribute, value in vars(tensor).items():
        setattr(copy, attribute, value)
    return copy  # type: ignore[no-any-return]


class Case(NamedTuple):
    tensor: torch.Tensor
    numbers: torch.Tensor  # that it stands for
    dtype: str
    scale: Optional[torch.Tensor] = None  # the numbers of the row NAME.scale
    scale_dtype: str = "torch.float32"


def waves(*sizes: int) -> torch.Tensor:
    return (torch.arange(float(math.prod(sizes))) * 0.37 + 0.2).sin().reshape(sizes) * 5


def codes(*sizes: int, below: int = 256) -> torch.Tensor:
    torch.manual_seed(3)
    return torch.randint(0, below, sizes, dtype=torch.uint8)


def pairs(bytes_: torch.Tensor, high_first: bool) -> torch.Tensor:
    both = [bytes_ >> 4, bytes_ & 15] if high_first else [bytes_ & 15, bytes_ >> 4]
    return torch.stack(both, -1).flatten(-2)


def e2m1(bytes_: torch.Tensor) -> torch.Tensor:
    return torch.tensor(E2M1)[pairs(bytes_, False).long()]


def spread(scale: torch.Tensor, rows: int, columns: int, sizes: Any) -> torch.Tensor:
    """The scale of each number: one for each block of so many rows and columns."""
    each = scale.repeat_interleave(rows, 0).repeat_interleave(columns, 1)
    return each[: math.prod(sizes[:-1]), : sizes[-1]].reshape(sizes)


# --- torchao ---


def held(name: str, attribute: str, **more: Any) -> Case:
    inside = waves(8, 6).bfloat16()
    scale = more.get("_precomputed_scale")
    tensor = make(name, inside.shape, inside.dtype, **{attribute: inside}, **more)
    return Case(tensor, inside, "torch.bfloat16", scale)


def cast_weight() -> Case:
    return held("WeightWithDynamicFloat8CastTensor", "_tensor", _precomputed_scale=torch.tensor(89.5))


def float8_training(scale: torch.Tensor, dtype: str, kind: str = "float8_e4m3fn") -> Case:
    data = waves(2, 3, 4).to(getattr(torch, kind))
    tensor = make("Float8TrainingTensor", data.shape, torch.bfloat16, _data=data, _scale=scale)
    return Case(tensor, data.to(torch.bfloat16) / scale, dtype, scale)


def optim_8bit() -> Case:
    found, scale, qmap = codes(6, 64), waves(6).abs(), torch.linspace(-1, 1, 256) ** 3
    numbers = (qmap[found.long()] * scale.view(-1, 1)).view(12, 32)
    tensor = make("OptimState8bit", (12, 32), codes=found.view(12, 32), scale=scale, qmap=qmap)
    return Case(tensor, numbers, "int8/dynamic", scale)


def optim_4bit() -> Case:
    found, scale, qmap = codes(4 * 32), waves(4).abs(), torch.linspace(-1, 1, 16) ** 3
    numbers = qmap[pairs(found, True).long()].view(4, -1) * scale.view(-1, 1)
    tensor = make("OptimState4bit", (16, 16), codes=found, scale=scale, qmap=qmap)
    return Case(tensor, numbers.view(16, 16), "int4/dynamic", scale)


def optim_fp8() -> Case:
    found, scale = waves(6, 64).to(torch.float8_e4m3fn), waves(6).abs()
    numbers = (found.float() * scale.view(-1, 1)).view(12, 32)
    tensor = make("OptimStateFp8", (12, 32), codes=found.view(12, 32), scale=scale)
    return Case(tensor, numbers, "float8_e4m3fn/block", scale)


def int8_weight() -> Case:
    data, scale = codes(6, 10).view(torch.int8), waves(6).bfloat16()
    tensor = make("Int8QuantizedTrainingLinearWeight", (6, 10), torch.bfloat16, int_data=data, scale=scale)
    return Case(tensor, data * scale.view(-1, 1), "int8/axis", scale, "torch.bfloat16")


def exponents(*sizes: int) -> "tuple[torch.Tensor, torch.Tensor]":
    """Bytes, and the powers of two that they stand for."""
    found = codes(*sizes) // 8 + 112
    return found, torch.ldexp(torch.ones(sizes), found.int() - 127)


def in_tiles(scale: torch.Tensor) -> torch.Tensor:
    rows, columns = scale.shape
    high, wide = -(-rows // 128), -(-columns // 4)
    padded = torch.full((high * 128, wide * 4), 7, dtype=torch.uint8)
    padded[:rows, :columns] = scale
    return padded.view(high, 4, 32, wide, 4).permute(0, 3, 2, 1, 4).contiguous()


MX: "dict[str, tuple[Any, Callable[[torch.Tensor], torch.Tensor]]]" = {
    "mxfp8_e4m3": ("float8_e4m3fn", lambda x: x.view(torch.float8_e4m3fn).float()),
    "mxfp8_e5m2": ("float8_e5m2", lambda x: x.view(torch.float8_e5m2).float()),
    "mxfp4_e2m1": ("float4_e2m1fn_x2", e2m1),
    "mxfp6_e2m3": (None, lambda x: small(x, 2, 3)),
    "mxfp6_e3m2": (None, lambda x: small(x, 3, 2)),
}


def small(found: torch.Tensor, exponent: int, mantissa: int) -> torch.Tensor:
    """Floats of that many bits, by the definition of the format."""

    def number(code: int) -> float:
        fraction = code & (1 << mantissa) - 1
        power = code >> mantissa & (1 << exponent) - 1
        bias = (1 << exponent - 1) - 1
        size = math.ldexp(fraction + (1 << mantissa if power else 0), max(power, 1) - bias - mantissa)
        return -size if code >> exponent + mantissa else size

    return torch.tensor([number(code) for code in range(64)])[found.long()]


def mx(dtype: str, transposed: bool = False, swizzled: bool = False) -> Case:
    name, decode = MX[dtype]
    below = 64 if name is None else 256 if "4" in dtype[:5] else 120  # no NaN
    found = codes(130, 32 if "mxfp4" in dtype else 64, below=below)
    stored, scale = exponents(130, 2)
    numbers = decode(found) * spread(scale, 1, 32, (130, 64))
    data = found.view(getattr(torch, name)) if "mxfp8" in dtype else found
    kept = in_tiles(stored).view(64, 16) if swizzled else stored
    parts = [part.t() if transposed else part for part in (data, kept.view(E8M0))]
    tensor = make(
        "MXTensor",
        (64, 130) if transposed else (130, 64),
        torch.bfloat16,
        qdata=parts[0],
        scale=parts[1],
        # torch 2.6 has no float4_e2m1fn_x2: a name prints alike
        elem_dtype=Printed(f"torch.{name}") if name else Printed(dtype[2:]),
        block_size=32,
        is_swizzled_scales=swizzled,
    )
    return Case(tensor, numbers, f"{dtype}/32", scale, "torch.float8_e8m0fnu")


class Printed(str):
    """Prints as the dtype."""


def nvfp4(experts: bool, swizzled: bool) -> Case:
    sizes = (2, 70, 64) if experts else (130, 64)
    found, block = codes(*sizes[:-1], 32), codes(*sizes[:-1], 4, below=120)
    scale = block.view(torch.float8_e4m3fn)
    all_ = torch.tensor([0.3, 0.7]).view(2, 1, 1) if experts else torch.tensor(0.3)
    factors = all_ * scale.float()
    numbers = (e2m1(found).view(*sizes[:-1], 4, 16) * factors.unsqueeze(-1)).view(sizes)
    kept = in_tiles(block.view(-1, 4)).view(torch.float8_e4m3fn) if swizzled else scale
    tensor = make(
        "NVFP4Tensor", sizes, qdata=found, scale=kept, per_tensor_scale=all_, is_swizzled_scales=swizzled
    )
    return Case(tensor, numbers, "nvfp4_e2m1/16", scale.float(), "torch.float8_e4m3fn")


# --- Transformer Engine ---


class DType(enum.IntEnum):
    kFloat8E4M3 = 7
    kFloat8E5M2 = 8


ENGINE = "{}/{}Storage/QuantizedTensor"


def engine(name: str, sizes: Any, dtype: DType = DType.kFloat8E4M3, **parts: Any) -> torch.Tensor:
    return make(ENGINE.format(name, name), sizes, _fp8_dtype=dtype, **parts)


def te_float8(transposed: bool = False) -> Case:
    data, scale = waves(6, 10).to(torch.float8_e5m2), torch.tensor([0.37])
    bytes_ = data.view(torch.uint8)
    parts = {"_data": None, "_transpose": bytes_.t().contiguous()} if transposed else {"_data": bytes_}
    tensor = engine(
        "Float8Tensor", (6, 10), DType.kFloat8E5M2, _scale_inv=scale, _transpose_invalid=False, **parts
    )
    return Case(tensor, data.float() * scale, "float8_e5m2/tensor", scale)


def te_mxfp8(by_rows: bool, swizzled: bool = False) -> Case:
    data = waves(3, 32, 96).to(torch.float8_e4m3fn)
    rows, columns = (96, 3) if by_rows else (3, 96)
    stored, scale = exponents(rows, columns)
    padded = codes(128, 4) if by_rows else codes(4, 128)
    padded[:rows, :columns] = stored
    if swizzled:
        padded = in_tiles(stored).view(128, 4)
    side = "_rowwise" if by_rows else "_columnwise"
    parts = {"_rowwise_data": None, side + "_data": data.view(torch.uint8), side + "_scale_inv": padded}
    tensor = engine("MXFP8Tensor", data.shape, _with_gemm_swizzled_scales=swizzled, **parts)
    numbers = data.float() * spread(scale, *((1, 32) if by_rows else (32, 1)), data.shape)
    return Case(tensor, numbers, "mxfp8_e4m3/32", scale, "torch.float8_e8m0fnu")


def te_nvfp4(row_scaled: bool) -> Case:
    found, block = codes(20, 48), codes(20, 6, below=120)
    largest = waves(20).abs() if row_scaled else torch.tensor([3.7])
    padded = codes(128, 8)
    padded[:20, :6] = block
    factors = block.view(torch.float8_e4m3fn).float() * largest.view(-1, 1) * torch.tensor(1 / (6 * 448))
    parts = {"_rowwise_data": found, "_rowwise_scale_inv": padded, "_amax_rowwise": largest}
    numbers, scale = e2m1(found) * spread(factors, 1, 16, (20, 96)), block.view(torch.float8_e4m3fn).float()
    tensor = engine("NVFP4Tensor", (20, 96), **parts)
    return Case(tensor, numbers, "nvfp4_e2m1/16", scale, "torch.float8_e4m3fn")


def te_blocks(both: bool, by_rows: bool = True) -> Case:
    data = waves(200, 300).to(torch.float8_e4m3fn)
    block = 128 if both else 1
    scale = waves(2 if both else 200, 3).abs()
    padded = torch.full((scale.shape[0], 4), 1e9)
    padded[:, :3] = scale
    if not both:
        padded = torch.cat([scale, torch.full((4, 3), 1e9)]).t().contiguous()
    side = "_rowwise" if by_rows else "_columnwise"
    parts = {"_rowwise_data": None, side + "_data": data.view(torch.uint8), side + "_scale_inv": padded}
    sizes = (200, 300) if by_rows else (300, 200)
    tensor = engine("Float8BlockwiseQTensor", sizes, _is_2D_scaled=both, **parts)
    return Case(tensor, data.float() * spread(scale, block, 128, (200, 300)), "float8_e4m3fn/block", scale)


def te_hybrid() -> Case:
    inner = te_mxfp8(True)
    storage = type("MXFP8TensorStorage", (), dict(vars(inner.tensor)))()
    tensor = engine("HybridQuantizedTensor", inner.tensor.shape, _rowwise_storage=storage)
    return inner._replace(tensor=tensor)


def local_of_dtensor() -> Case:
    """As FSDP2 with float8 all-gather has it: the DTensor's local tensor is a wrapper, too."""
    inner = optim_8bit()
    tensor = make("DTensor", inner.tensor.shape, _local_tensor=inner.tensor, _spec=OneRank())
    return inner._replace(tensor=tensor)


class OneRank:
    """The placements of a tensor on one rank."""

    class mesh:
        shape = (1,)
        mesh_dim_names = None
        mesh = torch.zeros(1, dtype=torch.int64)

        @staticmethod
        def get_coordinate() -> "list[int]":
            return [0]

    placements = ()
    shape = (12, 32)


TRAINING_WEIGHT = "TrainingWeightWrapperTensor/TrainingWeightWrapperBaseTensor"
CASES: "dict[str, Callable[[], Case]]" = {
    "cast_weight": cast_weight,
    "training_weight": lambda: held("Float8" + TRAINING_WEIGHT, "_data"),
    "mx_training_weight": lambda: held("MXFP8" + TRAINING_WEIGHT, "_data"),
    "identity": lambda: held(ENGINE.format("IdentityTensor", "IdentityTensor"), "_hp_data"),
    "optim_8bit": optim_8bit,
    "optim_4bit": optim_4bit,
    "int8_weight": int8_weight,
    "mxfp4": lambda: mx("mxfp4_e2m1"),
    "mxfp4_transposed": lambda: mx("mxfp4_e2m1", transposed=True),
    "mxfp4_swizzled": lambda: mx("mxfp4_e2m1", swizzled=True),
    "mxfp6_e2m3": lambda: mx("mxfp6_e2m3"),
    "mxfp6_e3m2": lambda: mx("mxfp6_e3m2"),
    "local_of_dtensor": local_of_dtensor,
    "float8_tensor": lambda: float8_training(torch.tensor(3.7), "float8_e4m3fn/tensor"),
    "float8_e5m2": lambda: float8_training(torch.tensor(3.7), "float8_e5m2/tensor", "float8_e5m2"),
    "float8_rows": lambda: float8_training(waves(2, 1, 1), "float8_e4m3fn/axis"),
    "float8_columns": lambda: float8_training(waves(1, 1, 4), "float8_e4m3fn/axis"),
    "float8_each_row": lambda: float8_training(waves(2, 3, 1), "float8_e4m3fn/axis"),
    "optim_fp8": optim_fp8,
    "mxfp8_e4m3": lambda: mx("mxfp8_e4m3"),
    "mxfp8_e5m2": lambda: mx("mxfp8_e5m2"),
    "mxfp8_transposed": lambda: mx("mxfp8_e4m3", transposed=True),
    "mxfp8_swizzled": lambda: mx("mxfp8_e4m3", transposed=True, swizzled=True),
    "nvfp4": lambda: nvfp4(experts=False, swizzled=False),
    "nvfp4_experts": lambda: nvfp4(experts=True, swizzled=False),
    "nvfp4_swizzled": lambda: nvfp4(experts=True, swizzled=True),
    "te_float8": te_float8,
    "te_float8_transposed": lambda: te_float8(transposed=True),
    "te_mxfp8": lambda: te_mxfp8(by_rows=True),
    "te_mxfp8_swizzled": lambda: te_mxfp8(by_rows=True, swizzled=True),
    "te_mxfp8_columns": lambda: te_mxfp8(by_rows=False),
    "te_nvfp4": lambda: te_nvfp4(row_scaled=False),
    "te_nvfp4_rows": lambda: te_nvfp4(row_scaled=True),
    "te_blocks": lambda: te_blocks(both=True),
    "te_blocks_of_rows": lambda: te_blocks(both=False),
    "te_blocks_of_columns": lambda: te_blocks(both=False, by_rows=False),
    "te_hybrid": te_hybrid,
}


def tapped(
    directory: Path, values: "dict[str, Any]", kind: str = "param_origin"
) -> "dict[str, dict[str, Any]]":
    directory.mkdir(exist_ok=True)
    with twice.monitor_by_hand(directory).watch() as monitor:
        for name, value in values.items():
            monitor.tap(kind, name, value)
        monitor.step()
    return {name: row for (name, _, _), row in twice.read(directory / "out", kind).items()}


Found = "dict[str, dict[str, Any]]"


@pytest.fixture(scope="module")
def cases() -> "dict[str, Case]":
    return {name: case() for name, case in CASES.items()}


@pytest.fixture(scope="module")
def found(cases: "dict[str, Case]", tmp_path_factory: pytest.TempPathFactory) -> Found:
    directory = tmp_path_factory.mktemp("low")
    return tapped(directory, {name: case.tensor for name, case in cases.items()})


def check(row: "dict[str, Any]", numbers: torch.Tensor, dtype: str) -> None:
    assert row["dtype"] == dtype
    x = numbers.detach().double()
    assert (row["min"], row["max"], row["absmax"]) == (x.min(), x.max(), x.abs().max())
    assert abs(row["mean"] - x.mean()) <= 1e-13 * x.abs().mean() * (1e7 if dtype == "torch.bfloat16" else 1)
    assert abs(row["norm"] - x.norm()) <= 1e-13 * x.norm() * (1e7 if dtype == "torch.bfloat16" else 1)
    assert (row["nans"], row["zeros"]) == (x.isnan().sum(), (x.abs() < 1e-8).double().mean())


@pytest.mark.parametrize("name", CASES)
def test_low_precision_and_its_scale_have_rows(name: str, cases: "dict[str, Case]", found: Found) -> None:
    case = cases[name]
    check(found[name], case.numbers, case.dtype)
    if case.scale is None:
        assert name + ".scale" not in found
    else:
        check(found[name + ".scale"], case.scale, case.scale_dtype)


def test_a_tensor_of_many_pieces_has_the_row_of_the_whole(tmp_path: Path) -> None:
    """Blocks do not divide the pieces, and one row is longer than a piece."""
    for number, (blocks, block) in enumerate([(1500, 448), (3, 300_000), (700_001, 1)]):
        found, scale, qmap = codes(blocks, block), waves(blocks), torch.linspace(-1, 1, 256)
        sizes = (blocks * block,)
        tensor = make("OptimState8bit", sizes, codes=found.view(sizes), scale=scale, qmap=qmap)
        rows = tapped(tmp_path / str(number), {"x": tensor})
        check(rows["x"], qmap[found.long()] * scale.view(-1, 1), "int8/dynamic")


def test_a_nan_in_the_scale_is_counted(tmp_path: Path) -> None:
    case = mx("mxfp4_e2m1")
    case.tensor.scale.view(torch.uint8)[1, 1] = 255  # type: ignore[attr-defined]
    rows = tapped(tmp_path, {"x": case.tensor})
    assert rows["x"]["nans"] == 32 and rows["x.scale"]["nans"] == 1


def bad_mx() -> torch.Tensor:
    tensor = mx("mxfp4_e2m1").tensor
    tensor.block_size = 16  # type: ignore[attr-defined]
    return tensor


def bad_scale() -> torch.Tensor:
    tensor = optim_8bit().tensor
    tensor.scale = waves(7)  # type: ignore[attr-defined]
    return tensor


REFUSED: "dict[str, tuple[Callable[[], torch.Tensor], str]]" = {
    "blocks_of_16": (bad_mx, "an MXTensor of blocks of 16 elements, not 32"),
    "other_class": (
        lambda: make("NewTensor", (4,), data_=waves(4)),
        "tensors of class NewTensor wrap others",
    ),
    "other_attributes": (lambda: make("MXTensor", (4,), q=waves(4)), "tensors of class MXTensor wrap others"),
    "no_data": (
        lambda: engine("Float8Tensor", (4, 4), _data=None, _scale_inv=waves(1), _transpose_invalid=True),
        "a Float8Tensor without data",
    ),
    "rotated": (
        lambda: engine("NVFP4Tensor", (4, 4), _rowwise_data=None, _columnwise_data=codes(4, 2)),
        "a NVFP4Tensor without _rowwise_data",
    ),
    "ragged": (bad_scale, "shape '[7, -1]' is invalid"),
    "wrapper_inside": (
        lambda: make("OptimState8bit", (4,), codes=make("Fake", (4,)), scale=waves(1)),
        "its codes: tensors of class Fake wrap others",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_numbers_that_are_not_understood_have_no_row_and_a_logged_reason(
    tmp_path: Path, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    made, reason = REFUSED[name]
    assert tapped(tmp_path, {name: made(), "plain": waves(3)}).keys() == {"plain"}
    said = capfd.readouterr().err
    assert f"{name}: no row: " in said and reason in said


# --- in training ---


class LowBitAdam(torch.optim.Optimizer):
    """Keeps its moments as torchao's AdamW8bit does."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__(model.parameters(), {"lr": 0.1, "betas": (0.9, 0.999), "eps": 1e-8})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for number, parameter in enumerate(self.param_groups[0]["params"]):
            if parameter.grad is None:
                continue
            state = self.state[parameter]
            if not state:
                state.update(step=torch.tensor(0.0))
                for key in ("exp_avg", "exp_avg_sq"):
                    parts = {"codes": codes(*parameter.shape), "scale": waves(1), "qmap": waves(256)}
                    state[key] = make("OptimState8bit", parameter.shape, **parts)
            state["step"] += 1
            for key in ("exp_avg", "exp_avg_sq"):
                state[key].codes.add_(number + 1)
            parameter.data.add_(parameter.grad, alpha=-0.1)


def test_moments_of_8_bits_have_rows_and_training_is_the_same(tmp_path: Path) -> None:
    def training(noted: twice.Noted, monitor: Any) -> None:
        model = jobs.make_net()
        optimizer = LowBitAdam(model)
        monitor.watch(model, optimizer)
        for step in range(3):
            for name, parameter in model.named_parameters():
                for kind in ("exp_avg", "exp_avg_sq"):
                    kept = optimizer.state[parameter].get(kind) if parameter in optimizer.state else None
                    if kept is not None:
                        noted.note(kind, name, step, kept.qmap[kept.codes.long()] * kept.scale)
                        noted.note(kind, name + ".scale", step, kept.scale)
            optimizer.zero_grad()
            model(jobs.batch(step)).pow(2).mean().backward()
            optimizer.step()
        noted.stop(monitor, model)

    plain = twice.both(tmp_path, training, **{"ur_distribution": True, "scalars": {"adam_m_norm": "records"}})
    for kind in ("exp_avg", "exp_avg_sq"):
        rows = twice.read(tmp_path / "out", kind)
        assert rows.keys() == plain.tensors[kind].keys()
        for (name, step, micro), tensor in plain.tensors[kind].items():
            dtype = "torch.float32" if name.endswith(".scale") else "int8/dynamic"
            check(rows[name, step, micro], tensor, dtype)
    # The update is not computed from such moments; its kind says so, and nothing else is lost.
    assert twice.read(tmp_path / "out", "grad_reduced")
    assert not list((tmp_path / "out").rglob("update_*.csv"))


def test_a_scale_is_no_part_of_the_norm_of_all_weights(tmp_path: Path) -> None:
    case = optim_4bit()
    model = torch.nn.Linear(3, 2)
    model.register_parameter("low", torch.nn.Parameter(case.tensor, requires_grad=False))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    keys = {"param_distribution": True, "ndigits": 17, "scalars": {"weight_norm": "records"}}
    with jobs.monitor(tmp_path, jobs.ALONE, **keys).watch(model, optimizer):
        model(waves(4, 3)).sum().backward()
        optimizer.step()
    rows = twice.read(tmp_path / "out", "param_updated")
    assert {"low", "low.scale"} <= {name for name, _, _ in rows}
    whole = scalar_rows(tmp_path / "out")["weight_norm"]
    plain = [parameter for name, parameter in model.named_parameters() if name != "low"]
    expected = math.sqrt(sum(float(x.double().norm()) ** 2 for x in [*plain, case.numbers]))
    assert math.isclose(whole, expected, rel_tol=1e-12)


# --- torch's own types ---


def all_types() -> "list[torch.dtype]":
    found = {str(value): value for value in vars(torch).values() if isinstance(value, torch.dtype)}
    return list(found.values())


def test_each_type_of_torch_has_its_row_or_a_reason(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    bytes_ = codes(64, below=100)
    values = {}
    for dtype in all_types():
        quantised = {torch.qint8: 0, torch.quint8: 3, torch.qint32: 0}.get(dtype)
        try:
            if quantised is not None:
                values[str(dtype)] = torch.quantize_per_tensor(waves(16), 0.1, quantised, dtype)
            else:
                values[str(dtype)] = (bytes_ % 2 if dtype is torch.bool else bytes_.clone()).view(dtype)
        except (RuntimeError, TypeError):
            continue  # no such tensor can be made
    rows = tapped(tmp_path, values)
    assert len(rows) >= 17
    for name, row in rows.items():
        tensor = values[name]
        numbers = tensor.dequantize() if tensor.is_quantized else tensor
        x = (torch.view_as_real(numbers) if numbers.is_complex() else numbers).double()
        assert row["dtype"] == name
        assert (row["min"], row["max"], row["nans"]) == (x.min(), x.max(), x.isnan().sum()), name
        assert abs(row["mean"] - x.mean()) <= 1e-6 * x.abs().mean(), name
        assert abs(row["norm"] - x.norm()) <= 1e-6 * x.norm(), name
    absent = {name.partition("torch.")[2] for name in values.keys() - rows.keys()}
    assert not absent or "no row: " in capfd.readouterr().err
    bits = {f"bits{n}" for n in ("8", "16", "1x8", "2x4", "4x2")}
    small = {f"{sign}int{n}" for sign in ("", "u") for n in range(1, 8)}
    assert absent <= {"float4_e2m1fn_x2", "quint2x4", "quint4x2"} | bits | small, absent


# --- partial DTensors ---


@pytest.fixture
def mesh() -> "Iterator[Any]":
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    yield init_device_mesh("cpu", (2,))
    dist.destroy_process_group()


def placed(mesh: Any, local: torch.Tensor, placement: str) -> Any:
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

    how = {"partial": Partial(), "replicate": Replicate(), "shard": Shard(0)}[placement]
    return DTensor.from_local(local, mesh, [how], run_check=False)


def scalar_rows(output: Path) -> "dict[str, float]":
    found = {}
    for file in output.rglob("scalar_*.csv"):
        with file.open(newline="") as text:
            found.update({row["name"]: float(row["value"]) for row in csv.DictReader(text)})
    return found


def test_a_part_of_a_number_is_refused_with_the_remedy(
    tmp_path: Path, mesh: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    names = ("whole", "norm", "shard", "expert_load")
    with jobs.monitor(tmp_path, jobs.ALONE, scalars={name: "records" for name in names}).watch() as monitor:
        monitor.scalar("whole", placed(mesh, torch.tensor(3.0), "replicate"))
        monitor.scalar("norm", placed(mesh, torch.tensor(2.0), "partial"))
        monitor.scalar("shard", placed(mesh, torch.ones(1), "shard"))
        monitor.expert_load("moe", placed(mesh, torch.tensor([2, 3]), "partial"))
        monitor.expert_load("moe", [placed(mesh, torch.tensor(2), "partial")])
        monitor.expert_load("whole", placed(mesh, torch.tensor([1, 3]), "replicate"))
        monitor.step()
    found = scalar_rows(tmp_path / "out")
    assert {"whole": 3.0, "expert_load/whole/0": 0.25, "expert_load/whole/1": 0.75} == found
    said = capfd.readouterr().err
    for what in ("scalar 'norm'", "scalar 'shard'", "expert_load 'moe'"):
        assert f"{what}: not recorded: each rank holds a part of this DTensor" in said
    assert "full_tensor()" in said


def test_a_summand_that_is_tapped_or_observed_is_said_to_be_partial(tmp_path: Path, mesh: Any) -> None:
    def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
        gradmon.observe(placed(mesh, x, "partial"), "summand")
        return x

    model = jobs.Parts(forward)
    monitor = jobs.monitor(tmp_path, jobs.ALONE, **twice.HANDED_IN, all_xy=True)
    with monitor.watch(model):
        model(waves(4))
        monitor.tap("grad_reduced", "w", placed(mesh, waves(4), "partial"))
        monitor.step()
    (file,) = (tmp_path / "out").rglob("scopes.json")
    targets = json.loads(file.read_text())["targets"]
    assert targets["0:w"]["grad_reduced"]["scope"] == "partial"
    assert targets["0:summand.output"]["actv"]["scope"] == "partial"
