# SPDX-License-Identifier: Apache-2.0
"""Tells the extension of the forwards of a model's modules."""
from typing import Any

import torch

from gradmon import _gradmon


def _entered(module: torch.nn.Module, inputs: Any) -> None:
    _gradmon.entered(module, module.training, inputs)


def _left(module: torch.nn.Module, _inputs: Any, output: Any) -> None:
    _gradmon.left(module, output)


class ModuleHooks:
    """Two forward hooks at every module, while a step is collected that wants them."""

    def __init__(self) -> None:
        self._modules: list[torch.nn.Module] = []
        self._handles: list[Any] = []

    def watch(self, model: torch.nn.Module) -> None:
        self._modules.extend(model.modules())

    def set(self, wanted: bool) -> None:
        if wanted == bool(self._handles):
            return
        if not wanted:
            for handle in self._handles:
                handle.remove()
            self._handles = []
            return
        for module in self._modules:
            self._handles.append(module.register_forward_pre_hook(_entered))
            self._handles.append(module.register_forward_hook(_left))
