# SPDX-License-Identifier: Apache-2.0
"""Puts a hook in front of a parameter's post-accumulate hooks (torch >= 2.1)."""
from typing import Any, Callable

import torch


def put_first(parameter: torch.Tensor, hook: Callable[[torch.Tensor], None]) -> Callable[[], None]:
    """Registers the hook, which runs before those that are there and those that come later. Returns what
    removes it: the others then are as they were."""
    handle: Any = parameter.register_post_accumulate_grad_hook(hook)
    hooks: "dict[int, Any]" = parameter._post_accumulate_grad_hooks
    others = [(number, other) for number, other in hooks.items() if number != handle.id]
    # C++ walks the dict itself, in the order of insertion, and not the order that move_to_end() gives.
    hooks.clear()
    hooks[handle.id] = hook
    hooks.update(others)
    remove: Callable[[], None] = handle.remove
    return remove
