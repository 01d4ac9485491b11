# SPDX-License-Identifier: Apache-2.0
"""Hooks at modules within compiled code (torch.compile, torch 2.13). While nothing is collected, the compiler
traces them away; while something is, the graph has operators that report the module's call."""
import contextlib
import time
import weakref
from typing import Any, Callable, Iterable, Optional

import torch

from gradmon import _gradmon
from gradmon._attributes import attribute_of
from gradmon._compiled import Region, announced_region, constant, infers_shapes, is_compiling
from gradmon._compiled import region_that_refuses_writes, regions_of
from gradmon._torch_versions import release
from gradmon._watching_hook import WatchingHook

_LEAST = (2, 13)

# Attributes of a module. They stay after stop(): compiled code has guards on them.
_COLLECTS = "_gradmon_collects"  # bool
_NUMBER = "_gradmon_number"  # a tensor, not a constant, so that equal modules share one graph


# The tensors in a value that a module gets or returns, as tensors_in() of python_model.cc finds them.


class _Elements:
    def __init__(self) -> None:
        self.tensors: "list[torch.Tensor]" = []
        self.keys: "list[str]" = []
        self.places: "list[int]" = []  # of the tensors
        self.count = 0  # of all places

    def add(self, value: Any, key: str = "") -> None:
        if isinstance(value, torch.Tensor):
            self._add_tensor(value, key)
        elif isinstance(value, (tuple, list)):
            for element in value:
                self.add(element)
        elif isinstance(value, dict):
            for name, element in value.items():
                self.add(element, str(name))
        elif hasattr(type(value), "__dataclass_fields__"):
            for name in type(value).__dataclass_fields__:
                self.add(getattr(value, name, None), name)
        else:
            self.count += 1

    def _add_tensor(self, tensor: torch.Tensor, key: str) -> None:
        place = self.count
        self.count += 1
        if not _is_readable(tensor):
            return
        self.tensors.append(tensor)
        self.keys.append(str(place) if key == "" or key in self.keys else key)
        self.places.append(place)

    def layout(self) -> str:
        parts = [str(self.count)]
        for place, key in zip(self.places, self.keys):
            parts.append(f"{place}={key.replace('%', '%25').replace(';', '%3B')}")
        return ";".join(parts)


def _is_readable(tensor: torch.Tensor) -> bool:
    """Others, as a DTensor, know no rule for the operators."""
    return type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided


class _Shown(torch.autograd.Function):  # type: ignore[misc]
    """The identity. Its backward shows the gradient. (It returns detach() and no view: a later operator may
    write to the tensor in place.)"""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, call: torch.Tensor, layout: str, index: int, of_output: bool
    ) -> torch.Tensor:
        ctx.save_for_backward(call)
        ctx.layout, ctx.index, ctx.of_output = layout, index, of_output
        return x.detach()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        (call,) = ctx.saved_tensors
        torch.ops.gradmon.gradient(gradient, call, ctx.layout, ctx.index, ctx.of_output)
        return gradient, None, None, None, None


class _Replacing:
    """Passes a value on with its tensors that require gradients replaced by their identity. Containers that
    are no tuple, named tuple, list or dict stay as they are: their tensors have no rows of actv_grad."""

    def __init__(self, call: torch.Tensor, layout: str, of_output: bool) -> None:
        self._call, self._layout, self._of_output = call, layout, of_output
        self._index = 0  # of the next readable tensor

    def of(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._of_tensor(value)
        if type(value) is tuple:
            return tuple([self.of(element) for element in value])
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*[self.of(element) for element in value])
        if type(value) is list:
            return [self.of(element) for element in value]
        if type(value) is dict:
            return {name: self.of(element) for name, element in value.items()}
        kept = _Elements()
        kept.add(value)
        self._index += len(kept.tensors)
        return value

    def _of_tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        if not _is_readable(tensor):
            return tensor
        index = self._index
        self._index += 1
        if not tensor.requires_grad or not tensor.is_floating_point():
            return tensor
        shown: torch.Tensor = _Shown.apply(tensor, self._call, self._layout, index, self._of_output)
        return shown


_graph: "tuple[Optional[weakref.ref[Any]], int]" = (None, 0)  # the graph that was last traced, and its hooks


