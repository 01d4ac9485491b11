# SPDX-License-Identifier: Apache-2.0
"""A parameter's post-accumulate hook that runs before those of others."""
from typing import Any, Callable

from gradmon.sharded.first_hooks import put_first


class FirstHook:
    """Calls `hook(parameter)` after each accumulation of its gradient, before the post-accumulate hooks that
    are there already: those of engines reduce the gradient, or take it away."""

    def __init__(self, parameter: Any, hook: Callable[[Any], None]) -> None:
        self._take_off = put_first(parameter, hook)

    def remove(self) -> None:
        self._take_off()
