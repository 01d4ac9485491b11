# SPDX-License-Identifier: Apache-2.0
"""The first hour with gradmon: names of one kind in all rows."""
import contextlib
from pathlib import Path
from typing import Any, Callable, Iterator

import gradmon
import jobs
import pytest
import torch


class Decoder(torch.nn.Module):
    """Has an embedding that no short form is known of, beside layers that have one."""

    def __init__(self) -> None:
        super().__init__()
        self.embed_tokens = torch.nn.Linear(4, 4)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed_tokens(x)
        for layer in self.layers:
            x = layer(x)
        return x


class Language(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.model = Decoder()
        self.lm_head = torch.nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lm_head(self.model(x))


def rows_of(directory: Path, model: torch.nn.Module, **keys: Any) -> "dict[str, dict[Any, dict[str, float]]]":
    """The rows of two steps by kind."""
    directory.mkdir()
    config = jobs.write_config(directory, **{**jobs.EVERYTHING, **keys})
    optimizer = torch.optim.Adam(model.parameters())
    with gradmon.Monitor(config, output_dir=directory / "out", dynamic=False).watch(model, optimizer):
        jobs.train(model, optimizer, 2)
    kinds = ("actv", "actv_grad", "grad_reduced", "param_origin", "exp_avg")
    return {kind: jobs.rows(directory / "out", kind) for kind in kinds}


@contextlib.contextmanager
def alone() -> "Iterator[None]":
    """In a process group of this process only."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


def names_in(rows: "dict[str, dict[Any, dict[str, float]]]") -> "set[str]":
    return {name for of_kind in rows.values() for name, _, _ in of_kind}


def compiled(model: torch.nn.Module) -> torch.nn.Module:
    return torch.compile(model, backend="eager")  # type: ignore[no-any-return]


def replicated(model: torch.nn.Module) -> torch.nn.Module:
    return torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)


class Float16Module(torch.nn.Module):
    """As Megatron's: around the model, and within DistributedDataParallel."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.module(x)  # type: ignore[no-any-return]


@pytest.mark.parametrize("make", [jobs.make_net, Language])
@pytest.mark.parametrize(
    "wrap",
    [
        replicated,
        lambda model: replicated(Float16Module(model)),
        lambda model: torch.nn.DataParallel(model),
    ],
    ids=["DistributedDataParallel", "Float16Module", "DataParallel"],
)
def test_rows_of_a_wrapped_model_are_those_of_the_raw_one(
    tmp_path: Path,
    make: "Callable[[], torch.nn.Module]",
    wrap: "Callable[[torch.nn.Module], torch.nn.Module]",
) -> None:
    torch.manual_seed(3)
    raw = rows_of(tmp_path / "raw", make())
    torch.manual_seed(3)
    with alone():
        wrapped = rows_of(tmp_path / "wrapped", wrap(make()))
    assert wrapped.keys() == raw.keys() and all(raw.values())
    assert wrapped == raw


def test_a_compiled_wrapper_is_seen_from_outside(tmp_path: Path) -> None:
    with alone():
        inside = names_in(rows_of(tmp_path / "inside", replicated(compiled(jobs.make_net()))))
        around = names_in(rows_of(tmp_path / "around", compiled(replicated(jobs.make_net()))))
    assert inside == around
    assert {"model.input", "model.output", "fc1.weight"} <= inside
    assert not any(name.startswith(("module", "_orig_mod", ".", "fc1.input")) for name in inside)


def test_names_are_shortened_all_or_none(tmp_path: Path) -> None:
    names = names_in(rows_of(tmp_path / "full", Language()))
    parts = ("lm_head", "model", "model.embed_tokens", "model.layers.0", "model.layers.1")
    sides = [f"{part}.{side}" for part in parts for side in ("input", "output")]
    assert names == {"root.input", "root.output", *sides, *dict(Language().named_parameters())}
    short = torch.nn.Sequential()
    short.add_module("decoder", Decoder())
    del short.decoder.embed_tokens
    short.decoder.embed_tokens = torch.nn.Identity()  # type: ignore[assignment]
    names = names_in(rows_of(tmp_path / "short", short))
    assert {"layers.0.weight", "layers.0.output", "decoder.output", "model.output"} <= names
    assert not any(name.startswith("decoder.layers") for name in names)


def test_the_model_itself_can_be_selected(tmp_path: Path) -> None:
    keys = {"xy_distribution": True, "all_xy": False, "targets": {"model": {}}}
    rows = rows_of(tmp_path / "net", jobs.make_net(), **keys)
    assert {name for name, _, _ in rows["actv"]} == {"model.input", "model.output"}
    assert {name for name, _, _ in rows["grad_reduced"]} >= {"fc1.weight", "fc2.bias"}
    keys["targets"] = {"root": {}}
    rows = rows_of(tmp_path / "language", Language(), **keys)
    assert {name for name, _, _ in rows["actv"]} == {"root.input", "root.output"}
