# SPDX-License-Identifier: Apache-2.0
"""The adapters of loops with the real frameworks: rows are those of plain torch, training is the same, and an
edit of the config in mid-run switches it. What a framework has of its own: test_accelerate.py and so on."""
from pathlib import Path
from typing import Any, Callable, NamedTuple

import accelerate_loops
import hf_loops
import jobs
import lightning_loops
import loops
import pytest
import ranks
import twice


class Loop(NamedTuple):
    module: Any
    train: str = "train"
    switch: str = "switch"
    # What each loss is divided by, of the number of micro batches that the step has.
    divisor: "Callable[[int], int]" = lambda _: loops.MICRO

    def run(self, directory: Path, what: str) -> None:
        """In two ranks."""
        name = self.module.__name__
        ranks.run(directory, f"import {name}; {name}.main()", directory=str(directory), what=what)


LOOPS = {
    "accelerate": Loop(accelerate_loops),
    "fabric": Loop(lightning_loops, "train_by_fabric", "switch_by_fabric", divisor=lambda count: count),
    "hf": Loop(hf_loops, divisor=lambda count: count),
    "lightning": Loop(lightning_loops),
}
EACH = pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS.keys())


@EACH
def test_rows_are_plain_torchs_also_of_a_short_last_accumulation(tmp_path: Path, loop: Loop) -> None:
    noted = loops.compare(tmp_path, getattr(loop.module, loop.train))
    twice.check_equal(noted, loops.plain_noted(loop.divisor))
    assert {step for _, step, _ in noted.tensors["grad_reduced"]} == set(range(6))
    assert {name for name, _, _ in noted.tensors["grad_reduced"]} == loops.NAMES
    micro = {step: {m for _, s, m in noted.tensors["actv"] if s == step} for step in range(3)}
    assert micro == {0: {0, 1}, 1: {0, 1}, 2: {0}}


@EACH
def test_two_ranks_write_their_own_and_the_reduced_gradients(tmp_path: Path, loop: Loop) -> None:
    loop.run(tmp_path, loop.train)
    unreduced, reduced = (
        [jobs.rows(tmp_path / "out", kind, rank) for rank in range(2)]
        for kind in ("grad_unreduced", "grad_reduced")
    )
    assert reduced[0] and reduced[0] == reduced[1]
    assert {name for name, _, _ in reduced[0]} == loops.NAMES
    assert unreduced[0].keys() == unreduced[1].keys() == reduced[0].keys()
    assert all(unreduced[0][key] != unreduced[1][key] for key in unreduced[0])


@EACH
def test_an_edit_in_mid_run_switches_one_rank(tmp_path: Path, loop: Loop) -> None:
    getattr(loop.module, loop.switch)(tmp_path)
    loops.check_switched(tmp_path, ranks=1)


@EACH
def test_an_edit_in_mid_run_switches_two_ranks_at_one_step(tmp_path: Path, loop: Loop) -> None:
    loop.run(tmp_path, loop.switch)
    loops.check_switched(tmp_path, ranks=2)
