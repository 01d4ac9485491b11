# SPDX-License-Identifier: Apache-2.0
"""gradmon for Hugging Face transformers."""
from typing import Any, Optional

from transformers import TrainerCallback

from gradmon import _gradmon
from gradmon._framework_monitor import FrameworkCallback


class Callback(FrameworkCallback, TrainerCallback):  # type: ignore[misc]
    """Watches the training of a transformers.Trainer.

    Steps are the trainer's: step n is the one after which `state.global_step` is n + 1, also in a training
    that resumes. Watching begins with train() and ends with it.

    The gradients in `grad_reduced` are those that the optimizer uses: reduced, without a loss scale, and
    clipped. Logged numbers ("loss", "grad_norm", "learning_rate") go to Monitor.scalar() under their names;
    with `logging_steps=1` in each step. Training stops when Monitor.may_end is True. If DeepSpeed makes the
    steps, nothing is watched, and a warning says so.

    Parameters
    ----------
    config, **options
        As for Monitor.

    Examples
    --------
    >>> callback = gradmon.hf.Callback("monitor_config.json")
    >>> trainer = Trainer(model, args, train_dataset=data, callbacks=[callback])
    >>> trainer.train()
    """

    _framework = "transformers"

    def on_train_begin(self, args: Any, state: Any, control: Any, **objects: Any) -> None:
        """Begins to watch; the trainer calls it."""
        optimizer = objects["optimizer"]
        monitor = self._begin()
        if getattr(args, "torch_compile", False):
            _gradmon.warn_once(
                "torch_compile: the trainer compiles a wrapper that callbacks do not get: modules have no "
                "rows of actv and actv_grad, and to collect them compiles once more"
            )
        monitor.watch_loop(
            [objects["model"]],
            [optimizer],
            args.gradient_accumulation_steps,
            state.global_step,
            getattr(optimizer, "scaler", None),
            _replicas(args),
        )

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Ends a step; the trainer calls it."""
        if self._monitor is not None and self._monitor.step():
            control.should_training_stop = True

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Reports logged values as scalars of the step that has ended; the trainer calls it."""
        if self._monitor is not None:
            self._monitor.report_numbers(logs)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Stops; the trainer calls it."""
        self._stop()


def _replicas(args: Any) -> "Optional[list[int]]":
    """All ranks, where the trainer wraps the model in DistributedDataParallel, which a callback does not get
    to see; None if the model itself may tell."""
    alone = getattr(args.parallel_mode, "name", "") != "DISTRIBUTED"
    sharded = bool(args.fsdp) or bool(args.deepspeed) or getattr(args, "parallelism_config", None) is not None
    return None if alone or sharded else list(range(args.world_size))
