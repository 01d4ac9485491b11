# SPDX-License-Identifier: Apache-2.0
"""Stands in for msprobe under `python3 -m gradmon.as_msprobe`."""
import importlib.abc
import importlib.machinery
import sys
import types
from typing import Any, Callable, Optional, Sequence

_STOOD_IN_FOR = (
    "msprobe.core",
    "msprobe.core.monitor",
    "msprobe.core.monitor.anomaly_processor",
    "msprobe.core.monitor.csv2db",
    "msprobe.mindspore",
    "msprobe.pytorch",
    "msprobe.pytorch.monitor",
    "msprobe.pytorch.monitor.anomaly_analyse",
    "msprobe.pytorch.monitor.csv2tb",
    "msprobe.pytorch.monitor.module_hook",
)


def _refusal(name: str) -> str:
    return (
        f"gradmon does not stand in for {name}, only for msprobe.pytorch.TrainerMon and seed_all, "
        "msprobe.mindspore.TrainerMon, csv2tb, csv2db and anomaly_processor"
    )


def refusing(module: str) -> "Callable[[str], Any]":
    """The `__getattr__` of a module of the stand-in: raises ImportError for a name that it does not have."""

    def refuse(name: str) -> Any:
        # A module of the stand-in is imported when its package has no such attribute.
        if name.startswith("__") or f"{module}.{name}" in _STOOD_IN_FOR:
            raise AttributeError(name)
        raise ImportError(_refusal(f"{module}.{name}"))

    return refuse


class _Refusing(importlib.abc.MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]], target: Optional[types.ModuleType] = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        if fullname.startswith("msprobe.") and fullname not in _STOOD_IN_FOR:
            raise ImportError(_refusal(fullname))
        return None


sys.meta_path.insert(0, _Refusing())

__getattr__ = refusing(__name__)
