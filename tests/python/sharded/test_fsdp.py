# SPDX-License-Identifier: Apache-2.0
"""FSDP1 and FSDP2: rows are those of the unsharded training, cut to what each rank has."""
import math
from pathlib import Path
from typing import Any

import jobs
import pytest
import ranks
from scale import IF_LATE_FULL
import torch
import variants
from variants import Seen, scopes

pytestmark = IF_LATE_FULL

SCRIPT = """
import sharded_loops
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision, ShardingStrategy
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
    return model, sharded_loops.adam(model)
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
    "unsharded": {"strategy": "NO_SHARD"},  # each rank has a replica
    "kept": {"strategy": "SHARD_GRAD_OP", "sync": "each", "micros": 2},  # gathered until backward
    "mixed": {"bf16": True},
}
TWO_RANKS = {
    f"{name} {orig}": {**options, "orig": orig} for name, options in OPTIONS.items() for orig in (True, False)
}
THREE_RANKS = {f"pieces {orig}": {"orig": orig} for orig in (True, False)}


@pytest.fixture(scope="module")
def of_two(tmp_path_factory: pytest.TempPathFactory) -> "dict[str, Seen]":
    return variants.run(tmp_path_factory.mktemp("two"), ranks.GLOO + SCRIPT, 2, TWO_RANKS)


@pytest.fixture(scope="module")
def of_three(tmp_path_factory: pytest.TempPathFactory) -> "dict[str, Seen]":
    return variants.run(tmp_path_factory.mktemp("three"), ranks.GLOO + SCRIPT, 3, THREE_RANKS)


def types_of(tmp_path: Path, rank: int) -> "set[str]":
    (file,) = (tmp_path / "out").glob(f"*-rank{rank}-*/grad_unreduced_0-999.csv")
    return {line.split(",")[-1] for line in file.read_text().splitlines()[1:]}


def check_values(found: "dict[str, float]", elements: "list[float]", what: str) -> None:
    jobs.check_values(found, jobs.expected(torch.tensor(elements)), what, 4e-6)  # float32, after three steps


def unreduced_of(found: "dict[str, Any]", rank: int) -> "dict[str, Any]":
    """The rank's own gradients in plain torch."""
    own = f"grad_unreduced/{rank} "
    return {key.replace(own, "grad_unreduced "): it for key, it in found["truth"].items() if own in key}


def check(all_seen: Seen, sharded: bool = True) -> None:
    variants.check_same(all_seen)
    tmp_path, seen = all_seen
    truth = seen[0]["truth"]
    for kind in AFTER:
        held: "dict[str, int]" = {}
        for rank in range(len(seen)):
            labels = scopes(tmp_path, rank)
            for (name, step, _), values in jobs.rows(tmp_path / "out", kind, rank).items():
                key, scope = f"{kind} {name} {step}", labels[f"0:{name}"][kind]
                assert scope["scope"] == ("piece" if sharded else "replica")
                whole = truth[key]
                begin, count = scope.get("begin", 0), scope.get("count", len(whole))
                check_values(values, whole[begin : begin + count], f"{key} of rank {rank}")
                held[key] = held.get(key, 0) + count
        # Pieces of all ranks make up each tensor of plain torch, under plain torch's names.
        copies = 1 if sharded else len(seen)
        assert held == {key: copies * len(truth[key]) for key in truth if key.split(" ")[0] == kind}
    for rank, found in enumerate(seen):
        own = unreduced_of(found, rank)
        rows = jobs.rows(tmp_path / "out", "grad_unreduced", rank)
        assert {f"grad_unreduced {name} {step}" for name, step, _ in rows} == set(own)
        for (name, step, _), values in rows.items():
            check_values(values, own[f"grad_unreduced {name} {step}"], f"{name} {step} of rank {rank}")
            assert scopes(tmp_path, rank)[f"0:{name}"]["grad_unreduced"] == {"scope": "whole"}


