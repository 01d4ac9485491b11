# SPDX-License-Identifier: Apache-2.0
"""Rows of modules: their short names, keyword inputs, and features of linear layers."""
import csv
from pathlib import Path
from typing import Any

import jobs
import pytest
import torch


@pytest.mark.parametrize(
    ("keys", "names"),
    [
        ({"targets": {"encoder.layers.0": {}, "layers.1": {}}}, {"layers.0", "layers.1"}),
        ({"targets": {"0:encoder.layers.1": {}}}, {"layers.1"}),
        ({"targets": {"encoder": {}}}, {"encoder"}),
        ({"targets": {"encoder.layers.0": {}}, "all_xy": True}, {"model", "encoder", "layers.0", "layers.1"}),
    ],
)
def test_rows_have_short_names(tmp_path: Path, keys: "dict[str, Any]", names: "set[str]") -> None:
    layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(2))
    encoder = jobs.Parts(lambda m, x: m.layers[1](m.layers[0](x)), layers=layers)
    model = jobs.Parts(lambda m, x: m.encoder(x), encoder=encoder)
    keys = {"xy_distribution": True, "squash_name": True, "forward_only": True, **keys}
    jobs.collect(tmp_path, 1, *jobs.with_sgd(model), **keys)
    found = {name for name, _, _ in jobs.rows(tmp_path / "out", "actv")}
    assert {name[: -len(".input")] for name in found if name.endswith(".input")} == names


def test_keyword_inputs_come_after_positional_ones(tmp_path: Path) -> None:
    mask = torch.full((4,), 0.5)
    masked = jobs.Parts(lambda _, x, mask, factor=1.0: x * mask * factor)
    model = jobs.Parts(
        lambda m, x: m.masked(m.fc(x), factor=2.0, mask=mask), fc=torch.nn.Linear(4, 4), masked=masked
    )
    jobs.collect(tmp_path, 1, *jobs.with_sgd(model), **jobs.ACTIVATIONS)
    found = jobs.rows(tmp_path / "out", "actv")
    jobs.check(found["masked.input_mask", 0, 0], mask)
    names = {name for name, _, _ in found}
    assert names >= {"masked.input", "masked.input_mask", "masked.output", "fc.input"}


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
    model, optimizer = jobs.with_sgd(Tied())
    monitor = jobs.monitor(tmp_path, recording_l2_features=True, l2_targets={"linear_hook": listed})
    with monitor.watch(model, optimizer):
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
    model, optimizer = jobs.with_sgd(Tied())
    with jobs.monitor(tmp_path, wg_distribution=True, targets={"output_layer": {}}).watch(model, optimizer):
        model(torch.arange(6)).pow(2).mean().backward()
        optimizer.step()
    assert {name for name, _, _ in jobs.rows(tmp_path / "out", "grad_reduced")} == {"output_layer.weight"}
