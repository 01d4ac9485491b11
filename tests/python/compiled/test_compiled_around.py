# SPDX-License-Identifier: Apache-2.0
"""Rows within compiled code whose model is sharded or replicated, whose shapes change, and of the default
backend."""
from pathlib import Path
from typing import Any

import compiled_models
import jobs
import pytest
import ranks
from scale import FULL
import torch

# Prints the norms of each way, by row, and the losses.
SCRIPT = (
    ranks.GLOO
    + """
import pathlib, compiled_models, gradmon
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
place = pathlib.Path(options["place"])

def rows(directory):
    return {",".join([kind, *key[:3]]): values["norm"] for kind in ("actv", "actv_grad")
            for key, values in compiled_models.rows(directory, kind, rank).items()}

def trained(number, name, form, how, watched):
    torch._dynamo.reset()
    model = compiled_models.made(name)
    called = model
    if how and form != "DDP":
        for block in model.blocks:
            block.compile(backend=how)
    if form == "FSDP2":
        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)
    elif form == "DDP":
        called = DistributedDataParallel(model, find_unused_parameters=name == "moe")
        called = torch.compile(called, backend=how) if how else called
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    directory = place / f"{name}-{form}-{how}-of-{number}"
    if watched and rank == 0:
        directory.mkdir()
        jobs.write_config(directory, **compiled_models.ACTIVATIONS)
    dist.barrier()  # one rank writes the config
    monitor = None
    if watched:
        monitor = gradmon.Monitor(
            directory / "config.json", rank=rank, world_size=dist.get_world_size(), dynamic=False,
            output_dir=directory / "out",
        )
        monitor.watch(called, optimizer)
    losses = []
    for step in range(4):
        optimizer.zero_grad()
        loss = called(compiled_models.batch(step + 10 * rank)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    if not monitor:
        return {}, losses, []
    warnings = monitor.status().warnings
    monitor.stop()
    return rows(directory), losses, warnings

result = {}
for number, (name, form, how) in enumerate(options["cases"]):
    eager, _, _ = trained(number, name, form, "", True)
    compiled, losses, warnings = trained(number, name, form, how, True)
    plain = trained(number, name, form, how, False)[1]
    result[f"{name} {form} {how}"] = [eager, compiled, losses, plain, warnings]
print(json.dumps(result))
dist.destroy_process_group()
"""
)

# A checkpoint within DDP's graph, an LSTM and data-dependent routing are refused or broken by torch itself.
NAMES = ["plain", "residual", "attention", "tied", "embedding", "conv", "autocast"] if FULL else ["residual"]
CASES = [(name, form, "aot_eager") for name in NAMES for form in ("DDP", "FSDP2")]
CASES += [("residual", "DDP", "inductor"), ("residual", "FSDP2", "inductor")] if FULL else []


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> "list[dict[str, Any]]":
    place = tmp_path_factory.mktemp("around")
    return ranks.reports(place, SCRIPT, 2, place=str(place), cases=CASES)


@pytest.mark.parametrize("name, form, how", CASES)
def test_each_rank_has_the_rows_of_eager_mode(found: Any, name: str, form: str, how: str) -> None:
    tolerance = 1e-2 if name == "autocast" else 1e-5
    for of_rank in found:
        eager, compiled, losses, plain, warnings = of_rank[f"{name} {form} {how}"]
        assert len(eager) > 20
        for key, norm in eager.items():
            assert compiled.pop(key) == pytest.approx(norm, rel=tolerance, abs=1e-9), key
        assert {key.split(",")[1].split(".", 2)[2] for key in compiled} <= compiled_models.WRITTEN_IN_PLACE
        assert losses == (plain if how == "aot_eager" else pytest.approx(plain, rel=1e-6))
        assert not any("compile" in warning for warning in warnings)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_shapes_that_change_and_the_default_backend(tmp_path: Path, backend: str) -> None:
    """dynamic=True; the values are those of the compiled code, within its rounding of eager mode."""
    found = {}
    for how in ("eager", "compiled"):
        torch._dynamo.reset()
        model = compiled_models.made("residual", blocks=2)
        if how == "compiled":
            for block in model.blocks:
                block.compile(backend=backend, dynamic=True, fullgraph=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        (tmp_path / how).mkdir()
        with jobs.monitor(tmp_path / how, **compiled_models.ACTIVATIONS).watch(model, optimizer):
            for step in range(6):
                optimizer.zero_grad()
                batch = compiled_models.batch(step)
                model(batch[: len(batch) - step % 3]).square().mean().backward()
                optimizer.step()
        found[how] = {kind: compiled_models.rows(tmp_path / how, kind) for kind in ("actv", "actv_grad")}
    torch._dynamo.reset()
    for kind, eager in found["eager"].items():
        assert len(eager) > 30
        for key, row in eager.items():
            assert found["compiled"][kind].pop(key) == pytest.approx(row, rel=1e-5, abs=1e-7), (kind, key)
        assert {
            key[0].split(".", 2)[2] for key in found["compiled"][kind]
        } <= compiled_models.WRITTEN_IN_PLACE
