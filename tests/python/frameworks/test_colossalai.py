# SPDX-License-Identifier: Apache-2.0
"""gradmon.colossalai.watch with the real LowLevelZeroOptimizer, in two ranks with gloo: rows are those of
plain torch, cut to the pieces that each rank has; training is the same."""
from pathlib import Path
from typing import Any

import engine_oracle
import pytest
import ranks
import twice

SCRIPT = "import colossalai_loops; colossalai_loops.main()"
STEPS, PARAMETERS = 4, 6
CASES = ("stage1-1", "stage1-2", "stage1-2-no_sync", "stage2-1", "stage2-2")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: Any) -> "tuple[Path, str]":
    """The ranks compare their own rows with plain torch's tensors. A failed case is the last one."""
    directory: Path = tmp_path_factory.mktemp("trained")
    try:
        ranks.run(directory, SCRIPT, directory=str(directory))
    except AssertionError as error:
        return directory, str(error)
    return directory, ""


@pytest.mark.parametrize("case", CASES)
def test_pieces_of_both_ranks_are_plain_torchs_tensors(trained: "tuple[Path, str]", case: str) -> None:
    assert (trained[0] / case / "plain.json").exists(), trained[1]
    for kind in engine_oracle.REDUCED:
        steps = STEPS - 1 if kind.startswith("exp_avg") else STEPS
        assert engine_oracle.check_joined(trained[0] / case, kind) == steps * PARAMETERS


@pytest.mark.parametrize("case", CASES)
def test_unreduced_gradients_are_each_ranks_own(trained: "tuple[Path, str]", case: str) -> None:
    found = [twice.read(trained[0] / case / "out", "grad_unreduced", rank) for rank in range(2)]
    assert len(found[0]) == STEPS * PARAMETERS, trained[1]
    assert found[0].keys() == found[1].keys()
    assert all(found[0][key] != found[1][key] for key in found[0])


def test_the_job_ends_well(trained: "tuple[Path, str]") -> None:
    assert trained[1] == ""
