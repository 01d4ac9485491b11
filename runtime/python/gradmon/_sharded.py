# SPDX-License-Identifier: Apache-2.0
"""The distribution of parameters over ranks by FSDP and DTensor, and the list of a model's parameters."""
import functools
from typing import Any, Callable, Iterator, NamedTuple, Optional

import torch

from gradmon._attributes import is_kind
from gradmon._scopes import LOCAL, REPLICA, WHOLE, piece, text_of

Pair = tuple[Optional[torch.Tensor], Optional[torch.Tensor]]


class Sharding(NamedTuple):
    """Same fields as ParameterSharding in hooks/rows/watched_model.h, which describes them."""

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


# FSDP1: modules within a FullyShardedDataParallel, whose parameters lie in one flat parameter.


def is_fsdp1_unit(module: Any) -> bool:
    return is_kind(module, "FullyShardedDataParallel")


def gathered_module(module: Any) -> "tuple[torch.nn.Module, Optional[int]]":
    """The module whose forward begins once the parameters are gathered, and the id of their unit."""
    handle = getattr(module, "_handle", None)
    return module.module, None if handle is None else id(handle)


def listed_in(name: str, handle: Any) -> Iterator[Listed]:
    """The parameters of one unit, under the program's names. name: of the unit in the model."""
    flat = handle.flat_param
    own = getattr(flat, "_params", None) or [flat] * len(flat._fqns)  # use_orig_params: one a parameter
    whole = zip(flat._fqns, flat._shapes, _offsets(flat), flat._shard_param_infos, own)
    for fqn, shape, offset, part, tensor in whole:
        sharding = _fsdp1_sharding(handle, list(shape), offset, part, in_flat=tensor is flat)
        yield Listed(f"{name}.{fqn}" if name else fqn, tensor, sharding)


def _fsdp1_sharding(handle: Any, shape: "list[int]", offset: int, part: Any, in_flat: bool) -> Sharding:
    flat = handle.flat_param

    def unsharded() -> Pair:
        return flat, None

    count = part.numel_in_shard if part.in_shard else 0
    begin = part.intra_param_start_idx if part.in_shard else 0
    return Sharding(
        unit=id(handle),
        unsharded=unsharded,
        unsharded_run=(offset, torch.Size(shape).numel()),
        unsharded_sizes=shape,
        run=(part.offset_in_shard if part.in_shard else 0, count) if in_flat else None,
        unreduced_scope=WHOLE,
        scope=piece(shape, begin, count) if handle.uses_sharded_strategy else REPLICA,
    )


def _offsets(flat: Any) -> "list[int]":
    """The offset of each parameter in the gathered flat parameter: padding lies between them."""
    found = []
    begin = 0
    for count, is_padding in zip(flat._numels_with_padding, flat._is_padding_mask):
        if not is_padding:
            found.append(begin)
        begin += count
    return found


# FSDP2: modules that fully_shard() has made FSDPModules.


def is_fsdp2_unit(module: Any) -> bool:
    return is_kind(module, "FSDPModule")


def unit_of(module: Any) -> Optional[int]:
    """The unit that gathers this module's parameters: fully_shard([a, b]) makes one unit of two modules."""
    state = _fsdp2_state(module)
    return None if state is None else id(state)


class Fsdp2Parameters:
    """The parameters that FSDP2 manages, by the modules that hold them."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._managed: "dict[tuple[int, str], tuple[Any, int]]" = {}
        for module in model.modules():
            state = _fsdp2_state(module) if is_fsdp2_unit(module) else None
            for parameter in () if state is None else _fsdp2_parameters(state):
                for place in _fsdp2_places(parameter):
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


def _fsdp2_state(module: Any) -> Any:
    get = getattr(module, "_get_fsdp_state", None)
    return None if get is None else get()


def _fsdp2_parameters(state: Any) -> Iterator[Any]:
    groups = getattr(state, "_fsdp_param_groups", None)  # torch 2.13
    if groups is None:
        groups = [getattr(state, "_fsdp_param_group", None)]
    for group in groups:
        yield from getattr(group, "fsdp_params", ())


def _fsdp2_places(parameter: Any) -> "Iterator[tuple[int, str]]":
    place = parameter._module_info
    yield id(place.module), place.param_name
    for module, name in zip(place.shared_modules, place.shared_param_names):
        yield id(module), name


# The list of a model's parameters, as the program names them and the optimizer holds them.


_WRAPPER = "_fsdp_wrapped_module."
REDUCED_BY_AUTOGRAD = "forward uses another tensor, and autograd reduces the gradient on the way to it"


class Listing(NamedTuple):
    """parameters: None if named_parameters() suffices. plain_scope: of plain activations; None: whole."""

    parameters: Optional[list[Listed]]
    plain_scope: Optional[str]


def has_units(model: torch.nn.Module) -> bool:
    """Returns True if a part of the model is sharded by FSDP."""
    return any(is_fsdp1_unit(module) or is_fsdp2_unit(module) for module in model.modules())


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
        self._fsdp2 = Fsdp2Parameters(model)
        self._flat: "dict[str, list[Listed]]" = {}  # FSDP1's, by the name of the module that uses them
        self._flat_ids: "set[int]" = set()
        for name, module in model.named_modules():
            handle = getattr(module, "_handle", None) if is_fsdp1_unit(module) else None
            if handle is None:  # not FSDP1's, or without parameters
                continue
            self._flat_ids.add(id(handle.flat_param))
            for one in listed_in(name, handle):
                self._flat.setdefault(_parent(one.name), []).append(one)
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
                yield one.name, one.tensor, functools.partial(getattr, one, "sharding")

    def _sharding_of(self, module: Any, own: str, tensor: Any) -> "Optional[Sharding]":
        if _is_substituted(module, own, tensor):
            self.tensor_parallel = True
            scope = text_of(tensor._spec) if is_kind(tensor, "DTensor") else LOCAL
            return Sharding(
                unit=id(module), unsharded=_nothing, scope=scope, no_unreduced=REDUCED_BY_AUTOGRAD
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


def _unwrapped(name: str) -> str:
    return (name + ".").replace(_WRAPPER, "")[:-1]


def _parent(name: str) -> str:
    return _unwrapped(name).rpartition(".")[0]
