# SPDX-License-Identifier: Apache-2.0
"""gradmon.mindspore.TrainerMon."""
import os
from typing import Any, Optional, Union

import mindspore

from gradmon import _gradmon
from gradmon.mindspore.cell_hooks import CellHooks
from gradmon.monitor import Monitor
from gradmon.trainer_mon import SummaryWriter, bound_arguments

# The beginnings of the names that optimizers give to the moments of a parameter.
_MOMENTS = {
    "exp_avg": "exp_avg",
    "moment1": "exp_avg",
    "moments": "exp_avg",
    "moment": "exp_avg",
    "adam_m": "exp_avg",
    "exp_avg_sq": "exp_avg_sq",
    "moment2": "exp_avg_sq",
    "adam_v": "exp_avg_sq",
    "mean_square": "exp_avg_sq",
}
_MOMENTS_OF_SGD = {"accum": "exp_avg"}  # elsewhere a sum of squares


class TrainerMon:
    """msprobe.mindspore's TrainerMon: the same constructor, calls, config keys and files, in PyNative mode.

    Parameters
    ----------
    config_file_path : str or path-like
        The config file.
    process_group : object, optional
        Accepted and ignored.
    params_have_main_grad : bool
        Accepted and ignored: the gradients are those that the optimizer is called with.

    Notes
    -----
    A step ends with a call of the optimizer. `grad_reduced` is the optimizer's argument, `grad_unreduced` the
    argument of a parameter's hook: each micro batch by itself; without `monitor_mbs_grad` only the last one
    has the row. `actv` is the inputs and outputs of cells in training mode, `actv_grad` their gradients, of
    cells that are called once in a micro batch. Hooks are attached in collected steps only. Every rank writes
    its own rows.

    MindSpore's graph mode calls no hooks: nothing is watched, and a warning says so. torch must be
    installed: gradmon computes with it.

    Examples
    --------
    >>> monitor = TrainerMon(config_file_path="./monitor_config.json", process_group=None)
    >>> monitor.set_monitor(model, grad_acc_steps=1, optimizer=optimizer, dp_group=None, tp_group=None)
    """

    def __init__(
        self,
        config_file_path: Union[str, "os.PathLike[str]"],
        process_group: Any = None,
        params_have_main_grad: bool = True,
    ) -> None:
        self.process_group = process_group
        self.params_have_main_grad = params_have_main_grad
        self.monitor = Monitor(config_file_path, **_rank())
        self.summary_writer = SummaryWriter(self.stop)
        self._config_file = config_file_path
        self._stopped = False
        self._hooks: Optional[CellHooks] = None
        self._prefixes: "dict[int, str]" = {}  # of a parameter's name, by id
        self._handles: "list[Any]" = []

    def set_monitor(self, *arguments: Any, **keywords: Any) -> None:
        """Begins to watch a model and its optimizer. A further call stops the watching of the call before.

        Parameters
        ----------
        *arguments, **keywords
            ``(model, optimizer, grad_acc_steps=1, tp_group=None, dp_group=None, start_iteration=0)``, or,
            where the second argument is a number, ``(model, grad_acc_steps, optimizer, dp_group=None,
            tp_group=None, start_iteration=0)``. `model` is a mindspore.nn.Cell or a list of the chunks of
            an interleaved pipeline, whose names then begin with "0:", "1:", … `optimizer` is a
            mindspore.nn.Optimizer, which is called once a step. Groups are ignored.

        Raises
        ------
        TypeError
            If there is no optimizer.
        ValueError
            In static mode, if the config is missing or invalid.
        """
        self._watch(**bound_arguments(arguments, keywords, None))

    def _watch(
        self,
        model: Any,
        optimizer: Any,
        grad_acc_steps: int = 1,
        dp_group: Any = None,
        tp_group: Any = None,
        start_iteration: int = 0,
    ) -> None:
        if mindspore.get_context("mode") != mindspore.PYNATIVE_MODE:
            return _gradmon.warn_once(
                "nothing is watched: MindSpore's graph mode calls no hooks; "
                "use set_context(mode=mindspore.PYNATIVE_MODE)"
            )
        self.stop()
        if self._stopped:  # a Monitor that has stopped watches nothing more
            self.monitor = Monitor(self._config_file, **_rank())
            self._stopped = False
        chunks = list(model) if isinstance(model, (list, tuple)) else [model]
        prefixes = [f"{number}:" if len(chunks) > 1 else "" for number in range(len(chunks))]
        self._prefixes = {
            id(parameter): prefix
            for prefix, chunk in zip(prefixes, chunks)
            for parameter in chunk.get_parameters()
        }
        self.monitor.watch(grad_acc_steps=grad_acc_steps, start_iteration=start_iteration)
        self._hooks = CellHooks(self.monitor, list(zip(prefixes, chunks)), grad_acc_steps)
        self._handles = [
            optimizer.register_forward_pre_hook(self._before_update),
            optimizer.register_forward_hook(self._after_update),
        ]
        self._begin_step()

    def stop(self) -> None:
        """Detaches all hooks, and writes the remaining rows. A second call does nothing."""
        if self._hooks is None:
            return
        self._hooks.remove()
        self._hooks = None
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self.monitor.stop()
        self._stopped = True

    def _begin_step(self) -> None:
        if self._hooks is None:
            return
        if self.monitor.collecting:
            self._hooks.begin_step()
            self._hooks.attach(self.monitor.watches_forwards)
        else:
            self._hooks.remove()

    def _before_update(self, optimizer: Any, inputs: Any) -> None:
        if not self.monitor.collecting:
            return
        parameters = list(optimizer.parameters)
        for parameter, gradient in zip(parameters, inputs[0]):
            self.monitor.tap("grad_reduced", self._name_of(parameter), gradient)
        self._tap_weights("param_origin", parameters)
        moments = _MOMENTS_OF_SGD if type(optimizer).__name__ == "SGD" else _MOMENTS
        known = {parameter.name: self._name_of(parameter) for parameter in parameters}
        for state in optimizer.get_parameters():
            prefix, _, name = state.name.partition(".")
            if prefix in moments and name in known:
                self.monitor.tap(moments[prefix], known[name], state)

    def _after_update(self, optimizer: Any, _inputs: Any, _output: Any) -> None:
        if self.monitor.collecting:
            self._tap_weights("param_updated", list(optimizer.parameters))
        self.monitor.step()
        self._begin_step()

    def _tap_weights(self, kind: str, parameters: "list[Any]") -> None:
        for parameter in parameters:
            self.monitor.tap(kind, self._name_of(parameter), parameter)

    def _name_of(self, parameter: Any) -> str:
        return self._prefixes.get(id(parameter), "") + str(parameter.name)


def _rank() -> "dict[str, Any]":
    """Rank and number of ranks, once mindspore.communication.init() was called; else the environment's."""
    if not mindspore.communication.GlobalComm.INITED:
        return {}
    return {
        "rank": mindspore.communication.get_rank(),
        "world_size": mindspore.communication.get_group_size(),
    }
