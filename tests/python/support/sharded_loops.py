# SPDX-License-Identifier: Apache-2.0
"""Trains a small model with sharded parameters, with and without gradmon, and the same model unsharded."""
import contextlib
import json
from collections import Counter
from typing import Any, Callable, Iterator, Optional

import fsdp2_on_cpu
import gradmon
import jobs
import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

STEPS = 3

fsdp2_on_cpu.prepare()


class Net(torch.nn.Module):
    """7 and 3 rows, which 2 and 4 ranks do not divide; a parameter of the root, used in a function; a module
    that never runs; a frozen one."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 7)
        self.second = torch.nn.Linear(7, 4)
        self.norm = torch.nn.LayerNorm(4)
        self.few = torch.nn.Linear(4, 3)
        self.frozen = torch.nn.Linear(3, 3).requires_grad_(False)
        self.spare = torch.nn.Linear(2, 2)
        self.scale = torch.nn.Parameter(torch.linspace(0.5, 1.5, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.second(torch.tanh(self.first(x))))
        return torch.nn.functional.softplus(self.frozen(self.few(x)) * self.scale)


def make_net() -> Net:
    torch.manual_seed(7)
    return Net()


def batch(step: int, micro: int, rank: int) -> torch.Tensor:
    return torch.sin(torch.arange(20.0) * 0.7 + step + 0.3 * micro + 1.7 * rank).reshape(5, 4)


def loss_of(model: torch.nn.Module, step: int, micro: int, rank: int) -> torch.Tensor:
    loss: torch.Tensor = model(batch(step, micro, rank)).float().pow(2).mean()
    return loss


def local(tensor: Any) -> torch.Tensor:
    """The part that this rank holds."""
    found: torch.Tensor = getattr(tensor, "_local_tensor", tensor)
    return found.detach()


def adam(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam((p for p in model.parameters() if p.requires_grad), lr=0.05)


def statistics(tensor: Any) -> "dict[str, float]":
    x = local(tensor)
    return jobs.expected(x) if x.numel() > 0 else {}


class Recorder:
    """What the optimizer holds around its step, by kind, name and step."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        seen_as: "Callable[[Any], Any]" = statistics,
    ) -> None:
        self.found: "dict[str, Any]" = {}
        self._seen_as = seen_as
        self._model = model
        self._optimizer = optimizer

    def _note(self, kind: str, name: str, step: int, tensor: Any) -> None:
        if tensor is not None and (values := self._seen_as(tensor)):
            self.found[f"{kind} {name} {step}"] = values

    def before(self, step: int) -> None:
        for name, parameter in self._trained():
            self._note("param_origin", name, step, parameter)
            if parameter.grad is None:
                continue
            self._note("grad_reduced", name, step, parameter.grad)
            kept = self._optimizer.state.get(parameter, {})
            for key in ("exp_avg", "exp_avg_sq"):
                self._note(key, name, step, kept.get(key))

    def after(self, step: int) -> None:
        for name, parameter in self._trained():
            self._note("param_updated", name, step, parameter)

    def _trained(self) -> "list[tuple[str, torch.nn.Parameter]]":
        return [(name, held) for name, held in self._model.named_parameters() if held.requires_grad]


def train(
    model: Any, optimizer: torch.optim.Optimizer, micros: int, sync: str, recorder: Optional[Recorder] = None
) -> None:
    """sync: "last": gradients are reduced in the last micro batch of a step; "each": in each of them."""
    rank = dist.get_rank()
    for step in range(STEPS):
        optimizer.zero_grad()
        for micro in range(micros):
            with _synchronised(model, sync == "each" or micro + 1 == micros):
                loss_of(model, step, micro, rank).backward()
        if recorder is not None:
            recorder.before(step)
        optimizer.step()
        if recorder is not None:
            recorder.after(step)


@contextlib.contextmanager
def _synchronised(model: Any, wanted: bool) -> "Iterator[None]":
    if hasattr(model, "set_requires_gradient_sync"):
        model.set_requires_gradient_sync(wanted)
        yield
    else:
        with contextlib.nullcontext() if wanted or not hasattr(model, "no_sync") else model.no_sync():
            yield


def elements(tensor: torch.Tensor) -> "list[float]":
    found: "list[float]" = tensor.detach().flatten().tolist()
    return found


