# SPDX-License-Identifier: Apache-2.0
"""README's example runs as it is written there."""
from pathlib import Path

import jobs
import pytest
import torch

README = Path(__file__).resolve().parents[3] / "README.md"


def test_the_quick_start_collects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = README.read_text().split("```python\n")[1].split("```")[0]
    assert len(code.splitlines()) <= 10
    config = jobs.write_config(tmp_path, wg_distribution=True, dynamic_on=True)
    config.rename(tmp_path / "monitor_config.json")
    monkeypatch.chdir(tmp_path)
    model = jobs.make_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    names = {
        "model": model,
        "optimizer": optimizer,
        "loader": [jobs.batch(step) for step in range(3)],
        "loss_of": lambda output: output.pow(2).mean(),
    }
    exec(compile(code, "README.md", "exec"), names)
    steps = jobs.steps_of(jobs.rows(tmp_path / "monitor_output", "grad_reduced"))
    assert steps["fc1.weight"] == [1, 2]
