# SPDX-License-Identifier: Apache-2.0
"""gradmon.load(whole=True): the rows of shards and pieces, joined."""
import contextlib
import json
import math
import warnings
from pathlib import Path
from typing import Any

import gradmon
import jobs
import pytest
import ranks
from gradmon_read.rank_database import FILE, RankDatabase
from training import gradmonctl

SCRIPT = """
import sharded_loops
def make():
    model = sharded_loops.make_net()
    if options["how"] == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        model.first = FSDP(model.first, use_orig_params=True, device_id=torch.device("cpu"))
        model = FSDP(model, use_orig_params=True, device_id=torch.device("cpu"))
    elif options["how"] == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
    else:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard")) \\
            if options["how"] == "hsdp" else None
        fully_shard(model.first, mesh=mesh)
        fully_shard(model, mesh=mesh)
    return model, sharded_loops.adam(model)
sharded_loops.compare(make, options)
sharded_loops.report(truth=sharded_loops.unsharded(1, "last"))
"""
AFTER = ["grad_reduced", "param_origin", "param_updated", "exp_avg", "exp_avg_sq"]
OPS = ["norm", "min", "max", "mean", "nans", "zeros"]


def run(tmp_path: Path, how: str, world: int, **keys: Any) -> "dict[str, dict[str, float]]":
    config = jobs.write_config(tmp_path, **{**jobs.EVERYTHING, "ndigits": 12, **keys})
    options = {"config": str(config), "out": str(tmp_path / "out"), "how": how}
    truth: "dict[str, dict[str, float]]"
    truth = ranks.reports(tmp_path, ranks.GLOO + SCRIPT, world, **options)[0]["truth"]
    return truth


@pytest.mark.parametrize(
    ("how", "world", "form"),
    [
        ("fsdp2", 2, "csv"),
        ("fsdp2", 4, "csv"),
        ("fsdp2", 2, "sqlite"),
        ("hsdp", 4, "csv"),
        ("fsdp1", 3, "csv"),
        ("ddp", 2, "csv"),
    ],
)
def test_joined_rows_are_of_the_unsharded_training(tmp_path: Path, how: str, world: int, form: str) -> None:
    truth = run(tmp_path, how, world, format=[form])
    table = gradmon.load(tmp_path / "out", kind=AFTER, whole=True, form=form)
    found = {
        (f"{row.kind} {row.name} {row.step}", row.op): row.value for row in table.itertuples(index=False)
    }
    assert len(found) == len(table)  # replicas count once
    wanted = {key: values for key, values in truth.items() if key.split(" ")[0] in AFTER}
    assert {key for key, _ in found} == set(wanted)
    for key, values in wanted.items():
        jobs.check_values({op: found[key, op] for op in OPS}, {op: values[op] for op in OPS}, key)


def test_what_is_each_ranks_own_stays_each_ranks_own(tmp_path: Path) -> None:
    truth = run(tmp_path, "fsdp2", 2)
    table = gradmon.load(tmp_path / "out", kind="grad_unreduced", whole=True)
    norms = table[(table["op"] == "norm") & (table["name"] == "first.weight") & (table["step"] == 0)]
    assert list(norms["rank"]) == [0, 1]
    wanted = [truth[f"grad_unreduced/{rank} first.weight 0"]["norm"] for rank in (0, 1)]
    assert list(norms["value"]) == pytest.approx(wanted, rel=1e-6)


def test_a_database_says_the_same_of_its_rows_as_scopes_json(tmp_path: Path) -> None:
    run(tmp_path, "fsdp2", 2, format=["csv", "sqlite"])
    for rank in range(2):
        (directory,) = (tmp_path / "out").glob(f"*-rank{rank}-*")
        targets = json.loads((directory / "scopes.json").read_text())["targets"]
        assert targets["0:first.weight"]["grad_reduced"]["scope"] == "shard"
        with contextlib.closing(RankDatabase(directory / FILE)) as database:
            assert database.scopes() == {rank: targets}
    merged = tmp_path / "job.db"
    gradmonctl("convert", "merge", tmp_path / "out", "-o", merged, check=True)
    columns = ["step", "kind", "name", "op", "rank", "value"]
    tables = [
        gradmon.load(path, kind=AFTER, whole=True, form=form)[columns].sort_values(columns, ignore_index=True)
        for path, form in ((tmp_path / "out", "sqlite"), (merged, None))
    ]
    assert len(tables[0]) > 0 and tables[0].equals(tables[1])


def write_rank(out: Path, rank: int, scope: "dict[str, Any] | None", rows: "list[str]") -> None:
    directory = out / f"Nov21_10-00-00-rank{rank}-0123abcd"
    directory.mkdir(parents=True)
    text = "vpp_stage,name,step,norm,mean,shape,dtype\n" + "".join(f"{row}\n" for row in rows)
    (directory / "grad_reduced_0-999.csv").write_text(text)
    if scope is not None:
        targets = {"0:w": {"grad_reduced": scope}}
        (directory / "scopes.json").write_text(json.dumps({"format": 1, "targets": targets}))


