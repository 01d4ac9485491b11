# SPDX-License-Identifier: Apache-2.0
"""Tensors and backward passes of unusual kinds: each row is right, or is missing with a reason, and the other
rows are those of plain torch."""
import contextlib
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional

import gradmon
import jobs
import pytest
import torch
import twice
from torch import nn

Watch = Callable[[nn.Module, Any], gradmon.Monitor]


def watch_in(directory: Path, **keys: Any) -> Watch:
    directory.mkdir(exist_ok=True)
    monitor = jobs.monitor(directory, jobs.ALONE, squash_name=False, **{**twice.EVERYTHING, **keys})
    watch: Watch = monitor.watch
    return watch


def train(
    model: nn.Module,
    width: int,
    watch: Optional[Watch] = None,
    before: "Callable[[int], Any]" = lambda _: None,
    optimizer: "Callable[..., Any]" = torch.optim.SGD,
    **options: Any,
) -> "list[torch.Tensor]":
    """Two steps; returns the weights at the end."""
    made = optimizer(model.parameters(), lr=0.01, **options)
    with watch(model, made) if watch is not None else contextlib.nullcontext():
        for step in range(2):
            before(step)
            made.zero_grad()
            torch.manual_seed(step)
            model(torch.randn(3, width)).square().mean().backward()
            made.step()
    return [parameter.detach().clone() for parameter in model.parameters()]


def logical(tensor: torch.Tensor) -> torch.Tensor:
    """The numbers that the tensor shows."""
    shown = tensor.detach().resolve_conj().resolve_neg()
    return torch.view_as_real(shown) if shown.is_complex() else shown


def check_rows(output: Path, seen: "dict[tuple[str, str, int], torch.Tensor]") -> None:
    found = {kind: jobs.rows(output, kind) for kind in ("actv", "actv_grad")}
    for (kind, name, step), tensor in seen.items():
        expected = jobs.expected(logical(tensor))
        jobs.check_values(found[kind][name, step, 0], expected, (kind, name, step), 1e-5)


# --- activations that are written between two modules, and lazy views ---


class WriteInMemory(torch.autograd.Function):
    """As a fused kernel: writes to its input, and leaves the version as it is."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        memory = x.detach().numpy()
        memory *= 3
        memory += 0.5
        return x

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 3


class Written(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 1)
        self.kernel = applied(WriteInMemory.apply)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.second(self.kernel(self.first(x)))
        x.data.mul_(10)
        return self.third(x)


def applied(function: Callable[[torch.Tensor], Any]) -> nn.Module:
    return jobs.Parts(lambda _, x: function(x))


class Lazy(nn.Module):
    """Views that show conjugate or negative values of memory that another tensor shows, too."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, dtype=torch.complex64))
        self.conjugate, self.imaginary = applied(torch.conj), applied(torch.imag)
        self.both = applied(lambda x: (x * 1, (x * 1).conj()))
        self.twice = applied(lambda x: (lambda y: (y, y.conj()))(x * 1))
        self.once, self.again = applied(torch.conj), applied(torch.conj)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conjugate(torch.fft.fft(x) * self.weight)
        a, b = self.both(y)
        c, d = self.twice(y)
        z = self.again(self.once(torch.fft.fft(x) * self.weight))
        mixed = (z * (1 + 2j)).real.sum() + (a * b).real.sum() + (c * d * (1 + 2j)).real.sum()
        return mixed + self.imaginary(y).pow(2).sum()


def seen_by_plain_hooks(model: nn.Module, width: int) -> "dict[tuple[str, str, int], torch.Tensor]":
    """What plain forward hooks see, by kind, name and step; of gradients, what tensor hooks see."""
    seen: "dict[tuple[str, str, int], torch.Tensor]" = {}
    at = [0]

    def note(kind: str, name: str, tensor: torch.Tensor) -> None:
        seen[kind, name, at[0]] = logical(tensor).clone()

    for name, module in model.named_children():

        def enter(_: Any, inputs: Any, name: str = name) -> None:
            note("actv", name + ".input", inputs[0])

        def leave(_: Any, __: Any, output: Any, name: str = name) -> None:
            outputs = output if isinstance(output, tuple) else (output,)
            for place, one in enumerate(outputs):
                title = name + (f".output_{place}" if len(outputs) > 1 else ".output")
                note("actv", title, one)
                one.register_hook(lambda g, title=title: note("actv_grad", title, g))

        module.register_forward_pre_hook(enter)
        module.register_forward_hook(leave)
    train(model, width, before=lambda step: at.__setitem__(0, step))
    return seen


def made(kind: type) -> nn.Module:
    torch.manual_seed(21)
    module: nn.Module = kind()
    return module


