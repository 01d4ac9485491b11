# SPDX-License-Identifier: Apache-2.0
"""Hooks at the cells and parameters of a MindSpore model, while a step is collected."""
from typing import Any, Callable, Iterator

from gradmon.monitor import Monitor


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
            if self._calls.get((name, self._micro_step)) == 1:  # of several it is not known which this is
                self._tap(name, "input", of_inputs, "actv_grad")
                self._tap(name, "output", of_outputs, "actv_grad")

        return passed

    def _tap(self, name: str, side: str, value: Any, kind: str = "actv") -> None:
        call = self._calls.get((name, self._micro_step), 1)
        again = f"@{call}" if call > 1 else ""
        for suffix, tensor in tensors_in(value):
            self._monitor.tap(kind, f"{name}.{side}{suffix}{again}", tensor, self._micro_step)


def _root_name(model: Any) -> str:
    """The name of the model itself in rows, as root_name() in hooks/names has it."""
    children = dict(model.name_cells())
    return next((name for name in ("model", "root") if name not in children), "")
