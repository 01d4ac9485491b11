# SPDX-License-Identifier: Apache-2.0
"""gradmon for Lightning's Trainer and for Fabric."""
import importlib
import sys
from types import SimpleNamespace
from typing import Any, Optional
from weakref import ref

from torch.optim.optimizer import register_optimizer_step_pre_hook

from gradmon._framework_monitor import FrameworkCallback, FrameworkMonitor
from gradmon._optimizer_rounds import parameters_of
from gradmon._steps import after_signal
from gradmon.monitor import PathLike


class _TrainerCallback(FrameworkCallback):
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
    `trainer.global_step`, divided by the number of optimizers, because each of them counts there.
    The values that training_step() logs in the step's last batch, and its loss, as "loss", go to
    Monitor.scalar(). Training stops when Monitor.may_end is True.

    Examples
    --------
    >>> trainer = Trainer(max_epochs=1, callbacks=[gradmon.lightning.Callback("monitor_config.json")])
    >>> trainer.fit(module, loader)
    """

    _framework = "lightning"

    def __init__(self, config: PathLike, **options: Any) -> None:
        super().__init__(config, **options)
        self._global_step = 0  # the trainer's, at the end of the last batch
        self._logged: "dict[str, Any]" = {}  # what was logged before

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begins to watch; the trainer calls it."""
        self._global_step = trainer.global_step
        self._begin().watch_loop(
            [trainer.model],
            trainer.optimizers,
            _most_micro_batches(trainer),
            trainer.global_step // max(1, len(trainer.optimizers)),
            getattr(trainer.precision_plugin, "scaler", None),
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
            self._monitor.report_numbers(new)  # without the values of an earlier validation
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


class FabricCallback:
    """Watches a training that Lightning Fabric has set up.

    Watching begins with Fabric.setup(), and ends with stop() or with the interpreter.

    Parameters
    ----------
    config, start_iteration, **options
        As for Monitor and Monitor.watch().
    optimizer_steps : int
        The number of optimizer steps in one iteration, of all optimizers together: a step ends with the last.
    grad_acc_steps : int
        Most micro batches (backward passes) of a step.

    Notes
    -----
    Fabric passes models to a callback, but no optimizers: an optimizer with parameters of a watched model is
    found when it steps for the first time. Each further setup() of a model adds a chunk (vpp_stage 1, 2,
    ...). Call setup(model, optimizer): Fabric calls no callback in setup_module().

    Examples
    --------
    >>> fabric = Fabric(callbacks=[gradmon.lightning.FabricCallback("monitor_config.json")])
    >>> model, optimizer = fabric.setup(model, optimizer)
    """

    def __init__(
        self,
        config: PathLike,
        *,
        optimizer_steps: int = 1,
        grad_acc_steps: int = 1,
        start_iteration: int = 0,
        **options: Any,
    ) -> None:
        self._monitor = FrameworkMonitor(config, "lightning", **options)
        self._optimizer_steps = optimizer_steps
        self._grad_acc_steps = grad_acc_steps
        self._start_iteration = start_iteration
        self._models: "list[Any]" = []
        self._seen: "dict[int, Any]" = {}  # weak references to optimizers that have stepped, by their id()
        self._stopped = False
        self._steps = 0  # steps of optimizers in this iteration

    @property
    def monitor(self) -> FrameworkMonitor:
        """The monitor.

        Returns
        -------
        Monitor
        """
        return self._monitor

    def on_after_setup(self, fabric: Any, module: Any) -> None:
        """Watches the model; Fabric calls it."""
        if self._stopped:
            return
        scaler = getattr(getattr(fabric.strategy, "precision", None), "scaler", None)
        if not self._monitor.watch_loop([module], [], self._grad_acc_steps, self._start_iteration, scaler):
            return
        if not self._models:
            self._monitor.remove_at_stop(register_optimizer_step_pre_hook(self._steps_first))
            self._monitor.remove_at_stop(SimpleNamespace(remove=self._forget))
        self._models.append(module)

    def on_after_optimizer_step(self, strategy: Any, optimizer: Any) -> None:
        """Ends a step, if it was the last optimizer's; Fabric calls it."""
        self._steps += 1
        if self._steps >= self._optimizer_steps:
            self._steps = 0
            self._monitor.step()

    def stop(self, timeout: Optional[float] = None) -> None:
        """Detaches all hooks, writes the collected rows and leaves the job.

        Parameters
        ----------
        timeout : float, optional
            As for Monitor.stop().
        """
        self._stopped = True
        self._monitor.stop(timeout)

    def _forget(self) -> None:
        self._stopped = True
        self._models.clear()

    def _steps_first(self, optimizer: Any, *_: Any) -> None:
        """Before each step of any optimizer. Torch calls the optimizer's own hooks after this one."""
        seen = self._seen.get(id(optimizer))
        if seen is not None and seen() is optimizer:
            return
        self._seen = {number: known for number, known in self._seen.items() if known() is not None}
        self._seen[id(optimizer)] = ref(optimizer)
        held = parameters_of(optimizer)
        for module in self._models:
            if any(id(parameter) in held for parameter in module.parameters()):
                self._monitor.add_optimizer(module, optimizer)
                return


__all__ = ["Callback", "FabricCallback"]  # noqa: F822


def __getattr__(name: str) -> Any:
    """Callback needs Lightning's Trainer, which Fabric does without."""
    if name != "Callback":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Lightning comes under two names: the one that the program has imported.
    package = next((one for one in ("lightning.pytorch", "pytorch_lightning") if one in sys.modules), None)
    base = importlib.import_module(package or "lightning.pytorch").Callback
    members = {"__doc__": _TrainerCallback.__doc__, "__module__": __name__}
    return globals().setdefault(name, type(name, (_TrainerCallback, base), members))
