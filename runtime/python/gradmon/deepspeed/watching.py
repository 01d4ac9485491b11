# SPDX-License-Identifier: Apache-2.0
"""gradmon.deepspeed.watch."""
import os
from typing import Any, Iterable, Optional, Union

from gradmon import _gradmon
from gradmon._attributes import replaced_around
from gradmon.deepspeed.fragments import before_muon, muon_method, pieces_of, replaced_by_muon, shape_of
from gradmon.engines.collecting_hooks import Attachment, CollectingHooks
from gradmon.engines.engine_monitor import EngineMonitor
from gradmon.engines.labels import KINDS_OF_UPDATE, Description, Labels, is_expert, labels_of
from gradmon.engines.pieces import innermost
from gradmon.monitor import Monitor

_UPDATES = ", ".join(KINDS_OF_UPDATE)
_ANY_NUMBER = 1 << 16


def watch(
    engine: Any,
    config: Union[str, "os.PathLike[str]"],
    *,
    start_iteration: Optional[int] = None,
    **options: Any,
) -> Monitor:
    """Begins to watch the model and the optimizer of a DeepSpeed engine, after deepspeed.initialize().
    A job that resumes calls it after engine.load_checkpoint(), which sets the number of the first step.

    A step ends when `engine.global_steps` grows: micro batches that only accumulate gradients do not end a
    step, and an update skipped by an overflow ends a step.

    Parameters
    ----------
    engine : deepspeed.DeepSpeedEngine
        The engine, with ZeRO stage 0, 1, 2 or 3. Rows have the names that the parameters have in the model
        that was given to deepspeed.initialize().
    config : str or path-like
        As for Monitor.
    start_iteration : int, optional
        Number of the first step. Default: `engine.global_steps`.
    **options
        Further arguments of Monitor: rank, world_size, endpoint, output_dir, dynamic.

    Returns
    -------
    Monitor
        The monitor. Its stop() ends the watching; it can be used in a `with` statement.

    Raises
    ------
    ValueError
        As Monitor.watch().

    Notes
    -----
    No communication is added, and nothing is gathered. With ZeRO, a rank's rows in grad_reduced, param_* and
    exp_avg* cover the piece of a parameter that this rank updates: a run of its flattened elements, in
    float32 if DeepSpeed keeps such a copy; scopes() names the run. The rows in grad_unreduced cover the whole
    gradient of this rank, divided by `gradient_accumulation_steps` as DeepSpeed does, without the loss scale.
    With stages 2 and 3, and with a BF16_Optimizer, they cover the last micro batch alone; with 0 and 1, and
    within coalesce_grad_reduction(), all micro batches so far. If DeepSpeed's Muon replaces reduced gradients
    by its update, grad_reduced and exp_avg are read before that.

    Examples
    --------
    >>> engine, _, _, _ = deepspeed.initialize(model=model, config=config)
    >>> with gradmon.deepspeed.watch(engine, "monitor_config.json"):
    ...     for batch in loader:
    ...         engine.backward(engine(batch))
    ...         engine.step()
    """
    monitor = EngineMonitor(config, framework="deepspeed", **options)
    why = _refusal(engine)
    if why is not None:
        _gradmon.warn_once(f"nothing is watched: {why}")
        return monitor
    optimizer = engine.optimizer

    def gradients() -> "Iterable[Any]":
        def deliver(parameter: Any) -> None:
            coalesces = getattr(optimizer, "_coalesce_grad_reduction", False)
            monitor.deliver(parameter, parameter.grad, coalesces and not _parks_each(optimizer))

        return (_gradmon.FirstHook(one, deliver) for one in engine.module.parameters() if one.requires_grad)

    def updates() -> "Iterable[Any]":
        backup = getattr(optimizer, "backup_optimizer", None)  # for the part that is not offloaded
        updating = [innermost(optimizer)] + ([] if backup is None else [backup])
        pieces = pieces_of(optimizer)
        early = replaced_by_muon(optimizer, pieces)
        return [monitor.around(one, pieces, early) for one in updating]

    def replacements() -> "Iterable[Any]":
        pieces = replaced_by_muon(optimizer, pieces_of(optimizer))

        def around(original: Any, *arguments: Any, **keywords: Any) -> Any:
            monitor.pass_early(lambda: before_muon(optimizer, pieces, arguments, keywords))
            return original(*arguments, **keywords)

        return [replaced_around(optimizer, muon_method(optimizer), around)] if pieces else []

    monitor.watch_engine(
        [engine.module],
        CollectingHooks(
            [
                Attachment("grad_unreduced", gradients),
                Attachment(_UPDATES, updates),
                Attachment("grad_reduced and exp_avg of parameters that Muon updates", replacements),
            ]
        ),
        optimizer,
        "delivered" if _reduces_each(engine) else "delivered accumulated",
        grad_acc_steps=_most_micro_batches(engine),
        start_iteration=int(engine.global_steps) if start_iteration is None else start_iteration,
        described=lambda _: Description(scopes(engine)),
        scale=lambda: _loss_scale(engine),
    )
    monitor.remove_at_stop(replaced_around(engine, "step", _stepping(monitor, engine)))
    return monitor


