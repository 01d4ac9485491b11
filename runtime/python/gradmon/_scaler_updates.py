# SPDX-License-Identifier: Apache-2.0
"""Callbacks when a GradScaler ends an iteration or skips an optimizer's step."""
from typing import Any, Callable

import torch

from gradmon import _gradmon
from gradmon._attributes import attribute_of, nothing, replaced_around


class ScalerUpdates:
    """Until remove(): calls `updated(scaler)` after each of its update() calls (one an iteration), and
    `step_skipped` after each step(optimizer) that has not called the optimizer's own step."""

    def __init__(
        self,
        scaler: Any,
        updated: Callable[[Any], None],
        step_skipped: Callable[[Any], None],
        calls: Callable[[Any], int],
    ) -> None:
        """calls: returns the number of calls of an optimizer's own step so far."""
        self.scaler = scaler
        self.chunks: "list[int]" = []  # the models whose losses it scales, by vpp_stage
        self._last = 1.0  # scale
        self._updated = updated
        self._step_skipped = step_skipped
        self._calls = calls
        self._replaced = [
            replaced_around(scaler, "step", self._around_step),
            replaced_around(scaler, "update", self._around_update),
        ]

    def scale(self) -> float:
        """The current scale of the loss. Waits for the device if the scale is on one. While a graph is
        captured: the last one, because waiting is forbidden."""
        if not is_captured(getattr(self.scaler, "_scale", None)):
            self._last = float(self.scaler.get_scale())
        return self._last

    def remove(self) -> None:
        self._updated = nothing
        self._step_skipped = nothing
        for replaced in self._replaced:
            replaced.remove()

    def _around_step(
        self, original: Callable[..., Any], optimizer: Any, *arguments: Any, **keywords: Any
    ) -> Any:
        before = self._calls(optimizer)
        result = original(optimizer, *arguments, **keywords)
        if self._calls(optimizer) == before:
            self._step_skipped(optimizer)
        return result

    def _around_update(self, original: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        result = original(*arguments, **keywords)
        self._updated(self.scaler)
        return result


def remaining_scale(optimizer: Any, scaler: Any) -> float:
    """The factor that an optimizer must divide its gradients by itself, because step() was given the
    scaler (an optimizer's step(grad_scaler)). 1 without a scaler, or after unscale_()."""
    if scaler is None:
        return 1.0
    try:
        states = getattr(scaler, "_per_optimizer_states", {})
        stage = states[id(optimizer)]["stage"] if id(optimizer) in states else None
        return 1.0 if getattr(stage, "name", "READY") != "READY" else float(scaler.get_scale())
    except (AttributeError, TypeError, ValueError, RuntimeError, KeyError) as error:
        _gradmon.warn_once(f"the scale of the gradients is unknown: {error!r}")
        return 1.0


def left_out_by_scaler(optimizer: Any) -> bool:
    """Returns True if a fused optimizer's step, which has just run, has not changed its parameters because a
    scaler has found an infinity or a NaN. Waits for the device if the scaler's answer is on one."""
    found = attribute_of(optimizer, "found_inf")  # the scaler sets and removes it around the step
    if type(found) is not torch.Tensor or found.numel() != 1:
        return False
    try:
        return not is_captured(found) and bool(found)
    except RuntimeError as error:  # where the program forbids to wait: torch.cuda.set_sync_debug_mode()
        _gradmon.warn_once(f"whether the scaler has left out a step is unknown: {error!r}")
        return False


def is_captured(value: Any) -> bool:
    """Returns True while a graph of the device captures the value, which must not be awaited then."""
    return isinstance(value, torch.Tensor) and value.is_cuda and torch.cuda.is_current_stream_capturing()
