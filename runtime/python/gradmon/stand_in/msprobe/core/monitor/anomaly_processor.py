# SPDX-License-Identifier: Apache-2.0
"""Stands in for msprobe.core.monitor.anomaly_processor:

    python3 -m gradmon.as_msprobe -m msprobe.core.monitor.anomaly_processor -d DIR [-o DIR] [-k N] [-s STEPS]

The options are those of `gradmonctl analyse anomalies`, which it becomes.
"""
import os
import sys

from gradmon.converting import find_gradmonctl
from msprobe import refusing


def main() -> None:
    """Runs `gradmonctl analyse anomalies` in the place of this process, with its arguments."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(find_gradmonctl(), ["gradmonctl", "analyse", "anomalies", *sys.argv[1:]])


__getattr__ = refusing(__name__)

if __name__ == "__main__":
    main()
