# SPDX-License-Identifier: Apache-2.0
"""Runs an unchanged script that has `from msprobe.pytorch import TrainerMon`:

    python3 -m gradmon.as_msprobe SCRIPT [ARGUMENT...]

The stand-in takes precedence over an installed msprobe, also in processes that the script starts.
"""
import os
import runpy
import sys
from pathlib import Path

_STAND_IN = str(Path(__file__).parent / "stand_in")


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit("usage: python3 -m gradmon.as_msprobe SCRIPT [ARGUMENT...]")
    del sys.argv[0]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    sys.path.insert(0, _STAND_IN)
    inherited = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    os.environ["PYTHONPATH"] = os.pathsep.join([_STAND_IN, *inherited])
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
