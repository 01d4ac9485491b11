# SPDX-License-Identifier: Apache-2.0
"""The values that every framework's rows must have: of plain torch's own tensors, computed by torch in double
precision."""
from typing import Any, Callable, Collection, Iterator

import gpt
import torch

ALL = -1  # the place of a value that all data-parallel ranks share
Key = tuple[str, int, int]  # name, step, place
Values = dict[str, float]
Rows = dict[str, dict[Key, Values]]  # by kind


def statistics(tensor: torch.Tensor) -> Values:
    """The six statistics; the largest magnitude, to which differences of min, max and mean relate; and
    `zeros` of the tensor divided by the number of places."""
    x = tensor.detach().double()
    return {
        "norm": x.norm().item(),
        "min": x.min().item(),
        "max": x.max().item(),
        "mean": x.mean().item(),
        "nans": float(x.isnan().sum()),
        "zeros": (x.abs() < 1e-8).double().mean().item(),
        "scale": x.abs().max().item(),
        "zeros of mean": (x.abs() / gpt.PLACES < 1e-8).double().mean().item(),
    }


class Reference:
    """Trains in one process, with each data-parallel rank's batch by itself, and notes the wanted steps."""

    def __init__(self, wanted: "Collection[int]") -> None:
        self.rows: Rows = {}
        self._wanted = wanted
        self._step = 0
        self._place = ALL
        self._model = gpt.seeded()
        self._optimizer = gpt.adam(self._model)
        for name, module in self._model.named_modules():
            if name:  # its own input and output depend on who calls the model
                module.register_forward_hook(self._forward(name))
                module.register_full_backward_hook(self._backward(name))

    def train(self) -> Rows:
        for self._step in range(max(self._wanted) + 1):
            total = [torch.zeros_like(parameter) for parameter in self._model.parameters()]
            for self._place in range(gpt.PLACES):
                self._optimizer.zero_grad()
                self._model(gpt.batch(self._step, self._place)).backward()
                for (name, parameter), of_all in zip(self._model.named_parameters(), total):
                    assert parameter.grad is not None
                    self._note("grad_unreduced", name, parameter.grad)
                    of_all += parameter.grad / gpt.PLACES
            self._place = ALL
            for parameter, of_all in zip(self._model.parameters(), total):
                parameter.grad = of_all
            self._update()
        return self.rows

    def _update(self) -> None:
        for name, parameter in self._model.named_parameters():
            self._note("grad_reduced", name, parameter.grad)
            self._note("param_origin", name, parameter)
            for key in ("exp_avg", "exp_avg_sq"):
                if parameter in self._optimizer.state:
                    self._note(key, name, self._optimizer.state[parameter][key])
        self._optimizer.step()
        for name, parameter in self._model.named_parameters():
            self._note("param_updated", name, parameter)

    def _note(self, kind: str, name: str, tensor: Any) -> None:
        if self._step in self._wanted and tensor is not None:
            self.rows.setdefault(kind, {})[name, self._step, self._place] = statistics(tensor)

    def _forward(self, name: str) -> "Callable[..., None]":
        def hook(_: Any, inputs: Any, output: torch.Tensor) -> None:
            self._note("actv", f"{name}.input", inputs[0])
            self._note("actv", f"{name}.output", output)

        return hook

    def _backward(self, name: str) -> "Callable[..., None]":
        def hook(_: Any, inputs: Any, outputs: Any) -> None:
            self._note("actv_grad", f"{name}.output", outputs[0])
            self._note("actv_grad", f"{name}.input", inputs[0])  # through this module; None of tokens

        return hook


def of_plain_run(rows: Rows) -> Rows:
    """The same values of one process, whose step has a micro batch for each place: it reduces nothing, so
    both kinds of gradients are the mean, and losses are divided by the number of places."""
    found = {**rows, "grad_unreduced": dict(rows["grad_reduced"])}
    found["actv_grad"] = {key: _divided(values) for key, values in rows["actv_grad"].items()}
    return found


def _divided(values: Values) -> Values:
    divided = {op: values[op] / gpt.PLACES for op in ("norm", "min", "max", "mean", "scale")}
    return {**divided, "nans": values["nans"], "zeros": values["zeros of mean"]}


def steps_of(rows: "dict[Key, Values]") -> "Iterator[int]":
    return (step for _, step, _ in rows)