@constant
def _position() -> int:
    """The number of this hook in the graph that is traced, from 1. 0: the graph cannot hold the operators."""
    global _graph
    region = region_that_refuses_writes()
    if region:
        _gradmon.warn_once(f"modules within torch's {region} in a graph: no rows of actv and actv_grad")
        return 0
    from torch._dynamo.symbolic_convert import InstructionTranslator

    output = InstructionTranslator.current_tx().output
    known = _graph[0]
    _graph = (known, _graph[1] + 1) if known and known() is output else (weakref.ref(output), 1)
    return _graph[1]


def _call(tensors: "list[torch.Tensor]", number: torch.Tensor, position: int) -> torch.Tensor:
    called: torch.Tensor = torch.ops.gradmon.call(tensors[0] if tensors else number, number, position)
    return called


class _Entered(WatchingHook):
    calls = 0  # of any module, outside of a graph

    def __call__(self, module: torch.nn.Module, inputs: Any, keywords: "dict[str, Any]") -> Any:
        if not module._gradmon_collects:
            return None
        if not is_compiling():
            if infers_shapes():
                return None
            self.calls += 1
            return _gradmon.entered(module, module.training, inputs, keywords)
        position = _position()
        if position == 0:
            return None
        number: Any = module._gradmon_number
        found = _Elements()
        if not module.training:  # neither are the modules within
            torch.ops.gradmon.entered([], number, number, "0", False, False)
            return None
        found.add(inputs)
        count = found.count
        for name, value in keywords.items():
            found.add(value, name)
        found.count = count
        layout = found.layout()
        call = _call(found.tensors, number, position)
        torch.ops.gradmon.entered(found.tensors, number, call, layout, torch.is_grad_enabled(), True)
        if not torch.is_grad_enabled():
            return None
        replacing = _Replacing(call, layout, False)
        return replacing.of(inputs), {name: replacing.of(value) for name, value in keywords.items()}


class _Left(WatchingHook):
    def __call__(self, module: torch.nn.Module, _inputs: Any, output: Any) -> Any:
        if not module._gradmon_collects:
            return None
        if not is_compiling():
            return None if infers_shapes() else _gradmon.left(module, output)
        position = _position()
        if position == 0:
            return None
        number: Any = module._gradmon_number
        found = _Elements()
        if not module.training:
            torch.ops.gradmon.left([], number, number, "0", False)
            return None
        found.add(output)
        layout = "lone" if isinstance(output, torch.Tensor) else found.layout()
        call = _call(found.tensors, number, position)
        torch.ops.gradmon.left(found.tensors, number, call, layout, torch.is_grad_enabled())
        return _Replacing(call, layout, True).of(output) if torch.is_grad_enabled() else None


_entered, _left = _Entered(), _Left()
# Numbers of modules that compiled code has entered, for the monitor that has them.
_reported: "set[int]" = set()


# The modules that have these hooks.


def _registered() -> bool:
    """Tells torch of the operators, once. False: this torch cannot have them."""
    global _registration
    if _registration is None:
        try:
            _registration = release(torch.__version__) >= _LEAST
            if _registration:
                _register()
        except (AttributeError, ImportError, RuntimeError) as error:
            _gradmon.warn_once(f"modules within compiled code have no rows: {error}")
            _registration = False
    return _registration


_registration: Optional[bool] = None


def _register() -> None:
    from torch._higher_order_ops.effects import _EffectType, _register_effectful_op

    def fake_call(x: torch.Tensor, module: torch.Tensor, position: int) -> torch.Tensor:
        return torch.empty((), dtype=torch.int64, device="cpu")

    torch.library.register_fake("gradmon::call", fake_call)
    for name in ("entered", "left", "gradient"):
        torch.library.register_fake(f"gradmon::{name}", lambda *_: None)
        _register_effectful_op(getattr(torch.ops.gradmon, name).default, _EffectType.ORDERED)


_BEFORE = "within code that torch.compile had compiled before watch()"
_TOO_OFTEN = (
    "within code that torch has compiled too often to compile it once more for collecting "
    "(torch._dynamo.config.recompile_limit)"
)


