# SPDX-License-Identifier: Apache-2.0
"""Both kinds of activation checkpointing: rows are as if each forward ran once."""
from pathlib import Path
from typing import Any, Optional

import jobs
import pytest
import torch
import twice
from jobs import Parts
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

KINDS = pytest.mark.parametrize("reentrant", [False, True], ids=["not_reentrant", "reentrant"])


def linear() -> torch.nn.Module:
    return torch.nn.Linear(4, 4)


def block() -> torch.nn.Module:
    layers = {"fc": linear(), "act": torch.nn.GELU(), "drop": torch.nn.Dropout(0.3)}
    return Parts(lambda m, x: m.drop(m.act(m.fc(x))), **layers)


class Net(torch.nn.Module):
    """Recomputes its inner blocks; if `nested`, the second within the first. `reentrant` None: recomputes
    none."""

    def __init__(self, reentrant: Optional[bool], nested: bool = False, tied: bool = False) -> None:
        super().__init__()
        self.first = linear()
        self.outer = block()
        self.inner = block()
        self.last = torch.nn.Linear(4, 2)
        if tied:
            self.inner.fc.weight = self.outer.fc.weight
        self.reentrant = reentrant
        self.nested = nested

    def run(self, part: Any, x: torch.Tensor) -> torch.Tensor:
        return part(x) if self.reentrant is None else checkpoint(part, x, use_reentrant=self.reentrant)

    def both(self, x: torch.Tensor) -> torch.Tensor:
        return self.run(self.inner, self.outer(x))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        x = self.run(self.both, x) if self.nested else self.run(self.inner, self.run(self.outer, x))
        return self.last(x)


def train(noted: twice.Noted, monitor: Any, model: torch.nn.Module, micro_batches: int = 1) -> None:
    twice.train(noted, monitor, model, 2, micro_batches, grad_acc_steps=micro_batches)


def activations(model: torch.nn.Module, micro_batches: int = 1) -> "dict[str, dict[Any, torch.Tensor]]":
    """Activations and their gradients in the first step, without checkpoints."""
    kinds: "dict[str, dict[Any, torch.Tensor]]" = {"actv": {}, "actv_grad": {}}
    for micro in range(micro_batches):
        seen = twice.plain_activations(model, lambda: model(jobs.batch(0, micro)).pow(2).mean())
        for kind, tensors in zip(kinds.values(), seen):
            kind.update({(name, 0, micro): tensor for name, tensor in tensors.items()})
    return kinds


def check_activations(output: Path, expected: "dict[str, dict[Any, torch.Tensor]]") -> None:
    for kind, tensors in expected.items():
        found = {key: row for key, row in twice.read(output, kind).items() if key[1] == 0}
        twice.check_rows(found, tensors, kind)


@KINDS
@pytest.mark.parametrize("nested", [False, True], ids=["one_by_one", "nested"])
@pytest.mark.parametrize("micro_batches", [1, 3])
def test_rows_are_those_of_a_training_without_checkpoints(
    tmp_path: Path, reentrant: bool, nested: bool, micro_batches: int
) -> None:
    def training(noted: twice.Noted, monitor: Any) -> None:
        train(noted, monitor, Net(reentrant, nested), micro_batches)

    def without_checkpoints(noted: twice.Noted, monitor: Any) -> None:
        train(noted, monitor, Net(None, nested), micro_batches)

    noted = twice.compare(tmp_path, training)
    free = twice.without(without_checkpoints)
    assert all(torch.equal(one, other) for one, other in zip(noted.ends, free.ends))
    torch.manual_seed(7)
    check_activations(tmp_path / "out", activations(Net(None, nested), micro_batches))


@KINDS
def test_a_tied_weight_within_and_without(tmp_path: Path, reentrant: bool) -> None:
    twice.compare(tmp_path, lambda noted, monitor: train(noted, monitor, Net(reentrant, tied=True)))


