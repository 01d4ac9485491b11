# SPDX-License-Identifier: Apache-2.0
"""msprobe's quick start in Megatron's training.py, in two ranks with gloo. Its lines, after Megatron core has
made the model and the optimizer, give the rows of gradmon.megatron.watch; test_megatron.py holds those to
plain torch's."""
from pathlib import Path

import engine_oracle
import jobs
import pytest
import ranks
import twice

STEPS = 3  # as in megatron_loops
SCRIPT = "import megatron_quick_start; megatron_quick_start.main()"


@pytest.mark.parametrize("distributed", [False, True])
def test_its_lines_give_each_rank_the_adapters_rows(tmp_path: Path, distributed: bool) -> None:
    keys = {**twice.EVERYTHING, "squash_name": False}
    jobs.write_config(tmp_path, **keys).rename(tmp_path / "monitor_config.json")
    ranks.run(tmp_path, SCRIPT, directory=str(tmp_path), distributed=distributed)
    for rank in range(2):
        for kind in ("grad_unreduced", *engine_oracle.REDUCED, "actv"):
            found = twice.read(tmp_path / "out", kind, rank)
            first = 1 if kind.startswith("exp_avg") else 0
            assert {step for _, step, _ in found} == set(range(first, STEPS)), kind
            assert found == twice.read(tmp_path / "by_adapter", kind, rank), kind
