# SPDX-License-Identifier: Apache-2.0
"""gradmon for Lightning's Trainer and for Fabric."""
from typing import Any

from gradmon.lightning.fabric_callback import FabricCallback

__all__ = ["Callback", "FabricCallback"]


def __getattr__(name: str) -> Any:
    if name != "Callback":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from gradmon.lightning.callback import Callback  # imports lightning.pytorch, which Fabric does without

    return Callback
