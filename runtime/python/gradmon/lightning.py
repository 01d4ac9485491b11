# SPDX-License-Identifier: Apache-2.0
"""gradmon for Lightning's Trainer and for Fabric."""
import os
from typing import Any, Callable, Optional, Union
from weakref import ref

from torch.optim.optimizer import register_optimizer_step_pre_hook

from gradmon._loop_monitor import LoopMonitor
from gradmon._optimizer_rounds import parameters_of


class FabricCallback:
    """Watches a training that Lightning Fabric has set up.

    Watching begins with Fabric.setup(), and ends with stop() or with the interpreter.

    Parameters
    ----------
    optimizer_steps : int
        The number of optimizer steps in one iteration, of all optimizers together: a step ends with the last.
    grad_acc_steps : int
        Micro batches (backward passes) per step, at most; a step may have fewer.
    start_iteration : int
        Number of the first step, for a job that resumes from a checkpoint.
    config, **options
        As for Monitor.

    Notes
    -----
    Fabric tells a callback of models, but of no optimizers: one that holds parameters of a watched model is
    found when it steps for the first time. Each further setup() of a model adds a chunk (vpp_stage 1, 2,
    ...). Call setup(model, optimizer): Fabric does not tell of setup_module().

    Examples
    --------
    >>> fabric = Fabric(callbacks=[gradmon.lightning.FabricCallback("monitor_config.json")])
    >>> model, optimizer = fabric.setup(model, optimizer)
    """

    def __init__(
        self,
        config: Union[str, "os.PathLike[str]"],
        *,
        optimizer_steps: int = 1,
        grad_acc_steps: int = 1,
        start_iteration: int = 0,
        **options: Any,
    ) -> None:
        self._monitor = LoopMonitor(config, framework="lightning", **options)
        self._optimizer_steps = optimizer_steps
        self._grad_acc_steps = grad_acc_steps
        self._start_iteration = start_iteration
        self._models: "list[Any]" = []
        self._seen: "dict[int, Any]" = {}  # weak references to optimizers that have stepped, by their id()
        self._stopped = False
        self._steps = 0  # steps of optimizers in this iteration

    @property
    def monitor(self) -> LoopMonitor:
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
        precision = getattr(fabric.strategy, "precision", None)
        watches = self._monitor.watch_loop(
            [module],
            [],
            grad_acc_steps=self._grad_acc_steps,
            scaler=getattr(precision, "scaler", None),
            start_iteration=self._start_iteration,
        )
        if not watches:
            return
        if not self._models:
            hook = register_optimizer_step_pre_hook(self._steps_first)
            self._monitor.remove_at_stop(_EndsWithMonitor(hook, self._forget))
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


class _EndsWithMonitor:
    """Removes the hook, and lets the callback forget its models, when the monitor stops."""

    def __init__(self, hook: Any, forget: Callable[[], None]) -> None:
        self._hook = hook
        self._forget = forget

    def remove(self) -> None:
        self._hook.remove()
        self._forget()


__all__ = ["Callback", "FabricCallback"]  # noqa: F822


def __getattr__(name: str) -> Any:
    if name != "Callback":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from gradmon._lightning_callback import Callback  # imports lightning.pytorch, which Fabric does without

    return Callback
