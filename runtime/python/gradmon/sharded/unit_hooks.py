# SPDX-License-Identifier: Apache-2.0
"""Hooks for gradients that no accumulator of a parameter receives: gradients of FSDP, and of pipelines that
split a backward."""
from typing import Any, Iterable

import torch

from gradmon import _gradmon
from gradmon._module_hooks import WatchingHook
from gradmon.compiled.tracing import is_compiling
from gradmon.loops.pipelines import SplitBackwards
from gradmon.sharded import fsdp1, fsdp2


class _Gathered(WatchingHook):
    def __init__(self, core: _gradmon.Core, unit: int) -> None:
        self._core = core
        self._unit = unit

    def __call__(self, _module: torch.nn.Module, _inputs: Any) -> None:
        if not is_compiling():  # torch.compile cannot compile the call
            self._core.gathered(self._unit)


class UnitHooks:
    """Attached while a step is collected: a forward pre-hook at every FSDP unit, which reports that FSDP has
    gathered its parameters (FSDP puts its own first), and SplitBackwards."""

    def __init__(self, core: _gradmon.Core) -> None:
        self._core = core
        self._units: "list[tuple[torch.nn.Module, int]]" = []
        self._handles: "list[Any]" = []
        self._split_backwards = SplitBackwards()
        self._wanted = False

    def watch(self, models: Iterable[torch.nn.Module]) -> None:
        """Replaces the watched units by those of the models as they are now."""
        wanted = self._wanted
        self.set(False)
        modules = {id(module): module for model in models for module in model.modules()}
        units = [(module, fsdp2.unit_of(module)) for module in modules.values() if fsdp2.is_unit(module)]
        units += [fsdp1.gathered_module(module) for module in modules.values() if fsdp1.is_unit(module)]
        self._units = [(module, unit) for module, unit in units if unit is not None]
        self.set(wanted)

    def set(self, wanted: bool) -> None:
        self._split_backwards.set(wanted)
        if wanted == self._wanted:
            return
        self._wanted = wanted
        for handle in self._handles:
            handle.remove()
        self._handles = []
        if wanted:
            self._handles = [
                module.register_forward_pre_hook(_Gathered(self._core, unit)) for module, unit in self._units
            ]
