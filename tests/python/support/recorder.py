# SPDX-License-Identifier: Apache-2.0
"""Records, with torch's own hooks and copies, the values that gradmon's rows must have."""
from collections import defaultdict
from typing import Any, Callable, Optional

import torch

Key = "tuple[str, int, int]"  # name (after "1:" where it is the second chunk's), step, micro step


class _Tap(torch.autograd.Function):
    """Copies a tensor, so that the gradient of the copy is that of one use."""

    @staticmethod
    def forward(context: Any, tensor: torch.Tensor, note: Callable[[torch.Tensor], None]) -> torch.Tensor:
        context.note = note
        return tensor.clone()

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> Any:
        context.note(gradient)
        return gradient, None


def _unwrapped(model: torch.nn.Module) -> torch.nn.Module:
    return model.module if isinstance(model, torch.nn.parallel.DistributedDataParallel) else model


def _shown(chunk: int, module: str) -> str:
    return f"{chunk}:{module or 'model'}" if chunk else module or "model"


def _is_linear(module: torch.nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    matrix = torch.is_tensor(weight) and weight.dim() == 2 and not weight.is_complex()
    return matrix and not hasattr(module, "num_embeddings")


class Recorder:
    """Takes the place of a Monitor for one training. The program ends the iterations."""

    def __init__(self) -> None:
        self.tensors: "dict[str, dict[Key, torch.Tensor]]" = defaultdict(dict)  # by kind
        # By kind: values that are not statistics of a tensor, by column.
        self.features: "dict[str, dict[Key, dict[str, float]]]" = defaultdict(dict)
        self.in_backward = False
        self._step = 0
        self._models: "list[torch.nn.Module]" = []
        self._optimizers: "list[Any]" = []
        self._named: "list[tuple[str, torch.nn.Parameter]]" = []
        self._linear: "list[tuple[str, Any]]" = []
        self._modules: "set[int]" = set()  # that have hooks
        self._accumulators: "dict[int, Any]" = {}  # by the parameter's identity
        self._micro: "dict[int, int]" = defaultdict(int)  # by chunk: root forwards of this step
        self._calls: "dict[tuple[str, int], int]" = defaultdict(int)
        self._recomputed: "dict[tuple[str, int], int]" = defaultdict(int)
        self._depth = 0

    def watch(self, model: torch.nn.Module, optimizer: Any, **_: Any) -> "Recorder":
        if all(model is not known for known in self._models):
            self._models.append(model)
        if all(optimizer is not known for known in self._optimizers):
            self._optimizers.append(optimizer)
            self._around_step(optimizer)
        self._look()
        return self

    def end_iteration(self) -> None:
        self._step += 1
        for counts in (self._micro, self._calls, self._recomputed):
            counts.clear()
        self._look()

    def stop(self) -> None:
        pass

    def _note(self, kind: str, name: str, tensor: torch.Tensor, micro: int = 0) -> None:
        tensor = tensor.detach()
        if tensor.is_complex():
            tensor = torch.view_as_real(tensor)
        self.tensors[kind][name, self._step, micro] = (
            tensor.to_dense() if tensor.is_sparse else tensor
        ).clone()

    # Modules and parameters added within an iteration are seen from the next one on.
    def _look(self) -> None:
        self._named.clear()
        self._linear.clear()
        for chunk, model in enumerate(map(_unwrapped, self._models)):
            for name, module in model.named_modules():
                if _is_linear(module):
                    self._linear.append((_shown(chunk, name), module))
                if id(module) not in self._modules:
                    self._modules.add(id(module))
                    self._around(chunk, name, module)
            for name, parameter in model.named_parameters():
                if all(parameter is not known for _, known in self._named):
                    self._named.append((f"{chunk}:{name}" if chunk else name, parameter))
        for name, parameter in self._named:
            if not parameter.requires_grad or id(parameter) in self._accumulators:
                continue
            # Notes the accumulated gradient after each accumulation.
            accumulator = parameter.view_as(parameter).grad_fn.next_functions[0][0]
            accumulator.register_hook(self._accumulated(name, parameter))
            self._accumulators[id(parameter)] = accumulator

    def _accumulated(self, name: str, parameter: torch.nn.Parameter) -> Callable[..., None]:
        def accumulated(*_: Any) -> None:
            own = parameter.grad
            self._note("grad_unreduced", name, parameter.main_grad if own is None else own)

        return accumulated

    def _around_step(self, optimizer: Any) -> None:
        original = optimizer.step

        def step(closure: Optional[Callable[[], Any]] = None) -> Any:
            held = {id(p) for group in optimizer.param_groups for p in group["params"]}
            held |= {id(p) for p, _ in getattr(optimizer, "pairs", ())}  # with a master copy
            own = [(name, p) for name, p in self._named if id(p) in held]
            if closure is None:
                self._before(optimizer, own)
                result = original()
            else:

                def told() -> Any:
                    loss = closure()
                    self._before(optimizer, own)
                    return loss

                result = original(told)
            for name, parameter in own:
                self._note("param_updated", name, parameter)
            return result

        optimizer.step = step

    def _before(self, optimizer: Any, own: "list[tuple[str, torch.nn.Parameter]]") -> None:
        self._note_spectra()
        for name, parameter in own:
            if parameter.grad is not None:
                self._note("grad_reduced", name, parameter.grad)
            if (name, self._step, 0) not in self.tensors["param_origin"]:
                self._note("param_origin", name, parameter)
            masters = (master for p, master in getattr(optimizer, "pairs", ()) if p is parameter)
            state = optimizer.state.get(next(masters, parameter), {})
            for kind, keys in (
                ("exp_avg", ("exp_avg", "momentum_buffer")),
                ("exp_avg_sq", ("exp_avg_sq", "square_avg")),
            ):
                kept = next((state[key] for key in keys if state.get(key) is not None), None)
                took_part = parameter.grad is not None
                if took_part and kept is not None and (name, self._step, 0) not in self.tensors[kind]:
                    self._note(kind, name, kept)
                    if kind == "exp_avg":
                        self._note_direction(name, parameter.grad, kept)

    def _note_direction(self, name: str, gradient: torch.Tensor, momentum: torch.Tensor) -> None:
        if gradient.is_complex() or gradient.is_sparse:
            return
        agreed = (gradient.sign() * momentum.sign()).double().mean().item()
        self.features["other"][name, self._step, 0] = {"mg_direction": (agreed + 1) / 2}

    def _note_spectra(self) -> None:
        """Notes features of the weights before the first update of the iteration."""
        if any(step == self._step for _, step, _ in self.features["linear_hook"]):
            return
        for shown, module in self._linear:
            values = torch.linalg.svdvals(module.weight.detach().double())
            self.features["linear_hook"][f"{shown}.linear", self._step, 0] = {
                "sr": values.pow(2).sum().sqrt().item() / values[0].item(),
                "kernel_norm": values[0].item(),
            }

    # Notes the inputs and outputs of the module, and their gradients.
    def _around(self, chunk: int, name: str, module: torch.nn.Module) -> None:
        shown = _shown(chunk, name)
        visits: "list[Optional[tuple[str, int]]]" = []

        def entered(_: Any, inputs: Any) -> Any:
            if name == "" and not self.in_backward and module.training and torch.is_grad_enabled():
                self._micro[chunk] += 1
            seen = module.training and (torch.is_grad_enabled() or self._depth > 0) and self._micro[chunk] > 0
            self._depth += 1
            if not seen:
                visits.append(None)
                return None
            micro = self._micro[chunk] - 1
            counts = self._recomputed if self.in_backward else self._calls
            counts[shown, micro] += 1
            suffix = f"@{counts[shown, micro]}" if counts[shown, micro] > 1 else ""
            visits.append((suffix, micro))
            return self._tapped(inputs, f"{shown}.input", suffix, micro)

        def left(_: Any, __: Any, output: Any) -> Any:
            self._depth -= 1
            visit = visits.pop()
            if visit is None:
                return None
            return self._tapped(output, f"{shown}.output", *visit)

        module.register_forward_pre_hook(entered)
        module.register_forward_hook(left)

    def _tapped(self, value: Any, name: str, suffix: str, micro: int) -> Any:
        """The same value, with each tensor replaced by a copy that notes its gradient."""
        places = _places(value)

        def copy(tensor: torch.Tensor, key: str) -> torch.Tensor:
            alone = torch.is_tensor(value) or (places == 1 and key.isdigit())
            row = name + ("" if alone else f"_{key}") + suffix
            if not self.in_backward:
                self._note("actv", row, tensor, micro)
            if not tensor.requires_grad or not torch.is_grad_enabled():
                return tensor
            return _Tap.apply(tensor, lambda gradient: self._note("actv_grad", row, gradient, micro))

        return _copied(value, copy, [0], "")


def _places(value: Any) -> int:
    if isinstance(value, (tuple, list)):
        return sum(_places(element) for element in value)
    return sum(_places(element) for element in value.values()) if isinstance(value, dict) else 1


def _copied(
    value: Any, copy: Callable[[torch.Tensor, str], torch.Tensor], place: "list[int]", key: str
) -> Any:
    if torch.is_tensor(value):
        place[0] += 1
        return copy(value, key or str(place[0] - 1))
    if isinstance(value, (tuple, list)):
        return type(value)(_copied(element, copy, place, "") for element in value)
    if isinstance(value, dict):
        return {name: _copied(element, copy, place, str(name)) for name, element in value.items()}
    place[0] += 1
    return value
