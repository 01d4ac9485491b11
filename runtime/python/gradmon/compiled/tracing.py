# SPDX-License-Identifier: Apache-2.0
"""Detects that torch.compile is tracing the caller, and the limits of the graph."""
from typing import Any, Callable, TypeVar

import torch

_Function = TypeVar("_Function", bound=Callable[..., Any])

# Returns True if torch.compile is tracing the caller. Torch 1.13 has no compiler.
is_compiling: Callable[[], bool] = getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)


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


# Regions that torch.compile traces apart and that keep an operator which says that it writes to an argument.
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
