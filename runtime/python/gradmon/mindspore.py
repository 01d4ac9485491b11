# SPDX-License-Identifier: Apache-2.0
"""gradmon for MindSpore."""
from types import SimpleNamespace
from typing import Any, Callable, Iterator, Optional

import mindspore

from gradmon import _gradmon
from gradmon.monitor import Monitor, PathLike
from gradmon.trainer_mon import bound_arguments

__all__ = ["TrainerMon"]

# Hooks at the cells and parameters of a MindSpore model, while a step is collected.


def tensors_in(value: Any) -> "Iterator[tuple[str, Any]]":
    """The arrays of a cell's inputs or outputs, with the ends of their names: "" for a single one."""
    elements = list(value) if isinstance(value, (tuple, list)) else [value]
    for place, element in enumerate(elements):
        if hasattr(element, "asnumpy"):
            yield "" if len(elements) == 1 else f"_{place}", element


class CellHooks:
    """Passes activations and unreduced gradients to the monitor. remove() removes all hooks. Training
    thread."""

    def __init__(self, monitor: Monitor, cells: "list[tuple[str, Any]]", micro_batches: int) -> None:
        """cells: the model or its chunks, each with the start of its names."""
        self._monitor = monitor
        self._cells = [
            (prefix + (name or _root_name(model)), cell)
            for prefix, model in cells
            for name, cell in model.cells_and_names()
        ]
        self._parameters = [
            (prefix + parameter.name, parameter)
            for prefix, model in cells
            for parameter in model.trainable_params()
        ]
        self._root = cells[0][1]
        self._micro_batches = micro_batches
        self._trains = True  # the root's `training` in training: False unless the program has set it
        self._forwards = 0  # of the root, in this step
        self._calls: "dict[tuple[str, int], int]" = {}  # by name and micro step
        self._handles: "list[Any]" = []
        self._with_activations = False  # as the hooks were attached

    def begin_step(self) -> None:
        self._trains = self._root.training
        self._forwards = 0
        self._calls.clear()

    def attach(self, activations: bool) -> None:
        """activations: hook the cells, too."""
        if self._handles and activations == self._with_activations:
            return
        self.remove()
        self._with_activations = activations
        self._handles = [
            parameter.register_hook(self._on_gradient(name)) for name, parameter in self._parameters
        ]
        self._handles.append(self._root.register_forward_pre_hook(self._begin_micro_batch))
        for name, cell in self._cells if activations else ():
            self._handles.append(cell.register_forward_pre_hook(self._before(name)))
            self._handles.append(cell.register_forward_hook(self._after(name)))
            self._handles.append(cell.register_backward_hook(self._backward(name)))

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    @property
    def _micro_step(self) -> int:
        return min(max(self._forwards, 1), self._micro_batches) - 1

    def _on_gradient(self, name: str) -> Callable[[Any], None]:
        def arrived(gradient: Any) -> None:
            self._monitor.tap("grad_unreduced", name, gradient, self._micro_step)

        return arrived

    def _begin_micro_batch(self, root: Any, _inputs: Any) -> None:
        if root.training == self._trains:  # not an evaluation
            self._forwards += 1

    def _before(self, name: str) -> Callable[[Any, Any], None]:
        def entered(cell: Any, inputs: Any) -> None:
            if cell.training:
                self._calls[name, self._micro_step] = self._calls.get((name, self._micro_step), 0) + 1
                self._tap(name, "input", inputs)

        return entered

    def _after(self, name: str) -> Callable[[Any, Any, Any], None]:
        def left(cell: Any, _inputs: Any, output: Any) -> None:
            if cell.training:
                self._tap(name, "output", output)

        return left

    def _backward(self, name: str) -> Callable[[Any, Any, Any], None]:
        def passed(_cell: Any, of_inputs: Any, of_outputs: Any) -> None:
            if self._calls.get((name, self._micro_step)) == 1:  # the hook does not get the number of the call
                self._tap(name, "input", of_inputs, "actv_grad")
                self._tap(name, "output", of_outputs, "actv_grad")

        return passed

    def _tap(self, name: str, side: str, value: Any, kind: str = "actv") -> None:
        call = self._calls.get((name, self._micro_step), 1)
        again = f"@{call}" if call > 1 else ""
        for suffix, tensor in tensors_in(value):
            self._monitor.tap(kind, f"{name}.{side}{suffix}{again}", tensor, self._micro_step)


def _root_name(model: Any) -> str:
    """The name of the model itself in rows, as root_name() in hooks/rows/target_names.h has it."""
    children = dict(model.name_cells())
    return next((name for name in ("model", "root") if name not in children), "")


# The beginnings of the names that optimizers give to the moments of a parameter.
_FIRST = ("exp_avg", "moment1", "moments", "moment", "adam_m")
_SECOND = ("exp_avg_sq", "moment2", "adam_v", "mean_square")
_MOMENTS = {**dict.fromkeys(_FIRST, "exp_avg"), **dict.fromkeys(_SECOND, "exp_avg_sq")}
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
        config_file_path: PathLike,
        process_group: Any = None,
        params_have_main_grad: bool = True,
    ) -> None:
        self.process_group = process_group
        self.params_have_main_grad = params_have_main_grad
        self.monitor = Monitor(config_file_path, **_rank())
        self.summary_writer = SimpleNamespace(close=self.stop)
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
        self, model: Any, optimizer: Any, grad_acc_steps: int = 1, start_iteration: int = 0, **_groups: Any
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