@pytest.mark.parametrize("kind, width", [(Written, 4), (Lazy, 5)])
def test_a_row_shows_what_is_there_when_a_module_sees_it(tmp_path: Path, kind: type, width: int) -> None:
    seen = seen_by_plain_hooks(made(kind), width)
    model = made(kind)
    ends = train(model, width, watch_in(tmp_path))
    assert all(torch.equal(one, other) for one, other in zip(ends, train(made(kind), width)))
    check_rows(tmp_path / "out", seen)
    assert len(seen) > 20


def test_reused_readings_are_those_of_views_alike_and_miss_writes_without_a_version(tmp_path: Path) -> None:
    seen = seen_by_plain_hooks(made(Lazy), 5)
    train(made(Lazy), 5, watch_in(tmp_path, reuse_readings=True))
    check_rows(tmp_path / "out", seen)
    train(made(Written), 4, watch_in(tmp_path / "written", reuse_readings=True))
    rows = jobs.rows(tmp_path / "written/out", "actv")
    assert rows["third.input", 0, 0] == rows["second.output", 0, 0]  # what its page says that it cannot see


# --- tensors of other kinds at a module's boundary ---


def nested(x: torch.Tensor, **layout: Any) -> torch.Tensor:
    tensor: torch.Tensor = torch.nested.as_nested_tensor([x[:1], x[1:]], **layout)
    return tensor


