# SPDX-License-Identifier: Apache-2.0
"""DTensor tensor parallelism, alone and under FSDP2, against the same model on one rank."""
import math
from pathlib import Path
from typing import Any

import jobs
import pytest
import ranks
import torch
import variants
from variants import Seen, scopes


SCRIPT = """
import sharded_loops
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module)
world = dist.get_world_size()
mesh = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("dp", "tp"))
sharded_loops.batch = lambda step, micro, rank: torch.sin(
    torch.arange(72.0) * 0.7 + step + 1.7 * (rank // 2)).reshape(2, 6, 6)
def plain_net():
    torch.manual_seed(7)
    net = torch.nn.Sequential()
    net.add_module("inp", torch.nn.Linear(6, 4))
    net.add_module("norm", torch.nn.LayerNorm(4))
    net.add_module("up", torch.nn.Linear(4, 8))
    net.add_module("act", torch.nn.GELU())
    net.add_module("down", torch.nn.Linear(8, 4))
    return net
def adam(model):
    return torch.optim.Adam(model.parameters(), lr=0.05, foreach=False)
def make():
    model = plain_net()
    parallelize_module(model, mesh["tp"], {
        "inp": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "up": ColwiseParallel(input_layouts=Shard(1)),
        "down": RowwiseParallel(output_layouts=Replicate()),
    })
    if options.get("fsdp"):
        fully_shard(model.up, mesh=mesh["dp"])
        fully_shard(model, mesh=mesh["dp"])
    return model, adam(model)
for options in json.loads(sys.argv[1])["variants"]:
    found = sharded_loops.compare(make, options)
    truth = {}
    model = plain_net()
    optimizer = adam(model)
    def note(name):
        def hook(_, __, out):
            truth[f"actv {name}.output {step}/{group}"] = out.tolist()
        return hook
    for name, module in model.named_children():
        module.register_forward_hook(note(name))
    for step in range(sharded_loops.STEPS):
        sums = {}
        for group in range(world // 2):
            optimizer.zero_grad()
            sharded_loops.loss_of(model, step, 0, 2 * group).backward()
            for name, p in model.named_parameters():
                truth[f"grad_unreduced {name} {step}/{group}"] = p.grad.tolist()
                sums[name] = sums.get(name, 0) + p.grad / (world // 2)
        for name, p in model.named_parameters():
            p.grad = sums[name]
            truth[f"grad_reduced {name} {step}"] = p.grad.tolist()
            truth[f"param_origin {name} {step}"] = p.tolist()
            for key in ("exp_avg", "exp_avg_sq"):
                if p in optimizer.state:
                    truth[f"{key} {name} {step}"] = optimizer.state[p][key].tolist()
        optimizer.step()
        for name, p in model.named_parameters():
            truth[f"param_updated {name} {step}"] = p.tolist()
    sharded_loops.report(truth=truth, **found)
"""
AFTER = ("grad_reduced", "param_origin", "param_updated", "exp_avg", "exp_avg_sq")


@pytest.fixture(scope="module")
def of_two(tmp_path_factory: pytest.TempPathFactory) -> "dict[str, Seen]":
    sets: "dict[str, dict[str, Any]]" = {"both": {}, "rank 1": {"keys": {"module_ranks": [1]}}}
    return variants.run(tmp_path_factory.mktemp("two"), ranks.GLOO + SCRIPT, 2, sets)


def part_of(whole: torch.Tensor, scope: "dict[str, Any]") -> torch.Tensor:
    if scope["scope"] == "shard":
        assert list(whole.shape) == scope["shape"]
        for dim, (offset, size) in enumerate(zip(scope["offset"], scope["size"])):
            whole = whole.narrow(dim, offset, size)
    return whole


def check(found: "dict[str, float]", tensor: torch.Tensor, what: str) -> None:
    jobs.check_values(found, jobs.expected(tensor), what, 4e-6)  # float32, after three steps


def check_rows(tmp_path: Path, seen: "list[dict[str, Any]]", kind: str, skip: "set[str]" = set()) -> int:
    """Each row is of the box of the true tensor that its scope tells. Returns how many."""
    count = 0
    for rank, found in enumerate(seen):
        of_rank = scopes(tmp_path, rank)
        for (name, step, _), values in jobs.rows(tmp_path / "out", kind, rank).items():
            if name in skip:
                continue
            group = f"/{rank // 2}" if kind in ("grad_unreduced", "actv") else ""
            whole = torch.tensor(found["truth"][f"{kind} {name} {step}{group}"])
            check(values, part_of(whole, of_rank[f"0:{name}"][kind]), f"{kind} {name} {step} rank {rank}")
            count += 1
    return count


