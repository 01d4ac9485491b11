# SPDX-License-Identifier: Apache-2.0
"""Describes the scopes of the rows of an engine's parameters, for scopes.json."""
import json
from typing import Any, Callable, Iterable, NamedTuple

import torch

from gradmon import _gradmon
from gradmon.engines.pieces import Piece
from gradmon.sharded.listing import Listing
from gradmon.sharded.sharding import Listed, Sharding

# The kinds that are read at the optimizer's step, of the tensors that it updates.
KINDS_OF_UPDATE = ("grad_reduced", "param_origin", "param_updated", "exp_avg", "exp_avg_sq")

Scope = dict[str, Any]  # as in scopes.json (writers/FORMAT.md)
Labels = dict[str, Scope]  # by the parameter's name


class Description(NamedTuple):
    """An engine's description of a model. labels: by kind. plain_scope: see Listing."""

    labels: "dict[str, Labels]"
    plain_scope: "str | None" = None


def labels_of(
    named: "Iterable[tuple[str, Any, tuple[int, ...]]]",
    pieces: "Iterable[Piece]",
    is_local: "Callable[[Any], bool]" = lambda _: False,
) -> "dict[str, Labels]":
    """The scope of the rows of this rank, by kind and by the parameter's name.

    named: each parameter's name, the parameter, and its shape. is_local: True if the parameter's place in a
    whole is unknown. A kind has no label for a parameter without elements on this rank."""
    by_parameter = {id(piece.parameter): piece for piece in pieces}
    before: Labels = {}
    after: Labels = {}
    for name, parameter, shape in named:
        if not parameter.requires_grad:
            continue
        local: "Scope | None" = {"scope": "local"} if is_local(parameter) else None
        before[name] = local or {"scope": "whole", "shape": list(shape)}
        piece = by_parameter.get(id(parameter))
        if piece is not None and piece.numel:
            after[name] = local or _scope_of(piece)
    return {"grad_unreduced": before, **{kind: after for kind in KINDS_OF_UPDATE}}


def is_expert(parameter: Any) -> bool:
    """Returns True if data-parallel ranks have different experts in parameters of this name."""
    return getattr(parameter, "allreduce", True) is False


def listing_with(
    described: "Callable[[torch.nn.Module], Description]",
) -> "Callable[[torch.nn.Module], Listing]":
    """For TrainingSteps: the model's parameters under their own names, with what the engine says of them.

    If the engine has renamed its parts, the rows keep the scopes of plain parameters."""

    def listing_of(model: torch.nn.Module) -> Listing:
        try:
            labels, plain_scope = described(model)
        except Exception as error:
            _gradmon.warn_once(
                f"scopes.json does not say what this rank has: {type(error).__name__}: {error}"
            )
            return Listing(None, None)
        before, after = labels["grad_unreduced"], labels["grad_reduced"]
        listed = [
            Listed(
                name, one, Sharding(0, unreduced_scope=_text(before.get(name)), scope=_text(after.get(name)))
            )
            for name, one in model.named_parameters()
        ]
        return Listing(listed, plain_scope)

    return listing_of


def _scope_of(piece: Piece) -> Scope:
    shape = list(piece.shape)
    if piece.whole:
        return {"scope": "whole" if piece.owned else "replica", "shape": shape}
    return {"scope": "piece", "shape": shape, "begin": piece.first, "count": piece.numel}


def _text(scope: "Scope | None") -> "str | None":
    return None if scope is None else json.dumps(scope)
