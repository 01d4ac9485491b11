# SPDX-License-Identifier: Apache-2.0
"""The package and its tests pass black, flake8 and mypy."""
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "runtime" / "python"
CONFIG = str(ROOT / "pyproject.toml")
ALL = [".", *(str(ROOT / path) for path in ("tests/python", "tools/benchmarks", "tools/train_ddp.py"))]


@pytest.mark.parametrize(
    "command",
    [
        ["black", "--config", CONFIG, "--check", *ALL],
        ["flake8", "--max-line-length", "110", "--extend-ignore", "E203", *ALL],
        ["mypy", "--config-file", CONFIG, "--cache-dir", "/dev/null", "gradmon"],
    ],
    ids=lambda command: command[0],
)
def test_style(command: "list[str]") -> None:
    result = subprocess.run(
        ["/usr/bin/" + command[0], *command[1:]], cwd=PACKAGE, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout + result.stderr