@pytest.mark.parametrize("orig", [True, False])
@pytest.mark.parametrize("variant", ["pieces", "no sync", "unsharded", "kept"])
def test_rows_are_pieces_of_the_programs_own_parameters(
    of_two: "dict[str, Seen]", variant: str, orig: bool
) -> None:
    check(of_two[f"{variant} {orig}"], sharded=variant != "unsharded")


@pytest.mark.parametrize("orig", [True, False])
def test_pieces_need_not_be_of_one_size(of_three: "dict[str, Seen]", orig: bool) -> None:
    check(of_three[f"pieces {orig}"])


@pytest.mark.parametrize("orig", [True, False])
def test_mixed_precision_reads_the_gradient_in_its_own_type(of_two: "dict[str, Seen]", orig: bool) -> None:
    tmp_path, seen = of_two[f"mixed {orig}"]
    for rank, found in enumerate(seen):
        assert found["equal"] and found["collectives"][0] == found["collectives"][1] > 0
        assert types_of(tmp_path, rank) == {"torch.bfloat16"}
        rows = jobs.rows(tmp_path / "out", "grad_unreduced", rank)
        for name in ("first.weight", "norm.bias", "few.bias"):
            truth = torch.tensor(found["truth"][f"grad_unreduced/{rank} {name} 0"])
            assert math.isclose(rows[name, 0, 0]["norm"], truth.norm().item(), rel_tol=0.05)


SCRIPT_FSDP2 = """
import sharded_loops
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
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
    return model, sharded_loops.adam(model)
for options in json.loads(sys.argv[1])["variants"]:
    found = sharded_loops.compare(make, options)
    truth = sharded_loops.unsharded(options.get("micros", 1), options.get("sync", "last"))
    sharded_loops.report(truth=truth, **found)
"""
LAYERS = ("first", "second", "norm", "few")
TRAINED = {"scale", *(f"{layer}.{kind}" for layer in LAYERS for kind in ("weight", "bias"))}


TWO_RANKS_FSDP2: "dict[str, dict[str, Any]]" = {
    "each module": {},
    "group": {"group": True},
    "sync last": {"micros": 3, "sync": "last"},
    "sync each": {"micros": 3, "sync": "each"},
    "offload": {"offload": True},
    **{
        f"mixed {micros} {reduced}": {"param_dtype": "bf16", "micros": micros, "reduce_dtype": reduced}
        for micros in (1, 2)
        for reduced in (None, "fp32")
    },
}
FOUR_RANKS: "dict[str, dict[str, Any]]" = {"each module": {}, "hybrid": {"hsdp": True}}


@pytest.fixture(scope="module")
def of_two_fsdp2(tmp_path_factory: pytest.TempPathFactory) -> "dict[str, Seen]":
    return variants.run(tmp_path_factory.mktemp("two"), ranks.GLOO + SCRIPT_FSDP2, 2, TWO_RANKS_FSDP2)


@pytest.fixture(scope="module")
def of_four(tmp_path_factory: pytest.TempPathFactory) -> "dict[str, Seen]":
    return variants.run(tmp_path_factory.mktemp("four"), ranks.GLOO + SCRIPT_FSDP2, 4, FOUR_RANKS)


def rows(tmp_path: Path, kind: str, rank: int) -> "dict[str, dict[str, float]]":
    found = jobs.rows(tmp_path / "out", kind, rank)
    return {f"{kind} {name} {step}": values for (name, step, _), values in found.items()}


def check_equal(found: "dict[str, dict[str, float]]", truth: "dict[str, dict[str, float]]") -> None:
    assert found and set(found) == set(truth)
    for key, values in truth.items():
        jobs.check_values(found[key], values, key)


def of_kind(found: "dict[str, dict[str, float]]", kind: str) -> "dict[str, dict[str, float]]":
    return {key: values for key, values in found.items() if key.split(" ")[0] == kind}


