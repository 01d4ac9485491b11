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
        self._modules: dict[int, torch.nn.Module] = {}  # by identity: some are watched twice
        self._handles: list[Any] = []
        self._wanted = False

    def watch(self, model: torch.nn.Module) -> None:
        for module in model.modules():
            if id(module) not in self._modules:
                self._modules[id(module)] = module
                if self._wanted:
                    self._hook(module)

    def set(self, wanted: bool) -> None:
        if wanted == self._wanted:
            return
        self._wanted = wanted
        for handle in self._handles:
            handle.remove()
        self._handles = []
        if wanted:
            for module in self._modules.values():
                self._hook(module)

    def _hook(self, module: torch.nn.Module) -> None:
        try:
            self._handles.append(module.register_forward_pre_hook(_entered))
            self._handles.append(module.register_forward_hook(_left))
        except Exception as error:  # a ScriptModule takes none
            _gradmon.warn_once(f"{type(module).__name__} modules cannot be watched: {error}")
