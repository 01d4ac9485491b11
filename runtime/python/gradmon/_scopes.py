# SPDX-License-Identifier: Apache-2.0
"""The scope of a value, as JSON (writers/FORMAT.md, "scopes.json")."""
import json
import math
from typing import Any, Mapping, Union

WHOLE = json.dumps({"scope": "whole"})
REPLICA = json.dumps({"scope": "replica"})
LOCAL = json.dumps({"scope": "local"})

# The labels, and the keys that each needs.
_KEYS = {
    "whole": (),
    "replica": (),
    "shard": ("shape", "offset", "size"),
    "piece": ("shape", "begin", "count"),
    "partial": (),
    "local": (),
}


def text_of(spec: Any) -> str:
    """The scope of a DTensor's local tensor on this rank, from the DTensor's `_spec`. No communication."""
    return json.dumps(_scope_of(spec.mesh, tuple(spec.placements), list(spec.shape)))


def checked(scope: "Union[str, Mapping[str, Any]]") -> str:
    """A program's scope of a value, as JSON. Raises ValueError or TypeError if it is invalid or not JSON."""
    found = {"scope": scope} if isinstance(scope, str) else dict(scope)
    label = found.get("scope")
    if label not in _KEYS:
        raise ValueError(f"scope: found {label!r}; expected one of {', '.join(_KEYS)}")
    missing = [key for key in _KEYS[label] if key not in found]
    if missing:
        raise ValueError(f"scope: a {label} needs {', '.join(_KEYS[label])}; {', '.join(missing)} not found")
    return json.dumps(found, allow_nan=False)


def value_of(tensor: Any) -> Any:
    """The value on every rank: for a replicated DTensor its local tensor. No communication.

    Raises ValueError for a DTensor of which a rank holds only a part."""
    if not any(one.__name__ == "DTensor" for one in type(tensor).__mro__):
        return tensor
    placements = tuple(tensor.placements)
    if all(size == 1 or one.is_replicate() for one, size in zip(placements, tensor.device_mesh.shape)):
        return tensor._local_tensor
    raise ValueError(
        f"not recorded: each rank holds a part of this DTensor ({', '.join(map(str, placements))}); "
        "pass what its full_tensor() returns on all ranks"
    )


def piece(shape: "list[int]", begin: int, count: int, **more: Any) -> str:
    """The scope of `count` elements from `begin` on of a flattened tensor of that shape."""
    return json.dumps({"scope": "piece", "shape": shape, "begin": begin, "count": count, **more})


def _scope_of(mesh: Any, placements: "tuple[Any, ...]", shape: "list[int]") -> "dict[str, Any]":
    sizes = list(mesh.shape)
    split = [size > 1 and hasattr(placement, "dim") for placement, size in zip(placements, sizes)]
    summands = any(
        size > 1 and placement.is_partial() and not hasattr(placement, "dim")
        for placement, size in zip(placements, sizes)
    )
    replicas = math.prod(size for placement, size in zip(placements, sizes) if placement.is_replicate())
    label = "shard" if any(split) else "replica" if replicas > 1 else "whole"
    found: "dict[str, Any]" = {"scope": "partial" if summands else label, "shape": shape}
    if any(split):
        found.update(_box(mesh, placements, shape))
    if replicas > 1:
        found["replicas"] = replicas
    found["mesh"] = {
        "dims": None if mesh.mesh_dim_names is None else list(mesh.mesh_dim_names),
        "shape": sizes,
        "coordinate": None if mesh.get_coordinate() is None else list(mesh.get_coordinate()),
        "ranks": ranks_in(mesh.mesh),
    }
    found["placements"] = [str(placement) for placement in placements]
    return found


def ranks_in(numbers: Any) -> "list[int]":
    """First rank of the mesh and the distance to the next rank in each of its dimensions; or all ranks,
    if the distances differ."""
    ranks: "list[int]" = numbers.flatten().tolist()
    strides = []
    expected = ranks[:1]
    inner = len(ranks)
    for size in numbers.shape:
        inner //= size
        stride = ranks[inner] - ranks[0] if size > 1 else 0
        strides.append(stride)
        expected = [first + stride * number for first in expected for number in range(size)]
    return [ranks[0], *strides] if expected == ranks else ranks


def _box(mesh: Any, placements: "tuple[Any, ...]", shape: "list[int]") -> "dict[str, list[int]]":
    """The box of the whole tensor that this rank holds: offset and size."""
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    size, offset = compute_local_shape_and_global_offset(shape, mesh, placements)
    return {"offset": list(offset), "size": list(size)}
