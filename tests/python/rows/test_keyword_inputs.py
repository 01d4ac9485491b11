# SPDX-License-Identifier: Apache-2.0
"""Modules that are called with keyword arguments."""
from pathlib import Path

import gradmon
import jobs
import pytest
import torch
from gradmon._module_hooks import HAS_KEYWORD_INPUTS


class Masked(torch.nn.Module):
    def forward(self, x: torch.Tensor, mask: torch.Tensor, factor: float = 1.0) -> torch.Tensor:
        return x * mask * factor


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(4, 4)
        self.masked = Masked()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.masked(self.fc(x), factor=2.0, mask=torch.full((4,), 0.5))


def activations(tmp_path: Path) -> "set[str]":
    torch.manual_seed(3)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    config = jobs.write_config(tmp_path, xy_distribution=True, all_xy=True)
    with gradmon.Monitor(config, output_dir=tmp_path / "out", dynamic=False).watch(model, optimizer):
        jobs.train(model, optimizer, 1)
    found = jobs.rows(tmp_path / "out", "actv")
    if ("masked.input_mask", 0, 0) in found:
        jobs.check(found["masked.input_mask", 0, 0], torch.full((4,), 0.5))
    return {name for name, _, _ in found}


def test_keyword_inputs_come_after_positional_ones(tmp_path: Path) -> None:
    if not HAS_KEYWORD_INPUTS:
        pytest.skip("this torch tells hooks nothing of what is given by name")
    assert activations(tmp_path) >= {"masked.input", "masked.input_mask", "masked.output", "fc.input"}


def test_without_keyword_inputs_in_hooks_the_other_rows_are_there(tmp_path: Path) -> None:
    if HAS_KEYWORD_INPUTS:
        pytest.skip("this torch tells hooks of what is given by name")
    assert activations(tmp_path) >= {"masked.input", "masked.output", "fc.input"}
