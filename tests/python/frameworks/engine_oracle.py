# SPDX-License-Identifier: Apache-2.0
"""What an engine's training is held to: the same training in plain torch beside it, in each rank."""
import json
import re
from pathlib import Path
from typing import Any, Callable, Iterable, Optional

import torch
import torch.distributed as dist
import twice

import gradmon

LR = 0.01
TOLERANCE = 1e-6
REDUCED = ("grad_reduced", "param_origin", "param_updated", "exp_avg", "exp_avg_sq")


class Plain:
    """Each rank's own gradients, their mean over the ranks, and AdamW in float32."""

    def __init__(
        self, model: torch.nn.Module, noted: twice.Noted, micro: int, group: Any, **how: Any
    ) -> None:
        """micro: micro batches of a step. group: the data-parallel ranks. how: prefix (of the names), decay,
        last_alone (unreduced gradients are those of a step's last micro batch)."""
        self.model, self.noted, self.micro, self.group = model, noted, micro, group
        self.prefix: str = how.get("prefix", "")
        self.last_alone = bool(how.get("last_alone"))
        self.sums = bool(how.get("sums"))  # over the ranks, instead of their mean
        self.masters = {name: p.detach().clone().float() for name, p in model.named_parameters()}
        self.optimizer = torch.optim.AdamW(self.masters.values(), lr=LR, weight_decay=how.get("decay", 0.01))
        self.step_number = 0

    def accumulate(self, losses: "Iterable[Callable[[torch.nn.Module], torch.Tensor]]") -> None:
        """losses: one for each micro batch. Each master has the mean gradient of all ranks afterwards."""
        total: "dict[str, torch.Tensor]" = {}
        for loss in losses:
            self.model.zero_grad()
            (loss(self.model) / self.micro).backward()
            for name, parameter in self.model.named_parameters():
                if parameter.grad is not None:
                    total[name] = total.get(name, 0) + parameter.grad.detach().float()
        for name, parameter in self.model.named_parameters():
            if name in total:
                self._note("grad_unreduced", name, parameter.grad if self.last_alone else total[name])
                dist.all_reduce(total[name], group=self.group)
                total[name] /= 1 if self.sums else dist.get_world_size(self.group)
        for name, master in self.masters.items():
            master.grad = total.get(name)

    def take_weights(self, weights: "dict[str, torch.Tensor]") -> None:
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(weights[name])
                self.masters[name].copy_(weights[name])

    def update(
        self, others: "Iterable[str]" = (), afterwards: "Optional[dict[str, torch.Tensor]]" = None
    ) -> None:
        """others: another optimizer updates them, and has moments of its own. afterwards: the weights that
        the update makes, if not those of AdamW."""
        for name, master in self.masters.items():
            if master.grad is None:
                continue
            self._note("grad_reduced", name, master.grad)
            self._note("param_origin", name, master)
            for key in ("exp_avg", "exp_avg_sq"):
                if master in self.optimizer.state and name not in others:
                    self._note(key, name, self.optimizer.state[master][key])
        self.optimizer.step()
        if afterwards is not None:
            self.take_weights(afterwards)
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(self.masters[name])
                if self.masters[name].grad is not None:
                    self._note("param_updated", name, self.masters[name])
        self.step_number += 1

    def _note(self, kind: str, name: str, tensor: Any) -> None:
        self.noted.note(kind, self.prefix + name, self.step_number, tensor)


def clip(
    masters: "list[dict[str, torch.Tensor]]",
    norm: float,
    counts: "Callable[[torch.Tensor, str], bool]" = lambda *_: True,
    group: Any = None,
) -> None:
    """Clips to a norm over all of them, and over the ranks of the group, of what counts on this rank."""
    named = [(name, one.grad) for of in masters for name, one in of.items() if one.grad is not None]
    squares = torch.zeros((), dtype=torch.float64)
    for name, gradient in named:
        squares += gradient.double().norm() ** 2 if counts(gradient, name) else 0.0
    if group is not None:
        dist.all_reduce(squares, group=group)
    factor = min(1.0, norm / (squares.sqrt().item() + 1e-6))
    for _, gradient in named:
        gradient *= factor


def check_rows(
    out: Path, rank: int, noted: twice.Noted, scopes: "dict[str, Any]", zeros_first: "tuple[str, ...]" = ()
) -> None:
    """This rank's rows are those of plain torch's tensors, each cut to the run that its label tells.

    zeros_first: kinds in which the first step may have rows of zeros."""
    for kind in ("grad_unreduced", *REDUCED):
        found = twice.read(out, kind, rank)
        for key in [
            one for one, row in found.items() if kind in zeros_first and one[1] == 0 and not row["norm"]
        ]:
            del found[key]
        expected = {key: tensor for key, tensor in noted.tensors[kind].items() if key[0] in scopes[kind]}
        assert found.keys() == expected.keys(), (kind, sorted(found.keys() ^ expected.keys())[:8])
        for key, tensor in expected.items():
            label = scopes[kind][key[0]]
            if label["scope"] != "partial":  # of a summand the whole says nothing
                check_close(found[key], cut_by(label, tensor), tensor, (kind, *key))


