# SPDX-License-Identifier: Apache-2.0
"""A method of one object, replaced for a while."""
import types
from typing import Any, Callable


class ReplacedMethod:
    """Calls `method(owner, ...)` where the owner's method of that name is called, until remove()."""

    def __init__(self, owner: Any, name: str, method: Callable[..., Any]) -> None:
        self._owner = owner
        self._name = name
        self._was_own = vars(owner).get(name)
        self._method = types.MethodType(method, owner)
        setattr(owner, name, self._method)

    def remove(self) -> None:
        """Leaves the object as it was, unless somebody has wrapped the method meanwhile."""
        if vars(self._owner).get(self._name) is not self._method:
            return
        if self._was_own is None:
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, self._was_own)
