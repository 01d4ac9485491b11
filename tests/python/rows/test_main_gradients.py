# SPDX-License-Identifier: Apache-2.0
"""Gradients that are kept in main_grad. (test_oracle.py compares their values.)"""
from pathlib import Path
from typing import Any

import gradmon
import jobs
import oracle_loops
import oracle_optimizers
import pytest
import torch


def train(tmp_path: Path, model: torch.nn.Module, **keys: Any) -> "dict[tuple[str, int, int], Any]":
    """Trains two steps of two micro batches; returns the rows of grad_unreduced."""
    config = jobs.write_config(tmp_path, wg_distribution=True, **keys)
    monitor = gradmon.Monitor(config, output_dir=tmp_path / "out", dynamic=False)
    oracle_optimizers.train_on_main_gradients(oracle_loops.Run(monitor, False), model)
    monitor.stop()
    return jobs.rows(tmp_path / "out", "grad_unreduced")


def test_what_a_kernel_adds_has_no_row_of_one_micro_batch(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = torch.nn.Sequential(oracle_optimizers.FusedLinear(4, 5), torch.nn.Linear(5, 2))
    found = train(tmp_path, model, monitor_mbs_grad=True)
    assert {name for name, _, _ in found} == {"0.bias", "1.weight", "1.bias"}
    assert {micro for _, _, micro in found} == {0, 1}
    said = capfd.readouterr().err
    assert "0.weight: no row: a fused kernel adds each micro batch to main_grad directly" in said


def test_main_gradients_that_come_later_are_read_from_the_next_step_on(tmp_path: Path) -> None:
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    config = jobs.write_config(tmp_path, wg_distribution=True)
    with gradmon.Monitor(config, output_dir=tmp_path / "out", dynamic=False).watch(model, optimizer):
        jobs.train(model, optimizer, 1)
        held = oracle_optimizers.given_main_gradients(model)
        jobs.train(model, optimizer, 1)
        optimizer.zero_grad()
        model(jobs.batch(0)).sum().backward()
        kept = model.weight.main_grad.clone()
        optimizer.step()
        del held
    jobs.check(jobs.rows(tmp_path / "out", "grad_unreduced")["weight", 2, 0], kept)