class _Variants:
    """How often the code of a region has been compiled, and would be. Each graph that was made while nothing
    was collected needs another one for collecting. torch refuses more than `recompile_limit` for one code."""

    def __init__(self, code: Any) -> None:
        self._code = code
        self._of_state = {False: 0, True: 0}  # graphs that were made while collecting, or not
        self._seen = 0
        self._state = False

    def may_be(self, state: bool) -> bool:
        """Call it before each change of state. False: the code must stay as it is."""
        count = self._count()
        self._of_state[self._state] += count - self._seen
        self._seen = count
        missing = max(0, self._of_state[not state] - self._of_state[state])
        if state and count + missing > torch._dynamo.config.recompile_limit:
            return False
        self._state = state
        return True

    def _count(self) -> int:
        if self._code is None:
            return 0
        from torch._dynamo.eval_frame import _debug_get_cache_entry_list

        return len(_debug_get_cache_entry_list(self._code))


def _compiled_code(region: torch.nn.Module) -> Any:
    forward = attribute_of(attribute_of(region, "_orig_mod", region), "forward")
    forward = attribute_of(forward, "_torchdynamo_orig_callable", forward)
    return attribute_of(forward, "__code__")


class _HookedRegion:
    """A compiled region, its hooked modules, and what is known of its last collected step."""

    def __init__(self, region: Region, modules: "list[torch.nn.Module]") -> None:
        self.region = region
        self.modules = modules
        self.numbers = [_gradmon.graph_module_number(module) for module in modules]
        # Any module's code of an announced model may be compiled.
        compiled = modules if id(region.module) in region.within else [region.module]
        self.variants = [_Variants(code) for code in {_compiled_code(module): None for module in compiled}]
        self.called = False  # in this step
        self.reason = ""  # why there are no rows; "": there are

    def collect(self, wanted: bool) -> None:
        may = all([variants.may_be(wanted) for variants in self.variants])
        if wanted:
            self.reason = "" if may else _TOO_OFTEN
        for module in self.modules:
            if vars(module).get(_COLLECTS) is not (wanted and may):
                object.__setattr__(module, _COLLECTS, wanted and may)

    def end_step(self, entered: "frozenset[int]") -> None:
        silent = self.called and bool(self.numbers) and not entered.intersection(self.numbers)
        if silent and not self.reason:
            self.reason = _BEFORE
        self.called = False


class RegionCalled(WatchingHook):
    """A hook at a region, while a step is collected."""

    def __init__(self, hooks: "GraphHooks", region: torch.nn.Module) -> None:
        self._hooks, self._region = hooks, region

    def __call__(self, *_: Any) -> None:
        if not is_compiling():
            self._hooks.note_called(self._region)


def _nothing() -> None:
    pass


