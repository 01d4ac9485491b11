# SPDX-License-Identifier: Apache-2.0
"""gradmon for torchtitan."""
from typing import Any, Optional

from gradmon._attributes import ReplacedMethod, attribute_of, replaced_around
from gradmon._communication import replica_group_of
from gradmon._framework_monitor import FrameworkMonitor
from gradmon.monitor import Monitor, PathLike

__all__ = ["watch"]

# Also in the doctor's list of modes.
IS_CAPTURED = "torchtitan captures steps in CUDA graphs (set --training.disable_cuda_graphs)"


def watch(
    trainer: Any, config: PathLike, *, start_iteration: Optional[int] = None, **options: Any
) -> Monitor:
    """Begins to watch the model parts and optimizers of a torchtitan Trainer, in its next train_step().

    A step ends when `trainer.optimizers` has made its update, or torchft has skipped it; a step in which
    train_step() raises ends there, with the values read so far. Steps have the trainer's own numbers, as in
    its log: the first step is 1, and a training that resumes from a checkpoint of step 100 begins with 101.

    Parameters
    ----------
    config, **options
        As for Monitor.
    trainer : torchtitan.trainer.Trainer
        The trainer, before its train(): its checkpoint need not be loaded yet.
    start_iteration : int, optional
        Number of the first step. Default: `trainer.step` in that step.

    Returns
    -------
    Monitor

    Notes
    -----
    An error in the config (ValueError, as of Monitor.watch()) is raised in the first train_step(), before
    the step begins. Rows are of the parts that the rank holds, as with any sharded model; nothing is
    gathered, and no communication is added. If the trainer captures its steps in CUDA graphs, which call no
    hooks, nothing is watched, and a warning says so.

    Examples
    --------
    >>> trainer = config.build()
    >>> with gradmon.torchtitan.watch(trainer, "monitor_config.json"):
    ...     trainer.train()
    """
    monitor = _TrainerMonitor(config, "torchtitan", **options)
    if not monitor.refuses(_refusal(trainer)):
        monitor.begin_in_next_step(trainer, start_iteration)
    return monitor


class _TrainerMonitor(FrameworkMonitor):
    """Begins in the trainer's next train_step(): only then has it loaded its checkpoint."""

    _replaced: "Optional[ReplacedMethod]" = None  # train_step(), until stop()
    _begun = False
    _stepping = False  # within the container's step
    _has_stepped = False  # in this train_step()

    def begin_in_next_step(self, trainer: Any, start_iteration: "Optional[int]") -> None:
        def train_step(original: Any, *arguments: Any, **keywords: Any) -> Any:
            if not self._begun:
                self._begun = True
                try:
                    self._begin(trainer, trainer.step if start_iteration is None else start_iteration)
                except Exception:  # the config is wrong
                    self._release()
                    raise
            self._has_stepped = False
            try:
                return original(*arguments, **keywords)
            except Exception as error:
                # The data may end in a step that has not begun.
                if not self._has_stepped and type(error).__name__ != "DataloaderExhaustedError":
                    self._end_without(trainer.optimizers.optimizers)
                raise

        self._replaced = replaced_around(trainer, "train_step", train_step)

    def __getstate__(self) -> "dict[str, Any]":
        return {**super().__getstate__(), "_replaced": None}  # it knows the trainer

    def stop(self, timeout: "Optional[float]" = None) -> None:
        self._release()
        super().stop(timeout)

    def _release(self) -> None:
        replaced, self._replaced = self._replaced, None
        if replaced is not None:
            replaced.remove()

    def _begin(self, trainer: Any, start_iteration: int) -> None:
        container = trainer.optimizers
        self._replica_group = replica_group_of(attribute_of(container, "_ft_optimizer"))
        micro_batches = int(getattr(trainer, "gradient_accumulation_steps", 1))
        micro_batches *= int(getattr(trainer, "num_pipeline_parallel_microbatches", 1))
        self.watch_loop(trainer.model_parts, list(container.optimizers), micro_batches, start_iteration)

        def step(original: Any, *arguments: Any, **keywords: Any) -> Any:
            if self._stepping:  # torchft's OptimizerWrapper calls the container's step again, if it commits
                return original(*arguments, **keywords)
            self._stepping = True
            calls = self._calls_of(container.optimizers)
            try:
                result = original(*arguments, **keywords)
            finally:
                self._stepping = False
            self._has_stepped = True
            if self._calls_of(container.optimizers) == calls:
                self._end_without(container.optimizers)
            else:
                self.step()
            return result

        self.replace_until_stop(container, "step", step)

    def _calls_of(self, optimizers: Any) -> int:
        return 0 if self._steps is None else sum(self._steps._calls_of(one) for one in optimizers)

    def _end_without(self, optimizers: Any) -> None:
        """Ends a step without an update."""
        if self._steps is not None:
            for optimizer in optimizers:
                self._steps._step_skipped(optimizer)
            self.step()


def _refusal(trainer: Any) -> "Optional[str]":
    if not getattr(trainer.config.training, "disable_cuda_graphs", True):
        return IS_CAPTURED
    return None