def run_of(scope: "dict[str, Any]") -> "tuple[int, int]":
    """First element and number of elements, in this rank's box of the flattened parameter."""
    shape = scope.get("size", scope["shape"])
    return scope.get("begin", 0), scope.get("count", torch.Size(shape).numel())


def cut_by(scope: "dict[str, Any]", tensor: torch.Tensor) -> torch.Tensor:
    assert list(tensor.shape) == scope.get("size", scope["shape"])
    first, numel = run_of(scope)
    return tensor.flatten()[first : first + numel]


def check_close(found: "dict[str, Any]", cut: torch.Tensor, whole: torch.Tensor, what: object) -> None:
    x = cut.double()
    bound = TOLERANCE * max(whole.double().norm().item(), 1e-3)
    for op, value in {"min": x.min(), "max": x.max(), "mean": x.mean(), "norm": x.norm()}.items():
        assert abs(found[op] - value.item()) <= bound, (what, op, found[op], value.item())


def whole_of(noted: twice.Noted, scopes: "dict[str, Any]", group: Any) -> twice.Noted:
    """The tensors of plain torch, put together from the boxes that the ranks of a group have."""
    found = twice.Noted()
    for kind in ("grad_unreduced", *REDUCED):
        own = [(key, scopes[kind].get(key[0], {}), tensor) for key, tensor in noted.tensors[kind].items()]
        everyones: "list[Any]" = [None] * dist.get_world_size(group)
        dist.all_gather_object(everyones, own, group=group)
        for key, scope, tensor in (one for of_rank in everyones for one in of_rank):
            if "offset" not in scope:
                found.tensors[kind][key] = tensor
                continue
            whole = found.tensors[kind].setdefault(key, torch.full(scope["shape"], torch.nan))
            whole[tuple(slice(begin, begin + n) for begin, n in zip(scope["offset"], scope["size"]))] = tensor
    return found


def save(directory: Path, noted: twice.Noted) -> None:
    """For check_joined(). Of one rank, with whole tensors."""
    statistics = {
        kind: {f"{name} {step}": _statistics(tensor) for (name, step, _), tensor in tensors.items()}
        for kind, tensors in noted.tensors.items()
    }
    (directory / "plain.json").write_text(json.dumps(statistics))


def _statistics(tensor: torch.Tensor) -> "dict[str, float]":
    x = tensor.double()
    found = {"min": x.min(), "max": x.max(), "mean": x.mean(), "norm": x.norm()}
    return {**{op: value.item() for op, value in found.items()}, "magnitude": x.abs().max().item()}


def check_joined(directory: Path, kind: str, zeros_first: bool = False, names: str = "") -> int:
    """gradmon.load(whole=True) has each parameter of plain torch's, once, with its statistics. Returns the
    number of parameters and steps. zeros_first: moments may have rows of zeros in the first step. names: a
    regular expression."""
    expected = json.loads((directory / "plain.json").read_text())[kind]
    pattern = re.compile(names)
    expected = {key: one for key, one in expected.items() if pattern.search(key.split()[0])}
    table = gradmon.load(directory / "out", kind=kind, names=pattern, whole=True)
    found: "dict[str, dict[str, float]]" = {}
    for row in table.itertuples(index=False):
        stage = f"{row.vpp_stage}:" if row.vpp_stage else ""
        of_row = found.setdefault(f"{stage}{row.name} {row.step}", {})
        assert row.op not in of_row, ("twice", kind, row)
        of_row[row.op] = row.value
    if zeros_first and kind.startswith("exp_avg"):
        found = {key: one for key, one in found.items() if not key.endswith(" 0") or one["norm"]}
    assert found.keys() == expected.keys(), (kind, sorted(found.keys() ^ expected.keys())[:8])
    for key, values in expected.items():
        bounds = {"norm": values["norm"]}
        for op in ("norm", "min", "max", "mean"):
            bound = TOLERANCE * max(bounds.get(op, values["magnitude"]), 1e-3)
            assert abs(found[key][op] - values[op]) <= bound, (kind, key, op, found[key][op], values[op])
    return len(expected)


def check_same(bare: "dict[str, Any]", watched: "dict[str, Any]") -> None:
    """Bit for bit: final weights, state of the optimizers, and the number of collectives."""
    assert bare["collectives"] == watched["collectives"] > 0
    assert bare["ends"] and len(bare["ends"]) == len(watched["ends"])
    assert all(torch.equal(one, other) for one, other in zip(bare["ends"], watched["ends"]))


class CountedCollectives:
    """Counts the collectives of all groups while it is entered."""

    def __init__(self) -> None:
        self.before = self.count = 0

    def __enter__(self) -> "CountedCollectives":
        self.before = self._sequence()
        return self

    def __exit__(self, *_: Any) -> None:
        self.count = self._sequence() - self.before

    @staticmethod
    def _sequence() -> int:
        return sum(
            int(group._get_sequence_number_for_group())
            for group in dist.distributed_c10d._world.pg_map
            if group is not None
        )
