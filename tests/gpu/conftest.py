# SPDX-License-Identifier: Apache-2.0
"""Skips all tests where there is no CUDA device; with GRADMON_REQUIRE_GPU=1 that is a failure."""
import os

import pytest
import torch

torch.ops.load_library(os.environ["GRADMON_DEVICE_OPERATORS"])


@pytest.fixture(autouse=True)
def gpu() -> None:
    if torch.cuda.is_available():
        return
    if os.environ.get("GRADMON_REQUIRE_GPU") == "1":
        pytest.fail("GRADMON_REQUIRE_GPU is set, and torch finds no CUDA device")
    pytest.skip("torch finds no CUDA device")