class GraphHooks:
    """Two forward hooks at every module within a compiled region, from watch() on: the compiler sees only
    hooks that exist when it compiles. set() switches them by an attribute of the modules, on which compiled
    code has guards: each state is compiled once."""

    def __init__(self) -> None:
        self._regions: "dict[int, _HookedRegion]" = {}  # by the id of the region's module
        self._announced: "set[int]" = set()  # ids of all modules of the models that are compiled later
        self._handles: "list[Any]" = []
        self._wanted = self._ahead = False
        self._reasons: "list[str]" = []  # at the last end_step()
        self._calls = 0  # of _entered, at the last end_step()
        self.entered = False  # a region or a module within one was called in the last collected step
        # Called when compiling() has changed within a step.
        self.on_compiling: "Callable[[], None]" = _nothing
        self._compiling_since = ""  # in this step

    def watch(self, models: Iterable[torch.nn.Module], announced: Iterable[torch.nn.Module] = ()) -> None:
        """Hooks the modules within the compiled regions of these models, and removes other hooks of ours.
        announced: those of the models that are compiled later; all their modules are hooked."""
        later = {id(model): announced_region(model) for model in announced} if _registered() else {}
        found = dict(later)
        for model in models:
            if id(model) not in later:
                found.update((id(region.module), region) for region in regions_of(model))
        announced_modules = {key for region in later.values() for key in region.within}
        same = all(
            self._regions[key].region == region for key, region in found.items() if key in self._regions
        )
        if same and found.keys() == self._regions.keys() or (found and not _registered()):
            return
        self.remove()
        self._announced = announced_modules
        self._regions = {key: _HookedRegion(region, _modules_within(region)) for key, region in found.items()}
        self._reasons = [""] * len(self._regions)
        for hooked in self._regions.values():
            for module in hooked.modules:
                self._hook(module)
            if self._wanted:
                hooked.collect(True)

    def _hook(self, module: torch.nn.Module) -> None:
        number = torch.tensor(_gradmon.graph_module_number(module), device="cpu")
        object.__setattr__(module, _NUMBER, number)
        if _COLLECTS not in vars(module):
            object.__setattr__(module, _COLLECTS, False)
        self._handles.append(module.register_forward_pre_hook(_entered, with_kwargs=True))
        self._handles.append(module.register_forward_hook(_left))

    def set(self, wanted: bool) -> None:
        if wanted and not self._wanted:
            self._take_entered()
        self._wanted = wanted
        if self._regions:
            self._follow_compiler(wanted)
        for hooked in self._regions.values():
            hooked.collect(wanted or self._ahead)

    def compile_ahead(self, ahead: bool) -> None:
        """True: the code that is compiled from now on can collect, though nothing is collected yet."""
        self._ahead = ahead
        for hooked in self._regions.values():
            hooked.collect(self._wanted or ahead)

    def _follow_compiler(self, wanted: bool) -> None:
        with contextlib.suppress(AttributeError, ImportError):  # another torch
            from torch._dynamo.callback import callback_handler

            if self._compile_begins in callback_handler.start_callbacks:
                callback_handler.remove_start_callback(self._compile_begins)
            if wanted:
                callback_handler.register_start_callback(self._compile_begins)

    def _compile_begins(self, _arguments: Any) -> None:
        if not self._compiling_since:
            self._compiling_since = time.strftime("%H:%M:%S")
            self.on_compiling()

    def compiling(self) -> "list[str]":
        """A sentence while a collected step compiles its graphs."""
        if not self._compiling_since:
            return []
        return [
            f"compiling the modules for collecting, since {self._compiling_since}: this step takes longer"
        ]

    def is_announced(self, module: torch.nn.Module) -> bool:
        return id(module) in self._announced

    def _take_entered(self) -> "frozenset[int]":
        """The numbers of this monitor's modules that compiled code has entered since the last call."""
        _reported.update(_gradmon.take_entered_modules())
        own = {number for hooked in self._regions.values() for number in hooked.numbers}
        entered = frozenset(_reported & own)
        _reported.difference_update(entered)
        return entered

    def note_called(self, region: torch.nn.Module) -> None:
        if id(region) in self._regions:
            self._regions[id(region)].called = True

    def end_step(self) -> bool:
        """Ends a collected step: a region that was called without its modules has none of our hooks. Returns
        True if a reason() has changed since the last call."""
        self.entered = False
        if not self._regions:
            return False
        was_compiling, self._compiling_since = bool(self._compiling_since), ""
        entered = self._take_entered()
        calls, self._calls = self._calls, _entered.calls
        called = calls != self._calls
        self.entered = called or bool(entered) or any(hooked.called for hooked in self._regions.values())
        for hooked in self._regions.values():
            hooked.end_step(entered)
        before, self._reasons = self._reasons, [hooked.reason for hooked in self._regions.values()]
        return self._reasons != before or was_compiling

    def reason(self, region: torch.nn.Module) -> Optional[str]:
        """The reason why the modules within the region have no rows. "": they have rows; None: no hooks."""
        if self.is_announced(region):
            return ""
        hooked = self._regions.get(id(region))
        return None if hooked is None else hooked.reason

    def remove(self) -> None:
        if self._regions:
            self._follow_compiler(False)
        for handle in self._handles:
            handle.remove()
        for hooked in self._regions.values():
            hooked.collect(False)
        self._handles, self._regions, self._announced = [], {}, set()


def _modules_within(region: Region) -> "list[torch.nn.Module]":
    """The modules that are called within the region. An OptimizedModule stands for the one within it."""
    modules = list(region.module.modules())
    wrapped = {id(attribute_of(module, "_orig_mod")) for module in modules}
    return [m for m in modules if id(m) in region.within and id(m) not in wrapped and _accepts_hooks(m)]


def _accepts_hooks(module: torch.nn.Module) -> bool:
    accepts = attribute_of(module, "register_forward_pre_hook") is not None
    return accepts and not isinstance(module, torch.jit.ScriptModule)
