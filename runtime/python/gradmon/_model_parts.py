# SPDX-License-Identifier: Apache-2.0
"""Detects changes of a model's modules and parameters."""
from typing import Any

import torch

from gradmon._attributes import attribute_of
from gradmon.sharded.listing import has_units, parameters_of


class ModelParts:
    """Detects that modules or parameters of a model were replaced, added or removed, or that a
    parameter got a main_grad."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model
        self._holders: list[dict[str, Any]] = []
        self._seen: list[int] = []
        self._sharded = False
        self._look()

    def changed(self) -> bool:
        """Returns True if the model has changed since the last call, or since construction."""
        if self._identities() == self._seen:
            return False
        self._look()
        return True

    def _look(self) -> None:
        self._sharded = has_units(self.model)
        self._holders = [module._modules for module in self.model.modules()]
        if not self._sharded:
            self._holders += [module._parameters for module in self.model.modules()]
        self._seen = self._identities()

    def _identities(self) -> "list[int]":
        # The monitor holds references to the watched parts, so their ids are not reused.
        parts = [part for holder in self._holders for part in holder.values()]
        if self._sharded:  # in a forward, and after one in evaluation, FSDP's modules hold other tensors
            parts += [tensor for _, tensor in parameters_of(self.model)]
        # torch.utils.swap_tensors() leaves the object and changes what is in it.
        inside = [part._cdata for part in parts if isinstance(part, torch.Tensor)]
        main_grads = [id(p) for p in parts if attribute_of(p, "main_grad", self) is not self]
        return [id(part) for part in parts] + inside + main_grads
