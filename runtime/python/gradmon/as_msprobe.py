# SPDX-License-Identifier: Apache-2.0
"""Runs an unchanged script that has `from msprobe.pytorch import TrainerMon`, or a module of msprobe's:

    python3 -m gradmon.as_msprobe SCRIPT [ARGUMENT...]
    python3 -m gradmon.as_msprobe -m MODULE [ARGUMENT...]
    python3 -m gradmon.as_msprobe -m msprobe.core.monitor.anomaly_processor -d DIR [-o DIR] [-k N] [-s STEPS]

The stand-in takes precedence over an installed msprobe, also in processes that the script starts.
"""
import os
import random
import runpy
import sys
from pathlib import Path

import torch

from gradmon import _gradmon
from gradmon.converting import find_gradmonctl

_STAND_IN = str(Path(__file__).parent / "stand_in")
_USAGE = "usage: python3 -m gradmon.as_msprobe SCRIPT|-m MODULE [ARGUMENT...]"


def seed_all(seed: int = 1234, mode: bool = False, rm_dropout: bool = False) -> None:
    """msprobe.pytorch.seed_all: seeds Python, NumPy (if installed) and torch on all its devices. `mode`:
    torch uses deterministic algorithms only. `rm_dropout`: not supported; logs a warning."""
    os.environ["PYTHONHASHSEED"] = str(seed)  # for child processes
    random.seed(seed)
    try:
        import numpy
    except ImportError:
        pass
    else:
        numpy.random.seed(seed)
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(mode)
    if torch.cuda.is_available():
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False
    if rm_dropout:
        _gradmon.warn_once("seed_all(rm_dropout=True): dropouts are left as they are; give them p=0")


def main_of_anomalies() -> None:
    """msprobe's anomaly_processor: runs `gradmonctl analyse anomalies` in the place of this process, with its
    arguments."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(find_gradmonctl(), ["gradmonctl", "analyse", "anomalies", *sys.argv[1:]])


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
