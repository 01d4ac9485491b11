# SPDX-License-Identifier: Apache-2.0
"""The base of our hooks at modules."""
import contextlib
from typing import Any

import torch

from gradmon._compiled import is_compiling


class WatchingHook:
    """Base of our hooks. A copy of a watched module has copies of its hooks; a copied hook removes
    itself when it is called. A module that was saved with hooks can be loaded without gradmon."""

    def __deepcopy__(self, _memo: Any) -> "_Copied":
        return _Copied()

    def __reduce__(self) -> Any:
        return getattr, (contextlib.nullcontext(), "__exit__")  # takes anything, returns None


class _Copied(WatchingHook):
    def __call__(self, module: torch.nn.Module, *_: Any) -> None:
        if is_compiling():
            return
        for hooks in (module._forward_pre_hooks, module._forward_hooks):
            for number in [number for number, known in hooks.items() if known is self]:
                del hooks[number]
                module._forward_pre_hooks_with_kwargs.pop(number, None)
