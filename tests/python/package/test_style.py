# SPDX-License-Identifier: Apache-2.0
"""The Python code passes black and flake8; the package and tests/msprobe_compare pass mypy too."""
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "runtime" / "python"
CONFIG = str(ROOT / "pyproject.toml")
COMPARISON = ROOT / "tests" / "msprobe_compare"
OTHERS = ("tests/python", "tests/benchmarks", "tests/demo/train_ddp.py")
ALL = [".", *(str(ROOT / path) for path in OTHERS), str(COMPARISON)]
MYPY = ["mypy", "--config-file", CONFIG, "--cache-dir", os.environ["GRADMON_BUILD_DIR"] + "/mypy"]


@pytest.mark.parametrize(
    "command",
    [
        ["black", "--config", CONFIG, "--check", *ALL],
        ["flake8", "--max-line-length", "110", "--extend-ignore", "E203", *ALL],
        [*MYPY, "gradmon", "gradmon_read"],
        [*MYPY, str(COMPARISON / "compare.py")],
    ],
    ids=lambda command: f"{command[0]}, {Path(command[-1]).name}",
)
def test_style(command: "list[str]") -> None:
    result = subprocess.run(
        ["/usr/bin/" + command[0], *command[1:]], cwd=PACKAGE, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout + result.stderr
