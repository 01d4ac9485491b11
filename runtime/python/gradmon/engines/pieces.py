# SPDX-License-Identifier: Apache-2.0
"""The tensors that an engine's optimizer updates in place of the user's parameters."""
from typing import Any, Iterator, NamedTuple, Optional

# As Core takes it: parameter, carrier, start, number of elements.
Carried = tuple[Any, Any, int, int]
# As Core takes it: parameter, its reduced gradient, its first moment or None.
Early = tuple[Any, Any, Any]


class Piece(NamedTuple):
    """A run of one parameter's flattened elements, in a tensor that the optimizer updates (its carrier)."""

    parameter: Any
    carrier: Any
    start: int  # of the piece, in the flattened carrier
    numel: int
    first: int  # of the piece's elements, in the flattened parameter
    shape: tuple[int, ...]  # shape of the parameter
    whole: bool = False  # the carrier is the parameter itself, or a copy; numel leaves out padding at its end
    owned: bool = False  # by this rank of data parallelism: the others do not update the parameter

    def carried(self) -> Carried:
        everything = self.whole and self.numel == self.carrier.numel()
        return (self.parameter, self.carrier, self.start, -1 if everything else self.numel)


def whole(parameter: Any, carrier: Any) -> Piece:
    """For a carrier that has all elements of the parameter, in the same shape."""
    return Piece(parameter, carrier, 0, carrier.numel(), 0, tuple(parameter.shape), True)


def inner_optimizers(optimizer: Any) -> "Iterator[Any]":
    """The engine's own optimizers behind one, the last before torch's: each of a chain."""
    chained = getattr(optimizer, "chained_optimizers", None)
    for one in [optimizer] if chained is None else chained:
        if one is optimizer:
            yield one
        else:
            yield from inner_optimizers(one)


def innermost(optimizer: Any) -> "Optional[Any]":
    """The optimizer that updates the carriers."""
    inner = getattr(optimizer, "optimizer", None)
    while inner is not None:
        optimizer, inner = inner, getattr(inner, "optimizer", None)
    return optimizer
