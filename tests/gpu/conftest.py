# SPDX-License-Identifier: Apache-2.0
"""Skips all tests where there is no CUDA device; with GRADMON_REQUIRE_GPU=1 that is a failure."""
import os
from pathlib import Path
from typing import Iterator

import pytest

REQUIRED = os.environ.get("GRADMON_REQUIRE_GPU") == "1"


def pytest_configure() -> None:
    if not Path("/dev/nvidiactl").exists() and not REQUIRED:  # Without torch, which takes seconds to import.
        pytest.exit("skipped: this machine has no /dev/nvidiactl", returncode=0)
    import torch

    torch.ops.load_library(os.environ["GRADMON_DEVICE_OPERATORS"])


@pytest.fixture(autouse=True)
def gpu(capfd: "pytest.CaptureFixture[str]") -> "Iterator[None]":
    """gradmon's hooks, which log a failure and are then off, must not fail either."""
    import torch

    if not torch.cuda.is_available():
        if REQUIRED:
            pytest.fail("GRADMON_REQUIRE_GPU is set, and torch finds no CUDA device")
        pytest.skip("torch finds no CUDA device")
    yield
    assert "hook failed" not in capfd.readouterr().err