def scopes(engine: Any) -> "dict[str, Labels]":
    """Returns the scopes of the rows of this rank.

    Parameters
    ----------
    engine : deepspeed.DeepSpeedEngine
        As for watch().

    Returns
    -------
    dict
        By kind and name, the scope that scopes.json has: `scope` ("whole", "replica", "piece" or "local"),
        `shape` (of the whole parameter) and, of a piece, `begin` and `count` (first element and number of
        elements of the flattened parameter).

    Notes
    -----
    "local" are experts, and parameters that tensor parallelism splits: DeepSpeed does not say which part of
    the whole this rank has.
    """
    named = [(name, one, shape_of(one)) for name, one in engine.module.named_parameters()]
    return labels_of(
        named,
        pieces_of(engine.optimizer),
        lambda one: is_expert(one) or getattr(one, "tensor_model_parallel", False),
    )


def _stepping(monitor: EngineMonitor, engine: Any) -> Any:
    """Around the engine's step(): ends a step of training if it makes an update or skips one."""

    known = engine.global_steps

    def step(original: Any, *arguments: Any, **keywords: Any) -> Any:
        nonlocal known
        before = engine.global_steps
        if before != known:
            _gradmon.warn_once(
                f"engine.global_steps went from {known} to {before} while the engine is watched: the rows go "
                "on counting; call gradmon.deepspeed.watch() after engine.load_checkpoint()"
            )
        result = original(*arguments, **keywords)
        known = engine.global_steps
        if known != before:
            monitor.end_step()
        return result

    return step


def _loss_scale(engine: Any) -> float:
    """With torch_autocast, a torch scaler has it; with ZeRO stage 0, the engine has it."""
    scaler = getattr(engine.optimizer, "torch_autocast_gradscaler", None)
    scaler = scaler or getattr(engine, "torch_autocast_z0_gradscaler", None)
    if scaler is not None:
        return float(scaler.get_scale())
    return float(getattr(engine.optimizer, "loss_scale", 1.0) or 1.0)


def _reduces_each(engine: Any) -> bool:
    """Returns True if the gradient of each micro batch is reduced, or moved, by itself."""
    optimizer = engine.optimizer
    if engine.zero_optimization_stage() >= 2 or hasattr(optimizer, "fp32_groups_flat_partition"):
        return True
    return _parks_each(optimizer)


def _parks_each(optimizer: Any) -> bool:
    """Returns True if the gradient of each micro batch is added to a tensor beside `grad`."""
    return bool(getattr(optimizer, "use_grad_accum_attribute", False))


def _most_micro_batches(engine: Any) -> int:
    """Micro batches per step; unlimited if the program ends the steps itself by engine.step()."""
    managed = getattr(engine, "managed_gradient_accumulation", None)
    return int(engine.gradient_accumulation_steps()) if managed is None or managed() else _ANY_NUMBER


def _refusal(engine: Any) -> Optional[str]:
    optimizer = getattr(engine, "optimizer", None)
    if optimizer is None or innermost(optimizer) is None or not hasattr(optimizer, "step"):
        return "the DeepSpeed engine has no optimizer"
    if hasattr(engine, "train_batch") and hasattr(engine, "micro_batches"):
        return f"{type(engine).__name__} runs a pipeline, which gradmon does not follow"
    if getattr(optimizer, "swap_optimizer", False):
        return "DeepSpeed keeps the optimizer's state on NVMe: reading it would page it in"
    if hasattr(optimizer, "superoffload_cpu_optimizer"):
        return "SuperOffload updates in another process"
    if getattr(optimizer, "zenflow", False):
        return "ZenFlow updates outside the optimizer's step"
    return None
