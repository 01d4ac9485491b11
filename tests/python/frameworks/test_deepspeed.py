# SPDX-License-Identifier: Apache-2.0
"""gradmon.deepspeed.watch with the real DeepSpeed, in two ranks with gloo: rows are those of plain torch, cut
to the pieces that each rank has; training is the same."""
import subprocess
import sys
from pathlib import Path
from typing import Any

import engine_oracle
import jobs
import loops
import pytest
import ranks
import twice

# Compiling Muon's kernels takes minutes.
SCRIPT = "import os; os.environ['TORCHDYNAMO_DISABLE'] = '1'; import deepspeed_loops; deepspeed_loops.main()"
STEPS, OVERFLOWS = 4, 1  # as in deepspeed_loops
STAGES = ("0", "1", "2", "3")


@pytest.fixture(scope="module", params=STAGES)
def trained(request: Any, tmp_path_factory: Any) -> Path:
    """The ranks compare their own rows with plain torch's tensors."""
    directory: Path = tmp_path_factory.mktemp(f"stage{request.param}")
    ranks.run(directory, SCRIPT, directory=str(directory), what="train", stage=request.param)
    return directory


@pytest.mark.parametrize("micro", [1, 2])
@pytest.mark.parametrize("kind", engine_oracle.REDUCED)
def test_joined_pieces_are_plain_torchs_tensors(trained: Path, kind: str, micro: int) -> None:
    case = trained / f"{trained.name[:6]}-float32-{micro}"
    if not case.exists():
        assert "stage0" in trained.name
        return
    steps = STEPS - 1 if kind.startswith("exp_avg") else STEPS
    assert engine_oracle.check_joined(case, kind) == steps * len(loops.NAMES)
    if "stage0" in trained.name:  # each rank has all
        whole = [twice.read(case / "out", kind, rank) for rank in range(2)]
        assert whole[0] == whole[1]


def test_unreduced_gradients_are_each_ranks_own(trained: Path) -> None:
    outputs = sorted(trained.glob("*/out"))
    assert outputs
    for out in outputs:
        found = [twice.read(out, "grad_unreduced", rank) for rank in range(2)]
        assert {(name, step) for name, step, _ in found[0]} == {
            (n, s) for n in loops.NAMES for s in range(STEPS)
        }
        assert found[0].keys() == found[1].keys()
        assert all(found[0][key] != found[1][key] for key in found[0])


@pytest.mark.parametrize("what", ["modes", "muon"])
@pytest.mark.parametrize("stage", STAGES)
def test_each_mode_has_plain_torchs_values(tmp_path: Path, what: str, stage: str) -> None:
    """The ranks compare their own rows. Muon: of before its update; it has no second moment."""
    ranks.run(tmp_path, SCRIPT, directory=str(tmp_path), what=what, stage=stage)
    cases = sorted(tmp_path.glob("*/plain.json"))
    assert cases
    for case in (one.parent for one in cases):
        for kind in engine_oracle.REDUCED:
            steps = STEPS - 1 if kind.startswith("exp_avg") else STEPS
            names = len(loops.NAMES) - 2 if (what, kind) == ("muon", "exp_avg_sq") else len(loops.NAMES)
            assert (
                engine_oracle.check_joined(case, kind, zeros_first=what == "muon") == steps * names
            ), case.name


@pytest.fixture(scope="module")
def others(tmp_path_factory: Any) -> Path:
    directory: Path = tmp_path_factory.mktemp("others")
    ranks.run(directory, SCRIPT, directory=str(directory), what="others")
    return directory


@pytest.mark.parametrize("folder", ["overflow", "muon"])
def test_a_step_that_an_overflow_leaves_out_counts(others: Path, folder: str) -> None:
    for rank in range(2):
        unreduced = twice.read(others / folder / "out", "grad_unreduced", rank)
        assert {step for _, step, _ in unreduced} == set(range(STEPS))
        for kind in ("grad_reduced", "param_updated"):
            found = twice.read(others / folder / "out", kind, rank)
            assert {step for _, step, _ in found} == set(range(STEPS)) - {OVERFLOWS}


@pytest.mark.parametrize("what, stage", [("experts", "1"), ("experts", "2"), ("pipeline", "0")])
def test_experts_have_their_own_rows_and_a_pipeline_is_refused(tmp_path: Path, what: str, stage: str) -> None:
    ranks.run(tmp_path, SCRIPT, directory=str(tmp_path), what=what, stage=stage)


@pytest.mark.parametrize("stage", STAGES)
def test_initialize_and_checkpoints_are_no_steps(tmp_path: Path, stage: str) -> None:
    ranks.run(tmp_path, SCRIPT, directory=str(tmp_path), what="checkpoint", stage=stage)


@pytest.mark.parametrize(
    "case, micro",
    [("1", 2), ("2", 2), ("unmanaged0", 3), ("unmanaged1", 3), ("unmanaged2", 3), ("coalesced2", 1)],
)
def test_each_micro_batch_has_its_own_gradient(tmp_path: Path, case: str, micro: int) -> None:
    ranks.run(tmp_path, SCRIPT, directory=str(tmp_path), what="micro", case=case)
    found = twice.read(tmp_path / "out", "grad_unreduced")
    assert {one for _, _, one in found} == set(range(micro))


def test_a_renamed_attribute_switches_off_its_kinds_only(others: Path) -> None:
    assert jobs.rows(others / "refused" / "out", "grad_unreduced")


@pytest.mark.parametrize("stage", ["2", "3"])
def test_an_edit_in_mid_run_switches_two_ranks_at_one_step(tmp_path: Path, stage: str) -> None:
    ranks.run(tmp_path, SCRIPT, directory=str(tmp_path), what="switch", stage=stage)
    unreduced = [jobs.steps_of(jobs.rows(tmp_path / "out", "grad_unreduced", rank)) for rank in range(2)]
    assert unreduced[0] == unreduced[1] and set(unreduced[0]) == loops.NAMES
    assert loops.runs_of(next(iter(unreduced[0].values()))) == [3, 2]
    for kind, counts in (("grad_reduced", [3, 2]), ("param_updated", [2])):
        found = [jobs.steps_of(jobs.rows(tmp_path / "out", kind, rank)) for rank in range(2)]
        assert {name for of_rank in found for name in of_rank} == loops.NAMES
        steps = {tuple(numbers) for of_rank in found for numbers in of_rank.values()}
        assert len(steps) == 1 and loops.runs_of(list(steps.pop())) == counts


def test_no_framework_is_imported_before_the_program_does() -> None:
    check = "import sys; print([name for name in ('deepspeed', 'megatron') if name in sys.modules])"
    out = subprocess.run(
        [sys.executable, "-B", "-c", f"import gradmon; gradmon.deepspeed.watch; {check}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert out.stdout.strip() == "[]"
