# SPDX-License-Identifier: Apache-2.0
"""A parameter's post-accumulate hook that runs before those of others."""
from typing import Any, Callable


class FirstHook:
    """Calls `hook(parameter)` after each accumulation of its gradient, before the post-accumulate hooks that
    are there already: those of engines reduce the gradient, or take it away."""

    def __init__(self, parameter: Any, hook: Callable[[Any], None]) -> None:
        self._handle = parameter.register_post_accumulate_grad_hook(hook)
        # torch walks this dict in the order of its entries, and keeps the dict itself: it is refilled.
        hooks = parameter._post_accumulate_grad_hooks
        others = [(key, value) for key, value in hooks.items() if key != self._handle.id]
        own = hooks[self._handle.id]
        hooks.clear()
        hooks[self._handle.id] = own
        hooks.update(others)

    def remove(self) -> None:
        self._handle.remove()
