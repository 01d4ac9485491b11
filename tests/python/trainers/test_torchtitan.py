# SPDX-License-Identifier: Apache-2.0
"""gradmon.torchtitan.watch with the real torchtitan, in two ranks with gloo: rows are those of plain torch,
cut to the shards that each rank has; training is the same."""
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import gradmon
import jobs
import loops
import pytest
import ranks
import torch
import twice

SCRIPT = "import titan_loops; titan_loops.main()"
STEPS = {1, 2, 3}  # the trainer's own numbers


def run(directory: Path, what: str) -> "tuple[Path, str]":
    """All trainings of a kind in one job, one after another. Returns what was wrong with it, too."""
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ranks, "WITHIN", 300)  # each rank imports torchtitan
            ranks.run(directory, SCRIPT, directory=str(directory), what=what)
    except AssertionError as error:
        return directory, str(error)
    return directory, ""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: Any) -> "tuple[Path, str]":
    """The ranks compare their rows with plain torch's tensors."""
    return run(tmp_path_factory.mktemp("trained"), "train")


@pytest.fixture(scope="module")
def others(tmp_path_factory: Any) -> "tuple[Path, str]":
    return run(tmp_path_factory.mktemp("others"), "others")


@pytest.fixture(scope="module")
def modes(tmp_path_factory: Any) -> "tuple[Path, str]":
    """The ranks compare their rows with what the optimizers hold."""
    return run(tmp_path_factory.mktemp("modes"), "modes")


@pytest.mark.parametrize("mode", ["tensor_parallel", "pipelined", "simple_fsdp"])
def test_each_mode_has_its_rows(modes: "tuple[Path, str]", mode: str) -> None:
    assert all((modes[0] / mode / f"done.{rank}").exists() for rank in range(2)), modes[1]


@pytest.mark.parametrize("case", ["not_finite", "raises"])
def test_a_step_that_raises_has_its_rows(modes: "tuple[Path, str]", case: str) -> None:
    assert all((modes[0] / case / f"done.{rank}").exists() for rank in range(2)), modes[1]


@pytest.mark.parametrize("case", ["plain", "accumulated", "chunked", "checkpointed"])
def test_rows_are_plain_torchs_and_training_is_the_same(trained: "tuple[Path, str]", case: str) -> None:
    directory = trained[0] / case
    assert (directory / "truth.0").exists() and (directory / "truth.1").exists(), trained[1]
    unreduced = [twice.read(directory / "out", "grad_unreduced", rank) for rank in range(2)]
    assert {step for _, step, _ in unreduced[0]} == STEPS
    assert unreduced[0].keys() == unreduced[1].keys()
    assert all(unreduced[0][key] != unreduced[1][key] for key in unreduced[0])
    check_joined(directory)


def check_joined(directory: Path) -> None:
    """Shards of both ranks, joined, are plain torch's."""
    truth = [torch.load(directory / f"truth.{rank}") for rank in range(2)]
    frame = gradmon.load(directory / "out", whole=True)
    for kind in ("grad_reduced", "param_updated", "exp_avg"):
        rows = [row for row in frame.to_dict("records") if (row["kind"], row["op"]) == (kind, "norm")]
        assert len(rows) == len(truth[0][kind])
        for row in rows:
            parts = [of_rank[kind][row["name"], row["step"], 0].flatten() for of_rank in truth]
            norm = torch.cat(parts).double().norm().item()
            assert math.isclose(row["value"], norm, rel_tol=2e-6), row


def test_a_training_that_resumes_goes_on_with_its_step_numbers(others: "tuple[Path, str]") -> None:
    for rank in range(2):
        steps = jobs.steps_of(jobs.rows(others[0] / "resume" / "out", "grad_reduced", rank))
        assert steps and steps["lm_head.weight"] == [3, 4], others[1]


def test_an_edit_in_mid_run_switches_two_ranks_at_one_step(others: "tuple[Path, str]") -> None:
    out = others[0] / "switch" / "out"
    for kind, counts in (("grad_unreduced", [3, 2]), ("grad_reduced", [3, 2]), ("param_updated", [2])):
        steps = [jobs.steps_of(jobs.rows(out, kind, rank)) for rank in range(2)]
        assert steps[0] and steps[0] == steps[1], others[1]
        for numbers in steps[0].values():
            assert loops.runs_of(numbers) == counts


def test_the_jobs_end_well(trained: "tuple[Path, str]", others: "tuple[Path, str]") -> None:
    """Also where a monitor is stopped before the first step, a config is wrong, or CUDA graphs are on."""
    assert trained[1] == "" and others[1] == ""


def test_torchtitan_is_not_imported_before_the_program_does() -> None:
    check = "import sys, gradmon; gradmon.torchtitan.watch; print('torchtitan' in sys.modules)"
    out = subprocess.run([sys.executable, "-B", "-c", check], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"
