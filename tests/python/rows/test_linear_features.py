# SPDX-License-Identifier: Apache-2.0
"""linear_hook: which modules have rows, and their values."""
import csv
from pathlib import Path
from typing import Any

import gradmon
import jobs
import pytest
import torch


class Tied(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(7, 4)
        self.body = torch.nn.Linear(4, 4)
        self.output_layer = torch.nn.Linear(4, 7, bias=False)
        self.output_layer.weight = self.words.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.output_layer(self.body(self.words(ids)).tanh())


def features(tmp_path: Path, listed: "list[str]") -> "dict[str, Any]":
    torch.manual_seed(3)
    model = Tied()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    config = jobs.write_config(tmp_path, recording_l2_features=True, l2_targets={"linear_hook": listed})
    with gradmon.Monitor(config, output_dir=tmp_path / "out", dynamic=False).watch(model, optimizer):
        before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
        model(torch.arange(6)).pow(2).mean().backward()
        optimizer.step()
    (path,) = (tmp_path / "out").rglob("linear_hook_*.csv")
    with path.open(newline="") as file:
        rows = {row["name"]: row for row in csv.DictReader(file)}
    for row in rows.values():
        weight = before["body.weight" if row["name"] == "body.linear" else "words.weight"].double()
        largest = torch.linalg.svdvals(weight)[0].item()
        assert float(row["kernel_norm"]) == pytest.approx(largest, rel=1e-6)
        assert float(row["sr"]) == pytest.approx(weight.norm().item() / largest, rel=1e-6)
    return rows


def test_an_empty_list_means_all_linear_modules_tied_ones_too_and_no_embedding(tmp_path: Path) -> None:
    rows = features(tmp_path, [])
    assert set(rows) == {"body.linear", "output_layer.linear"}


def test_an_embedding_that_is_listed_has_its_row(tmp_path: Path) -> None:
    rows = features(tmp_path, ["words", "output_layer"])
    assert set(rows) == {"words.linear", "output_layer.linear"}


def test_a_tied_parameter_is_found_by_its_other_name_and_has_one_row(tmp_path: Path) -> None:
    model = Tied()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    config = jobs.write_config(tmp_path, wg_distribution=True, targets={"output_layer": {}})
    with gradmon.Monitor(config, output_dir=tmp_path / "out", dynamic=False).watch(model, optimizer):
        model(torch.arange(6)).pow(2).mean().backward()
        optimizer.step()
    assert {name for name, _, _ in jobs.rows(tmp_path / "out", "grad_reduced")} == {"output_layer.weight"}
