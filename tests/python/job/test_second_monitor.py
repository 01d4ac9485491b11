# SPDX-License-Identifier: Apache-2.0
"""A second Monitor in one process, as when a notebook cell is run again."""
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable

import gradmon
import jobs
import pytest
import torch

SAID = "a second Monitor in this process replaces the first, which stops"


class Notebook:
    def __init__(self, directory: Path, dynamic: bool) -> None:
        self.directory = directory
        self.dynamic = dynamic
        self.model = jobs.make_net()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def run_cell(self, name: str, **keys: Any) -> gradmon.Monitor:
        """Runs the cell with a config and an output directory of that name, and the same model."""
        folder = self.directory / name
        folder.mkdir(exist_ok=True)
        config = jobs.write_config(folder, dynamic_on=True, collect_times=100_000, step_interval=1, **keys)
        monitor = gradmon.Monitor(config, output_dir=folder / "out", dynamic=self.dynamic)
        return monitor.watch(self.model, self.optimizer)

    def train_until(self, condition: Callable[[], Any]) -> None:
        end = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < end
            jobs.train(self.model, self.optimizer, 1)

    def files(self, name: str) -> "dict[str, str]":
        found = (self.directory / name / "out").rglob("*.csv")
        return {path.name: path.read_text() for path in found}


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_second_monitor_takes_the_place_of_the_first(tmp_path: Path, dynamic: bool) -> None:
    notebook = Notebook(tmp_path, dynamic)
    first = notebook.run_cell("one", wg_distribution=True)
    notebook.train_until(lambda: any("grad_reduced" in name for name in notebook.files("one")))
    second = notebook.run_cell("two", param_distribution=True)
    left = notebook.files("one")
    notebook.train_until(lambda: any("param_updated" in name for name in notebook.files("two")))
    third = notebook.run_cell("two", param_distribution=True)
    third.stop()
    assert notebook.files("one") == left  # complete once the second Monitor writes, and final
    for stopped in (first, second, third):
        status = stopped.status()
        assert status is not None and status.state == "off"


def test_with_another_model_it_is_told_by_the_output_directory_and_said_once(tmp_path: Path) -> None:
    config = jobs.write_config(tmp_path, wg_distribution=True)
    script = f"""
import gradmon, jobs, torch
kept = []
for _ in range(3):
    model = jobs.make_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    monitor = gradmon.Monitor({str(config)!r}, output_dir={str(tmp_path / "out")!r}, dynamic=False)
    kept.append(monitor.watch(model, optimizer))
    jobs.train(model, optimizer, 1)
    print([one.status().reason for one in kept])
"""
    command = [sys.executable, "-c", script]
    result = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert result.returncode == 0 and result.stderr.count(SAID) == 1, result.stderr
    assert result.stdout.splitlines()[-1].count("stopped") == 2


def test_ranks_that_one_process_plays_have_a_monitor_each(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = jobs.write_config(tmp_path, wg_distribution=True)
    model = jobs.make_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    options: "dict[str, Any]" = dict(output_dir=tmp_path / "out", dynamic=False, world_size=2)
    monitors = [gradmon.Monitor(config, rank=r, **options).watch(model, optimizer) for r in range(2)]
    jobs.train(model, optimizer, 2)
    for monitor in monitors:
        monitor.stop()
    assert SAID not in capfd.readouterr().err
    for rank in range(2):
        found = jobs.rows(tmp_path / "out", "grad_reduced", rank)
        assert jobs.steps_of(found)["fc1.weight"] == [0, 1]