def shard(offset: int, size: int) -> "dict[str, Any]":
    return {"scope": "shard", "shape": [4], "offset": [offset], "size": [size]}


def test_norms_add_as_squares_and_means_by_elements(tmp_path: Path) -> None:
    write_rank(tmp_path, 0, shard(0, 3), ['0,w,5,3.0,1.0,"[3]",torch.float32'])
    write_rank(tmp_path, 1, shard(3, 1), ['0,w,5,4.0,5.0,"[1]",torch.float32'])
    table = gradmon.load(tmp_path, whole=True)
    assert {row.op: row.value for row in table.itertuples(index=False)} == {"norm": 5.0, "mean": 2.0}
    assert list(table["rank"]) == [0, 0]


def test_a_summand_is_refused_by_name(tmp_path: Path) -> None:
    for rank in range(2):
        write_rank(tmp_path, rank, {"scope": "partial", "shape": [4]}, ['0,w,5,3.0,1.0,"[4]",torch.float32'])
    with pytest.raises(ValueError, match="grad_reduced of 0:w: rank 0 holds a summand"):
        gradmon.load(tmp_path, whole=True)
    assert len(gradmon.load(tmp_path)) == 4


def test_a_tensor_of_unknown_place_is_refused_by_name(tmp_path: Path) -> None:
    write_rank(tmp_path, 0, {"scope": "local"}, ['0,w,5,3.0,1.0,"[4]",torch.float32'])
    with pytest.raises(ValueError, match="grad_reduced of 0:w: the whole of rank 0's tensor is unknown"):
        gradmon.load(tmp_path, whole=True)


def test_parts_that_are_missing_are_named(tmp_path: Path) -> None:
    write_rank(tmp_path, 0, shard(0, 3), ['0,w,5,3.0,1.0,"[3]",torch.float32'])
    with pytest.raises(ValueError, match="grad_reduced of 0:w: ranks 0 hold 3 of 4 elements"):
        gradmon.load(tmp_path, whole=True)


def test_a_step_that_one_rank_has_not_written_yet_is_left_out(tmp_path: Path) -> None:
    write_rank(tmp_path, 0, shard(0, 3), [f'0,w,{step},3.0,1.0,"[3]",torch.float32' for step in (5, 6)])
    write_rank(tmp_path, 1, shard(3, 1), ['0,w,5,4.0,5.0,"[1]",torch.float32'])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert set(gradmon.load(tmp_path, whole=True)["step"]) == {5}


def test_a_step_of_which_one_rank_has_lost_its_rows_is_left_out_with_a_warning(tmp_path: Path) -> None:
    write_rank(tmp_path, 0, shard(0, 3), [f'0,w,{step},3.0,1.0,"[3]",torch.float32' for step in (5, 6, 7)])
    write_rank(tmp_path, 1, shard(3, 1), [f'0,w,{step},4.0,5.0,"[1]",torch.float32' for step in (5, 7)])
    with pytest.warns(UserWarning, match="leaves out rows of step 6: not all ranks"):
        assert set(gradmon.load(tmp_path, whole=True)["step"]) == {5, 7}


def test_pieces_of_the_boxes_of_a_tensor_make_it_up(tmp_path: Path) -> None:
    """Two tensor-parallel ranks of Megatron, whose boxes two data-parallel ranks have cut into pieces."""
    for rank in range(4):
        box = {"shape": [2, 4], "offset": [rank // 2, 0], "size": [1, 4]}
        run = {"begin": 3 * (rank % 2), "count": 1 if rank % 2 else 3}
        row = f'0,w,5,{rank + 1}.0,{rank + 1}.0,"[{run["count"]}]",torch.float32'
        write_rank(tmp_path, rank, {"scope": "piece", **box, **run}, [row])
    table = gradmon.load(tmp_path, whole=True)
    found = {row.op: row.value for row in table.itertuples(index=False)}
    assert len(table) == 2 and math.isclose(found["norm"], math.sqrt(1 + 4 + 9 + 16))
    assert math.isclose(found["mean"], (3 * 1 + 2 + 3 * 3 + 4) / 8)


def test_equal_names_on_two_pipeline_ranks_are_two_layers(tmp_path: Path) -> None:
    for rank in range(4):  # two stages, two replicas
        scope = {"scope": "replica", "shape": [4], "global_name": f"layers.{rank // 2}.w"}
        write_rank(tmp_path, rank, scope, [f'0,w,5,{rank // 2 + 1}.0,1.0,"[4]",torch.float32'])
    table = gradmon.load(tmp_path, whole=True)
    norms = table[table["op"] == "norm"]
    assert dict(zip(norms["name"], norms["value"])) == {"layers.0.w": 1.0, "layers.1.w": 2.0}
    assert list(norms["rank"]) == [0, 2]


def test_a_rank_without_scopes_is_named(tmp_path: Path) -> None:
    write_rank(tmp_path, 0, None, ['0,w,5,3.0,1.0,"[3]",torch.float32'])
    with pytest.raises(ValueError, match=r"rank0-0123abcd/scopes\.json: whole=True needs this file"):
        gradmon.load(tmp_path, whole=True)
