# SPDX-License-Identifier: Apache-2.0
"""How much a test repeats: little in the quick tier, all of it with GRADMON_TEST_SCALE=full."""
import os
from typing import Any

import pytest

FULL = os.environ.get("GRADMON_TEST_SCALE") == "full"
# For `pytestmark` of files whose tests "python: late values" repeats, reading as on a device.
IF_LATE_FULL = [pytest.mark.full] if "GRADMON_TEST_READ_AS_ON_A_DEVICE" in os.environ else []


def if_full(*arguments: Any) -> Any:
    """Arguments of a test that it gets in the full tier alone: conftest.py leaves it out of the quick one."""
    return pytest.param(*arguments, marks=pytest.mark.full)
