# SPDX-License-Identifier: Apache-2.0
"""The real torchao: its tensors have the rows of what its own dequantize() gives; training is the same."""
import json
from pathlib import Path
from typing import Any, Callable

import jobs
import pytest
import ranks
import torch
import torchao.optim
import twice
from torchao.float8 import Float8LinearConfig, convert_to_float8_training
from torchao.float8.float8_training_tensor import hp_tensor_and_scale_to_float8
from torchao.prototype.moe_training.config import Float8TrainingOpConfig, MXFP8TrainingOpConfig
from torchao.prototype.moe_training.tensor import (
    Float8TrainingWeightWrapperTensor,
    MXFP8TrainingWeightWrapperTensor,
)
from torchao.prototype.mx_formats.mx_tensor import MXTensor
from torchao.prototype.mx_formats.nvfp4_tensor import NVFP4Tensor, per_tensor_amax_to_scale
from torchao.prototype.quantized_training.int8 import Int8QuantizedTrainingLinearWeight


@pytest.fixture(autouse=True)
def without_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """torchao compiles its optimizers' step, which takes a minute. TORCH_COMPILE_DISABLE=1 does not help:
    torch 2.13 then raises, because torchao asks for the full graph."""
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)


class Net(torch.nn.Module):
    """The first weight has enough elements for moments of few bits, the bias has not."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = torch.nn.Linear(64, 128)
        self.last = torch.nn.Linear(128, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.wide(x).relu()).pow(2).mean()  # type: ignore[no-any-return]


def waves(*sizes: int) -> torch.Tensor:
    return (torch.arange(float(torch.Size(sizes).numel())) * 0.37 + 0.2).sin().reshape(sizes) * 5


MOMENTS = ("exp_avg", "exp_avg_sq")
DTYPES = {"AdamW8bit": "int8/dynamic", "AdamW4bit": "int4/dynamic", "AdamWFp8": "float8_e4m3fn/block"}


@pytest.mark.parametrize("name", DTYPES)
def test_moments_of_few_bits_have_the_rows_of_what_they_stand_for(tmp_path: Path, name: str) -> None:
    low: "set[str]" = set()

    def training(noted: twice.Noted, monitor: Any) -> None:
        model = Net()
        optimizer = getattr(torchao.optim, name)(model.parameters(), lr=0.01)
        monitor.watch(model, optimizer)
        for step in range(3):
            for of, parameter in model.named_parameters():
                for kind in MOMENTS if parameter in optimizer.state else ():
                    kept = optimizer.state[parameter][kind]
                    if type(kept) is not torch.Tensor:
                        low.add(of)
                        noted.note(kind, of + ".scale", step, kept.scale)
                        kept = kept.dequantize()
                    noted.note(kind, of, step, kept)
            optimizer.zero_grad()
            model(waves(4, 64) + step).backward()
            optimizer.step()
        noted.stop(monitor, model)

    plain = twice.both(tmp_path, training)
    assert low == {"wide.weight", "last.weight"}
    for kind in MOMENTS:
        found = twice.read(tmp_path / "out", kind)
        assert found.keys() == plain.tensors[kind].keys()
        for key, tensor in plain.tensors[kind].items():
            twice.check_bits(found[key], tensor, (kind, *key), DTYPES[name] if key[0] in low else None)


def float8(scale: torch.Tensor, x: torch.Tensor, **more: Any) -> Any:
    return hp_tensor_and_scale_to_float8(x, scale, torch.float8_e4m3fn, **more)


def mx(kind: Any, swizzled: bool = False, turned: bool = False, x: Any = None) -> Any:
    made = MXTensor.to_mx(waves(160, 96) if x is None else x, kind, is_swizzled_scales=swizzled)
    return made.t() if turned else made


def nvfp4(swizzled: bool) -> Any:
    x = waves(160, 96)
    scale = per_tensor_amax_to_scale(x.abs().amax())
    return NVFP4Tensor.to_nvfp4(x, per_tensor_scale=scale, is_swizzled_scales=swizzled)


MADE: "dict[str, tuple[Callable[[], Any], str]]" = {
    "float8": (lambda: float8(torch.tensor(44.5), waves(6, 8)), "float8_e4m3fn/tensor"),
    "float8_rows": (lambda: float8(waves(6, 1).abs(), waves(6, 8), axiswise_dim=-1), "float8_e4m3fn/axis"),
    "mxfp8_e4m3": (lambda: mx(torch.float8_e4m3fn), "mxfp8_e4m3/32"),
    "mxfp8_e5m2": (lambda: mx(torch.float8_e5m2, turned=True), "mxfp8_e5m2/32"),
    "mxfp8_tiny": (lambda: mx(torch.float8_e4m3fn, x=waves(2, 64) * 1e-38), "mxfp8_e4m3/32"),
    "mxfp8_tiles": (lambda: mx(torch.float8_e4m3fn, swizzled=True), "mxfp8_e4m3/32"),
    "mxfp6_e2m3": (lambda: mx("fp6_e2m3"), "mxfp6_e2m3/32"),
    "mxfp6_e3m2": (lambda: mx("fp6_e3m2"), "mxfp6_e3m2/32"),
    "mxfp4": (lambda: mx(torch.float4_e2m1fn_x2), "mxfp4_e2m1/32"),
    "nvfp4": (lambda: nvfp4(swizzled=False), "nvfp4_e2m1/16"),
    "nvfp4_tiles": (lambda: nvfp4(swizzled=True), "nvfp4_e2m1/16"),
    "int8": (lambda: Int8QuantizedTrainingLinearWeight.from_float(waves(6, 8)), "int8/axis"),
}


def numbers_of(tensor: Any) -> torch.Tensor:
    if hasattr(tensor, "to_original_precision"):
        return tensor.to_original_precision()  # type: ignore[no-any-return]
    if isinstance(tensor, (MXTensor, NVFP4Tensor)):
        return tensor.dequantize(torch.float32)
    return tensor.dequantize()  # type: ignore[no-any-return]


def test_quantised_tensors_have_the_rows_of_what_they_stand_for(tmp_path: Path) -> None:
    made = {name: make() for name, (make, _) in MADE.items()}
    with twice.monitor_by_hand(tmp_path).watch() as monitor:
        for name, tensor in made.items():
            monitor.tap("param_origin", name, tensor)
        monitor.step()
    found = twice.read(tmp_path / "out", "param_origin")
    for name, (_, dtype) in MADE.items():
        twice.check_bits(found[name, 0, 0], numbers_of(made[name]), name, dtype)
        assert (name + ".scale", 0, 0) in found


def float8_net(**_: Any) -> Any:
    config = Float8LinearConfig(enable_fsdp_float8_all_gather=True, emulate=True)
    return convert_to_float8_training(Net(), config=config)


def wrapped_net(wrapper: Any, config: Any) -> Any:
    model = Net()
    model.wide.weight = torch.nn.Parameter(wrapper(model.wide.weight.detach(), config))
    return model


NETS: "dict[str, tuple[Callable[[], Any], bool]]" = {  # and whether a forward of it runs on a CPU
    "WeightWithDynamicFloat8CastTensor": (float8_net, True),
    "Float8TrainingWeightWrapperTensor": (
        lambda: wrapped_net(Float8TrainingWeightWrapperTensor, Float8TrainingOpConfig()),
        False,
    ),
    "MXFP8TrainingWeightWrapperTensor": (
        lambda: wrapped_net(MXFP8TrainingWeightWrapperTensor, MXFP8TrainingOpConfig()),
        False,
    ),
}


@pytest.mark.parametrize("name", NETS)
def test_weights_that_are_cast_in_the_forward_have_the_rows_of_the_weights_themselves(
    tmp_path: Path, name: str
) -> None:
    make, runs = NETS[name]

    def training(noted: twice.Noted, monitor: Any) -> None:
        model = make()
        assert type(model.wide.weight).__name__ == name
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
        monitor.watch(model, optimizer)
        for step in range(2):
            optimizer.zero_grad()
            if runs:
                model(waves(4, 64) + step).backward()
            else:
                for parameter in model.parameters():
                    parameter.grad = torch.ones(parameter.shape)
            weights(noted, model, step, "param_origin")
            optimizer.step()
            weights(noted, model, step, "param_updated")
        for parameter in model.parameters():
            noted.ends.append(plain_of(parameter).clone())

    plain = twice.both(tmp_path, training)
    for kind in ("param_origin", "param_updated"):
        twice.check_rows(twice.read(tmp_path / "out", kind), plain.tensors[kind], kind)


def plain_of(parameter: Any) -> torch.Tensor:
    for attribute in ("_tensor", "_data"):
        if type(parameter) is not torch.nn.Parameter and hasattr(parameter, attribute):
            return getattr(parameter, attribute).detach()  # type: ignore[no-any-return]
    return parameter.detach()  # type: ignore[no-any-return]


def weights(noted: twice.Noted, model: torch.nn.Module, step: int, kind: str) -> None:
    for name, parameter in model.named_parameters():
        noted.note(kind, name, step, plain_of(parameter))


def plain_moment(kept: Any) -> torch.Tensor:
    return kept if type(kept) is torch.Tensor else kept.dequantize()  # type: ignore[no-any-return]


SHARDED = """
import json, sys, os, torch, torch.distributed as dist, gradmon
import test_torchao as own
from pathlib import Path
from torch.distributed.fsdp import fully_shard
from torchao.float8 import precompute_float8_dynamic_scale_for_fsdp
from torchao.optim import AdamW8bit
torch.compile = lambda function, **_: function
options = json.loads(sys.argv[1])
dist.init_process_group("gloo")
torch.manual_seed(7)
model = own.float8_net()
fully_shard(model)
optimizer = AdamW8bit(model.parameters(), lr=0.01)
monitor = own.twice.NoMonitor()
if options["watch"]:
    monitor = gradmon.Monitor(options["config"], output_dir=options["output"], dynamic=False)