def unsharded(micros: int, sync: str, seen_as: "Callable[[Any], Any]" = statistics) -> "dict[str, Any]":
    """The same training in one process, which computes every rank's gradients: what each rank's gradient was,
    and the mean of them, as `seen_as` has them."""
    batches = list(range(dist.get_world_size()))
    model = make_net()
    optimizer = adam(model)
    found: "dict[str, Any]" = {}

    def note(kind: str, name: str, step: int, tensor: Optional[torch.Tensor]) -> None:
        if tensor is not None:
            found[f"{kind} {name} {step}"] = seen_as(tensor)

    for step in range(STEPS):
        sums: "dict[str, torch.Tensor]" = {}
        for rank in batches:
            optimizer.zero_grad()
            for micro in range(micros):
                if sync == "each":
                    _add(sums, model, len(batches))
                    optimizer.zero_grad()
                loss_of(model, step, micro, rank).backward()
            for name, parameter in model.named_parameters():
                note(f"grad_unreduced/{rank}", name, step, parameter.grad)
            _add(sums, model, len(batches))
        optimizer.zero_grad()
        for name, parameter in model.named_parameters():
            parameter.grad = sums.get(name)
        recorder = Recorder(model, optimizer, seen_as)
        recorder.before(step)
        optimizer.step()
        recorder.after(step)
        found.update(recorder.found)
    return found


def _add(sums: "dict[str, torch.Tensor]", model: torch.nn.Module, of: int) -> None:
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            sums[name] = sums.get(name, torch.zeros_like(parameter)) + parameter.grad / of


class _Collectives(TorchDispatchMode):
    """Counts the collectives that are started. (torch's CommDebugMode fails with modules under FSDP.)"""

    count = 0

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        if any(kind.__name__ == "DTensor" for kind in types):
            return NotImplemented  # its own operators come next
        communicates = function.namespace in ("c10d", "c10d_functional", "_c10d_functional")
        self.count += communicates and "wait" not in str(function)
        return function(*arguments, **(keywords or {}))


def counted(body: "Callable[[], None]") -> int:
    """The collectives that the body has started."""
    mode = _Collectives()
    with mode:
        body()
    return mode.count


def attached(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> "list[str]":
    """What could be left on the objects of a training: hooks of modules, attributes of instances."""
    found = [f"optimizer.{name}" for name in vars(optimizer)]
    for name, module in model.named_modules():
        for kind in ("_forward_pre_hooks", "_forward_hooks", "_backward_hooks", "_backward_pre_hooks"):
            found += [f"{name}.{kind}"] * len(getattr(module, kind))
    for name, parameter in model.named_parameters():
        found += [f"{name}.{attribute}" for attribute in vars(parameter)]
        hooks = getattr(parameter, "_post_accumulate_grad_hooks", None) or {}
        found += [f"{name} has a hook"] * (len(parameter._backward_hooks or {}) + len(hooks))
    return sorted(found)


def compare(
    make: "Callable[[], tuple[torch.nn.Module, torch.optim.Optimizer]]", options: "dict[str, Any]"
) -> "dict[str, Any]":
    """Trains twice from the same state, the second time with gradmon; returns what was seen."""
    micros, sync = options.get("micros", 1), options.get("sync", "last")
    plain, plain_optimizer = make()
    without = counted(lambda: train(plain, plain_optimizer, micros, sync))
    model, optimizer = make()
    recorder = Recorder(model, optimizer)
    after: "list[str]" = []

    def watched() -> None:
        with gradmon.Monitor(options["config"], output_dir=options["out"], dynamic=False).watch(
            model, optimizer, grad_acc_steps=micros
        ) as monitor:
            jobs.reach_the_hub(monitor)  # all directories are of one run
            train(model, optimizer, micros, sync, recorder)
        after.extend(attached(model, optimizer))

    with_gradmon = counted(watched)
    equal = all(
        torch.equal(local(one), local(other)) for one, other in zip(plain.parameters(), model.parameters())
    )
    return {
        "recorded": recorder.found,
        "collectives": [without, with_gradmon],
        "equal": equal,
        "left": difference(after, attached(plain, plain_optimizer)),
    }


def difference(some: "list[str]", others: "list[str]") -> "list[str]":
    return sorted((Counter(some) - Counter(others)).elements())


def report(**found: Any) -> None:
    """To standard output: the test reads the last line."""
    print(json.dumps(found))
    dist.barrier()
