# SPDX-License-Identifier: Apache-2.0
"""gradmon for ColossalAI."""
from typing import Any, Iterable, Iterator, Optional

from gradmon import _gradmon
from gradmon._attributes import class_names, is_kind
from gradmon._framework_monitor import UPDATES, Engine, EngineMonitor, Labels, Piece
from gradmon._framework_monitor import innermost, labels_of, whole
from gradmon._sharded import has_units
from gradmon.monitor import Monitor, PathLike

__all__ = ["scopes", "watch"]

# Classes that keep gradients or updates elsewhere. Also in the doctor's list of modes.
REFUSED = {
    "GeminiDDP": "Gemini takes gradients away within backward",
    "GeminiOptimizer": "Gemini takes gradients away within backward",
    "MixedPrecisionOptimizer": "its master copies are not followed",
}
IS_FSDP = "TorchFSDPPlugin: gradmon.Monitor watches a model in FSDP, with torch's optimizer"


def watch(
    model: Any,
    optimizer: Any,
    config: PathLike,
    *,
    grad_acc_steps: int = 1,
    start_iteration: int = 0,
    **options: Any,
) -> Monitor:
    """Begins to watch a model and its optimizer, after Booster.boost().

    A step ends in the optimizer's step(), even if an overflow skips the update, but not within
    `no_sync()`, where step() does nothing.

    Parameters
    ----------
    config, grad_acc_steps, start_iteration, **options
        As for Monitor and Monitor.watch().
    model : colossalai.interface.ModelWrapper or torch.nn.Module
        As boost() has returned it. Rows have the names that the parameters have in the model before.
    optimizer : colossalai.interface.OptimizerWrapper
        As boost() has returned it, of the low-level ZeRO plugin (stage 1 or 2), or of one that leaves the
        updates to torch's optimizer.

    Returns
    -------
    Monitor

    Notes
    -----
    With ZeRO, a rank's rows in grad_reduced, param_* and exp_avg* cover the piece of a parameter that this
    rank updates, in its float32 master copy if it has one; scopes() names the run. The rows in grad_unreduced
    cover the whole gradient of this rank: only the last micro batch if each is reduced by itself, without the
    loss scale. No communication is added, and nothing is gathered.

    Nothing is watched with Gemini, nor with an optimizer for mixed precision other than ZeRO's; a warning
    says so.

    Examples
    --------
    >>> model, optimizer, *_ = booster.boost(model, optimizer)
    >>> with gradmon.colossalai.watch(model, optimizer, "monitor_config.json"):
    ...     for batch in loader:
    ...         booster.backward(loss_of(model(batch)), optimizer)
    ...         optimizer.step()
    ...         optimizer.zero_grad()
    """
    monitor = EngineMonitor(config, "colossalai", **options)
    if monitor.refuses(_refusal(model, optimizer)):
        return monitor
    program = _program(model)
    trained = [one for one in program.parameters() if one.requires_grad]

    def gradients() -> "Iterable[Any]":
        def deliver(parameter: Any) -> None:
            monitor.deliver(parameter, parameter.grad)

        return (_gradmon.FirstHook(one, deliver) for one in trained)

    def updates() -> "Iterable[Any]":
        return [monitor.around(update_of(optimizer), pieces_of(trained, optimizer))]

    engine = Engine(
        [program],
        optimizer,
        "delivered" if is_zero(optimizer) else "delivered accumulated",
        {"grad_unreduced": gradients, UPDATES: updates},
        described=lambda _: (scopes(model, optimizer), None),
        scale=lambda: _loss_scale(optimizer),
    )
    monitor.watch_engine(engine, grad_acc_steps, start_iteration)
    monitor.replace_until_stop(optimizer, "step", _stepping(monitor, optimizer))
    return monitor


def scopes(model: Any, optimizer: Any) -> "dict[str, Labels]":
    """Returns the scopes of the rows of this rank.

    Parameters
    ----------
    model, optimizer
        As for watch().

    Returns
    -------
    dict
        As of gradmon.deepspeed.scopes(). "local" are experts, and parameters that tensor parallelism splits.
    """
    program = _program(model)
    named = [(name, one, tuple(one.shape)) for name, one in program.named_parameters()]
    trained = [one for _, one, _ in named if one.requires_grad]
    return labels_of(
        named,
        pieces_of(trained, optimizer),
        lambda one: hasattr(one, "dist_layout") or hasattr(one, "ep_group"),
    )


def _program(model: Any) -> Any:
    """The model that the program has made, in wrappers of ColossalAI and torch."""
    wrappers = {"ModelWrapper", "DistributedDataParallel"}
    while wrappers & class_names(model):
        model = model.module
    return model


def _stepping(monitor: EngineMonitor, optimizer: Any) -> Any:
    """Around the optimizer's step(): ends a step of training if it makes an update or skips one."""

    def step(original: Any, *arguments: Any, **keywords: Any) -> Any:
        synchronises = getattr(optimizer, "require_grad_sync", True)
        result = original(*arguments, **keywords)
        if synchronises:
            monitor.end_step()
        return result

    return step


def _loss_scale(optimizer: Any) -> float:
    of_torch = getattr(optimizer, "scaler", None)  # TorchAMPOptimizer's
    if of_torch is not None:
        return float(of_torch.get_scale())
    scaler = getattr(getattr(optimizer, "mixed_precision_mixin", None), "grad_scaler", None)
    return float(getattr(scaler, "scale", 1.0))


def _refusal(model: Any, optimizer: Any) -> "Optional[str]":
    kinds = class_names(model) | class_names(optimizer)
    for name, why in REFUSED.items():
        if name in kinds:
            return f"{name}: {why}"
    if has_units(_program(model)):
        return IS_FSDP
    if update_of(optimizer) is None:
        return f"{type(optimizer).__name__} holds no optimizer"
    return None


# The pieces of parameters in the tensors that ColossalAI's ZeRO optimizer updates. Runs no collective.


def is_zero(optimizer: Any) -> bool:
    """Returns True for a LowLevelZeroOptimizer (stage 1 or 2), or an instance of a derived class."""
    return is_kind(optimizer, "LowLevelZeroOptimizer")


def update_of(optimizer: Any) -> Any:
    """The optimizer that updates the carriers, behind ColossalAI's wrappers."""
    return innermost(innermost(optimizer, "optim"))


def pieces_of(parameters: "list[Any]", optimizer: Any) -> "list[Piece]":
    """The pieces of these parameters that this rank updates."""
    if is_zero(optimizer):
        return list(_of_zero(parameters, optimizer))
    return [whole(parameter, parameter) for parameter in parameters]


def _of_zero(parameters: "list[Any]", optimizer: Any) -> "Iterator[Piece]":
    """Each parameter is flattened, padded to a multiple of the ranks, and cut into as many equal runs."""
    masters = optimizer.get_working_to_master_map()  # by the parameter's id
    for parameter in parameters:
        master = masters.get(id(parameter))
        if master is None:  # not trained
            continue
        padded = parameter.numel() + optimizer.get_param_padding_size(parameter)
        bucket = optimizer.pid_to_bucket_store[id(parameter)]
        run = padded // bucket.world_size
        first = min(int(bucket.local_rank) * run, parameter.numel())
        numel = min(run, parameter.numel() - first)
        yield Piece(parameter, master, 0, numel, first, tuple(parameter.shape))
