# SPDX-License-Identifier: Apache-2.0
"""FSDP2: modules that fully_shard() has made FSDPModules."""
from typing import Any, Iterator, Optional

import torch

from gradmon.sharded.scopes import WHOLE
from gradmon.sharded.sharding import Pair, Sharding, is_kind


def is_unit(module: Any) -> bool:
    return is_kind(module, "FSDPModule")


def unit_of(module: Any) -> Optional[int]:
    """The unit that gathers this module's parameters: fully_shard([a, b]) makes one of two modules."""
    state = _state(module)
    return None if state is None else id(state)


class Fsdp2Parameters:
    """The parameters that FSDP2 manages, by the modules that hold them."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._managed: "dict[tuple[int, str], tuple[Any, int]]" = {}
        for module in model.modules():
            state = _state(module) if is_unit(module) else None
            for parameter in () if state is None else _parameters(state):
                for place in _places(parameter):
                    self._managed[place] = parameter, id(state)

    def at_rest(self, holder: Any, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """The parameter as the optimizer holds it, whatever the module holds now."""
        managed = self._managed.get((id(holder), name))
        if managed is None or tensor is not getattr(managed[0], "_unsharded_param", None):
            return tensor
        sharded: torch.Tensor = managed[0].sharded_param
        return sharded

    def sharding_of(self, holder: Any, name: str) -> Optional[Sharding]:
        """None if FSDP2 does not manage it."""
        managed = self._managed.get((id(holder), name))
        if managed is None:
            return None
        parameter, unit = managed

        def unsharded() -> Pair:
            # The gathered parameter exists from the first forward on, and is the same object from then on.
            gathered = getattr(parameter, "_unsharded_param", None)
            return gathered, getattr(parameter, "unsharded_accumulated_grad", None)

        return Sharding(unit=unit, unsharded=unsharded, unreduced_scope=WHOLE)

    def has_tensor_parallel(self) -> bool:
        """Returns True if a parameter was a DTensor before FSDP2 sharded it."""
        return any(getattr(parameter, "is_dtensor", False) for parameter, _ in self._managed.values())


def _state(module: Any) -> Any:
    get = getattr(module, "_get_fsdp_state", None)
    return None if get is None else get()


def _parameters(state: Any) -> Iterator[Any]:
    groups = getattr(state, "_fsdp_param_groups", None)  # torch 2.13
    if groups is None:
        groups = [getattr(state, "_fsdp_param_group", None)]
    for group in groups:
        yield from getattr(group, "fsdp_params", ())


def _places(parameter: Any) -> "Iterator[tuple[int, str]]":
    place = parameter._module_info
    yield id(place.module), place.param_name
    for module, name in zip(place.shared_modules, place.shared_param_names):
        yield id(module), name
