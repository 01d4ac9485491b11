# SPDX-License-Identifier: Apache-2.0
"""Forward hooks that report the forwards of a model's modules to the extension."""
import contextlib
import inspect
from typing import Any, Iterable

import torch

from gradmon import _gradmon
from gradmon._attributes import is_training
from gradmon.compiled.around import AroundCompiled
from gradmon.compiled.regions import compiled_in_place, unseen
from gradmon.compiled.tracing import is_compiling
from gradmon.loops.pipelines import infers_shapes

# Torch 2.x: hooks get the keyword arguments of a module, too.
HAS_KEYWORD_INPUTS = "with_kwargs" in inspect.signature(torch.nn.Module.register_forward_pre_hook).parameters


class WatchingHook:
    """Base of our hooks. A copy of a watched module has copies of its hooks; a copied hook removes
    itself when it is called. A module that was saved with hooks can be loaded without gradmon."""

    def __deepcopy__(self, _memo: Any) -> "_Copied":
        return _Copied()

    def __reduce__(self) -> Any:
        return getattr, (contextlib.nullcontext(), "__exit__")  # takes anything, returns None


class _Entered(WatchingHook):
    def __call__(self, module: torch.nn.Module, inputs: Any, keywords: "dict[str, Any]" = {}) -> None:
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
                getattr(module, "_forward_pre_hooks_with_kwargs", {}).pop(number, None)


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
        keywords = {"with_kwargs": True} if HAS_KEYWORD_INPUTS else {}
        try:
            self._keep(module.register_forward_pre_hook(_entered, **keywords))
            self._keep(module.register_forward_hook(_left))
        except Exception as error:  # a ScriptModule accepts no hooks
            _gradmon.warn_once(f"{type(module).__name__} modules cannot be watched: {error}")

    def _keep(self, handle: Any) -> None:
        if hasattr(handle, "remove"):  # else a class of the program's own hooks in another way
            self._handles.append(handle)
