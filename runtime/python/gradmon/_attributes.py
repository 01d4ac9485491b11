# SPDX-License-Identifier: Apache-2.0
"""Reads attributes and classes of a program's objects, and replaces their attributes temporarily."""
import abc
import threading
import types
from typing import Any, Callable

# Exceptions of the code of a program's objects: attributes, conversions, arithmetic. Without OSError
# (TimeoutError) and the program's own classes: a signal handler may raise them, and they must pass through.
OBJECT_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    MemoryError,
    NameError,
    RuntimeError,
    TypeError,
    ValueError,
    Warning,
)


def attribute_of(owner: Any, name: str, default: Any = None) -> Any:
    """Same as getattr(), for classes whose attributes may raise more than AttributeError."""
    try:
        return getattr(owner, name, default)
    except OBJECT_ERRORS:
        return default


def is_training(module: Any) -> bool:
    """module.training, which may be anything that the program has put there."""
    try:
        return bool(module.training)
    except OBJECT_ERRORS:
        return True


def class_names(some: Any) -> "set[str]":
    """The names of the object's class and of all that it is derived from."""
    return {kind.__name__ for kind in type(some).__mro__}


def is_kind(some: Any, name: str) -> bool:
    """Returns True if the object is of a class of that name, or of a derived class."""
    return name in class_names(some)


def nothing(*_: Any) -> None:
    """Takes anything and does nothing: for a callback that is no longer wanted."""


class ReplacedAttribute:
    """Replaces the owner's attribute of that name, until remove(). The owner may be a class."""

    def __init__(self, owner: Any, name: str, ours: Any) -> None:
        self._owner = owner
        self._name = name
        self._was_own = vars(owner).get(name)
        self._ours = ours
        setattr(owner, name, ours)

    def remove(self) -> None:
        """Restores the original, unless other code has replaced or wrapped ours."""
        if vars(self._owner).get(self._name) is not self._ours:
            return
        if self._was_own is None:
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, self._was_own)


class ReplacedMethod(ReplacedAttribute):
    """Replaces the owner's method of that name by `method(owner, ...)`, until remove()."""

    def __init__(
        self, owner: Any, name: str, method: Callable[..., Any], removed: Callable[[], None] = nothing
    ) -> None:
        """removed: called by remove()."""
        super().__init__(owner, name, types.MethodType(method, owner))
        self._removed = removed

    def remove(self) -> None:
        self._removed()
        super().remove()


def replaced_around(owner: Any, name: str, around: Callable[..., Any]) -> ReplacedMethod:
    """Replaces the owner's method of that name by `around(original method, ...)`, until remove(). If other
    code has wrapped ours, ours passes calls through from then on. A copy calls its class's method.
    """
    original = getattr(owner, name)
    kept: "list[Callable[..., Any]]" = [around]  # empty once it is removed

    def method(own: Any, *arguments: Any, **keywords: Any) -> Any:
        if own is not owner:
            return getattr(type(own), name)(own, *arguments, **keywords)
        return kept[0](original, *arguments, **keywords) if kept else original(*arguments, **keywords)

    method.__name__ = name  # A pickled copy of the owner looks up its own method by this name.
    return ReplacedMethod(owner, name, method, kept.clear)


class SharedReplacements(abc.ABC):
    """Methods that are replaced while any instance is set: one for each rank of the process. Any thread."""

    _lock = threading.RLock()  # A collection of garbage may call set() within set().
    _users = 0  # of a class; guarded by _lock, as is _replaced
    _replaced: "list[ReplacedAttribute]" = []

    def __init__(self) -> None:
        self._wanted = False

    def set(self, wanted: bool) -> None:
        cls = type(self)
        if wanted == self._wanted and (cls._replaced or not wanted):
            return
        with cls._lock:
            cls._users += int(wanted) - int(self._wanted)
            self._wanted = wanted
            if cls._users and not cls._replaced:
                cls._replaced = cls._replace_all()
            elif not cls._users:
                for replaced in cls._replaced:
                    replaced.remove()
                cls._replaced = []

    @classmethod
    @abc.abstractmethod
    def _replace_all(cls) -> "list[ReplacedAttribute]":
        """Our methods call the original alone if _users is 0: other code that has wrapped ours keeps them."""