def check_fsdp2(seen: Seen) -> None:
    """Rows as plain torch has them beside gradmon, training bit-equal, no collective, nothing left."""
    variants.check_same(seen)
    for rank, found in enumerate(seen.ranks):
        for kind in AFTER:
            check_equal(rows(seen.path, kind, rank), of_kind(found["recorded"], kind))
        check_equal(rows(seen.path, "grad_unreduced", rank), unreduced_of(found, rank))


@pytest.mark.parametrize("modules", ["each module", "group"])
def test_rows_are_of_each_ranks_gradients_and_shards(of_two_fsdp2: "dict[str, Seen]", modules: str) -> None:
    check_fsdp2(of_two_fsdp2[modules])
    path = of_two_fsdp2[modules].path
    assert {key.split(" ")[1] for key in rows(path, "grad_unreduced", 0)} == TRAINED
    # The first collected step is step 0, in which FSDP gathers for the first time.
    assert {key.split(" ")[2] for key in rows(path, "grad_unreduced", 1)} == {"0", "1", "2"}


def test_scopes_say_which_part_of_the_tensor_a_row_is_of(of_two_fsdp2: "dict[str, Seen]") -> None:
    path = of_two_fsdp2["each module"].path
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
def test_an_accumulated_gradient_is_read_before_reduction(of_two_fsdp2: "dict[str, Seen]", sync: str) -> None:
    check_fsdp2(of_two_fsdp2[f"sync {sync}"])


@pytest.mark.parametrize("reduce_dtype", [None, "fp32"])
@pytest.mark.parametrize("micros", [1, 2])
def test_mixed_precision_with_and_without_a_reduce_type(
    of_two_fsdp2: "dict[str, Seen]", reduce_dtype: "str | None", micros: int
) -> None:
    path, seen = of_two_fsdp2[f"mixed {micros} {reduce_dtype}"]
    check_mixed(path, seen, "torch.float32" if reduce_dtype and micros > 1 else "torch.bfloat16")


def check_mixed(tmp_path: Path, seen: "list[dict[str, Any]]", dtype: str) -> None:
    for rank, found in enumerate(seen):
        assert found["equal"] and found["collectives"][0] == found["collectives"][1] > 0
        for kind in AFTER:
            check_equal(rows(tmp_path, kind, rank), of_kind(found["recorded"], kind))
        unreduced = rows(tmp_path, "grad_unreduced", rank)
        truth = unreduced_of(found, rank)
        for name in TRAINED:  # only the first step's: bfloat16 makes the weights differ from then on
            key = f"grad_unreduced {name} 0"
            assert math.isclose(unreduced[key]["norm"], truth[key]["norm"], rel_tol=0.05), name
        assert types_of(tmp_path, rank) == {dtype}


def test_hybrid_sharding_has_shards_and_replicas_of_them(of_four: "dict[str, Seen]") -> None:
    check_fsdp2(of_four["hybrid"])
    for rank in range(4):
        scope = scopes(of_four["hybrid"].path, rank)["0:first.weight"]["grad_reduced"]
        assert scope["scope"] == "shard" and scope["replicas"] == 2
        assert scope["mesh"]["dims"] == ["replicate", "shard"]
        assert scope["offset"] == [4 * (rank % 2), 0]


def test_a_rank_without_a_part_of_a_parameter_has_no_row_of_it(of_four: "dict[str, Seen]") -> None:
    check_fsdp2(of_four["each module"])
    for kind in AFTER:
        names = {key.split(" ")[1] for key in rows(of_four["each module"].path, kind, 3)}
        assert not names & {"few.weight", "few.bias", "scale"}  # 3 rows over 4 ranks
        assert "first.weight" in names


def test_offloaded_gradients_and_weights_are_read_where_they_are(of_two_fsdp2: "dict[str, Seen]") -> None:
    check_fsdp2(of_two_fsdp2["offload"])