NORMS = {"norm.weight", "norm.bias"}


def test_rows_are_of_the_parts_that_their_scopes_name(of_two: "dict[str, Seen]") -> None:
    variants.check_same(of_two["both"])
    tmp_path, seen = of_two["both"]
    for kind in AFTER:
        assert check_rows(tmp_path, seen, kind, NORMS if kind == "grad_reduced" else set()) > 0
    assert check_rows(tmp_path, seen, "grad_unreduced", NORMS) == 2 * 3 * 6
    for rank in range(2):
        found = scopes(tmp_path, rank)
        assert found["0:up.weight"]["grad_unreduced"]["offset"] == [4 * rank, 0]
        assert found["0:down.weight"]["param_origin"]["offset"] == [0, 4 * rank]
        assert found["0:down.bias"]["param_origin"]["scope"] == "replica"


def test_a_partial_gradient_of_a_replicated_weight_is_labelled_so(of_two: "dict[str, Seen]") -> None:
    tmp_path, seen = of_two["both"]
    for kind in ("grad_unreduced", "grad_reduced"):
        summands = [jobs.rows(tmp_path / "out", kind, rank) for rank in range(2)]
        for rank in range(2):
            assert scopes(tmp_path, rank)["0:norm.weight"][kind]["scope"] == "partial"
        group = "/0" if kind == "grad_unreduced" else ""
        whole = torch.tensor(seen[0]["truth"][f"{kind} norm.weight 0{group}"])
        total = sum(found["norm.weight", 0, 0]["mean"] for found in summands)
        assert math.isclose(total, whole.mean().item(), rel_tol=1e-6)
        assert summands[0]["norm.weight", 0, 0]["norm"] != pytest.approx(whole.norm().item(), rel=1e-3)
    assert scopes(tmp_path, 0)["0:norm.weight"]["param_origin"]["scope"] == "replica"


def test_activations_are_labelled_by_their_placements_or_local(of_two: "dict[str, Seen]") -> None:
    tmp_path, seen = of_two["both"]
    for rank, found in enumerate(seen):
        labels = scopes(tmp_path, rank)
        rows = jobs.rows(tmp_path / "out", "actv", rank)
        truth = {
            name: torch.tensor(found["truth"][f"actv {name}.output 0/0"]) for name in ("inp", "norm", "up")
        }
        assert labels["0:norm.output"]["actv"]["scope"] == "shard"
        check(rows["norm.output", 0, 0], part_of(truth["norm"], labels["0:norm.output"]["actv"]), "norm")
        assert labels["0:up.output"]["actv"] == {"scope": "local"}
        check(rows["up.output", 0, 0], truth["up"].chunk(2, dim=-1)[rank], "up")  # half the features
        # Still on its way when the module returns: waited for.
        assert labels["0:inp.output"]["actv"] == {"scope": "local"}
        check(rows["inp.output", 0, 0], truth["inp"].chunk(2, dim=1)[rank], "inp")


def test_one_rank_alone_collects_and_no_rank_waits_for_it(of_two: "dict[str, Seen]") -> None:
    tmp_path, seen = of_two["rank 1"]
    assert all(found["equal"] and found["collectives"][0] == found["collectives"][1] for found in seen)
    assert jobs.rows(tmp_path / "out", "grad_reduced", 1)
    assert not list((tmp_path / "out").glob("*-rank0-*/*.csv"))


def test_under_fsdp2_each_row_is_of_its_box(tmp_path: Path) -> None:
    under_fsdp = variants.run(tmp_path, ranks.GLOO + SCRIPT, 4, {"fsdp": {"fsdp": True}})["fsdp"]
    variants.check_same(under_fsdp)
    tmp_path, seen = under_fsdp
    for kind in AFTER:
        assert check_rows(tmp_path, seen, kind) > 0
    assert check_rows(tmp_path, seen, "grad_unreduced", NORMS) == 4 * 3 * 6
    for rank in range(4):
        found = scopes(tmp_path, rank)["0:up.weight"]
        data, tensor = divmod(rank, 2)
        assert found["grad_unreduced"]["offset"] == [4 * tensor, 0]  # whole over the data-parallel ranks
        assert found["grad_unreduced"]["size"] == [4, 4]
        assert found["grad_reduced"]["offset"] == [4 * tensor + 2 * data, 0]
        assert found["grad_reduced"]["size"] == [2, 4]
