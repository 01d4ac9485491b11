# SPDX-License-Identifier: Apache-2.0
"""Gradients under DistributedDataParallel in every mode: before reduction each rank's own,
after it alike, both plain torch's to the bit, and the training the same."""
from pathlib import Path

import ddp_modes
import jobs
import pytest
import ranks
import torch
import twice


@pytest.mark.parametrize("mode", ddp_modes.MODES)
def test_values_are_plain_torchs_and_training_is_the_same(tmp_path: Path, mode: str) -> None:
    of_mode = ddp_modes.MODES[mode]
    config = jobs.write_config(tmp_path, **twice.EVERYTHING, monitor_mbs_grad=of_mode.each_micro)
    script = "import ddp_modes; ddp_modes.main()"
    ranks.run(tmp_path, script, mode=mode, config=str(config), directory=str(tmp_path))
    plain = [torch.load(tmp_path / f"plain{rank}.pt") for rank in range(2)]
    for rank in range(2):
        assert {"grad_unreduced", "grad_reduced", "param_updated"} <= plain[rank].keys()
        for kind, tensors in plain[rank].items():
            twice.check_rows(twice.read(tmp_path / "out", kind, rank), tensors, kind)
    unreduced, reduced = ([noted[kind] for noted in plain] for kind in ("grad_unreduced", "grad_reduced"))
    for key in unreduced[0].keys() & unreduced[1].keys():
        assert not torch.equal(unreduced[0][key], unreduced[1][key])
    assert reduced[0].keys() == reduced[1].keys()
    assert all(torch.equal(reduced[0][key], reduced[1][key]) for key in reduced[0])
    assert ("exp_avg" in plain[0]) == of_mode.zero
