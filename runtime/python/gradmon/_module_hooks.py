# SPDX-License-Identifier: Apache-2.0
"""Hooks at a model's modules that report forwards to the extension, and changes of the modules."""
import contextlib
from typing import Any, Iterable

import torch

from gradmon import _gradmon
from gradmon._attributes import attribute_of, is_training
from gradmon._compiled import AroundCompiled, compiled_in_place, is_compiling, unseen
from gradmon._pipelines import SplitBackwards, infers_shapes
from gradmon._sharded import gathered_module, has_units, is_fsdp1_unit, is_fsdp2_unit, parameters_of, unit_of


class WatchingHook:
    """Base of our hooks. A copy of a watched module has copies of its hooks; a copied hook removes
    itself when it is called. A module that was saved with hooks can be loaded without gradmon."""

    def __deepcopy__(self, _memo: Any) -> "_Copied":
        return _Copied()

    def __reduce__(self) -> Any:
        return getattr, (contextlib.nullcontext(), "__exit__")  # takes anything, returns None


class _Entered(WatchingHook):
    def __call__(self, module: torch.nn.Module, inputs: Any, keywords: "dict[str, Any]") -> None:
        if is_compiling() or infers_shapes():  # torch.compile cannot compile the call
            return
        if vars(module).get("_is_replica"):
            return _gradmon.warn_once(
                "activations within nn.DataParallel have no rows; use DistributedDataParallel"
            )
        _gradmon.entered(module, is_training(module), inputs, keywords)


class _Left(WatchingHook):
    def __call__(self, module: torch.nn.Module, _inputs: Any, output: Any) -> None:
        if not is_compiling() and not infers_shapes():
            _gradmon.left(module, output)


class _Copied(WatchingHook):
    def __call__(self, module: torch.nn.Module, *_: Any) -> None:
        if is_compiling():
            return
        for hooks in (module._forward_pre_hooks, module._forward_hooks):
            for number in [number for number, known in hooks.items() if known is self]:
                del hooks[number]
                module._forward_pre_hooks_with_kwargs.pop(number, None)


_entered = _Entered()
_left = _Left()


class ModuleHooks:
    """Two forward hooks at every module, attached while a collected step needs them. Modules within compiled
    code get none: their hooks would see nothing, and the code would be compiled again."""

    def __init__(self) -> None:
        self._modules: dict[int, torch.nn.Module] = {}  # by id: two models may share a module
        self._handles: list[Any] = []
        self._wanted = False

    def watch(self, models: Iterable[torch.nn.Module]) -> None:
        """Replaces the watched modules by all modules of the models as they are now."""
        wanted = self._wanted
        self.set(False)
        self._modules = {id(module): module for model in models for module in model.modules()}
        self.set(wanted)

    def set(self, wanted: bool) -> None:
        if wanted == self._wanted:
            return
        self._wanted = wanted
        for handle in self._handles:
            handle.remove()
        self._handles = []
        if wanted:
            within = unseen(self._modules.values())
            for module in self._modules.values():
                if id(module) not in within:
                    self._hook(module)

    def _hook(self, module: torch.nn.Module) -> None:
        compiled = compiled_in_place(module)
        if compiled is not None:
            return self._handles.append(AroundCompiled(module, compiled))
        try:
            self._keep(module.register_forward_pre_hook(_entered, with_kwargs=True))
            self._keep(module.register_forward_hook(_left))
        except Exception as error:  # a ScriptModule accepts no hooks
            _gradmon.warn_once(f"{type(module).__name__} modules cannot be watched: {error}")

    def _keep(self, handle: Any) -> None:
        if hasattr(handle, "remove"):  # else a class of the program's own hooks in another way
            self._handles.append(handle)


# Hooks for gradients that no accumulator of a parameter receives: gradients of FSDP, and of pipelines that
# split a backward.


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
        units = [(module, unit_of(module)) for module in modules.values() if is_fsdp2_unit(module)]
        units += [gathered_module(module) for module in modules.values() if is_fsdp1_unit(module)]
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


class ModelParts:
    """Detects that modules or parameters of a model were replaced, added or removed, or that a
    parameter got a main_grad."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model
        self._holders: list[dict[str, Any]] = []
        self._seen: list[int] = []
        self._sharded = False
        self._look()

    def changed(self) -> bool:
        """Returns True if the model has changed since the last call, or since construction."""
        if self._identities() == self._seen:
            return False
        self._look()
        return True

    def _look(self) -> None:
        self._sharded = has_units(self.model)
        self._holders = [module._modules for module in self.model.modules()]
        if not self._sharded:
            self._holders += [module._parameters for module in self.model.modules()]
        self._seen = self._identities()

    def _identities(self) -> "list[int]":
        # The monitor holds references to the watched parts, so their ids are not reused.
        parts = [part for holder in self._holders for part in holder.values()]
        if self._sharded:  # in a forward, and after one in evaluation, FSDP's modules hold other tensors
            parts += [tensor for _, tensor in parameters_of(self.model)]
        # torch.utils.swap_tensors() leaves the object and changes what is in it.
        inside = [part._cdata for part in parts if isinstance(part, torch.Tensor)]
        main_grads = [id(p) for p in parts if attribute_of(p, "main_grad", self) is not self]
        return [id(part) for part in parts] + inside + main_grads
