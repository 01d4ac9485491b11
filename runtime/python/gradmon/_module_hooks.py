# SPDX-License-Identifier: Apache-2.0
"""Hooks at a model's modules that report forwards to the extension, and changes of the modules."""
import abc
import sys
from typing import Any, Iterable, Optional

import torch

from gradmon import _gradmon
from gradmon._attributes import ReplacedAttribute, SharedReplacements, is_training
from gradmon._compiled import PIPELINE_STAGE, AroundCompiled
from gradmon._compiled import compiled_in_place, infers_shapes, is_compiling, is_region, unseen
from gradmon._graph_hooks import GraphHooks, RegionCalled
from gradmon._sharded import gathered_module, has_units, is_fsdp1_unit, is_fsdp2_unit, parameters_of, unit_of
from gradmon._watching_hook import WatchingHook


class _Entered(WatchingHook):
    def __init__(self) -> None:
        self.modules: "set[int]" = set()  # ids of those that were called since uncalled()

    def __call__(self, module: torch.nn.Module, inputs: Any, keywords: "dict[str, Any]") -> None:
        if is_compiling() or infers_shapes():  # torch.compile cannot compile the call
            return
        self.modules.add(id(module))
        if vars(module).get("_is_replica"):
            return _gradmon.warn_once(
                "activations within nn.DataParallel have no rows; use DistributedDataParallel"
            )
        _gradmon.entered(module, is_training(module), inputs, keywords)


class _Left(WatchingHook):
    def __call__(self, module: torch.nn.Module, _inputs: Any, output: Any) -> None:
        if not is_compiling() and not infers_shapes():
            _gradmon.left(module, output)


_left = _Left()


class _CollectingHooks(abc.ABC):
    """Hooks at modules, attached while a collected step needs them."""

    def __init__(self) -> None:
        self._handles: "list[Any]" = []
        self._wanted = False

    def watch(self, models: Iterable[torch.nn.Module]) -> None:
        """Replaces the watched modules by all modules of the models as they are now."""
        wanted = self._wanted
        self.set(False)
        self._choose(list({id(module): module for model in models for module in model.modules()}.values()))
        self.set(wanted)

    def set(self, wanted: bool) -> None:
        if wanted == self._wanted:
            return
        self._wanted = wanted
        for handle in self._handles:
            handle.remove()
        self._handles = []
        if wanted:
            self._attach()

    @abc.abstractmethod
    def _choose(self, modules: "list[torch.nn.Module]") -> None:
        """modules: each once, though two models may share it."""

    @abc.abstractmethod
    def _attach(self) -> None:
        """Puts the hooks on, and adds them to _handles."""


class ModuleHooks(_CollectingHooks):
    """Two forward hooks at every module. Modules within compiled code have GraphHooks instead: these hooks
    would see nothing, and the code would be compiled again."""

    _modules: "list[torch.nn.Module]" = []

    def __init__(self) -> None:
        super().__init__()
        self.in_graphs = GraphHooks()
        self._entered = _Entered()  # not shared: it notes the calls of this monitor's modules

    def watch(self, models: Iterable[torch.nn.Module], announced: Iterable[torch.nn.Module] = ()) -> None:
        """announced: those of the models that the program compiles later."""
        models = list(models)
        self.in_graphs.watch(models, announced)
        super().watch(models)

    def set(self, wanted: bool) -> None:
        if wanted != self._wanted:
            self.in_graphs.set(wanted)
        super().set(wanted)

    def uncalled(self, models: Iterable[torch.nn.Module]) -> "list[torch.nn.Module]":
        """The models of whose inner modules no call was seen in the collected step that has ended."""
        called, self._entered.modules = self._entered.modules, set()
        if self.in_graphs.entered:
            return []
        found = []
        for model in models:
            inner = [id(module) for name, module in model.named_modules() if name]
            if inner and called.isdisjoint(inner):
                found.append(model)
        return found

    def _choose(self, modules: "list[torch.nn.Module]") -> None:
        self._modules = modules

    def _attach(self) -> None:
        within = unseen(self._modules)
        for module in self._modules:
            if id(module) not in within and not self.in_graphs.is_announced(module):
                self._hook(module)

    def _hook(self, module: torch.nn.Module) -> None:
        compiled = compiled_in_place(module)
        if compiled is not None:
            called = RegionCalled(self.in_graphs, module)
            return self._handles.append(AroundCompiled(module, compiled, called))
        try:
            if is_region(module):
                self._keep(module.register_forward_pre_hook(RegionCalled(self.in_graphs, module)))
            self._keep(module.register_forward_pre_hook(self._entered, with_kwargs=True))
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


class SplitBackwards(SharedReplacements):
    """While set, reports the additions of zero-bubble schedules to gradients of a stage's weights: they use
    torch.autograd.grad(), which runs no hook."""

    def set(self, wanted: bool) -> None:
        """Call it in each collected step: the program may import torch's pipelines late."""
        if wanted != self._wanted or PIPELINE_STAGE in sys.modules:
            super().set(wanted)

    @classmethod
    def _replace_all(cls) -> "list[ReplacedAttribute]":
        stage = sys.modules.get(PIPELINE_STAGE)
        original: Any = getattr(stage, "stage_backward_weight", None)
        if original is None:  # not imported, or another torch
            return []

        def stage_backward_weight(weights: Iterable[Any], *arguments: Any, **keywords: Any) -> Any:
            if not cls._users:
                return original(weights, *arguments, **keywords)
            listed = list(weights)
            _gradmon.begin_weight_pass()
            try:
                result = original(iter(listed), *arguments, **keywords)
            finally:
                _gradmon.end_weight_pass()
            _gradmon.accumulated(listed)
            return result

        return [ReplacedAttribute(stage, "stage_backward_weight", stage_backward_weight)]


class UnitHooks(_CollectingHooks):
    """A forward pre-hook at every FSDP unit, which reports that FSDP has gathered its parameters (FSDP puts
    its own first), and SplitBackwards."""

    def __init__(self, core: _gradmon.Core) -> None:
        super().__init__()
        self._core = core
        self._units: "list[tuple[torch.nn.Module, Optional[int]]]" = []
        self._split_backwards = SplitBackwards()

    def set(self, wanted: bool) -> None:
        self._split_backwards.set(wanted)
        super().set(wanted)

    def _choose(self, modules: "list[torch.nn.Module]") -> None:
        self._units = [(module, unit_of(module)) for module in modules if is_fsdp2_unit(module)]
        self._units += [gathered_module(module) for module in modules if is_fsdp1_unit(module)]

    def _attach(self) -> None:
        for module, unit in self._units:
            if unit is not None:
                self._handles.append(module.register_forward_pre_hook(_Gathered(self._core, unit)))


class ModelParts:
    """Detects that modules or parameters of a model were replaced, added or removed, or that a
    parameter got a main_grad."""

    def __init__(self, model: torch.nn.Module, compiled: bool = False) -> None:
        """compiled: the program compiles it later."""
        self.model = model
        self.compiled = compiled
        self._holders: list[dict[str, Any]] = []
        self._seen = b""
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

    def _identities(self) -> bytes:
        # The monitor holds references to the watched parts, so their ids are not reused. In a forward, and
        # after one in evaluation, FSDP's modules hold other tensors.
        further = [tensor for _, tensor in parameters_of(self.model)] if self._sharded else []
        return _gradmon.part_identities(self._holders, further)
