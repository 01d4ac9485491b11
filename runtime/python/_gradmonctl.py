# SPDX-License-Identifier: Apache-2.0
"""The command `gradmonctl` of the wheel. Outside the package, which imports torch."""
import os
import sys
from pathlib import Path


def main() -> None:
    os.environ["GRADMON_PYTHON"] = sys.executable  # it runs gradmon_read
    program = Path(__file__).with_name("gradmon") / "gradmonctl"
    os.execv(program, ["gradmonctl", *sys.argv[1:]])
