# SPDX-License-Identifier: Apache-2.0
"""Runs a script that says `from msprobe.pytorch import TrainerMon`, unchanged:

    python3 -m gradmon.as_msprobe script.py [ARGUMENT...]
"""
import importlib.abc
import importlib.machinery
import os
import runpy
import sys
import types
from typing import Any, Optional, Sequence

_STANDS_FOR = {"msprobe": [], "msprobe.pytorch": ["TrainerMon"]}  # type: dict[str, list[str]]


class _StandIn(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise ImportError(_refusal(f"{self.__name__}.{name}"))


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Comes before an msprobe that is installed."""

    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]], target: Optional[types.ModuleType] = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        if fullname.split(".")[0] != "msprobe":
            return None
        if fullname not in _STANDS_FOR:
            raise ImportError(_refusal(fullname))
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        import gradmon

        for name in _STANDS_FOR[module.__name__]:
            setattr(module, name, getattr(gradmon, name))


def _refusal(name: str) -> str:
    there = ", ".join(f"{module}.{name}" for module, names in _STANDS_FOR.items() for name in names)
    return f"gradmon does not stand in for {name}, only for {there}"


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit("usage: python3 -m gradmon.as_msprobe SCRIPT [ARGUMENT...]")
    sys.meta_path.insert(0, _Finder())
    del sys.argv[0]
    sys.path[0] = os.path.dirname(sys.argv[0])
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
