# SPDX-License-Identifier: Apache-2.0
"""The distribution of a parameter over ranks."""
from typing import Any, Callable, NamedTuple, Optional

import torch

Pair = tuple[Optional[torch.Tensor], Optional[torch.Tensor]]


class Sharding(NamedTuple):
    """Same fields as ParameterSharding in hooks/names/watched_model.h, which describes them."""

    unit: int
    unsharded: Optional[Callable[[], Pair]] = None
    unsharded_run: Optional[tuple[int, int]] = None
    unsharded_sizes: list[int] = []
    run: Optional[tuple[int, int]] = None
    unreduced_scope: Optional[str] = None
    scope: Optional[str] = None
    no_unreduced: str = ""


class Listed(NamedTuple):
    """A parameter under the program's name, as the optimizer holds it. sharding: None if it is not FSDP's."""

    name: str
    tensor: torch.Tensor
    sharding: Optional[Sharding] = None


def class_names(some: Any) -> "set[str]":
    """The names of the object's class and of all that it is derived from."""
    return {kind.__name__ for kind in type(some).__mro__}


def is_kind(some: Any, name: str) -> bool:
    """Returns True if the object is of a class of that name, or of a derived class."""
    return name in class_names(some)
