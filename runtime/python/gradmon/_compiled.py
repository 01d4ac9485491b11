# SPDX-License-Identifier: Apache-2.0
"""Forwards that hooks do not see or must ignore: compiled code, and forwards that only infer shapes."""
import functools
import sys
from typing import Any, Callable, Iterable, NamedTuple, Optional, TypeVar

import torch

from gradmon import _gradmon
from gradmon._attributes import is_training
from gradmon._wrappers import part_in_front

# The trace of a graph: whether one is traced, and its limits.


_Function = TypeVar("_Function", bound=Callable[..., Any])

is_compiling: Callable[[], bool] = torch.compiler.is_compiling  # True if torch.compile traces the caller


def constant(function: _Function) -> _Function:
    """Marks a function whose result is fixed when a graph is traced. torch.compiler.assume_constant_result()
    does the same and imports the compiler, which takes as long as torch itself."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def in_whole_graph() -> bool:
    """Returns True if torch.compile is tracing the caller and must not break the graph (fullgraph=True): code
    that it cannot trace would end the program."""
    return is_compiling() and _must_not_break()


@constant
def _must_not_break() -> bool:
    try:
        from torch._dynamo.symbolic_convert import InstructionTranslator

        tracing = InstructionTranslator.current_tx()
        return bool(tracing.one_graph or getattr(tracing, "error_on_graph_break", False))
    except (AttributeError, ImportError):  # another torch
        return False


# Regions that torch.compile traces apart, and in which it keeps an operator that declares a write.
_KEEPING = ("tag_activation_checkpoint", "wrap_activation_checkpoint", "autograd.Function")


def region_that_refuses_writes() -> str:
    """While a graph is traced: the region around the caller, such as "cond", that fails if an operator in it
    declares a write to an argument; "" without such a region."""
    try:
        from torch._dynamo.symbolic_convert import InstructionTranslator

        around = [
            str(region)
            for _, region in InstructionTranslator.current_tx().output.current_tracer.source_fn_stack
        ]
    except (AttributeError, ImportError):  # another torch, or another tracer than torch.compile's
        return ""
    return next((region for region in around if region not in _KEEPING), "")


# The modules that torch.compile has compiled, and inner modules, whose forwards no hook sees.


class Region(NamedTuple):
    """A module whose forward is compiled code."""

    name: str  # in the model
    module: torch.nn.Module
    within: "dict[int, str]"  # the modules in compiled code, by id, with their names


def compiled_in_place(module: torch.nn.Module) -> Optional[Any]:
    """The call that `module.compile()` has installed at the module, hooks included. None if it compiles
    nothing, as with `disable=True`."""
    call = vars(module).get("_compiled_call_impl")
    return call if hasattr(call, "_torchdynamo_orig_callable") else None


def is_region(module: torch.nn.Module) -> bool:
    """Returns True if torch.compile() has wrapped or compiled the module, or compiled its forward alone."""
    if type(module).__name__ == "OptimizedModule" or compiled_in_place(module) is not None:
        return True
    return hasattr(vars(module).get("forward"), "_torchdynamo_orig_callable")


def regions_of(model: torch.nn.Module) -> "list[Region]":
    """The outermost compiled regions of a model, in the order of its modules."""
    found: "list[Region]" = []
    seen: "set[int]" = set()
    for name, module in model.named_modules():
        if id(module) in seen or not is_region(module):
            continue
        prefix = name + "." if name else ""
        inner = {id(part): prefix + part_name for part_name, part in module.named_modules() if part_name}
        seen.update(inner)
        found.append(Region(name, module, inner))
    return found


def announced_region(model: torch.nn.Module) -> Region:
    """A model that the program compiles later, as a whole or in parts, or within a function of its own."""
    return Region("", model, {id(part): name for name, part in model.named_modules()})


def unseen(modules: Iterable[torch.nn.Module]) -> "set[int]":
    """The ids of those modules of a model whose calls are within compiled code."""
    found: "set[int]" = set()
    for module in modules:
        if id(module) not in found and is_region(module):
            found.update(id(part) for part in module.modules() if part is not module)
    return found


def sentences_of_unseen(
    models: Iterable[torch.nn.Module], reason: "Callable[[torch.nn.Module], Optional[str]]"
) -> "list[str]":
    """Warnings for modules that no hook sees, by model and reason. reason: see GraphHooks."""
    sentences = []
    for model in models:
        by_reason: "dict[str, list[Region]]" = {}
        for region in regions_of(model):
            why = reason(region.module)
            if why != "":
                why = why or "within code that torch.compile has compiled"
                by_reason.setdefault(why, []).append(region)
        for why, regions in by_reason.items():
            sentence = _sentence(type(model).__name__, regions, part_in_front(model), why)
            sentences += [] if sentence is None else [sentence]
    return sentences


def _sentence(model: str, regions: "list[Region]", front: str, reason: str) -> Optional[str]:
    # The module within an OptimizedModule has the rows of its wrapper.
    names = [_plain(name, front) for region in regions for name in region.within.values()]
    known = {_plain(region.name, front) for region in regions}
    names = [name for name in names if name and name not in known]
    if not names:
        return None
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return (
        f"{', '.join(names[:3])}{more} of {model} are {reason}: no rows of actv and actv_grad; "
        "gradmon.observe() shows tensors there"
    )


def _plain(name: str, front: str) -> str:
    if front.startswith(name + "."):
        return ""
    name = name.removeprefix(front)
    return ".".join(part for part in name.split(".") if part != "_orig_mod")


PIPELINE_STAGE = "torch.distributed.pipelining.stage"
# In torch 2.13; in torch 2.6 to 2.12.
_INFERRING = ("_forward_metadata_inference", "_shape_inference")


def infers_shapes() -> bool:
    """Returns True if the caller runs within a forward that only infers shapes: its tensors are uninitialised
    memory, and it is no micro batch. It precedes a stage's first micro batch, and the first of other shapes.

    A module cannot detect it, and stages have no hooks, so this searches the callers once the program has
    imported torch.distributed.pipelining. Any thread."""
    stage = sys.modules.get(PIPELINE_STAGE)
    if stage is None:
        return False
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_name in _INFERRING and code.co_filename == stage.__file__:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


class AroundCompiled:
    """Replaces the call that `module.compile()` has installed at a module: hooks at the module would be
    compiled too, and would see nothing. remove() restores the old call."""

    def __init__(self, module: torch.nn.Module, compiled: Any, on_call: Callable[[], None]) -> None:
        self._module, self._compiled = module, compiled
        module._compiled_call_impl = self._around = _around(module, compiled, on_call)

    def remove(self) -> None:
        if compiled_in_place(self._module) is self._around:  # else compiled again
            self._module._compiled_call_impl = self._compiled


def _around(module: torch.nn.Module, compiled: Any, on_call: Callable[[], None]) -> Callable[..., Any]:
    @functools.wraps(compiled)  # it is still a compiled function
    def called(*inputs: Any, **keywords: Any) -> Any:
        if is_compiling() or infers_shapes():  # the caller is compiled, too
            return compiled(*inputs, **keywords)
        on_call()
        _gradmon.entered(module, is_training(module), inputs, keywords)
        output = compiled(*inputs, **keywords)
        _gradmon.left(module, output)
        return output

    return called
