# SPDX-License-Identifier: Apache-2.0
"""What a model is made of."""
from typing import Any

import torch


class ModelParts:
    """Tells whether a model's modules or parameters have been replaced, added or taken away,
    or parameters been given a main_grad."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model
        self._holders: list[dict[str, Any]] = []
        self._seen: list[int] = []
        self._look()

    def changed(self) -> bool:
        """Since the last call, or since it was made."""
        if self._identities() == self._seen:
            return False
        self._look()
        return True

    def _look(self) -> None:
        self._holders = [
            holder for module in self.model.modules() for holder in (module._parameters, module._modules)
        ]
        self._seen = self._identities()

    def _identities(self) -> "list[int]":
        # The monitor holds what it watches: no identity is given to another meanwhile.
        parts = [part for holder in self._holders for part in holder.values()]
        return [id(part) for part in parts] + [id(part) for part in parts if hasattr(part, "main_grad")]