monitor.watch(model, optimizer)
noted = {}
for step in range(3):
    for name, p in model.named_parameters():
        noted[f"param_origin {name} {step}"] = own.plain_of(p.to_local()).tolist()
        for kind in own.MOMENTS if p in optimizer.state else ():
            kept = optimizer.state[p][kind]._local_tensor
            noted[f"{kind} {name} {step}"] = own.plain_moment(kept).tolist()
    optimizer.zero_grad()
    model(own.waves(4, 64) + step + dist.get_rank()).backward()
    optimizer.step()
    precompute_float8_dynamic_scale_for_fsdp(model)
monitor.stop()
print(json.dumps(noted))
"""


def test_float8_all_gather_of_fsdp2_with_low_bit_adam(tmp_path: Path) -> None:
    config = jobs.write_config(tmp_path, **twice.EVERYTHING)
    keys = {"config": str(config), "output": str(tmp_path / "out")}
    plain = [json.loads(text) for text in ranks.run(tmp_path, SHARDED, watch=False, **keys)]
    watched = [json.loads(text) for text in ranks.run(tmp_path, SHARDED, watch=True, **keys)]
    assert plain == watched
    for rank, noted in enumerate(plain):
        rows = {kind: twice.read(tmp_path / "out", kind, rank) for kind in ("param_origin", *MOMENTS)}
        assert {name for name, _, _ in rows["param_origin"]} >= {"wide.weight", "wide.weight.scale"}
        for key, values in noted.items():
            kind, name, step = key.split()
            row = rows[kind][name, int(step), 0]
            tensor = torch.tensor(values)
            if tensor.numel() > 0:
                twice.check_bits(row, tensor, key, row["dtype"])
        assert rows["exp_avg"]["wide.weight", 1, 0]["dtype"] == "int8/dynamic"
