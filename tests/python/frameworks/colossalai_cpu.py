# SPDX-License-Identifier: Apache-2.0
"""Lets ColossalAI's ZeRO optimizer run on a CPU: it asks for the accelerator "cuda", and its streams. Import
it before colossalai. bitsandbytes, which only its GaLore optimizers use, is not installed.

Everything else is ColossalAI's: buckets, collectives (gloo), copies, updates."""
import contextlib
import sys
import types
from typing import Any

optimizer = types.ModuleType("bitsandbytes.optim.optimizer")
optimizer.Optimizer2State = object  # type: ignore[attr-defined]
sys.modules.setdefault("bitsandbytes", types.ModuleType("bitsandbytes"))
sys.modules.setdefault("bitsandbytes.optim", types.ModuleType("bitsandbytes.optim"))
sys.modules.setdefault("bitsandbytes.optim.optimizer", optimizer)

from colossalai.accelerator import set_accelerator  # noqa: E402  (after the lines above)
from colossalai.accelerator.cpu_accelerator import CpuAccelerator  # noqa: E402


class OnCpu(CpuAccelerator):
    """There is one stream, and it is in order."""

    @property
    def name(self) -> str:
        return "cuda"

    def Stream(self, *_: Any, **__: Any) -> None:  # noqa: N802
        return None

    def current_stream(self, *_: Any) -> None:
        return None

    def stream(self, _stream: Any) -> Any:
        return contextlib.nullcontext()

    def synchronize(self, *_: Any) -> None:
        pass


set_accelerator(OnCpu())
