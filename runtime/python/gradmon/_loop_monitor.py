# SPDX-License-Identifier: Apache-2.0
"""The Monitor of a framework's training loop."""
import importlib.metadata
import os
from typing import Any, Optional, Sequence, Union

import torch

from gradmon import _gradmon
from gradmon._communication import replica_ranks
from gradmon._wrappers import inner_model, inner_optimizer, refusal, replicating
from gradmon.monitor import Monitor


class LoopMonitor(Monitor):
    """A Monitor whose steps end when the framework's loop has made an update, or skipped one: the adapter
    calls step() there, from the first step on. Training thread."""

    _ended_by_loop = True

    def __init__(self, config: Union[str, "os.PathLike[str]"], *, framework: str, **options: Any) -> None:
        """framework: name of its distribution, such as "megatron-core"; that of gradmon's module follows from
        it. options: as Monitor."""
        super().__init__(config, **options)
        module = {"megatron-core": "megatron", "transformers": "hf"}.get(framework, framework)
        try:
            version = importlib.metadata.version(framework)
        except importlib.metadata.PackageNotFoundError:
            version = "of unknown version"
        self._attached_by = f"gradmon.{module}, {framework} {version}"

    def watch_loop(
        self,
        models: Sequence[Any],
        optimizers: Sequence[Any],
        *,
        grad_acc_steps: int = 1,
        scaler: Any = None,
        start_iteration: int = 0,
        replicas: Optional["list[int]"] = None,
    ) -> bool:
        """Watches the framework's wrapped objects. False, with a warning, if they cannot be watched.

        optimizers: may be empty if add_optimizer() adds them. grad_acc_steps: micro batches per step, at
        most; a step may have fewer. replicas: as Monitor._replicas."""
        why = next((why for why in map(refusal, [*optimizers, *models]) if why is not None), None)
        if self.refuses(why):
            return False
        if replicas is None:
            replicas = replica_ranks(replicating(models[0]), None, optimizers)
        self._replicas = replicas
        for model in models:
            for optimizer in optimizers or [None]:
                self.watch(
                    inner_model(model),
                    inner_optimizer(optimizer),
                    grad_acc_steps=grad_acc_steps,
                    scaler=scaler,
                    start_iteration=start_iteration,
                )
        return True

    def add_optimizer(self, model: Any, optimizer: Any) -> None:
        """Watches one more optimizer, after watch_loop()."""
        self.watch(inner_model(model), inner_optimizer(optimizer))

    @property
    def takes_scalars(self) -> bool:
        """True if scalar() has a use for values."""
        return self._steps is not None and bool(self._steps.step_flags & _gradmon.TAKES_SCALARS)

    def report_numbers(self, values: Any) -> None:
        """Calls scalar() for the numbers and one-element tensors among the framework's logged values."""
        for name, value in values.items() if isinstance(values, dict) else ():
            alone = isinstance(value, torch.Tensor) and value.numel() == 1
            if alone or (isinstance(value, (int, float)) and not isinstance(value, bool)):
                self.scalar(str(name), value)

    def refuses(self, why: Optional[str]) -> bool:
        """Warns that nothing is watched, and returns True, if there is a reason why."""
        if why is not None:
            _gradmon.warn_once(f"nothing is watched: {why}")
        return why is not None

    def remove_at_stop(self, attached: Any) -> None:
        """stop() calls attached.remove()."""
        if self._steps is not None:
            self._steps.remove_at_stop(attached)


class LoopCallback:
    """The part that the callbacks of trainers share: a monitor for each training."""

    _framework = ""  # as for LoopMonitor

    def __init__(self, config: Union[str, "os.PathLike[str]"], **options: Any) -> None:
        self._config = config
        self._options = options
        self._monitor: Optional[LoopMonitor] = None

    @property
    def monitor(self) -> Optional[LoopMonitor]:
        """The monitor of the current or last training.

        Returns
        -------
        Monitor or None
            None before the first training.
        """
        return self._monitor

    def _begin(self) -> LoopMonitor:
        self._stop()
        self._monitor = LoopMonitor(self._config, framework=self._framework, **self._options)
        return self._monitor

    def _stop(self, timeout: Optional[float] = None) -> None:
        if self._monitor is not None:
            self._monitor.stop(timeout)