@KINDS
def test_backwards_in_the_order_of_their_forwards_after_all_of_them(tmp_path: Path, reentrant: bool) -> None:
    def training(noted: twice.Noted, monitor: Any) -> None:
        model, optimizer = jobs.with_sgd(Net(reentrant))
        monitor.watch(model, optimizer, grad_acc_steps=3)
        for step in range(2):
            optimizer.zero_grad()
            losses = [model(jobs.batch(step, micro)).pow(2).mean() for micro in range(3)]
            for loss in losses:
                loss.backward()
            noted.gradients(model, step)
            optimizer.step()
        noted.stop(monitor, model, optimizer)

    twice.compare(tmp_path, training)
    torch.manual_seed(7)
    check_activations(tmp_path / "out", activations(Net(None), 3))


def test_a_sequence_in_segments(tmp_path: Path) -> None:
    def segments() -> torch.nn.Module:
        layers = torch.nn.Sequential(block(), block(), block(), block())
        return Parts(
            lambda m, x: checkpoint_sequential(m.layers, 2, x.requires_grad_(), use_reentrant=True),
            layers=layers,
        )

    twice.compare(tmp_path, lambda noted, monitor: train(noted, monitor, segments()))
    names = {name for name, step, _ in twice.read(tmp_path / "out", "actv") if step == 0}
    of_layers = {f"layers.{i}{part}" for i in range(4) for part in ("", ".fc", ".act", ".drop")}
    assert names == {f"{name}.{side}" for name in {"model", *of_layers} for side in ("input", "output")}


@pytest.mark.parametrize("impl", list(CheckpointImpl))
def test_torchs_wrapper_has_no_rows_beside_what_it_wraps(tmp_path: Path, impl: CheckpointImpl) -> None:
    def model() -> torch.nn.Module:
        layers = [checkpoint_wrapper(torch.nn.Linear(4, 4), checkpoint_impl=impl) for _ in range(2)]
        return torch.nn.Sequential(torch.nn.Linear(4, 4), *layers)

    twice.compare(tmp_path, lambda noted, monitor: train(noted, monitor, model()))  # no name is there twice
    for kind, needless in (("actv", set()), ("actv_grad", {"model.input", "0.input"})):
        names = {name for name, step, _ in twice.read(tmp_path / "out", kind) if step == 0}
        of_modules = {"model", "0", "1", "2"}
        assert names == {f"{name}.{side}" for name in of_modules for side in ("input", "output")} - needless


@KINDS
def test_a_part_that_is_never_recomputed_has_its_rows(tmp_path: Path, reentrant: bool) -> None:
    """Its output is not used in the loss, so backward never recomputes it."""

    def forward(model: Any, x: torch.Tensor) -> Any:
        x = x.requires_grad_()
        checkpoint(model.unused, x, use_reentrant=reentrant)
        return checkpoint(model.used, x, use_reentrant=reentrant)

    def training(noted: twice.Noted, monitor: Any) -> None:
        train(noted, monitor, Parts(forward, used=linear(), unused=linear()))

    twice.compare(tmp_path, training)
    seen = {name for name, _, _ in twice.read(tmp_path / "out", "actv")}
    backward = {name for name, _, _ in twice.read(tmp_path / "out", "actv_grad")}
    assert {"unused.output", "used.output"} <= seen
    assert "used.output" in backward and "unused.output" not in backward


def test_features_are_invisible_to_selective_checkpointing(tmp_path: Path) -> None:
    """Its recomputation takes the n-th result of an operator that the forward has kept."""
    selective = torch.utils.checkpoint.create_selective_checkpoint_contexts

    def forward(model: Any, x: torch.Tensor) -> Any:
        kept = [torch.ops.aten._softmax.default]
        return checkpoint(model.moe, x, use_reentrant=False, context_fn=lambda: selective(kept))

    def training(noted: twice.Noted, monitor: Any) -> None:
        experts = {"router": linear(), "experts": linear()}
        moe = Parts(lambda m, x: m.router(x).softmax(-1) * m.experts(x), **experts)
        train(noted, monitor, Parts(forward, moe=moe))

    keys = {"moe_router_logit_hook": ["moe.router"]}
    config = jobs.write_config(tmp_path, recording_l2_features=True, l2_targets=keys)
    plain = twice.without(training)
    twice.check_same_training(plain, twice.with_monitor(config, tmp_path / "out", training))
    assert list((tmp_path / "out").rglob("moe_router_logit_hook_*.csv"))
