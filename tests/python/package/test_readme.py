# SPDX-License-Identifier: Apache-2.0
"""README's example runs as it is written there; the page of frameworks names what is tested."""
import re
from pathlib import Path
from typing import Iterator

import jobs
import pytest
import torch
from gradmon import _steps as training_steps

ROOT = Path(__file__).resolve().parents[3]
OTHER_PINS = ("frameworks-jax", "mindspore")
README = ROOT / "README.md"


def test_the_quick_start_collects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = README.read_text().split("```python\n")[1].split("```")[0]
    assert len(code.splitlines()) <= 10
    config = jobs.write_config(tmp_path, wg_distribution=True, dynamic_on=True)
    config.rename(tmp_path / "monitor_config.json")
    monkeypatch.chdir(tmp_path)
    model = jobs.make_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loader() -> "Iterator[torch.Tensor]":
        (steps,) = training_steps._alive
        jobs.reach_the_hub(steps.core)
        yield from (jobs.batch(step) for step in range(3))

    names = {
        "model": model,
        "optimizer": optimizer,
        "loader": loader(),
        "loss_of": lambda output: output.pow(2).mean(),
    }
    exec(compile(code, "README.md", "exec"), names)
    steps = jobs.steps_of(jobs.rows(tmp_path / "monitor_output", "grad_reduced"))
    assert steps["fc1.weight"] == [1, 2]


def test_the_page_of_frameworks_names_the_versions_that_are_tested() -> None:
    pins = "".join(path.read_text() for path in (ROOT / "tools").glob("requirements-frameworks-*.txt"))
    page = (ROOT / "runtime" / "python" / "FRAMEWORKS.md").read_text()
    named = set(
        re.findall(r"(transformers|Accelerate|Lightning|DeepSpeed|Megatron core) (\d+\.\d+\.\d+)", page)
    )
    assert {name for name, _ in named} == {
        "transformers",
        "Accelerate",
        "Lightning",
        "DeepSpeed",
        "Megatron core",
    }
    assert [name for name, v in named if f"\n{name.lower().replace(' ', '-')}=={v}\n" not in pins] == []
    pins = "".join((ROOT / "tools" / f"requirements-{name}.txt").read_text() for name in OTHER_PINS)
    named = set(re.findall(r"(JAX|MindSpore) (\d+\.\d+\.\d+)", page))
    assert {name for name, _ in named} == {"JAX", "MindSpore"}
    assert [name for name, version in named if f"\n{name.lower()}=={version}\n" not in pins] == []
