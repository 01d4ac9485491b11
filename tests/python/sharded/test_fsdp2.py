# SPDX-License-Identifier: Apache-2.0
"""FSDP2 (fully_shard) over Gloo, against plain torch beside it."""
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
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
dist.init_process_group("gloo")
TYPES = {"bf16": torch.bfloat16, "fp32": torch.float32, None: None}
def make():
    keys = {}
    if options.get("hsdp"):
        keys["mesh"] = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    if "param_dtype" in options:
        keys["mp_policy"] = MixedPrecisionPolicy(
            param_dtype=TYPES[options["param_dtype"]], reduce_dtype=TYPES[options.get("reduce_dtype")])
    if options.get("offload"):
        keys["offload_policy"] = CPUOffloadPolicy(pin_memory=False)
    model = sharded_loops.make_net()
    if options.get("group"):
        fully_shard([model.norm, model.few], **keys)
    else:
        fully_shard(model.norm, **keys)
    fully_shard(model.first, **keys)
    fully_shard(model, **keys)
    return model, torch.optim.Adam((p for p in model.parameters() if p.requires_grad), lr=0.05)
for options in json.loads(sys.argv[1])["variants"]:
    found = sharded_loops.compare(make, options)
    truth = sharded_loops.unsharded(options.get("micros", 1), options.get("sync", "last"))
    sharded_loops.report(truth=truth, **found)
