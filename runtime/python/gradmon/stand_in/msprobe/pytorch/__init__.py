# SPDX-License-Identifier: Apache-2.0
"""Stands in for msprobe.pytorch."""
import os
import random

import torch
from gradmon import TrainerMon, _gradmon
from msprobe import refusing

__all__ = ["TrainerMon", "seed_all"]


def seed_all(seed: int = 1234, mode: bool = False, rm_dropout: bool = False) -> None:
    """Seeds Python, NumPy (if installed) and torch on all its devices. `mode`: torch uses deterministic
    algorithms only. `rm_dropout`: not supported; logs a warning and leaves dropouts as they are."""
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


__getattr__ = refusing(__name__)
