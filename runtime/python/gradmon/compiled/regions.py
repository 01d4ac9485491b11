# SPDX-License-Identifier: Apache-2.0
"""Finds the modules that torch.compile has compiled, and inner modules, whose forwards no hook sees."""
from typing import Any, Iterable, NamedTuple, Optional

import torch

from gradmon.loops.wrappers import part_in_front


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


def unseen(modules: Iterable[torch.nn.Module]) -> "set[int]":
    """The ids of those modules of a model whose calls are within compiled code."""
    found: "set[int]" = set()
    for module in modules:
        if id(module) not in found and is_region(module):
            found.update(id(part) for part in module.modules() if part is not module)
    return found


def sentences_of_unseen(models: Iterable[torch.nn.Module]) -> "list[str]":
    """A warning for each model with modules that no hook sees."""
    return [
        sentence
        for model in models
        for sentence in [_sentence(type(model).__name__, regions_of(model), part_in_front(model))]
        if sentence is not None
    ]


def _sentence(model: str, regions: "list[Region]", front: str) -> Optional[str]:
    # The module within an OptimizedModule has the rows of its wrapper.
    names = [_plain(name, front) for region in regions for name in region.within.values()]
    known = {_plain(region.name, front) for region in regions}
    names = [name for name in names if name and name not in known]
    if not names:
        return None
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return (
        f"{', '.join(names[:3])}{more} of {model} are within code that torch.compile has compiled: no rows "
        "of actv and actv_grad; gradmon.observe() shows tensors there"
    )


def _plain(name: str, front: str) -> str:
    if front.startswith(name + "."):
        return ""
    name = name.removeprefix(front)
    return ".".join(part for part in name.split(".") if part != "_orig_mod")
