# SPDX-License-Identifier: Apache-2.0
"""gradmon.megatron.watch with Megatron core's own GPT, buckets and optimizers, in two ranks with gloo: rows
are those of plain torch, cut to the pieces that each rank has; training is the same."""
import json
import re
from pathlib import Path
from typing import Any

import engine_oracle
import gradmon
import jobs
import loops
import pytest
import ranks
import twice

SCRIPT = "import megatron_loops; megatron_loops.main()"
STEPS = 3  # as in megatron_loops
SHARDED = ("1-0-float32-1-1", "1-1-float32-1-1", "1-1-float32-1-2")
EACH_HAS_ALL = ("0-0-float32-1-1", "0-1-float32-1-1", "0-1-bfloat16-1-1")
TENSOR_PARALLEL = ("0-0-float32-2-1", "1-0-float32-2-1")
BFLOAT16 = "1-1-bfloat16-1-1"
# Split over the ranks in further ways, or updated by other optimizers; the number of ranks.
MODES = {
    "0-1-float32-1-1-shards": 2,
    "1-0-float32-2-1-shards": 4,
    "1-1-float32-2-1-sequence": 2,
    "1-0-float32-1-1-pipeline": 2,
    "0-1-float32-1-1-experts": 2,
    "1-1-float32-1-1-experts": 2,
    "0-1-bfloat16-1-1-layers": 2,
    "1-1-bfloat16-1-1-layers": 2,
}
SPLIT_AGAIN = r"(word_embeddings|output_layer|linear_\w+)\.weight"  # by GTP


@pytest.fixture(scope="module")
def trained(tmp_path_factory: Any) -> Path:
    """The ranks compare their own rows with plain torch's tensors."""
    directory: Path = tmp_path_factory.mktemp("megatron")
    for case in (*SHARDED, *EACH_HAS_ALL, *TENSOR_PARALLEL, BFLOAT16, "1-1-float16-1-1"):
        ranks.run(directory, SCRIPT, directory=str(directory), what="train", case=case)
    for case, world in MODES.items():
        ranks.run(directory, SCRIPT, world, directory=str(directory), what="train", case=case)
    return directory


@pytest.mark.parametrize("case", (*SHARDED, *EACH_HAS_ALL[:2], *TENSOR_PARALLEL, *MODES))
@pytest.mark.parametrize("kind", engine_oracle.REDUCED)
def test_joined_rows_are_plain_torchs_tensors(trained: Path, case: str, kind: str) -> None:
    count = engine_oracle.check_joined(trained / case, kind)
    steps = STEPS - 1 if kind.startswith("exp_avg") else STEPS
    assert count > 0 and count % steps == 0


@pytest.mark.parametrize("case", TENSOR_PARALLEL)
def test_joined_gradients_before_reduction_are_those_of_the_whole_layer(trained: Path, case: str) -> None:
    """There is one group of data parallelism with one rank."""
    assert engine_oracle.check_joined(trained / case, "grad_unreduced") > 0


@pytest.mark.parametrize("case", [case for case in MODES if case.endswith("shards")])
def test_weights_that_are_split_again_have_the_boxes_of_their_ranks(trained: Path, case: str) -> None:
    """Their gradients are averaged over the ranks of a weight before the reduction begins."""
    assert engine_oracle.check_joined(trained / case, "grad_unreduced", names=SPLIT_AGAIN) == 10 * STEPS
    offsets = []
    for file in (trained / case / "out").glob("*/scopes.json"):
        of_kinds = json.loads(file.read_text())["targets"].get("0:decoder.layers.0.mlp.linear_fc1.weight", {})
        for label in of_kinds.values():  # none: of this rank's rows none is of the weight
            assert label["shape"] == [32, 8] and label["size"] == [16, 8]
            offsets.append(tuple(label["offset"]))
    assert set(offsets) == {(0, 0), (16, 0)}


@pytest.mark.parametrize("case", [case for case in MODES if case.endswith("layers")])
def test_a_parameter_that_one_rank_updates_has_rows_of_that_rank_alone(trained: Path, case: str) -> None:
    names = [{name for name, _, _ in twice.read(trained / case / "out", "param_updated", r)} for r in (0, 1)]
    owned = [{name for name in of if re.search(r"linear_\w+\.weight", name)} for of in names]
    assert all(owned) and not owned[0] & owned[1] and len(owned[0] | owned[1]) == 8
    for rank in range(2):
        (file,) = (trained / case / "out").glob(f"*-rank{rank}-*/scopes.json")
        of_targets = json.loads(file.read_text())["targets"]
        assert {of_targets[f"0:{name}"]["param_updated"]["scope"] for name in owned[rank]} == {"whole"}


