# SPDX-License-Identifier: Apache-2.0
"""Runs an unchanged script that has `from msprobe.pytorch import TrainerMon`, or a module of msprobe's:

    python3 -m gradmon.as_msprobe SCRIPT [ARGUMENT...]
    python3 -m gradmon.as_msprobe -m MODULE [ARGUMENT...]

The stand-in takes precedence over an installed msprobe, also in processes that the script starts.
"""
import os
import runpy
import sys
from pathlib import Path

_STAND_IN = str(Path(__file__).parent / "stand_in")


_USAGE = "usage: python3 -m gradmon.as_msprobe SCRIPT|-m MODULE [ARGUMENT...]"


def main() -> None:
    del sys.argv[0]
    if not sys.argv or sys.argv[0] in ("-h", "--help") or sys.argv == ["-m"]:
        sys.exit(_USAGE)
    inherited = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    os.environ["PYTHONPATH"] = os.pathsep.join([_STAND_IN, *inherited])
    is_module = sys.argv[0] == "-m"
    sys.path[0] = os.getcwd() if is_module else os.path.dirname(os.path.abspath(sys.argv[0]))
    sys.path.insert(0, _STAND_IN)
    if is_module:
        del sys.argv[0]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
