# SPDX-License-Identifier: Apache-2.0
"""Reports the calls of a module that `module.compile()` has compiled."""
import functools
from typing import Any, Callable

import torch

from gradmon import _gradmon
from gradmon._attributes import is_training
from gradmon.compiled.regions import compiled_in_place
from gradmon.compiled.tracing import is_compiling
from gradmon.loops.pipelines import infers_shapes


class AroundCompiled:
    """Replaces the call that `module.compile()` has installed at a module: hooks at the module would be
    compiled too, and would see nothing. remove() restores the old call."""

    def __init__(self, module: torch.nn.Module, compiled: Any) -> None:
        self._module, self._compiled = module, compiled
        module._compiled_call_impl = self._around = _around(module, compiled)

    def remove(self) -> None:
        if compiled_in_place(self._module) is self._around:  # else compiled again
            self._module._compiled_call_impl = self._compiled


def _around(module: torch.nn.Module, compiled: Any) -> Callable[..., Any]:
    @functools.wraps(compiled)  # it is still a compiled function
    def called(*inputs: Any, **keywords: Any) -> Any:
        if is_compiling() or infers_shapes():  # the caller is compiled, too
            return compiled(*inputs, **keywords)
        _gradmon.entered(module, is_training(module), inputs, keywords)
        output = compiled(*inputs, **keywords)
        _gradmon.left(module, output)
        return output

    return called
