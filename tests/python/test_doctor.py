# SPDX-License-Identifier: Apache-2.0
"""python3 -m gradmon.doctor."""
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from gradmon._torch_versions import check_torch


def run(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    env = {**os.environ, "GRADMON_LOG": "error", **environment}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=env)


def test_it_says_in_twenty_lines_that_all_works() -> None:
    result = run("-m", "gradmon.doctor")
    assert result.returncode == 0, result.stdout + result.stderr
    lines = result.stdout.splitlines()
    assert len(lines) <= 20
    assert lines[1].startswith(f"torch {torch.__version__} (")
    for kind in ("gradients", "weights", "moments", "activations", "L2 features"):
        assert f"{kind}: works" in lines


def test_another_torch_is_refused_by_name() -> None:
    check_torch(torch.__version__)
    told = f"built against torch 9.9.1 and cannot be used with torch {torch.__version__}"
    with pytest.raises(ImportError, match=re.escape(told)):
        check_torch("9.9.1")


def test_an_extension_that_cannot_be_loaded_is_told(tmp_path: Path) -> None:
    import gradmon

    package = tmp_path / "gradmon"
    package.mkdir()
    for source in Path(gradmon.__file__).parent.glob("*.py"):
        (package / source.name).write_text(source.read_text())
    (package / "_gradmon.so").write_text("no library")
    result = run("-m", "gradmon.doctor", PYTHONPATH=str(tmp_path))
    assert result.returncode != 0
    assert f"cannot be loaded beside torch {torch.__version__}" in result.stderr + result.stdout