"""
TRAINED = {
    "first.weight",
    "first.bias",
    "second.weight",
    "second.bias",
    "norm.weight",
    "norm.bias",
    "few.weight",
    "few.bias",
    "scale",
}
AFTER = ("grad_reduced", "param_origin", "param_updated", "exp_avg", "exp_avg_sq")


TWO_RANKS: "dict[str, dict[str, Any]]" = {
    "each module": {},
    "group": {"group": True},
    "sync last": {"micros": 3, "sync": "last"},
    "sync each": {"micros": 3, "sync": "each"},
    "offload": {"offload": True},
    **{
        f"mixed {micros} {reduce_dtype}": {
            "param_dtype": "bf16",
            "micros": micros,
            "reduce_dtype": reduce_dtype,
        }
        for micros in (1, 2)
        for reduce_dtype in (None, "fp32")
    },
}
FOUR_RANKS: "dict[str, dict[str, Any]]" = {"each module": {}, "hybrid": {"hsdp": True}}


@pytest.fixture(scope="module")
def of_two(tmp_path_factory: pytest.TempPathFactory) -> "dict[str, Seen]":
    return variants.run(tmp_path_factory.mktemp("two"), SCRIPT, 2, TWO_RANKS)


@pytest.fixture(scope="module")
def of_four(tmp_path_factory: pytest.TempPathFactory) -> "dict[str, Seen]":
    return variants.run(tmp_path_factory.mktemp("four"), SCRIPT, 4, FOUR_RANKS)


def rows(tmp_path: Path, kind: str, rank: int) -> "dict[str, dict[str, float]]":
    found = jobs.rows(tmp_path / "out", kind, rank)
    return {f"{kind} {name} {step}": values for (name, step, _), values in found.items()}


def check_equal(found: "dict[str, dict[str, float]]", truth: "dict[str, dict[str, float]]") -> None:
    assert found and set(found) == set(truth)
    for key, values in truth.items():
        jobs.check_values(found[key], values, key)


def of_kind(found: "dict[str, dict[str, float]]", kind: str) -> "dict[str, dict[str, float]]":
    return {key: values for key, values in found.items() if key.split(" ")[0] == kind}


def check(tmp_path: Path, seen: "list[dict[str, Any]]") -> None:
    """Rows as plain torch has them beside gradmon, training bit-equal, no collective, nothing left."""
    for rank, found in enumerate(seen):
        assert found["equal"] and found["left"] == []
        assert found["collectives"][0] == found["collectives"][1] > 0
        for kind in AFTER:
            check_equal(rows(tmp_path, kind, rank), of_kind(found["recorded"], kind))
        truth = {
            key.replace(f"/{rank}", ""): values
            for key, values in found["truth"].items()
            if key.startswith(f"grad_unreduced/{rank} ")
        }
        check_equal(rows(tmp_path, "grad_unreduced", rank), truth)


@pytest.mark.parametrize("modules", ["each module", "group"])
def test_rows_are_of_each_ranks_own_gradients_and_of_its_shards(
    of_two: "dict[str, Seen]", modules: str
) -> None:
    path, seen = of_two[modules]
    check(path, seen)
    names = {key.split(" ")[1] for key in rows(path, "grad_unreduced", 0)}
    assert names == TRAINED
    # The first collected step is step 0, in which FSDP gathers for the first time.
    assert {key.split(" ")[2] for key in rows(path, "grad_unreduced", 1)} == {"0", "1", "2"}


def test_scopes_say_which_part_of_the_tensor_a_row_is_of(of_two: "dict[str, Seen]") -> None:
    path = of_two["each module"].path
    found = [scopes(path, rank)["0:first.weight"] for rank in range(2)]
    for rank, of_rank in enumerate(found):
        assert of_rank["grad_unreduced"] == {"scope": "whole"}
        for kind in AFTER:
            assert of_rank[kind]["scope"] == "shard"
            assert of_rank[kind]["shape"] == [7, 4]
            assert of_rank[kind]["offset"] == [4 * rank, 0]
            assert of_rank[kind]["size"] == [4 - rank, 4]
            assert of_rank[kind]["mesh"]["coordinate"] == [rank]
    assert scopes(path, 0)["0:first.output"]["actv"] == {"scope": "whole"}


@pytest.mark.parametrize("sync", ["last", "each"])
def test_an_accumulated_gradient_is_read_whole_before_the_reduction(
    of_two: "dict[str, Seen]", sync: str
) -> None:
    check(*of_two[f"sync {sync}"])


@pytest.mark.parametrize("reduce_dtype", [None, "fp32"])
@pytest.mark.parametrize("micros", [1, 2])
def test_mixed_precision_with_and_without_a_reduce_type(
    of_two: "dict[str, Seen]", reduce_dtype: "str | None", micros: int
) -> None:
    path, seen = of_two[f"mixed {micros} {reduce_dtype}"]
    check_mixed(path, seen, "torch.float32" if reduce_dtype and micros > 1 else "torch.bfloat16")


def check_mixed(tmp_path: Path, seen: "list[dict[str, Any]]", dtype: str) -> None:
    for rank, found in enumerate(seen):
        assert found["equal"] and found["collectives"][0] == found["collectives"][1] > 0
        for kind in AFTER:
            check_equal(rows(tmp_path, kind, rank), of_kind(found["recorded"], kind))
        unreduced = rows(tmp_path, "grad_unreduced", rank)
        for name in TRAINED:  # only the first step's: bfloat16 makes the weights differ from then on
            own, truth = (
                unreduced[f"grad_unreduced {name} 0"],
                found["truth"][f"grad_unreduced/{rank} {name} 0"],
            )
            assert math.isclose(own["norm"], truth["norm"], rel_tol=0.05), name
        (file,) = (tmp_path / "out").glob(f"*-rank{rank}-*/grad_unreduced_0-999.csv")
        assert {line.split(",")[-1] for line in file.read_text().splitlines()[1:]} == {dtype}


def test_hybrid_sharding_has_shards_and_replicas_of_them(of_four: "dict[str, Seen]") -> None:
    path, seen = of_four["hybrid"]
    check(path, seen)
    for rank in range(4):
        scope = scopes(path, rank)["0:first.weight"]["grad_reduced"]
        assert scope["scope"] == "shard" and scope["replicas"] == 2
        assert scope["mesh"]["dims"] == ["replicate", "shard"]
        assert scope["offset"] == [4 * (rank % 2), 0]


def test_a_rank_without_a_part_of_a_parameter_has_no_row_of_it(of_four: "dict[str, Seen]") -> None:
    path, seen = of_four["each module"]
    check(path, seen)
    for kind in AFTER:
        names = {key.split(" ")[1] for key in rows(path, kind, 3)}
        assert not names & {"few.weight", "few.bias", "scale"}  # 3 rows over 4 ranks
        assert "first.weight" in names


def test_gradients_and_weights_that_are_offloaded_are_read_where_they_are(
    of_two: "dict[str, Seen]",
) -> None:
    check(*of_two["offload"])
