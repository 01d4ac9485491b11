# SPDX-License-Identifier: Apache-2.0
"""gradmon.Monitor."""
import json
import operator
import os
from pathlib import Path
from typing import Any, Callable, Mapping, Optional, Sequence, Type, Union

import torch

from gradmon import _gradmon
from gradmon._attributes import OBJECT_ERRORS
from gradmon._launch_nonce import launch_nonce
from gradmon._optimizer_rounds import optimizers_in
from gradmon._optimizer_steps import is_captured
from gradmon._steps import TrainingSteps, after_signal, seconds_of, whole_steps
from gradmon._communication import NO_GROUP, is_group_unknown, replica_group_of
from gradmon._communication import ranks_of, replica_ranks, shards_its_state, with_process_group
from gradmon._compiled import in_whole_graph
from gradmon._sharded import Listing, listing_of
from gradmon._scopes import checked, value_of

PathLike = Union[str, "os.PathLike[str]"]


class Monitor:
    """Collects the rows that the config selects from the training loop of this rank.

    A program makes one Monitor per process, around its training loop. It watches until
    stop(), the end of the `with` block, or the end of the interpreter, whichever comes first.

    Parameters
    ----------
    config : str or path-like
        The JSON file that says what is collected (CONFIG.md lists its keys). In dynamic mode
        it may be edited while training runs, and need not exist yet.
    rank, world_size : int, optional
        This process's rank, from 0, and the number of ranks. Default: those of
        torch.distributed, else of the environment (RANK, WORLD_SIZE and what launchers set).
    endpoint : str, optional
        Where rank 0's hub listens for other hosts: ``tcp://HOST:PORT``. Default:
        GRADMON_ENDPOINT, else the hubs find each other.
    output_dir : str or path-like, optional
        Directory for the rows. Default: MONITOR_OUTPUT_DIR, else ``./monitor_output``.
    dynamic : bool, optional
        True: collection is switched while training runs. False: static mode, the config is read
        once. Default: whether DYNAMIC_MONITOR is True in the environment.

    Notes
    -----
    gradmon raises no errors of its own into the training loop: an error is logged once and shown in
    status(). An exception that a signal handler raises while a step waits for other ranks passes
    through and ends the monitoring.

    Within torch.compile with fullgraph=True only observe() works: tap(), scalar(), samples(), expert_load()
    and attention() do nothing there.

    A second Monitor of the same rank takes the first one's place if it has the same output
    directory, model or optimizer (a notebook cell that is run again).

    Only the training thread may call the methods; any thread may call status() and alerts().

    Examples
    --------
    >>> with gradmon.Monitor("monitor_config.json", dynamic=True).watch(model, optimizer):
    ...     for batch in loader:
    ...         optimizer.zero_grad()
    ...         loss_of(model(batch)).backward()
    ...         optimizer.step()
    """

    # LoopMonitor has others.
    _ended_by_loop = False  # a framework's loop ends the steps, and says how many micro batches they have
    _attached_by = "gradmon.Monitor, torch " + torch.__version__
    _replicas: Optional[list[int]] = None  # ranks that hold the same values; None: those of the model
    _replica_group = ""  # of torchft; "": that of the optimizer's Manager
    _gradient_source: Optional[str] = None  # of EngineMonitor, as Core.gradient_source()
    _listing_of: Callable[[torch.nn.Module], Listing] = staticmethod(listing_of)  # lists a model's parameters

    def __init__(
        self,
        config: PathLike,
        *,
        rank: Optional[int] = None,
        world_size: Optional[int] = None,
        endpoint: Optional[str] = None,
        output_dir: Optional[PathLike] = None,
        dynamic: Optional[bool] = None,
    ) -> None:
        self._config = Path(config)
        self._options: dict[str, Any] = dict(
            rank=rank, world_size=world_size, endpoint=endpoint, dynamic=dynamic
        )
        self._options["output_dir"] = None if output_dir is None else os.fsencode(output_dir)
        self._steps: Optional[TrainingSteps] = None

    def __getstate__(self) -> "dict[str, Any]":
        """A copy watches nothing, also as a part of a copied module."""
        return {**vars(self), "_steps": None}

    def watch(
        self,
        model: Optional[torch.nn.Module] = None,
        optimizer: Any = None,
        *,
        grad_acc_steps: Optional[float] = 1,
        scaler: Any = None,
        dp_group: Any = None,
        tp_group: Any = None,
        pp_group: Any = None,
        start_iteration: int = 0,
        explicit_steps: bool = False,
        compiled: bool = False,
        compile_ahead: bool = False,
    ) -> "Monitor":
        """Begins to watch a model and its optimizer; call it before the first step.

        A further call with another model adds a chunk (vpp_stage 1, 2, ...). A further call with
        another optimizer adds that optimizer; it replaces optimizers that hold the same parameters.

        Parameters
        ----------
        model : torch.nn.Module, optional
            The model, or one chunk of it, raw or as DistributedDataParallel: the rows have the same names and
            values. A layer that is replaced later is seen from the next collected step on. None in the first
            call: the program passes all values by tap(), and calls step(). None in a further call: the first
            model.
        optimizer : object or list, tuple or dict of objects, optional
            Any optimizer with `step`, and `param_groups` in it or in its wrapped optimizer. None: call step()
            at the end of each iteration. A step ends when all watched optimizers have stepped, in any order.
            If some step more often than others, call step() at the end of the iteration, and set
            `explicit_steps`.
        grad_acc_steps : float, optional
            Micro batches (backward passes) per step: a whole number of at least 1. None: 1.
        scaler : torch.cuda.amp.GradScaler, optional
            A step then ends with the scaler's update(), even if the scaler has skipped the optimizer's
            step. Gradients of parameters are written without the scale, gradients of activations with
            it. A later model may have another scaler: a step ends when all have been updated.
        dp_group : torch.distributed.ProcessGroup, optional
            Ranks that hold the same parameters. The first of them writes what is equal after
            reduction. Ignored with a ZeroRedundancyOptimizer, whose moments differ between ranks. The
            alert rule AnomalyRankDivergence compares these ranks; without `dp_group`, those of a
            DistributedDataParallel `model`.
        tp_group : torch.distributed.ProcessGroup, optional
            Ranks that each hold a part of a layer. A parameter without `tensor_model_parallel` counts
            as equal on all of them.
        pp_group : torch.distributed.ProcessGroup, optional
            Ranks that each hold a stage of the model, in the order of the stages. Alerts name them.
        start_iteration : int
            Number of the first step, for a job that resumes from a checkpoint.
        explicit_steps : bool
            True: only step() ends a step, in the first iteration too, in which optimizers may step
            several times. False: optimizers end the steps until the first call of step().
        compiled : bool
            True: the program compiles the model, or functions that call it, after this call. All modules then
            have hooks while nothing is collected, too: 2 µs a call of a module that runs uncompiled. Modules
            that are compiled before this call are found without it.
        compile_ahead : bool
            True: the first step compiles the code for collecting, and the second one that without, so that no
            later switch compiles anything. False: the first collected step compiles.

        Returns
        -------
        Monitor
            This monitor.

        Raises
        ------
        ValueError
            In static mode, if the config is missing or invalid; if `grad_acc_steps` is not a whole
            number of at least 1.
        TypeError
            If `optimizer` is no optimizer.

        Notes
        -----
        All arguments but `model`, `optimizer` and `scaler` are those of the first call. An iteration
        without an update has all rows but `param_updated`; status() warns if ranks skip different
        numbers of updates.

        While activations are collected, modules have hooks: torch.jit.script() and
        torch.cuda.make_graphed_callables() then refuse the model, and a TransformerEncoderLayer in
        eval mode does not take its fast path. FRAMEWORKS.md, "torch.compile", says what holds within
        compiled code.
        """
        optimizers = optimizers_in(optimizer)
        if self._steps is None:
            model = torch.nn.Module() if model is None else model
            replicas = self._replicas
            if replicas is None:
                replicas = replica_ranks(model, dp_group, optimizers)
            if dp_group is not None and any(map(shards_its_state, optimizers)):
                _gradmon.warn_once("ignored dp_group: the optimizer's moments differ between ranks")
                dp_group = None
            options = with_process_group(self._options)
            named = _gradmon.environment_names_launch(options["rank"], options["world_size"])
            nonce = None if named else launch_nonce()
            found = None if nonce is None else nonce.wait()
            group = self._replica_group or next(filter(None, map(replica_group_of, optimizers)), "")
            core = _gradmon.Core(
                os.fsencode(self._config),
                start_iteration=start_iteration,
                grad_acc_steps=whole_steps(grad_acc_steps),
                data_ranks=ranks_of(dp_group),
                tensor_ranks=ranks_of(tp_group),
                pipeline_ranks=ranks_of(pp_group),
                replica_ranks=replicas,
                replica_group=group,
                launch_nonce=None if nonce is None else found or "",
                short_steps=self._ended_by_loop,
                moments_differ=any(map(shards_its_state, optimizers)),
                **options,
            )
            if self._gradient_source is not None:
                core.gradient_source(self._gradient_source)
            awaited = nonce if found is None else None
            self._steps = TrainingSteps(
                core, self._output_place(), awaited, self._ended_by_loop, self._attached_by, self._listing_of
            )
            self._steps.ended_by_program |= explicit_steps
            if is_group_unknown(group):
                self._steps.note_warnings([NO_GROUP])
        for one in optimizers:
            self._steps.watch(model, one, scaler, compiled, compile_ahead)
        return self

    def step(self) -> bool:
        """Ends the step; call it once per iteration on every rank.

        Without it a step ends with the last of the watched optimizers' steps, or with the scaler's
        update. From the first call on, only step() ends a step. The first call ends no step if an
        optimizer has already ended it.

        Returns
        -------
        bool
            True: the requested output is complete and training may stop (`print_struct`,
            `cc_log_only`).
        """
        steps = self._steps
        if steps is None:
            return False
        steps.end_by_program()
        return self.may_end

    @property
    def rank(self) -> int:
        """Rank of this process in the job.

        Returns
        -------
        int
            0 before watch(), and if the rank is unknown.
        """
        return 0 if self._steps is None else self._steps.core.rank

    @property
    def may_end(self) -> bool:
        """Returns True if the requested output is complete and training may stop.

        Returns
        -------
        bool
            True after the one step that `print_struct` or `cc_log_only` requires.
        """
        return self._steps is not None and bool(self._steps.step_flags & _gradmon.MAY_END)

    def scalar(self, name: str, value: float) -> None:
        """Reports a training scalar of the current iteration.

        Parameters
        ----------
        name : str
            For example "loss" or "learning-rate". The config key `scalars` says where it is written.
        value : float or torch.Tensor
            A number, or a tensor with one element. A tensor is read, and so waited for, only if this step is
            collected; it is skipped while it is captured into a CUDA graph. A DTensor that is a shard or a
            summand (the norm of a sharded gradient) is not recorded: pass the result of full_tensor() on all
            ranks.

        Notes
        -----
        Raises nothing: a value that is not a number is logged once.

        A value that is reported just after a step has ended (after ``optimizer.step()``, ``step()``) belongs
        to that step, until the next forward, backward, update or tap() begins. If the program reported this
        name within that step, it belongs to the next step; a second one after the step is ignored. A forward
        that cannot be seen (a captured graph, no model watched) begins with the end of the step before.

        Examples
        --------
        >>> monitor.scalar("loss", loss)
        """
        steps = self._steps
        if steps is None or in_whole_graph() or not steps.step_flags & _gradmon.TAKES_SCALARS:
            return
        try:
            if is_captured(value):
                return _gradmon.warn_once(f"scalar {name!r}: not read while it is captured into a CUDA graph")
            number = value_of(value)
            steps.core.scalar(name, float(number.detach() if isinstance(number, torch.Tensor) else number))
        except OBJECT_ERRORS as error:
            _gradmon.warn_once(f"scalar {name!r}: {error}")

    def samples(self, count: int) -> None:
        """Reports samples that all ranks together have processed since the last call.

        Parameters
        ----------
        count : int
            Number of samples. Throughput and the column `samples` are computed from it.

        Notes
        -----
        With the config key ``append_output`` the column goes on from the earlier job's number by itself.
        Raises nothing: a count that is not an integer is logged once.
        """
        if self._steps is None or in_whole_graph():
            return
        try:
            self._steps.core.samples(operator.index(count))
        except OBJECT_ERRORS as error:
            _gradmon.warn_once(f"samples: {error}")

    def expert_load(self, layer: str, tokens: Union[Sequence[int], torch.Tensor]) -> None:
        """Adds the tokens that each expert of a layer got in this step.

        Parameters
        ----------
        layer : str
            Name of the mixture-of-experts layer in the rows ``expert_load/LAYER/I``.
        tokens : sequence of int or torch.Tensor
            Number of tokens of each expert: integers, or a 1-D tensor of integers on any device. A tensor is
            read, and so waited for, only if this step is collected; it is skipped while it is captured into a
            CUDA graph, and if it is a DTensor of which each rank holds a part.

        Notes
        -----
        Raises nothing: tokens that are not integers are logged once. A row is the expert's share of
        the layer's tokens over all calls of the step, 0 to 1. The config key `scalars` says where it
        is written, under "expert_load".

        Examples
        --------
        >>> monitor.expert_load("layers.3.mlp", torch.bincount(chosen, minlength=experts))
        """
        steps = self._steps
        if steps is None or in_whole_graph() or not steps.step_flags & _gradmon.COLLECTS:
            return
        try:
            if is_captured(tokens):
                return _gradmon.warn_once(f"expert_load {layer!r}: not read while captured into a CUDA graph")
            counts = value_of(tokens).tolist() if isinstance(tokens, torch.Tensor) else tokens
            steps.core.expert_load(layer, [operator.index(value_of(count)) for count in counts])
        except OBJECT_ERRORS as error:
            _gradmon.warn_once(f"expert_load {layer!r}: {error}")

    def attention(self, name: str, q: torch.Tensor, k: torch.Tensor, causal: bool = True) -> None:
        """Reports the query and key of an attention during its forward pass.

        Parameters
        ----------
        name : str
            Name of the attention in the rows of `attention_hook`.
        q, k : torch.Tensor
            4-D floating-point tensors of equal head size, with axes as the config key `sa_order` says:
            [sequence, batch, heads, size] or [batch, sequence, heads, size]. `k` may have fewer heads
            (grouped queries).
        causal : bool
            True: query i attends to keys 0 to i.

        Notes
        -----
        Raises nothing: tensors that do not fit are logged once. METRICS.md has the formulas.
        """
        steps = self._steps
        if steps is None or in_whole_graph() or not steps.step_flags & _gradmon.WATCHES_FORWARDS:
            return
        try:
            steps.core.attention(name, q, k, causal)
        except OBJECT_ERRORS as error:
            _gradmon.warn_once(f"attention {name!r}: {error}")

    @property
    def collecting(self) -> bool:
        """Returns True if this step is collected, or recorded because of the config key `keep_last`.

        Returns
        -------
        bool
            False before watch(), while off and, without `keep_last`, between the steps of `step_interval`.
        """
        return self._has_flag(_gradmon.COLLECTS)

    @property
    def watches_forwards(self) -> bool:
        """Returns True if this step's activations are collected.

        Returns
        -------
        bool
            False before watch(), while off, and between the steps of `step_interval`.
        """
        return self._has_flag(_gradmon.WATCHES_FORWARDS)

    def _has_flag(self, flag: int) -> bool:
        return self._steps is not None and bool(self._steps.step_flags & flag)

    def tap(
        self,
        kind: str,
        name: str,
        array: Any,
        micro_step: Optional[int] = None,
        scope: Union[str, Mapping[str, Any], None] = None,
    ) -> None:
        """Passes a value of this step to the monitor, for a row.

        For values that no hook of torch can find: those of JAX, MindSpore or NumPy, or of a training step
        that is one compiled function.

        Parameters
        ----------
        kind : str
            "grad_unreduced", "grad_reduced", "param_origin", "param_updated", "exp_avg", "exp_avg_sq",
            "actv" or "actv_grad".
        name : str
            The name in the row. The config's targets select it as they select a model's own names.
        array : object
            A torch tensor, or any array of numbers with a buffer (NumPy), `__dlpack__` (JAX), `asnumpy()`
            (MindSpore) or `__array__()`. It is read at once: in place if the CPU can read its memory, else
            from a copy. Strides of any sign and read-only arrays are read as they are.
        micro_step : int, optional
            The value's micro batch, from 0. Only "actv", "actv_grad" and, with the config's
            `monitor_mbs_grad`, "grad_unreduced" have micro batches. None: 0.
        scope : str or mapping, optional
            The value's scope, for scopes.json: "whole", "replica", "partial" or "local", or the keys that
            FORMAT.md lists there: ``{"scope": "shard", "shape": [8, 4], "offset": [4, 0], "size": [4, 4]}``.
            ``gradmon.load(whole=True)`` joins shards and pieces of one name. None: a DTensor's own scope;
            unknown for other values.

        Notes
        -----
        Raises nothing: an array that cannot be read (another byte order, no numbers) has no row, and the
        first reason is logged. A second value of the same kind, name and micro step replaces the first. In a
        step that is not collected it only looks at one flag. A name must not change from step to step: values
        with further names than 65,536 have no row. The config says which kinds are collected, as
        for a model.

        Examples
        --------
        >>> monitor.tap("grad_reduced", "decoder.weight", numpy_gradient)
        >>> monitor.step()
        """
        steps = self._steps
        if steps is None or in_whole_graph() or not steps.step_flags & _gradmon.COLLECTS:
            return
        try:
            text = None if scope is None else checked(scope)
            steps.core.tap(kind, name, array, 0 if micro_step is None else micro_step, text)
        except OBJECT_ERRORS as error:
            _gradmon.warn_once(f"tap({kind!r}, {name!r}): {error}")

    def status(self) -> Optional[_gradmon.Status]:
        """State of the job, at most 100 ms old.

        Returns
        -------
        Status or None
            In rank 0 the state of the whole job, in other ranks the state of this rank. None before
            watch().

        Notes
        -----
        Any thread.
        """
        return None if self._steps is None else self._steps.core.status()

    def on(self, *, collect_times: Optional[int] = None, step_interval: Optional[int] = None) -> None:
        """Asks the job to start collecting, as ``gradmonctl on`` does.

        All ranks begin at one agreed step, and the config file is updated. Any rank may ask; the same request
        of several ranks in the same step counts once.

        Parameters
        ----------
        collect_times : int, optional
            Stop after so many collected steps. Default: as the config says.
        step_interval : int, optional
            Collect every so many steps. Default: as the config says.

        Notes
        -----
        Returns at once: status() shows the agreed step, the log shows a refusal. Raises nothing.
        Static mode refuses it.
        """
        self._ask("on()", lambda core: core.on(collect_times, step_interval))

    def off(self) -> None:
        """Asks the job to stop collecting, as ``gradmonctl off`` does.

        Notes
        -----
        Returns at once, and raises nothing. Static mode refuses it.
        """
        self._ask("off()", lambda core: core.off())

    def set(self, key: str, value: Any) -> None:
        """Asks the job to change one key of the config, as ``gradmonctl set`` does.

        Parameters
        ----------
        key : str
            A key ("ops") or a JSON pointer ("/alert/dump").
        value : object
            Any value that JSON has.

        Notes
        -----
        Returns at once, and raises nothing: a refusal is logged. In static mode the change holds for
        this rank only, from the next step on, and the file stays as it is.

        Examples
        --------
        >>> monitor.set("ops", ["norm", "max"])
        """
        self._ask(f"set({key!r})", lambda core: core.set(key, json.dumps(value)))

    def _ask(self, call: str, ask: Callable[[_gradmon.Core], None]) -> None:
        if self._steps is None:
            return _gradmon.warn_once(f"{call} before watch() does nothing")
        try:
            ask(self._steps.core)
        except OBJECT_ERRORS as error:
            _gradmon.warn_once(f"{call}: {error}")

    def metrics(self) -> list[_gradmon.Metric]:
        """Rows of the last collected step, from memory.

        Returns
        -------
        list of Metric
            Each has kind, vpp_stage, name, step, micro_step and values by column, as in the files.
            Empty before the first collected step, and if that step had no rows.

        Notes
        -----
        Waits until the writer thread has them, for 1 s at most, in the first step 6 s, because the job's hub
        may not have answered yet. If the wait times out, it returns the rows of an earlier step.
        """
        return [] if self._steps is None else self._steps.core.metrics()

    def alerts(self) -> list[_gradmon.Alert]:
        """The last alerts of this rank, from memory.

        Returns
        -------
        list of Alert
            At most 256, oldest first. Each has rule, step, micro_step, pp_stage, vpp_stage, call_id,
            tag_name, op, value, history_mean and message. Empty without rules in the config's `alert`.

        Notes
        -----
        A rule that goes on firing for a row is reported once, and again after it has stopped. The alerts of a
        step are there once the writer thread has written its rows. May be called on any thread.
        """
        return [] if self._steps is None else self._steps.core.alerts()

    def stop(self, timeout: Optional[float] = None) -> None:
        """Detaches all hooks, writes the collected rows and leaves the job.

        Nothing is collected afterwards. A second call does nothing. The end of the `with` block and
        the end of the interpreter call stop().

        Parameters
        ----------
        timeout : float, optional
            Limit in seconds for the whole call, even if the disk hangs. 0 or less abandons all rows that are
            not written yet. None: wait for the writer until 2 s after its last progress, 30 s at most (2 s in
            all after a KeyboardInterrupt), and 0.5 s for the other ranks. Other values than numbers are
            logged and count as None.

        Notes
        -----
        Raises nothing. Abandoned rows are logged by kind, and count in `dropped` of this rank's status.
        """
        if self._steps is not None:
            self._steps.stop(seconds_of(timeout))

    def _output_place(self) -> str:
        given = self._options["output_dir"] or os.environ.get("MONITOR_OUTPUT_DIR") or "monitor_output"
        return os.path.abspath(os.fsdecode(given))

    def __enter__(self) -> "Monitor":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], *_: Any) -> None:
        self.stop(after_signal(kind))
