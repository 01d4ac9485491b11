# SPDX-License-Identifier: Apache-2.0
"""Lists a model's parameters as the program names them and the optimizer holds them."""
import functools
from typing import Any, Callable, Iterator, NamedTuple, Optional

import torch

from gradmon.sharded import fsdp1, fsdp2
from gradmon.sharded.scopes import LOCAL, text_of
from gradmon.sharded.sharding import Listed, Pair, Sharding, is_kind

_WRAPPER = "_fsdp_wrapped_module."
_REDUCED_BY_AUTOGRAD = "forward uses another tensor, and autograd reduces the gradient on the way to it"


class Listing(NamedTuple):
    """parameters: None if named_parameters() suffices. plain_scope: of plain activations; None: whole."""

    parameters: Optional[list[Listed]]
    plain_scope: Optional[str]


def has_units(model: torch.nn.Module) -> bool:
    """Returns True if a part of the model is sharded by FSDP."""
    return any(fsdp1.is_unit(module) or fsdp2.is_unit(module) for module in model.modules())


def listing_of(model: torch.nn.Module) -> Listing:
    """Lists a model's parameters for the extension."""
    plain = not any(is_kind(parameter, "DTensor") for parameter in model.parameters())
    if plain and not has_units(model) and not _has_substitutes(model):
        return Listing(None, None)
    listed = _Parameters(model)
    return Listing(listed.all(), LOCAL if listed.tensor_parallel else None)


def parameters_of(model: torch.nn.Module) -> "list[tuple[str, torch.Tensor]]":
    """The model's parameters by name, as the optimizer holds them."""
    if not has_units(model):
        return list(model.named_parameters())
    return [(name, tensor) for name, tensor, _ in _Parameters(model).each()]


class _Parameters:
    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._fsdp2 = fsdp2.Fsdp2Parameters(model)
        self._flat: "dict[str, list[Listed]]" = {}  # FSDP1's, by the name of the module that uses them
        self._flat_ids: "set[int]" = set()
        for name, module in model.named_modules():
            for one in fsdp1.listed_in(name, module) if fsdp1.is_unit(module) else ():
                self._flat.setdefault(_parent(one.name), []).append(one)
        for module in model.modules():
            handle = getattr(module, "_handle", None) if fsdp1.is_unit(module) else None
            if handle is not None:
                self._flat_ids.add(id(handle.flat_param))
        self.tensor_parallel = self._fsdp2.has_tensor_parallel()

    def all(self) -> "list[Listed]":
        """Each parameter once, under its first name, in the order of the modules."""
        return [Listed(name, tensor, sharding()) for name, tensor, sharding in self.each()]

    def each(self) -> "Iterator[tuple[str, torch.Tensor, Callable[[], Optional[Sharding]]]]":
        """Same as all(), but finds a parameter's sharding only when called, because that takes longer."""
        flat = dict(self._flat)
        seen = set(self._flat_ids)
        for group in self._flat.values():
            seen.update(id(one.tensor) for one in group)
        for name, module in self._model.named_modules():
            for own, held in module._parameters.items():
                if held is None:
                    continue
                tensor = self._fsdp2.at_rest(module, own, held)
                if id(tensor) in seen:
                    continue
                seen.add(id(tensor))
                full = f"{name}.{own}" if name else own
                yield full, tensor, functools.partial(self._sharding_of, module, own, tensor)
            for one in flat.pop(_unwrapped(name), []):
                yield one.name, one.tensor, functools.partial(_sharding_in, one)

    def _sharding_of(self, module: Any, own: str, tensor: Any) -> "Optional[Sharding]":
        if _is_substituted(module, own, tensor):
            self.tensor_parallel = True
            scope = text_of(tensor._spec) if is_kind(tensor, "DTensor") else LOCAL
            return Sharding(
                unit=id(module), unsharded=_nothing, scope=scope, no_unreduced=_REDUCED_BY_AUTOGRAD
            )
        if not is_kind(tensor, "DTensor"):
            return self._fsdp2.sharding_of(module, own)
        of_fsdp2 = self._fsdp2.sharding_of(module, own)
        self.tensor_parallel = self.tensor_parallel or of_fsdp2 is None
        return (of_fsdp2 or Sharding(unit=0))._replace(scope=text_of(tensor._spec))


def _is_substituted(module: Any, own: str, tensor: Any) -> bool:
    """True if forward uses another tensor for this parameter: a property of the module's class gathers it, as
    torchtitan's SimpleFSDP does with a DTensor, and FlexShard with a tensor of its own."""
    is_part = is_kind(tensor, "DTensor") or hasattr(tensor, "_placements")
    return is_part and isinstance(getattr(type(module), own, None), property)


def _has_substitutes(model: torch.nn.Module) -> bool:
    return any(
        _is_substituted(module, own, tensor)
        for module in model.modules()
        for own, tensor in module._parameters.items()
    )


def _nothing() -> Pair:
    return None, None


def _sharding_in(listed: Listed) -> "Optional[Sharding]":
    return listed.sharding


def _unwrapped(name: str) -> str:
    return (name + ".").replace(_WRAPPER, "")[:-1]


def _parent(name: str) -> str:
    return _unwrapped(name).rpartition(".")[0]
