# SPDX-License-Identifier: Apache-2.0
"""Stands in for msprobe under `python3 -m gradmon.as_msprobe`."""
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from typing import Any, Callable, Optional, Sequence

_ANOMALIES = 'from gradmon.as_msprobe import main_of_anomalies as main\nif __name__ == "__main__": main()'
# The code of each module. refusing() refuses other names.
_MODULES = {
    "msprobe.core": "",
    "msprobe.core.monitor": "",
    "msprobe.core.monitor.anomaly_processor": _ANOMALIES,
    "msprobe.core.monitor.csv2db": "from gradmon import CSV2DBConfig, csv2db",
    "msprobe.mindspore": "from gradmon.mindspore import TrainerMon",
    "msprobe.pytorch": "from gradmon import TrainerMon; from gradmon.as_msprobe import seed_all",
    "msprobe.pytorch.monitor": "",
    "msprobe.pytorch.monitor.anomaly_analyse": _ANOMALIES,  # its name in msprobe 1.2.2
    "msprobe.pytorch.monitor.csv2tb": "from gradmon import csv2tensorboard_by_step",
    "msprobe.pytorch.monitor.module_hook": "from gradmon import TrainerMon",
}
_REST = "from msprobe import refusing as _refusing; __getattr__ = _refusing(__name__)"


def _refusal(name: str) -> str:
    return (
        f"gradmon does not stand in for {name}, only for msprobe.pytorch.TrainerMon and seed_all, "
        "msprobe.mindspore.TrainerMon, csv2tb, csv2db and anomaly_processor"
    )


def refusing(module: str) -> "Callable[[str], Any]":
    """The `__getattr__` of a module of the stand-in: raises ImportError for a name that it does not have."""

    def refuse(name: str) -> Any:
        # A module of the stand-in is imported when its package has no such attribute.
        if name.startswith("__") or f"{module}.{name}" in _MODULES:
            raise AttributeError(name)
        raise ImportError(_refusal(f"{module}.{name}"))

    return refuse


class _StandIns(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]], target: Optional[types.ModuleType] = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        if fullname.startswith("msprobe.") and fullname not in _MODULES:
            raise ImportError(_refusal(fullname))
        return importlib.util.spec_from_loader(fullname, self) if fullname in _MODULES else None

    def get_source(self, fullname: str) -> str:
        return f'"""Stands in for {fullname}."""\n{_REST}\n{_MODULES[fullname]}\n'

    def is_package(self, fullname: str) -> bool:
        return any(name.startswith(fullname + ".") for name in _MODULES)


sys.meta_path.insert(0, _StandIns())

__getattr__ = refusing(__name__)
