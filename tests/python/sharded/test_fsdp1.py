# SPDX-License-Identifier: Apache-2.0
"""FSDP1 (FullyShardedDataParallel) over Gloo, against plain torch beside it."""
import math
from pathlib import Path
from typing import Any

import jobs
import pytest
import torch
import variants
from variants import Seen, scopes

pytestmark = pytest.mark.skipif(
    tuple(map(int, torch.__version__.split(".")[:2])) < (2, 6), reason="tried from torch 2.6 on"
)

SCRIPT = """
import json, sys, torch, torch.distributed as dist, sharded_loops
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision, ShardingStrategy
dist.init_process_group("gloo")
net = sharded_loops.make_net
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
for options in json.loads(sys.argv[1])["variants"]:
    # Without orig params a flat parameter is trained or frozen as a whole.
    sharded_loops.make_net = net if options["orig"] else lambda: net().requires_grad_(True)
    found = sharded_loops.compare(make, options)
    micros, sync = options.get("micros", 1), options.get("sync", "last")
    truth = sharded_loops.unsharded(micros, sync, sharded_loops.elements)
    sharded_loops.report(truth=truth, **found)
"""
AFTER = ("grad_reduced", "param_origin", "param_updated", "exp_avg", "exp_avg_sq")


OPTIONS: "dict[str, dict[str, Any]]" = {
    "pieces": {},
    "no sync": {"micros": 3},
    "unsharded": {"strategy": "NO_SHARD"},
    "kept": {"strategy": "SHARD_GRAD_OP", "sync": "each", "micros": 2},
    "mixed": {"bf16": True},
}
TWO_RANKS = {
    f"{name} {orig}": {**options, "orig": orig} for name, options in OPTIONS.items() for orig in (True, False)
}
THREE_RANKS = {f"pieces {orig}": {"orig": orig} for orig in (True, False)}


@pytest.fixture(scope="module")
def of_two(tmp_path_factory: pytest.TempPathFactory) -> "dict[str, Seen]":
    return variants.run(tmp_path_factory.mktemp("two"), SCRIPT, 2, TWO_RANKS)


@pytest.fixture(scope="module")
def of_three(tmp_path_factory: pytest.TempPathFactory) -> "dict[str, Seen]":
    return variants.run(tmp_path_factory.mktemp("three"), SCRIPT, 3, THREE_RANKS)


def check_values(found: "dict[str, float]", elements: "list[float]", what: str) -> None:
    jobs.check_values(found, jobs.expected(torch.tensor(elements)), what, 4e-6)  # float32, after three steps


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
                check_values(values, whole[begin : begin + count], f"{key} of rank {rank}")
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
            check_values(values, own[f"grad_unreduced {name} {step}"], f"{name} {step} of rank {rank}")
            assert scopes(tmp_path, rank)[f"0:{name}"]["grad_unreduced"] == {"scope": "whole"}


@pytest.mark.parametrize("orig", [True, False])
def test_rows_are_pieces_of_the_programs_own_parameters(of_two: "dict[str, Seen]", orig: bool) -> None:
    check(*of_two[f"pieces {orig}"])


@pytest.mark.parametrize("orig", [True, False])
def test_pieces_need_not_be_of_one_size(of_three: "dict[str, Seen]", orig: bool) -> None:
    check(*of_three[f"pieces {orig}"])


@pytest.mark.parametrize("orig", [True, False])
def test_what_no_sync_accumulates_is_read_whole(of_two: "dict[str, Seen]", orig: bool) -> None:
    check(*of_two[f"no sync {orig}"])


@pytest.mark.parametrize("orig", [True, False])
def test_without_sharding_each_rank_has_a_replica(of_two: "dict[str, Seen]", orig: bool) -> None:
    check(*of_two[f"unsharded {orig}"], sharded=False)


@pytest.mark.parametrize("orig", [True, False])
def test_gathered_parameters_may_be_kept_for_backward(of_two: "dict[str, Seen]", orig: bool) -> None:
    check(*of_two[f"kept {orig}"])


@pytest.mark.parametrize("orig", [True, False])
def test_mixed_precision_reads_the_gradient_in_its_own_type(of_two: "dict[str, Seen]", orig: bool) -> None:
    tmp_path, seen = of_two[f"mixed {orig}"]
    for rank, found in enumerate(seen):
        assert found["equal"] and found["collectives"][0] == found["collectives"][1] > 0
        (file,) = (tmp_path / "out").glob(f"*-rank{rank}-*/grad_unreduced_0-999.csv")
        assert {line.split(",")[-1] for line in file.read_text().splitlines()[1:]} == {"torch.bfloat16"}
        rows = jobs.rows(tmp_path / "out", "grad_unreduced", rank)
        for name in ("first.weight", "norm.bias", "few.bias"):
            truth = torch.tensor(found["truth"][f"grad_unreduced/{rank} {name} 0"])
            assert math.isclose(rows[name, 0, 0]["norm"], truth.norm().item(), rel_tol=0.05)
