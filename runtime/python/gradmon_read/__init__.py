# SPDX-License-Identifier: Apache-2.0
"""Reads what a job has written: rows, queries, analysis and conversion. Needs no torch."""
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gradmon_read.rows import Rows as Rows
    from gradmon_read.rows import open as open

__all__ = ["Rows", "open"]
__version__ = "0.3.0"


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from gradmon_read import rows  # engines take time to load, and may be missing

    return getattr(rows, name)