def test_gradients_of_a_sequences_parts_are_summands(trained: Path) -> None:
    out = trained / "1-1-float32-2-1-sequence" / "out"
    with pytest.raises(ValueError, match="holds a summand"):
        gradmon.load(out, kind="grad_unreduced", names="decoder.final_layernorm.weight", whole=True)


def test_each_rank_of_a_pipeline_has_rows_of_its_own_layers(trained: Path) -> None:
    out = trained / "1-0-float32-1-1-pipeline" / "out"
    names = [{name for name, _, _ in twice.read(out, "grad_unreduced", rank)} for rank in range(2)]
    assert "embedding.word_embeddings.weight" in names[0] - names[1]
    assert "output_layer.weight" in names[1] - names[0]
    assert all("decoder.layers.0.mlp.linear_fc1.weight" in of_rank for of_rank in names)


@pytest.mark.parametrize("case", EACH_HAS_ALL)
def test_without_the_distributed_optimizer_each_rank_has_all(trained: Path, case: str) -> None:
    for kind in engine_oracle.REDUCED:
        found = [twice.read(trained / case / "out", kind, rank) for rank in range(2)]
        assert found[0] and found[0] == found[1], kind


def test_unreduced_gradients_are_each_ranks_own(trained: Path) -> None:
    cases = [path.parent.name.split("-") for path in sorted(trained.glob("*/out"))]
    outputs = [trained / "-".join(case) / "out" for case in cases if case[3] == "1" and len(case) == 5]
    assert len(outputs) >= 6
    for out in outputs:
        found = [twice.read(out, "grad_unreduced", rank) for rank in range(2)]
        assert found[0] and found[0].keys() == found[1].keys()
        assert {step for _, step, _ in found[0]} == set(range(STEPS))
        differ = [key for key in found[0] if found[0][key] != found[1][key]]
        assert len(differ) > len(found[0]) / 2


def test_chunks_are_vpp_stages(trained: Path) -> None:
    names = {name for name, _, _ in twice.read(trained / SHARDED[2] / "out", "grad_unreduced")}
    first = {name for name in names if not name.startswith("1:")}
    assert names == first | {f"1:{name}" for name in first}
    assert "decoder.layers.1.mlp.linear_fc1.weight" in first


def test_activations_have_their_micro_steps(trained: Path) -> None:
    found = jobs.rows(trained / SHARDED[1] / "out", "actv")
    assert {micro for _, _, micro in found} == {0, 1}


def test_a_step_with_an_inf_counts(tmp_path: Path) -> None:
    ranks.run(tmp_path, SCRIPT, directory=str(tmp_path), what="infinite")
    for rank in range(2):
        out = tmp_path / "infinite" / "out"
        assert {s for _, s, _ in twice.read(out, "grad_unreduced", rank)} == {10, 11, 12}
        assert {s for _, s, _ in twice.read(out, "grad_reduced", rank)} == {10, 12}


def test_steps_end_outside_of_megatrons_graph_of_the_optimizer(tmp_path: Path) -> None:
    ranks.run(tmp_path, SCRIPT, directory=str(tmp_path), what="captured")
    out = tmp_path / "captured" / "out"
    for rank in range(2):
        steps = set(range(2 * STEPS))
        assert {step for _, step, _ in twice.read(out, "grad_unreduced", rank)} == steps
        assert {step for _, step, _ in twice.read(out, "exp_avg", rank)} == steps - {0}
        before, after = twice.read(out, "param_origin", rank), twice.read(out, "param_updated", rank)
        assert before.keys() == after.keys() and {step for _, step, _ in before} == steps
        for (name, step, micro), row in before.items():
            assert step == 0 or row == after[name, step - 1, micro]
            assert row != after[name, step, micro]
        assert {step for _, step, _ in twice.read(out, "grad_reduced", rank)} < steps


def test_50_edits_in_mid_run_switch_two_ranks_at_the_same_steps(tmp_path: Path) -> None:
    ranks.run(tmp_path, SCRIPT, directory=str(tmp_path), what="switch", times=25)
    found = [jobs.steps_of(jobs.rows(tmp_path / "out", "grad_unreduced", rank)) for rank in range(2)]
    assert found[0] and found[0] == found[1]
    assert sum(loops.runs_of(next(iter(found[0].values())))) == 25 * (3 + 2)
    reduced = [jobs.steps_of(jobs.rows(tmp_path / "out", "grad_reduced", rank)) for rank in range(2)]
    steps = {tuple(numbers) for of_rank in reduced for numbers in of_rank.values()}
    assert len(steps) == 1 and set(steps.pop()) == set(next(iter(found[0].values())))
