# SPDX-License-Identifier: Apache-2.0
"""python3 -m gradmon.doctor."""
import os
import subprocess
import sys
from pathlib import Path

import gradmon
import pytest
import torch
from gradmon import doctor


def run(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    env = {**{name: value for name, value in os.environ.items() if name != "GRADMON_LOG"}, **environment}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=env)


def test_it_says_in_twenty_lines_that_all_works() -> None:
    result = run("-m", "gradmon.doctor")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "gradmon: " not in result.stderr  # the log of the small trainings
    lines = result.stdout.splitlines()
    assert len(lines) <= 20
    assert lines[1].startswith(f"torch {torch.__version__} (")
    assert [line for line in lines if line.endswith(": works")] == [
        f"{kind}: works" for kind in doctor._KINDS
    ]


def test_a_kind_without_rows_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    weights_alone = ({"param_distribution": True}, ["param_origin", "grad_reduced"])
    monkeypatch.setattr(doctor, "_KINDS", {"gradients": weights_alone, "weights": doctor._KINDS["weights"]})
    said: "list[str]" = []
    assert not doctor.examine(said.append)
    assert "gradients: no grad_reduced (no reason is known)" in said and "weights: works" in said


def test_a_refusal_of_the_machine_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("unable to resolve\nits own name")

    monkeypatch.setattr(torch.distributed, "init_process_group", refuse)
    said: "list[str]" = []
    assert not doctor.examine(said.append)
    assert "communication: unable to resolve its own name" in said and "gradients: works" in said


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package without the compiled extension."""
    copied = tmp_path / "gradmon"
    copied.mkdir()
    for source in Path(gradmon.__file__).parent.glob("*.py"):
        (copied / source.name).write_text(source.read_text())
    return copied


def test_another_torch_is_refused_by_name_before_the_extension_is_loaded(package: Path) -> None:
    (package / "_built_against.py").write_text('VERSION = "0.9.0"\nTORCH = "9.9.1"\n')
    result = run("-m", "gradmon.doctor", PYTHONPATH=str(package.parent))
    assert result.returncode != 0
    beside = f"cannot be loaded beside torch {torch.__version__} ({torch.__file__})"
    release = ".".join(torch.__version__.split(".")[:2])
    wheel = f"install the wheel gradmon-0.9.0+torch{release}"
    assert f"{beside}: it was built against torch 9.9.1; {wheel}" in result.stderr


def test_an_extension_that_cannot_be_loaded_is_reported(package: Path) -> None:
    (package / "_gradmon.so").write_text("no library")
    result = run("-m", "gradmon.doctor", PYTHONPATH=str(package.parent))
    assert result.returncode != 0
    assert f"cannot be loaded beside torch {torch.__version__}" in result.stderr
