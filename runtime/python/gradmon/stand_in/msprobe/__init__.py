# SPDX-License-Identifier: Apache-2.0
"""Stands in for msprobe under `python3 -m gradmon.as_msprobe`."""
import importlib.abc
import importlib.machinery
import sys
import types
from typing import Any, Optional, Sequence

_STOOD_IN_FOR = ("msprobe.pytorch", "msprobe.pytorch.monitor", "msprobe.pytorch.monitor.module_hook")


def refusal(name: str) -> str:
    return f"gradmon does not stand in for {name}, only for msprobe.pytorch.TrainerMon and seed_all"


class _Refusing(importlib.abc.MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]], target: Optional[types.ModuleType] = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        if fullname.startswith("msprobe.") and fullname not in _STOOD_IN_FOR:
            raise ImportError(refusal(fullname))
        return None


sys.meta_path.insert(0, _Refusing())


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise ImportError(refusal(f"msprobe.{name}"))
