# SPDX-License-Identifier: Apache-2.0
"""gradmon: looks into a running PyTorch training job without stopping it.

In a training program:

    import gradmon

    with gradmon.Monitor("monitor_config.json").watch(model, optimizer):
        for batch in loader:
            optimizer.zero_grad()
            loss(model(batch)).backward()
            optimizer.step()
"""
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from gradmon._torch_versions import check_torch, directories_of_extension

try:
    __path__.extend(directories_of_extension(Path(__file__).parent))
    from gradmon._built_against import TORCH, VERSION

    check_torch(VERSION, TORCH)
    from gradmon import _gradmon
except ImportError as error:
    raise ImportError(
        f"gradmon's extension cannot be loaded beside torch {torch.__version__} ({torch.__file__}): {error}"
    ) from error

from gradmon.colossalai_monitor import ColossalAIMonitor
from gradmon.converting import CSV2DBConfig, csv2db, csv2tensorboard_by_step
from gradmon.monitor import Monitor
from gradmon.observing import observe
from gradmon.trainer_mon import TrainerMon

if TYPE_CHECKING:
    from gradmon_read import heatmap as heatmap
    from gradmon_read import load as load
    from gradmon_read import open as open  # noqa: F401

__version__: str = _gradmon.version
__all__ = [
    "CSV2DBConfig",
    "ColossalAIMonitor",
    "Monitor",
    "TrainerMon",
    "__version__",
    "csv2db",
    "csv2tensorboard_by_step",
    "heatmap",
    "load",
    "observe",
]
_FRAMEWORKS = "accelerate colossalai deepspeed hf jax lightning megatron mindspore torchtitan".split()


_READING = ["heatmap", "load", "open"]


def __getattr__(name: str) -> Any:
    """A framework's module, imported when a program names it: `gradmon.hf.Callback`; or what gradmon_read
    has: `gradmon.load`."""
    if name in _FRAMEWORKS:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _READING:
        try:
            return getattr(importlib.import_module("gradmon_read"), name)
        except ImportError as error:
            install = "python3 -m pip install 'gradmon-read[analysis]'"
            raise ImportError(
                f"gradmon.{name}() needs the package gradmon-read: {install} ({error})"
            ) from None
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> "list[str]":
    """With what __getattr__() finds: notebooks complete these names."""
    return sorted({*globals(), *_FRAMEWORKS, *_READING})
