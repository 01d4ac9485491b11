# SPDX-License-Identifier: Apache-2.0
"""msprobe's TrainerMon, for scripts that were written for it."""
import inspect
import json
import weakref
from numbers import Real
from types import SimpleNamespace
from typing import Any, Callable, Optional, Sequence

from gradmon import _gradmon
from gradmon._attributes import is_kind
from gradmon.monitor import Monitor, PathLike

__all__ = ["TrainerMon"]

Metrics = dict[str, dict[str, float]]

_NOT_GIVEN: Any = object()
_TASKS = {"grad_reduced": "post_grad", "actv": "actv", "actv_grad": "actv_grad"}


class TrainerMon:
    """msprobe's TrainerMon: the same constructor, calls, config keys and files.

    Parameters
    ----------
    config_file_path : str or path-like
        The config file.
    process_group : torch.distributed.ProcessGroup, optional
        The pipeline's group. Alerts name its ranks, and the stage of this rank.
    params_have_main_grad : bool
        Accepted and ignored: `main_grad` is read wherever a parameter has one.
    opt_ty : str, optional
        Accepted and ignored: moments are found in the optimizer's state.

    Examples
    --------
    >>> monitor = TrainerMon("monitor_config.json")
    >>> monitor.set_monitor(model, grad_acc_steps=1, optimizer=optimizer)
    """

    _wrapped_optimizer: Any = None
    _wrapped_for_all: "Callable[[], Any]" = staticmethod(lambda: None)

    def __init__(
        self,
        config_file_path: PathLike,
        process_group: Any = None,
        params_have_main_grad: bool = True,
        opt_ty: Optional[str] = None,
    ) -> None:
        self.process_group = process_group
        self.params_have_main_grad = params_have_main_grad
        self.opt_ty = opt_ty
        self.monitor = Monitor(config_file_path)
        self.summary_writer = SimpleNamespace(close=self.monitor.stop)
        self._config_file = config_file_path
        self._watches = False
        self._settings: dict[str, Any] = {}  # values that the program has set, by config key

    @property
    def ops(self) -> list[str]:
        """Statistics of a tensor, as the config key `ops`.

        Returns
        -------
        list of str
            The last assigned value, else the config file's.

        Notes
        -----
        An assignment holds from the next agreed step on; in static mode from the next step of this
        rank, as in Monitor.set().
        """
        return list(self._settings.get("ops") or _ops_of(self._config_file))

    @ops.setter
    def ops(self, ops: Sequence[str]) -> None:
        self._set("ops", list(ops))

    def reload_xy(self, xy_distribution: bool = False) -> None:
        """Switches the collection of activations.

        Parameters
        ----------
        xy_distribution : bool
            True: activations are collected from the next agreed step on.
        """
        self._set("xy_distribution", bool(xy_distribution))

    def set_monitor(self, *arguments: Any, **keywords: Any) -> None:
        """Begins to watch a model and its optimizer.

        Parameters
        ----------
        *arguments, **keywords
            ``(model, grad_acc_steps, optimizer, dp_group=None, tp_group=None, start_iteration=0)``,
            or, where the second argument is not a number, ``(model, optimizer, grad_acc_steps=1,
            tp_group=None, dp_group=None, start_iteration=0)``. `model` is a torch.nn.Module or a list of the
            chunks of an interleaved pipeline. The `step` of `optimizer` ends a training step. The rows of
            Megatron core (its DistributedDataParallel and optimizer) and DeepSpeed (its engine, with any of
            its optimizers) are those of gradmon.megatron.watch() and gradmon.deepspeed.watch(); groups are
            then ignored.

        Raises
        ------
        TypeError
            If there is no optimizer.
        ValueError
            As Monitor.watch().
        """
        self._watch(**bound_arguments(arguments, keywords, self._wrapped()))

    def set_wrapped_optimizer(self, optimizer: Any = _NOT_GIVEN) -> None:
        """Sets the optimizer for a later set_monitor() without one.

        Parameters
        ----------
        optimizer : object
            As for Monitor.watch().

        Notes
        -----
        Older scripts call it on the class: TrainerMon.set_wrapped_optimizer(optimizer). It then holds for
        all instances that have none of their own.
        """
        if optimizer is not _NOT_GIVEN:
            self._wrapped_optimizer = optimizer
        elif isinstance(self, TrainerMon):
            raise TypeError("set_wrapped_optimizer: no optimizer")
        else:
            TrainerMon._wrapped_for_all = weakref.ref(self)

    def monitor_gnorm_with_ad(self, *arguments: Any, **keywords: Any) -> None:
        """The older name of set_monitor().

        Parameters
        ----------
        *arguments, **keywords
            Those of set_monitor().
        """
        self.set_monitor(*arguments, **keywords)

    def generate_wgrad_metrics(self, _post_grad_dict: Any = None) -> tuple[Metrics, Metrics]:
        """Gradients of the step that was collected last.

        Returns
        -------
        tuple of dict
            Reduced gradients, then unreduced ones. Each maps
            ``{vpp}:{name}[:{micro}]/rank{R}/{task}`` to {op: number}.
        """
        return self._of_kind("grad_reduced"), self._of_kind("grad_unreduced")

    def generate_xy_metrics(self) -> tuple[Metrics, Metrics]:
        """Activations of the step that was collected last.

        Returns
        -------
        tuple of dict
            Activations, then their gradients, with keys as in generate_wgrad_metrics().
        """
        return self._of_kind("actv"), self._of_kind("actv_grad")

    def _watch(
        self,
        model: Any,
        optimizer: Any,
        grad_acc_steps: int = 1,
        dp_group: Any = None,
        tp_group: Any = None,
        start_iteration: int = 0,
    ) -> None:
        first = not self._watches
        chunks = list(model) if isinstance(model, (list, tuple)) else [model]
        watch = _engine_watch(chunks, optimizer) if first else None
        if watch is not None:  # its adapter knows what each rank updates; groups have nothing to add
            self.monitor = watch(self._config_file, grad_acc_steps, start_iteration)
            self.summary_writer = SimpleNamespace(close=self.monitor.stop)
        for chunk in chunks if watch is None else ():
            self.monitor.watch(
                chunk,
                optimizer,
                grad_acc_steps=grad_acc_steps,
                dp_group=dp_group,
                tp_group=tp_group,
                pp_group=self.process_group,
                start_iteration=start_iteration,
            )
        self._watches = True
        if first:
            for key, value in self._settings.items():
                self.monitor.set(key, value)

    def _wrapped(self) -> Any:
        return self._wrapped_optimizer if self._wrapped_optimizer is not None else self._wrapped_for_all()

    def _set(self, key: str, value: Any) -> None:
        self._settings[key] = value
        if self._watches:
            self.monitor.set(key, value)

    def _of_kind(self, kind: str) -> Metrics:
        rank = self.monitor.rank
        return {_tag(metric, rank): metric.values for metric in self.monitor.metrics() if metric.kind == kind}


