# SPDX-License-Identifier: Apache-2.0
"""Reads what a job has written: rows, queries, analysis and conversion. Needs no torch."""
import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gradmon_read.heatmapping import heatmap as heatmap
    from gradmon_read.loading import load as load
    from gradmon_read.rows import Rows as Rows
    from gradmon_read.rows import open as open

_MODULES = {"Rows": "rows", "heatmap": "heatmapping", "load": "loading", "open": "rows"}
__all__ = ["Rows", "heatmap", "load", "open"]
__version__ = "0.3.0"


def __getattr__(name: str) -> Any:
    """Engines take time to load, and may be missing."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"gradmon_read.{_MODULES[name]}"), name)
