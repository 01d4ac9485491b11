# SPDX-License-Identifier: Apache-2.0
"""gradmon for Hugging Face Accelerate."""
from typing import Any

from gradmon._framework_monitor import FrameworkMonitor
from gradmon._optimizer_rounds import OptimizerRounds
from gradmon.monitor import Monitor, PathLike


def watch(
    accelerator: Any,
    config: PathLike,
    model: Any,
    optimizer: Any,
    *,
    start_iteration: int = 0,
    **options: Any,
) -> Monitor:
    """Begins to watch a model and its optimizer, after Accelerator.prepare().

    A step ends when the optimizer has made its update, or the GradScaler has skipped it: micro batches
    that only accumulate gradients end no step.

    Parameters
    ----------
    config, start_iteration, **options
        As for Monitor and Monitor.watch().
    accelerator : accelerate.Accelerator
        The accelerator that has prepared them.
    model : torch.nn.Module or sequence
        As prepare() has returned it, or the model itself. Several models are chunks (vpp_stage 0, 1, ...).
        Rows have the names that the parameters have in the model itself.
    optimizer : accelerate.optimizer.AcceleratedOptimizer or sequence
        As prepare() has returned it. With several, a step ends when all have stepped.

    Returns
    -------
    Monitor

    Notes
    -----
    If DeepSpeed or Megatron-LM makes the steps, nothing is watched, and a warning says so.

    Examples
    --------
    >>> model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    >>> with gradmon.accelerate.watch(accelerator, "monitor_config.json", model, optimizer):
    ...     for batch in loader:
    ...         with accelerator.accumulate(model):
    ...             accelerator.backward(loss_of(model(batch)))
    ...             optimizer.step()
    ...             optimizer.zero_grad()
    """
    monitor = FrameworkMonitor(config, "accelerate", **options)
    models = list(model) if isinstance(model, (list, tuple)) else [model]
    optimizers = list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]
    steps, scaler = accelerator.gradient_accumulation_steps, getattr(accelerator, "scaler", None)
    watches = monitor.watch_loop(models, optimizers, steps, start_iteration, scaler)
    rounds = OptimizerRounds()
    for one in optimizers if watches else ():
        rounds.add(one)
        monitor.replace_until_stop(one, "step", _stepping(monitor, accelerator, rounds, one))
    return monitor


def _stepping(monitor: Monitor, accelerator: Any, rounds: OptimizerRounds, optimizer: Any) -> Any:
    """Around the optimizer's step(): ends a step of training if it makes an update."""

    def step(original: Any, *arguments: Any, **keywords: Any) -> Any:
        if not accelerator.sync_gradients:
            return original(*arguments, **keywords)
        if rounds.stepped and rounds.steps_twice(optimizer):
            monitor.step()
        result = original(*arguments, **keywords)
        if rounds.single or rounds.completes_iteration(optimizer):
            monitor.step()
        return result

    return step
