# SPDX-License-Identifier: Apache-2.0
"""gradmon.lightning.Callback."""
import importlib
import os
import sys
from typing import Any, Union

from gradmon._loop_monitor import LoopCallback
from gradmon._steps import after_signal

# The package that the program has imported: Lightning comes under two names.
_NAME = next((name for name in ("lightning.pytorch", "pytorch_lightning") if name in sys.modules), None)
_Base: Any = importlib.import_module(_NAME or "lightning.pytorch").Callback


class Callback(LoopCallback, _Base):  # type: ignore[misc]
    """Watches the training of a Lightning Trainer.

    A step is an iteration in which `trainer.global_step` grows: batches whose gradients are only
    accumulated end no step. Watching begins and ends with fit().

    Parameters
    ----------
    config, **options
        As for Monitor.

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

    _framework = "lightning"

    def __init__(self, config: Union[str, "os.PathLike[str]"], **options: Any) -> None:
        super().__init__(config, **options)
        self._global_step = 0  # the trainer's, at the end of the last batch
        self._logged: "dict[str, Any]" = {}  # what was logged before

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begins to watch; the trainer calls it."""
        self._global_step = trainer.global_step
        self._begin().watch_loop(
            [trainer.model],
            trainer.optimizers,
            grad_acc_steps=_most_micro_batches(trainer),
            scaler=getattr(trainer.precision_plugin, "scaler", None),
            start_iteration=trainer.global_step // max(1, len(trainer.optimizers)),
        )

    def on_train_batch_end(self, trainer: Any, pl_module: Any = None, outputs: Any = None, *_: Any) -> None:
        """Ends a step if there was an update; the trainer calls it."""
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
        """Stops; the trainer calls it."""
        self._stop()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Stops; the trainer calls it when an exception ends fit()."""
        self._stop(after_signal(type(exception)))


def _most_micro_batches(trainer: Any) -> int:
    """Per step; a GradientAccumulationScheduler changes their number between epochs."""
    schedules = [getattr(callback, "scheduling", None) for callback in trainer.callbacks]
    planned: "list[int]" = [
        most for schedule in schedules if isinstance(schedule, dict) for most in schedule.values()
    ]
    return max(int(trainer.accumulate_grad_batches), *planned, 1)