def _ops_of(config_file: PathLike) -> list[str]:
    """`ops` of the config file, or the default."""
    try:
        with open(config_file) as file:
            return list(json.load(file)["ops"])
    except (OSError, ValueError, KeyError, TypeError):
        return ["norm"]


def _tag(metric: _gradmon.Metric, rank: int) -> str:
    micro = "" if metric.micro_step is None else f":{metric.micro_step}"
    of_micro_batches = "acc_grad" if metric.micro_step is None else "pre_grad"
    task = _TASKS.get(metric.kind, of_micro_batches)
    return f"{metric.vpp_stage}:{metric.name}{micro}/rank{rank}/{task}"


def bound_arguments(arguments: tuple[Any, ...], keywords: dict[str, Any], wrapped: Any) -> dict[str, Any]:
    """The arguments of set_monitor() by name, from either of the two orders, with whole numbers. wrapped: the
    optimizer, if the call has none. Raises TypeError if there is none, or an argument does not fit."""
    by_place = len(arguments) > 1 and (arguments[1] is None or isinstance(arguments[1], Real))
    numbered = by_place or (len(arguments) < 2 and "grad_acc_steps" in keywords)
    bound = (_BY_STEPS if numbered else _BY_OPTIMIZER).bind(*arguments, **keywords).arguments
    if bound.get("optimizer") is None:
        bound["optimizer"] = wrapped
    if bound["optimizer"] is None:
        raise TypeError("set_monitor: no optimizer; pass one, or call set_wrapped_optimizer() first")
    for name, least in (("grad_acc_steps", 1), ("start_iteration", 0)):
        if name in bound:
            bound[name] = _whole(name, bound[name], least)
    return bound


def _whole(name: str, value: Any, least: int) -> int:
    """Follows msprobe: None and numbers below `least` become `least`."""
    if value is None:
        return least
    try:
        whole = int(value)
        fits = not isinstance(value, str) and whole == value
    except (TypeError, ValueError, OverflowError):
        fits = False
    if not fits:
        raise ValueError(f"{name}: found {value!r}; expected a whole number")
    if whole < least:
        _gradmon.warn_once(f"{name}: found {value!r}; {least} is taken")
    return max(whole, least)


def _signature(*names: str) -> inspect.Signature:
    """Only the first argument is required."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    given = [inspect.Parameter(name, kind, default=None) for name in names]
    return inspect.Signature([given[0].replace(default=inspect.Parameter.empty), *given[1:]])


_BY_STEPS = _signature("model", "grad_acc_steps", "optimizer", "dp_group", "tp_group", "start_iteration")
_BY_OPTIMIZER = _signature("model", "optimizer", "grad_acc_steps", "tp_group", "dp_group", "start_iteration")


# Watches an engine; its arguments: the config, micro batches of a step, number of the first step.
_Watch = Callable[[PathLike, int, int], Monitor]


def _engine_watch(chunks: "list[Any]", optimizer: Any) -> Optional[_Watch]:
    """Returns a function that watches them by their engine's adapter; None if no such engine updates them.

    chunks: one model, or the chunks of a pipeline. Imports an adapter, but no engine."""
    if len(chunks) == 1 and is_kind(chunks[0], "DeepSpeedEngine"):
        from gradmon import deepspeed

        return lambda config, _, first: deepspeed.watch(chunks[0], config, start_iteration=first or None)
    if not is_kind(optimizer, "MegatronOptimizer"):
        return None
    from gradmon import megatron

    if any(megatron.wrapper_with_buckets(chunk) is None for chunk in chunks):
        return None
    return lambda config, steps, first: megatron.watch(
        chunks, optimizer, config, grad_acc_steps=steps, start_iteration=first
    )
