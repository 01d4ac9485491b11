# SPDX-License-Identifier: Apache-2.0
"""Which rank writes which rows, if ranks share parameters; two ranks with gloo."""
import json
from pathlib import Path

import jobs
import pytest
import ranks
import twice

SCRIPT = """
os.environ["MONITOR_OUTPUT_DIR"] = options["out"]
both, own = dist.new_group([0, 1]), [dist.new_group([0]), dist.new_group([1])][rank]
model = jobs.make_net()
model.fc1.weight.tensor_model_parallel = True
dp, tp = {"dp": (both, own), "tp": (own, both), "none": (None, None)}[options["shared"]]
optimizer = torch.optim.AdamW(model.parameters())
if options["zero"]:
    from torch.distributed.optim import ZeroRedundancyOptimizer
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW)
mon = gradmon.TrainerMon(options["config"])
if options["newer"]:
    mon.set_monitor(model, optimizer, 1, tp, dp)
else:
    mon.set_monitor(model, 1, optimizer, dp, tp)
jobs.train(model, optimizer, 2)
mon.monitor.stop()
dist.barrier()
"""
KINDS = ("grad_unreduced", "grad_reduced", "exp_avg")
ALL = {"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"}


def written(tmp_path: Path, shared: str, newer: bool = False, zero: bool = False) -> "list[dict[str, set]]":
    """For each rank: the names in its rows, by kind."""
    config = jobs.write_config(tmp_path, wg_distribution=True, mv_distribution=True)
    out = tmp_path / "out"
    options = {"out": str(out), "config": str(config), "shared": shared, "newer": newer, "zero": zero}
    ranks.run(tmp_path, ranks.GLOO + SCRIPT, **options)
    return [{kind: set(jobs.steps_of(jobs.rows(out, kind, rank))) for kind in KINDS} for rank in range(2)]


@pytest.mark.parametrize("newer", [False, True])
def test_the_first_of_data_parallel_ranks_writes_rows_that_are_reduced(tmp_path: Path, newer: bool) -> None:
    first, second = written(tmp_path, "dp", newer)
    assert first == {"grad_unreduced": ALL, "grad_reduced": ALL, "exp_avg": ALL}
    assert second == {"grad_unreduced": ALL, "grad_reduced": set(), "exp_avg": set()}


@pytest.mark.parametrize("newer", [False, True])
def test_tensor_parallel_ranks_each_write_their_split_parameters(tmp_path: Path, newer: bool) -> None:
    first, second = written(tmp_path, "tp", newer)
    split = {"fc1.weight"}
    assert first == {"grad_unreduced": ALL, "grad_reduced": ALL, "exp_avg": ALL}
    assert second == {"grad_unreduced": split, "grad_reduced": split, "exp_avg": split}


def test_without_groups_all_write_all(tmp_path: Path) -> None:
    first, second = written(tmp_path, "none")
    assert first == second == {"grad_unreduced": ALL, "grad_reduced": ALL, "exp_avg": ALL}


def test_moments_that_are_sharded_over_the_group_are_all_written(tmp_path: Path) -> None:
    first, second = written(tmp_path, "dp", zero=True)
    assert first["exp_avg"] | second["exp_avg"] == ALL
    assert first["exp_avg"] and second["exp_avg"] and not first["exp_avg"] & second["exp_avg"]


CHUNKS = """
first, second = jobs.make_net(), jobs.make_net()
first.fc1.weight.tensor_model_parallel = second.fc2.weight.tensor_model_parallel = True
second.extra = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
monitor = gradmon.Monitor(options["config"], output_dir=options["out"], dynamic=False)
monitor.watch(first, optimizer, tp_group=dist.new_group([0, 1])).watch(second, optimizer)
for step in range(4):
    optimizer.zero_grad()
    output = second.extra(second(jobs.batch(step)))
    if step > 0:
        output = second.late(output)
    (first(jobs.batch(step)).sum() + output.sum()).backward()
    optimizer.step()
    if step == 0:
        second.late = torch.nn.Linear(2, 2)
        optimizer.add_param_group({"params": list(second.late.parameters())})
monitor.stop()
dist.barrier()
"""


def test_a_later_tensor_parallel_rank_writes_split_parameters_only_in_every_chunk(tmp_path: Path) -> None:
    config = jobs.write_config(tmp_path, wg_distribution=True)
    ranks.run(tmp_path, ranks.GLOO + CHUNKS, out=str(tmp_path / "out"), config=str(config))
    first, second = (
        {name for name, _, _ in twice.read(tmp_path / "out", "grad_reduced", rank)} for rank in range(2)
    )
    others = {f"1:{layer}.{part}" for layer in ("extra", "late") for part in ("weight", "bias")}
    assert first == ALL | {f"1:{name}" for name in ALL} | others
    assert second == {"fc1.weight", "1:fc2.weight"}


PIPELINE = """
model, optimizer = jobs.make()
group = dist.new_group(options["group"]) if options["group"] else None
mon = gradmon.TrainerMon(options["config"], process_group=group)
mon.set_monitor(model, 1, optimizer)
jobs.train(model, optimizer, 1)
mon.monitor.stop()
dist.barrier()
"""


@pytest.mark.parametrize("group, stages", [([0, 1], (0, 1)), ([], (0, 0))])
def test_alerts_are_dumped_with_the_ranks_place_in_the_pipeline_of_process_group(
    group: "list[int]", stages: "tuple[int, int]", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = [{"rule_name": "AnomalyNan", "args": {"threshold": 0}}]
    config = jobs.write_config(tmp_path, wg_distribution=True, alert={"rules": rules, "dump": True})
    monkeypatch.setenv("MONITOR_OUTPUT_DIR", str(tmp_path / "out"))
    ranks.run(tmp_path, ranks.GLOO + PIPELINE, config=str(config), group=group)
    for rank in range(2):
        dump = tmp_path / "out" / "anomaly_detected" / f"rank{rank}" / "anomaly.json"
        events = list(json.loads(dump.read_text()).values())
        assert events and {event["rank"] for event in events} == {rank}
        assert {event["pp_stage"] for event in events} == {stages[rank]}
        assert all(event["group_mates"] == (group or [rank]) for event in events)
