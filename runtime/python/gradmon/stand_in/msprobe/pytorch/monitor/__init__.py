# SPDX-License-Identifier: Apache-2.0
"""Stands in for msprobe.pytorch.monitor."""
from typing import Any

from msprobe import refusal


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise ImportError(refusal(f"msprobe.pytorch.monitor.{name}"))
