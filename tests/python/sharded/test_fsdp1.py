# SPDX-License-Identifier: Apache-2.0
"""FSDP1 (FullyShardedDataParallel) over Gloo, against plain torch beside it."""
import json
import math
from pathlib import Path
from typing import Any

import jobs
import pytest
import ranks
import torch

pytestmark = pytest.mark.skipif(
    tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13), reason="tried with torch 2.13 only"
)

SCRIPT = """
import json, sys, torch, torch.distributed as dist, sharded_loops
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision, ShardingStrategy
options = json.loads(sys.argv[1])
dist.init_process_group("gloo")
net = sharded_loops.make_net
# Without orig params a flat parameter is trained or frozen as a whole.
sharded_loops.make_net = net if options["orig"] else lambda: net().requires_grad_(True)
def make():
    keys = {"use_orig_params": options["orig"], "device_id": torch.device("cpu")}
    keys["sharding_strategy"] = ShardingStrategy[options.get("strategy", "FULL_SHARD")]
    if options.get("bf16"):
        keys["mixed_precision"] = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model = sharded_loops.make_net()
    model.first = FSDP(model.first, **keys)
    model.norm = FSDP(model.norm, **keys)
    model = FSDP(model, **keys)
    return model, torch.optim.Adam((p for p in model.parameters() if p.requires_grad), lr=0.05)
found = sharded_loops.compare(make, options)
micros, sync = options.get("micros", 1), options.get("sync", "last")
truth = sharded_loops.unsharded(micros, sync, sharded_loops.elements)
sharded_loops.report(truth=truth, **found)
"""
AFTER = ("grad_reduced", "param_origin", "param_updated", "exp_avg", "exp_avg_sq")


def run(tmp_path: Path, world: int = 2, **options: Any) -> "list[dict[str, Any]]":
    config = jobs.write_config(tmp_path, **jobs.EVERYTHING)
    told = ranks.run(tmp_path, SCRIPT, world, config=str(config), out=str(tmp_path / "out"), **options)
    return [json.loads(out.splitlines()[-1]) for out in told]


def scopes(tmp_path: Path, rank: int) -> "dict[str, Any]":
    (file,) = (tmp_path / "out").glob(f"*-rank{rank}-*/scopes.json")
    targets: "dict[str, Any]" = json.loads(file.read_text())["targets"]
    return targets


def check_values(found: "dict[str, float]", elements: "list[float]", tolerance: float, what: str) -> None:
    for op, value in jobs.expected(torch.tensor(elements)).items():
        assert math.isclose(found[op], value, rel_tol=tolerance, abs_tol=1e-6), (what, op, found[op], value)


def check(tmp_path: Path, seen: "list[dict[str, Any]]", sharded: bool = True) -> None:
    truth = seen[0]["truth"]
    for kind in AFTER:
        held: "dict[str, int]" = {}
        for rank in range(len(seen)):
            labels = scopes(tmp_path, rank)
            for (name, step, _), values in jobs.rows(tmp_path / "out", kind, rank).items():
                key, scope = f"{kind} {name} {step}", labels[f"0:{name}"][kind]
                assert scope["scope"] == ("piece" if sharded else "replica")
                whole = truth[key]
                begin = scope.get("begin", 0)
                count = scope.get("count", len(whole))
                check_values(values, whole[begin : begin + count], 2e-4, f"{key} of rank {rank}")
                held[key] = held.get(key, 0) + count
        # Pieces of all ranks make up each tensor of plain torch, under plain torch's names.
        copies = 1 if sharded else len(seen)
        assert held == {key: copies * len(truth[key]) for key in truth if key.split(" ")[0] == kind}
    for rank, found in enumerate(seen):
        assert found["equal"] and found["left"] == []
        assert found["collectives"][0] == found["collectives"][1] > 0
        own = {
            key.replace(f"/{rank} ", " "): values
            for key, values in truth.items()
            if key.startswith(f"grad_unreduced/{rank} ")
        }
        rows = jobs.rows(tmp_path / "out", "grad_unreduced", rank)
        assert {f"grad_unreduced {name} {step}" for name, step, _ in rows} == set(own)
        for (name, step, _), values in rows.items():
            check_values(values, own[f"grad_unreduced {name} {step}"], 2e-4, f"{name} {step} of rank {rank}")
            assert scopes(tmp_path, rank)[f"0:{name}"]["grad_unreduced"] == {"scope": "whole"}


@pytest.mark.parametrize("orig", [True, False])
@pytest.mark.parametrize("world", [2, 3])
def test_rows_are_pieces_of_the_programs_own_parameters(tmp_path: Path, orig: bool, world: int) -> None:
    check(tmp_path, run(tmp_path, world, orig=orig))


@pytest.mark.parametrize("orig", [True, False])
def test_what_no_sync_accumulates_is_read_whole(tmp_path: Path, orig: bool) -> None:
    check(tmp_path, run(tmp_path, orig=orig, micros=3))


@pytest.mark.parametrize("orig", [True, False])
def test_without_sharding_each_rank_has_a_replica(tmp_path: Path, orig: bool) -> None:
    check(tmp_path, run(tmp_path, orig=orig, strategy="NO_SHARD"), sharded=False)


@pytest.mark.parametrize("orig", [True, False])
def test_gathered_parameters_may_be_kept_for_backward(tmp_path: Path, orig: bool) -> None:
    check(tmp_path, run(tmp_path, orig=orig, strategy="SHARD_GRAD_OP", sync="each", micros=2))


@pytest.mark.parametrize("orig", [True, False])
def test_mixed_precision_reads_the_gradient_in_its_own_type(tmp_path: Path, orig: bool) -> None:
    seen = run(tmp_path, orig=orig, bf16=True)
    for rank, found in enumerate(seen):
        assert found["equal"] and found["collectives"][0] == found["collectives"][1] > 0
        (file,) = (tmp_path / "out").glob(f"*-rank{rank}-*/grad_unreduced_0-999.csv")
        assert {line.split(",")[-1] for line in file.read_text().splitlines()[1:]} == {"torch.bfloat16"}
        rows = jobs.rows(tmp_path / "out", "grad_unreduced", rank)
        for name in ("first.weight", "norm.bias", "few.bias"):
            truth = torch.tensor(found["truth"][f"grad_unreduced/{rank} {name} 0"])
            assert math.isclose(rows[name, 0, 0]["norm"], truth.norm().item(), rel_tol=0.05)
