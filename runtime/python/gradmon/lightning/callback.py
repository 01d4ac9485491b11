# SPDX-License-Identifier: Apache-2.0
"""gradmon.lightning.Callback."""
import importlib
import os
import sys
from typing import Any, Optional, Union

from gradmon._steps import after_signal
from gradmon.loops.loop_monitor import LoopMonitor

# The package that the program has imported: Lightning comes under two names.
_NAME = next((name for name in ("lightning.pytorch", "pytorch_lightning") if name in sys.modules), None)
_Base: Any = importlib.import_module(_NAME or "lightning.pytorch").Callback


class Callback(_Base):  # type: ignore[misc]
    """Watches the training of a Lightning Trainer.

    A step is an iteration in which `trainer.global_step` grows: batches whose gradients are only
    accumulated end no step. Watching begins and ends with fit().

    Parameters
    ----------
    config : str or path-like
        As for Monitor.
    **options
        Further arguments of Monitor: rank, world_size, endpoint, output_dir, dynamic.

    Notes
    -----
    Rows have the names that the parameters have in the LightningModule. The gradients in `grad_reduced` are
    those that the optimizer uses: reduced, without a loss scale, and clipped. The first step has the number
    `trainer.global_step`; with several optimizers, each of which counts there, it is divided by their number.
    The values that training_step() logs in the step's last batch, and its loss, as "loss", go to
    Monitor.scalar(). Training stops when Monitor.may_end is True.

    Examples
    --------
    >>> trainer = Trainer(max_epochs=1, callbacks=[gradmon.lightning.Callback("monitor_config.json")])
    >>> trainer.fit(module, loader)
    """

    def __init__(self, config: Union[str, "os.PathLike[str]"], **options: Any) -> None:
        self._config = config
        self._options = options
        self._monitor: Optional[LoopMonitor] = None
        self._global_step = 0  # the trainer's, at the end of the last batch
        self._logged: "dict[str, Any]" = {}  # what was logged before

    @property
    def monitor(self) -> Optional[LoopMonitor]:
        """The monitor of the current or last training.

        Returns
        -------
        Monitor or None
            None before fit().
        """
        return self._monitor

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begins to watch; the trainer calls it.

        Parameters
        ----------
        trainer : lightning.pytorch.Trainer
        pl_module : lightning.pytorch.LightningModule
        """
        self._stop()
        self._global_step = trainer.global_step
        self._monitor = LoopMonitor(self._config, framework="lightning", **self._options)
        self._monitor.watch_loop(
            [trainer.model],
            trainer.optimizers,
            grad_acc_steps=_most_micro_batches(trainer),
            scaler=getattr(trainer.precision_plugin, "scaler", None),
            start_iteration=trainer.global_step // max(1, len(trainer.optimizers)),
        )

    def on_train_batch_end(self, trainer: Any, pl_module: Any = None, outputs: Any = None, *_: Any) -> None:
        """Ends a step if there was an update; the trainer calls it.

        Parameters
        ----------
        trainer : lightning.pytorch.Trainer
        pl_module : lightning.pytorch.LightningModule
        outputs : dict or torch.Tensor
            Of training_step().
        """
        if self._monitor is None or trainer.global_step == self._global_step:
            return
        self._global_step = trainer.global_step
        if self._monitor.takes_scalars:
            self._monitor.report_numbers(
                {"loss": outputs.get("loss") if isinstance(outputs, dict) else outputs}
            )
            before, self._logged = self._logged, dict(trainer.callback_metrics)
            new = {name: value for name, value in self._logged.items() if value is not before.get(name)}
            self._monitor.report_numbers(new)  # without those of an earlier validation
        if self._monitor.step():
            trainer.should_stop = True

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Stops; the trainer calls it.

        Parameters
        ----------
        trainer : lightning.pytorch.Trainer
        pl_module : lightning.pytorch.LightningModule
        """
        self._stop()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Stops; the trainer calls it when an exception ends fit().

        Parameters
        ----------
        trainer : lightning.pytorch.Trainer
        pl_module : lightning.pytorch.LightningModule
        exception : BaseException
        """
        self._stop(after_signal(type(exception)))

    def _stop(self, timeout: Optional[float] = None) -> None:
        if self._monitor is not None:
            self._monitor.stop(timeout)


def _most_micro_batches(trainer: Any) -> int:
    """Per step; a GradientAccumulationScheduler changes their number between epochs."""
    schedules = [getattr(callback, "scheduling", None) for callback in trainer.callbacks]
    planned: "list[int]" = [
        most for schedule in schedules if isinstance(schedule, dict) for most in schedule.values()
    ]
    return max(int(trainer.accumulate_grad_batches), *planned, 1)
