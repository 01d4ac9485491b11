# SPDX-License-Identifier: Apache-2.0
"""With squash_name, rows have short names of modules, in whichever form the config names them."""
from pathlib import Path
from typing import Any

import gradmon
import jobs
import pytest
import torch


class Encoder(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers[1](self.layers[0](x))


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
    model = torch.nn.Sequential()
    model.add_module("encoder", Encoder())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    config = jobs.write_config(tmp_path, xy_distribution=True, squash_name=True, forward_only=True, **keys)
    with gradmon.Monitor(config, output_dir=tmp_path / "out", dynamic=False).watch(model, optimizer):
        jobs.train(model, optimizer, 1)
    found = {name for name, _, _ in jobs.rows(tmp_path / "out", "actv")}
    assert {name[: -len(".input")] for name in found if name.endswith(".input")} == names