def inference(x: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        return x.detach() * 2


def without_storage(x: torch.Tensor) -> torch.Tensor:
    freed = x.detach().clone()
    freed.untyped_storage().resize_(0)
    return freed


def fake(x: torch.Tensor) -> torch.Tensor:
    """As torch.export makes it, with sizes that are symbols."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    tensor: torch.Tensor = FakeTensorMode(shape_env=ShapeEnv()).from_tensor(x.detach())
    assert isinstance(tensor.shape[0], torch.SymInt)
    return tensor


class Wrapped(NamedTuple):
    """What goes through the inner module, and what its rows are of; None: there are none."""

    make: Callable[[torch.Tensor], Any]
    rows: "Optional[Callable[[torch.Tensor], torch.Tensor]]" = None
    add: "Optional[Callable[[Any], torch.Tensor]]" = None  # the inner module's result takes part in the loss
    around: "Optional[Callable[[nn.Module, torch.Tensor], Any]]" = None


def dense(x: torch.Tensor) -> torch.Tensor:
    return x


KINDS: "dict[str, Wrapped]" = {
    "coo": Wrapped(lambda x: x.to_sparse(), dense, lambda y: y.to_dense()),
    "csr": Wrapped(lambda x: x.detach().to_sparse_csr(), dense),
    "csc": Wrapped(lambda x: x.detach().to_sparse_csc(), dense),
    "bsr": Wrapped(lambda x: x.detach().to_sparse_bsr((1, 2)), dense),
    "mkldnn": Wrapped(lambda x: x.to_mkldnn(), dense, lambda y: y.to_dense()),
    "quantized": Wrapped(
        lambda x: torch.quantize_per_tensor(x.detach(), 0.1, 0, torch.qint8),
        lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).dequantize(),
    ),
    "meta": Wrapped(lambda x: x.detach().to("meta")),
    "inference": Wrapped(inference, lambda x: x * 2),
    "no elements": Wrapped(lambda x: x[:0], None, lambda y: y.sum()),
    "expanded": Wrapped(lambda x: x[:1].expand(5, -1), lambda x: x[:1].expand(5, -1), lambda y: y.mean()),
    "a scalar": Wrapped(lambda x: x.sum(), lambda x: x.sum(), dense),
    "whole numbers": Wrapped(lambda x: x.detach().long(), lambda x: x.long()),
    "overlapping": Wrapped(lambda x: x.as_strided((4, 2), (1, 1)), lambda x: x.as_strided((4, 2), (1, 1))),
    "complex": Wrapped(lambda x: torch.complex(x, x), lambda x: torch.complex(x, x), lambda y: y.real),
    "nested": Wrapped(nested, None, lambda y: torch.nested.to_padded_tensor(y, 0.0)),
    "jagged": Wrapped(lambda x: nested(x, layout=torch.jagged), None, lambda y: y.values()),
    "without storage": Wrapped(without_storage),
    "fake": Wrapped(fake),
    "within vmap": Wrapped(dense, None, dense, lambda inner, x: torch.func.vmap(inner)(x)),
    "within vmap, complex": Wrapped(
        dense, None, torch.real, lambda inner, x: torch.func.vmap(inner)(torch.complex(x, x).conj())
    ),
    "within grad": Wrapped(dense, None, dense, lambda inner, x: torch.func.grad(lambda v: inner(v).sum())(x)),
    "within jvp": Wrapped(
        dense, None, dense, lambda inner, x: torch.func.jvp(inner, (x,), (torch.ones_like(x),))[1]
    ),
    "within functionalize": Wrapped(dense, None, dense, lambda inner, x: torch.func.functionalize(inner)(x)),
}


class Aside(nn.Module):
    """Sends a tensor of that kind through a module."""

    def __init__(self, kind: Wrapped) -> None:
        super().__init__()
        self.kind = kind
        self.inner = nn.Identity()
        self.inputs: "list[torch.Tensor]" = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.inputs.append(x.detach().clone())
        value = self.kind.make(x)
        result = self.kind.around(self.inner, value) if self.kind.around else self.inner(value)
        return x + 0 * self.kind.add(result).sum() if self.kind.add else x


ALL_KINDS = ("actv", "actv_grad", "grad_unreduced", "grad_reduced", "param_updated")


def rows_beside(tmp_path: Path, kind: Wrapped, **keys: Any) -> "tuple[Any, Any]":
    """All rows, by kind, and the model after a training of two steps."""
    torch.manual_seed(3)
    layers = {"first": nn.Linear(4, 4), "aside": Aside(kind), "last": nn.Linear(4, 2)}
    model = jobs.Parts(lambda m, x: m.last(m.aside(m.first(x))), **layers)
    train(model, 4, watch_in(tmp_path, print_struct=True, **keys))
    return {one: jobs.rows(tmp_path / "out", one) for one in ALL_KINDS}, model


def of_inner(name: str) -> bool:
    return name.startswith("aside.inner.")


@pytest.mark.parametrize("name", KINDS)
def test_a_tensor_of_another_kind_has_its_rows_or_none_and_the_others_stay(tmp_path: Path, name: str) -> None:
    kind = KINDS[name]
    plain, _ = rows_beside(tmp_path / "plain", Wrapped(lambda x: x * 1, add=kind.add and dense))
    found, model = rows_beside(tmp_path / "kind", kind)
    for one in ALL_KINDS:
        rest = {key: row for key, row in found[one].items() if not of_inner(key[0])}
        expected = {key: row for key, row in plain[one].items() if not of_inner(key[0])}
        assert rest.keys() == expected.keys(), one
        for key, row in rest.items():
            assert row == pytest.approx(expected[key], rel=1e-5, abs=1e-7, nan_ok=True), (one, key)
    inner = {key: row for key, row in found["actv"].items() if of_inner(key[0])}
    sides = ("input", "output") if kind.rows is not None else ()
    assert {key[:2] for key in inner} == {(f"aside.inner.{side}", i) for side in sides for i in (0, 1)}
    for (_, step, _), row in inner.items():
        jobs.check_values(row, jobs.expected(logical(kind.rows(model.aside.inputs[step]))), name, 1e-5)


# --- gradients that no hook of an accumulator sees, and moments of negated gradients ---


OPTIMIZERS = [
    (torch.optim.Adam, {}),
    (torch.optim.Adam, {"foreach": False}),
    (torch.optim.Adam, {"foreach": True, "weight_decay": 0.1}),
    (torch.optim.Adam, {"fused": True}),
    (torch.optim.Adam, {"amsgrad": True}),
    (torch.optim.AdamW, {}),
    (torch.optim.SGD, {"momentum": 0.9}),
    (torch.optim.SGD, {"momentum": 0.9, "dampening": 0.5, "nesterov": False}),
    (torch.optim.RMSprop, {"momentum": 0.9}),
    (torch.optim.NAdam, {}),
    (torch.optim.RAdam, {}),
]


@pytest.mark.parametrize("optimizer, options", OPTIMIZERS)
@pytest.mark.parametrize("maximize", [False, True])
def test_mg_direction_compares_the_gradient_as_the_optimizer_uses_it(
    tmp_path: Path, optimizer: Any, options: "dict[str, Any]", maximize: bool
) -> None:
    """The gradient is the same in both steps, so that the momentum has its sign everywhere."""

    def forward(model: Any, _: torch.Tensor) -> torch.Tensor:
        slope = torch.linspace(-1, 1, 8).reshape(2, 4)
        return ((model.fc.weight - model.fc.weight.detach()) * slope).sum() + torch.ones(())

    same = jobs.Parts(forward, fc=nn.Linear(4, 2, bias=False))
    watch = watch_in(tmp_path, mg_direction=True, xy_distribution=False)
    train(same, 4, watch, optimizer=optimizer, maximize=maximize, **options)
    found = jobs.rows(tmp_path / "out", "other")
    assert found == {("fc.weight", 1, 0): {"mg_direction": 1.0}}
