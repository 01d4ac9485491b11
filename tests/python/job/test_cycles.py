# SPDX-License-Identifier: Apache-2.0
"""Collection is switched on and off many times."""
import os
from pathlib import Path

import gradmon
import jobs
from scale import FULL
import torch

CYCLES = 1000 if FULL else 40
MOST_GROWTH = 8 << 20  # bytes

KEYS = {key: True for key in jobs.EVERYTHING if key != "mg_direction"}


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_neither_memory_nor_hooks_nor_descriptors_grow(tmp_path: Path) -> None:
    model = jobs.make_net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
    config = jobs.write_config(tmp_path, dynamic_on=False, **KEYS)
    with gradmon.Monitor(config, output_dir=tmp_path / "out", dynamic=True).watch(model, optimizer):

        def cycle() -> None:
            jobs.write_config(tmp_path, dynamic_on=True, collect_times=1, **KEYS)
            # Training has waited 2 s in ten minutes: a rank refuses until they are over.
            jobs.train_until(model, optimizer, lambda: '"dynamic_on": false' in config.read_text(), 660)

        for _ in range(20):
            cycle()
        before, attributes = (resident(), descriptors()), len(vars(optimizer))
        for _ in range(CYCLES):
            cycle()
        jobs.train(model, optimizer, 2)
        assert jobs.hooks_of(model) == 0
        assert len(vars(optimizer)) == attributes
        assert jobs.eventually(lambda: descriptors() <= before[1], 10)  # the agent opens some for a moment
        assert resident() - before[0] <= MOST_GROWTH
    assert len(jobs.steps_of(jobs.rows(tmp_path / "out", "grad_reduced"))["fc1.weight"]) == CYCLES + 20
