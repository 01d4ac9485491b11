# SPDX-License-Identifier: Apache-2.0
"""gradmon.Monitor."""
import json
import math
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Optional, Type, Union

import torch

from gradmon import _gradmon
from gradmon._launch_nonce import launch_nonce
from gradmon._process_groups import ranks_of, shards_its_state, whole_parameters, with_process_group
from gradmon._steps import Steps, after_signal

_NOT_TAKEN = (TypeError, ValueError, RuntimeError)  # what an argument is refused with


class Monitor:
    """What a training program holds: one per process, around the training loop.

    config: the JSON file that says what is collected; with DYNAMIC_MONITOR=True in
    the environment (or dynamic=True) it may be edited while training runs, and need
    not be there yet. rank and world_size are torch.distributed's or else the
    environment's (RANK, WORLD_SIZE …), output_dir MONITOR_OUTPUT_DIR's or else
    ./monitor_output.

    It watches until stop(), the end of the `with`, or the interpreter's, also where the
    program keeps nothing of it; or until another one of that rank begins to in the same output
    directory, or with the same model or optimizer: it takes its place (a notebook's cell
    that is run again).

    Nothing of its own is raised into the training loop: what goes wrong is logged once
    and stands in status(). What the handler of a signal raises while a step waits for
    the other ranks passes through, and ends the monitoring. All members are the
    training thread's, but for status().
    """

    def __init__(
        self,
        config: Union[str, "os.PathLike[str]"],
        *,
        rank: Optional[int] = None,
        world_size: Optional[int] = None,
        endpoint: Optional[str] = None,
        output_dir: Optional[Union[str, "os.PathLike[str]"]] = None,
        dynamic: Optional[bool] = None,
    ) -> None:
        self._config = Path(config)
        self._options: dict[str, Any] = {
            "rank": rank,
            "world_size": world_size,
            "endpoint": endpoint,
            "dynamic": dynamic,
        }
        self._options["output_dir"] = None if output_dir is None else os.fsencode(output_dir)
        self._steps: Optional[Steps] = None

    def watch(
        self,
        model: torch.nn.Module,
        optimizer: Any,
        *,
        grad_acc_steps: Optional[float] = 1,
        scaler: Any = None,
        dp_group: Any = None,
        tp_group: Any = None,
        start_iteration: int = 0,
    ) -> "Monitor":
        """Begins to watch: before the first step. Returns the monitor.

        A layer that is replaced later is seen from the next collected step on. While
        activations are collected, modules have hooks: torch.jit.script() and
        torch.cuda.make_graphed_callables() refuse the model, and an evaluation of a
        TransformerEncoderLayer does not take its fast path. Within what torch.compile
        has made nothing is seen.

        A further call with another model adds a chunk (vpp_stage 1, 2, …); one with another
        optimizer adds that, in the place of those whose parameters it has. A step ends when all
        optimizers have stepped, in whatever order; where some step more often than others, call
        step() at the end of the iteration.
        grad_acc_steps: micro batches (backward passes) that a step accumulates, a whole
        number of at least 1; None: 1. scaler: a GradScaler: a step then ends with its
        update(), also where it has left the optimizer's step out, and parameters' gradients
        are told without its scale, those of activations with it (numbers of a step without
        an update are there but for param_updated; status() warns where ranks leave out
        different numbers).
        start_iteration: the number of the first step, of a job that goes on from a
        checkpoint. dp_group, tp_group: process groups whose ranks hold the same
        parameters (what is alike after reduction is written by the first of them only;
        not looked at with a ZeroRedundancyOptimizer, whose moments are not alike),
        and parts of a layer each (parameters of this model without `tensor_model_parallel`
        are taken for alike there). All these are the first call's. Raises ValueError in static mode
        where the config is missing or invalid.
        """
        if self._steps is None:
            if dp_group is not None and shards_its_state(optimizer):
                _gradmon.warn_once("dp_group is not looked at: the optimizer's moments are not alike there")
                dp_group = None
            options = with_process_group(self._options)
            named = _gradmon.environment_names_launch(options["rank"], options["world_size"])
            nonce = None if named else launch_nonce()
            found = None if nonce is None else nonce.first()
            core = _gradmon.Core(
                os.fsencode(self._config),
                start_iteration=start_iteration,
                grad_acc_steps=_whole_steps(grad_acc_steps),
                data_ranks=ranks_of(dp_group),
                tensor_ranks=ranks_of(tp_group),
                whole=whole_parameters(model),
                launch_nonce=None if nonce is None else found or "",
                **options,
            )
            self._steps = Steps(core, self._output_place(), nonce if found is None else None)
        self._steps.watch(model, optimizer, scaler)
        return self

    def step(self) -> bool:
        """Ends the step, once an iteration on every rank; True: what was asked for is
        there, and training may end (print_struct).

        Without it the last of the watched optimizers' steps does, or the scaler's update. The
        first call takes that over for good; it ends no step itself if one of them has.
        """
        steps = self._steps
        if steps is None:
            return False
        steps.end_by_program()
        return self.may_end

    @property
    def rank(self) -> int:
        """This process's in the job; 0 before watch(), and where it could not be found out."""
        return 0 if self._steps is None else self._steps.core.rank

    @property
    def may_end(self) -> bool:
        """Whether the config wanted one step only and has had it."""
        return self._steps is not None and bool(self._steps.begun & _gradmon.MAY_END)

    def scalar(self, name: str, value: float) -> None:
        """A training scalar of this step ("loss", "learning-rate", any name): a number, or a
        tensor of one, which is waited for where the step is collected."""
        steps = self._steps
        if steps is None or not steps.begun & _gradmon.COLLECTS:
            return
        try:
            steps.core.scalar(name, float(value))
        except _NOT_TAKEN as error:
            _gradmon.warn_once(f"scalar {name!r}: {error}")

    def samples(self, count: int) -> None:
        """So many samples more have been seen, by all ranks together."""
        if self._steps is not None:
            self._steps.core.samples(count)

    def attention(self, name: str, q: torch.Tensor, k: torch.Tensor, causal: bool = True) -> None:
        """Q and K of an attention, in its forward: 4-D, axes as the config's sa_order says."""
        steps = self._steps
        if steps is None or not steps.begun & _gradmon.WATCHES_FORWARDS:
            return
        try:
            steps.core.attention(name, q, k, causal)
        except _NOT_TAKEN as error:
            _gradmon.warn_once(f"attention {name!r}: {error}")

    def status(self) -> Optional[_gradmon.Status]:
        """At most 100 ms old: in rank 0 of the whole job, elsewhere of this rank; None before watch()."""
        return None if self._steps is None else self._steps.core.status()

    def on(self, *, collect_times: Optional[int] = None, step_interval: Optional[int] = None) -> None:
        """Asks the job for what `gradmonctl on` does: collection begins on all ranks at
        one agreed step soon, and the config file says so. Any rank may ask; those that
        ask for the same in the same step ask once. Returns at once: the step is in
        status(), what is refused in the log. In static mode it is refused."""
        if self._steps is None:
            return _gradmon.warn_once("on() before watch() does nothing")
        try:
            self._steps.core.on(collect_times, step_interval)
        except _NOT_TAKEN as error:
            _gradmon.warn_once(f"on(): {error}")

    def off(self) -> None:
        """Asks the job to stop collecting, likewise."""
        if self._steps is None:
            return _gradmon.warn_once("off() before watch() does nothing")
        self._steps.core.off()

    def set(self, key: str, value: Any) -> None:
        """Asks the job to change a key of the config ("ops", or a JSON pointer) to a value
        that JSON has, as `gradmonctl set` does. In static mode it holds in this rank
        alone, from the next step on, for what the config still has to collect; the file
        is left as it is."""
        if self._steps is None:
            return _gradmon.warn_once("set() before watch() does nothing")
        try:
            self._steps.core.set(key, json.dumps(value))
        except _NOT_TAKEN as error:
            _gradmon.warn_once(f"set({key!r}): {error}")

    def metrics(self) -> list[_gradmon.Metric]:
        """All rows of the step that was collected last, as they stand in the files (kind,
        vpp_stage, name, step, micro_step, values by column), without the disk. Waits for
        the writer, a second at most; empty before the first such step, and where it had none."""
        return [] if self._steps is None else self._steps.core.metrics()

    def stop(self, timeout: Optional[float] = None) -> None:
        """Detaches everything, writes what has been collected, and leaves the job.
        Nothing is collected afterwards, and a second call does nothing.

        Parameters
        ----------
        timeout : float, optional
            Seconds that this may take in all, whatever the disk does; 0 or less gives up
            all rows that are not written yet. None: no row is given up while rows are being
            written. The writer is waited for until 2 s after its last progress, 30 s at most
            (2 s in all after a KeyboardInterrupt), and the other ranks 0.5 s.
            Anything but a number is logged and counts as None.

        Notes
        -----
        Raises nothing. Rows that are given up are logged by kind, and count in `dropped` of
        this rank's status. The end of the `with` and the interpreter's end call stop().
        Training thread."""
        if self._steps is not None:
            self._steps.stop(_seconds(timeout))

    def _output_place(self) -> str:
        given = self._options["output_dir"] or os.environ.get("MONITOR_OUTPUT_DIR") or "monitor_output"
        return os.path.abspath(os.fsdecode(given))

    def __enter__(self) -> "Monitor":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.stop(after_signal(kind))


def _seconds(timeout: Optional[float]) -> Optional[float]:
    """None, too, for what is no number: a stop raises nothing, and gives up no row for it."""
    try:
        seconds = None if timeout is None else float(timeout)
    except (*_NOT_TAKEN, OverflowError) as error:
        _gradmon.warn_once(f"stop(timeout={timeout!r}): {error}")
        return None
    if seconds is None or not math.isnan(seconds):
        return seconds
    _gradmon.warn_once(f"stop(timeout={timeout!r}): not a number")
    return None


def _whole_steps(grad_acc_steps: Optional[float]) -> int:
    whole = 1 if grad_acc_steps is None else int(grad_acc_steps)
    if grad_acc_steps is not None and whole != grad_acc_steps:
        raise ValueError(f"grad_acc_steps: {grad_acc_steps} is no whole number")
    return whole
