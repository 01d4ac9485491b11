# SPDX-License-Identifier: Apache-2.0
"""Skips all tests where there is no CUDA device; with GRADMON_REQUIRE_GPU=1 that is a failure."""
import os
from pathlib import Path

import pytest

REQUIRED = os.environ.get("GRADMON_REQUIRE_GPU") == "1"


def pytest_configure() -> None:
    if not Path("/dev/nvidiactl").exists() and not REQUIRED:  # Without torch, which takes seconds to import.
        pytest.exit("skipped: this machine has no /dev/nvidiactl", returncode=0)
    import torch

    torch.ops.load_library(os.environ["GRADMON_DEVICE_OPERATORS"])


@pytest.fixture(autouse=True)
def gpu() -> None:
    import torch

    if torch.cuda.is_available():
        return
    if REQUIRED:
        pytest.fail("GRADMON_REQUIRE_GPU is set, and torch finds no CUDA device")
    pytest.skip("torch finds no CUDA device")
