# SPDX-License-Identifier: Apache-2.0
"""Stands in for msprobe.pytorch.monitor.module_hook."""
from typing import Any

from gradmon import TrainerMon
from msprobe import refusal

__all__ = ["TrainerMon"]


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise ImportError(refusal(f"msprobe.pytorch.monitor.module_hook.{name}"))
