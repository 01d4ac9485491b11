# SPDX-License-Identifier: Apache-2.0
"""Every mode of DistributedDataParallel: gradients before and after reduction are those of plain torch,
bit for bit, and so is the training."""
from pathlib import Path
from typing import Any

import ddp_modes
import jobs
import pytest
import ranks
import torch
import twice


@pytest.fixture(scope="module")
def trained(tmp_path_factory: Any) -> "tuple[Path, str]":
    """Trains in all modes, one after another, in one job. A failed mode is the last one and has its error."""
    directory = tmp_path_factory.mktemp("modes")
    for name, mode in ddp_modes.MODES.items():
        (directory / name).mkdir()
        jobs.write_config(directory / name, **twice.EVERYTHING, monitor_mbs_grad=mode.each_micro)
    try:
        ranks.run(directory, "import ddp_modes; ddp_modes.main()", directory=str(directory))
    except AssertionError as error:
        return directory, str(error)
    return directory, ""


@pytest.mark.parametrize("name", ddp_modes.MODES)
def test_values_are_plain_torchs_and_training_is_the_same(trained: "tuple[Path, str]", name: str) -> None:
    directory, trouble = trained[0] / name, trained[1]
    files = [directory / f"plain{rank}.pt" for rank in range(2)]
    assert all(file.exists() for file in files), trouble
    plain = [torch.load(file) for file in files]
    for rank in range(2):
        assert {"grad_unreduced", "grad_reduced", "param_updated"} <= plain[rank].keys()
        for kind, tensors in plain[rank].items():
            twice.check_rows(twice.read(directory / "out", kind, rank), tensors, kind)
    unreduced, reduced = ([noted[kind] for noted in plain] for kind in ("grad_unreduced", "grad_reduced"))
    for key in unreduced[0].keys() & unreduced[1].keys():
        assert not torch.equal(unreduced[0][key], unreduced[1][key])
    for key in reduced[0].keys() & reduced[1].keys():
        assert torch.equal(reduced[0][key], reduced[1][key])
    assert (reduced[0].keys() == reduced[1].keys()) != ddp_modes.MODES[name].uneven
    assert ("exp_avg" in plain[0]) == ddp_modes.MODES[name].zero


def test_the_job_ends_well(trained: "tuple[Path, str]") -> None:
    assert trained[1] == ""
