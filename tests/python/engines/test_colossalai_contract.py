# SPDX-License-Identifier: Apache-2.0
"""gradmon.colossalai.watch with a stand-in for ColossalAI's ZeRO optimizer, which has the names that gradmon
relies on (`python3 -m gradmon.doctor --framework colossalai` looks for them in the real one): two ranks in
one process, rows against plain torch."""
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Optional

import gradmon
import jobs
import pytest
import torch
import twice

RANKS, STEPS, SKIPPED = 2, 4, 2  # the step that an overflow leaves out
REDUCED = ("grad_reduced", "param_origin", "param_updated", "exp_avg", "exp_avg_sq")


class ModelWrapper(torch.nn.Module):
    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.module(x)


class LowLevelZeroOptimizer:
    """Its parameters are cut evenly, after padding; each rank updates its own runs, in float32 copies.
    `takes_away`: stage 2, a hook of its own takes each gradient out of `grad`."""

    def __init__(self, model: torch.nn.Module, rank: int, takes_away: bool) -> None:
        self.working = list(model.parameters())
        self.bucket = SimpleNamespace(world_size=RANKS, local_rank=rank)
        self.pid_to_bucket_store = {id(one): self.bucket for one in self.working}
        self.masters = [self.cut(one.detach())[rank].clone() for one in self.working]
        self.optim = torch.optim.AdamW(self.masters, lr=0.01)
        self.taken: "dict[int, torch.Tensor]" = {}
        self.require_grad_sync = True
        if takes_away:
            for one in self.working:
                one.register_post_accumulate_grad_hook(self.take)

    def cut(self, tensor: torch.Tensor) -> "tuple[torch.Tensor, ...]":
        flat = torch.nn.functional.pad(tensor.flatten(), [0, -tensor.numel() % RANKS])
        return flat.split(flat.numel() // RANKS)

    def get_working_to_master_map(self) -> "dict[int, torch.Tensor]":
        return {id(one): master for one, master in zip(self.working, self.masters)}

    def get_param_padding_size(self, parameter: torch.Tensor) -> int:
        return -parameter.numel() % RANKS

    def take(self, parameter: torch.Tensor) -> None:
        if parameter.grad is not None:
            self.taken[id(parameter)] = parameter.grad
            parameter.grad = None

    def step(self, reduced: "Optional[list[torch.Tensor]]" = None) -> None:
        """reduced: the mean gradients; None: there was an overflow."""
        if reduced is None or not self.require_grad_sync:
            return
        present = []
        for one, master, gradient in zip(self.working, self.masters, reduced):
            master.grad = self.cut(gradient)[self.bucket.local_rank]
            present.append(master)
        self.optim.param_groups[0]["params"] = present  # as the real one swaps them
        self.optim.step()
        self.optim.param_groups[0]["params"] = self.masters
        for master in self.masters:
            master.grad = None


def train(tmp_path: "Optional[Path]", takes_away: bool) -> "tuple[Any, list[torch.Tensor], twice.Noted]":
    models = [jobs.make_net() for _ in range(RANKS)]
    for model in models:
        del model.spare  # the real one would leave it out of a step
    optimizers = [LowLevelZeroOptimizer(model, rank, takes_away) for rank, model in enumerate(models)]
    noted, monitors = twice.Noted(), []
    before = traces(models, optimizers)
    for rank in range(RANKS if tmp_path is not None else 0):
        assert tmp_path is not None
        keys = {"rank": rank, "world_size": RANKS, "dynamic": False}
        directory = tmp_path / f"out{rank}"
        config = jobs.write_config(tmp_path, **twice.EVERYTHING)
        wrapped = ModelWrapper(ModelWrapper(models[rank]))
        monitors.append(
            gradmon.colossalai.watch(wrapped, optimizers[rank], config, output_dir=directory, **keys)
        )
    names = [name for name, _ in models[0].named_parameters()]
    for step in range(STEPS):
        for rank, (model, optimizer) in enumerate(zip(models, optimizers)):
            model(jobs.batch(step, rank)).pow(2).mean().backward()
            for parameter in model.parameters():
                optimizer.take(parameter)
            for name, one in zip(names, optimizer.working):
                noted.note(f"grad_unreduced/{rank}", name, step, optimizer.taken[id(one)])
        taken = [[one.taken[id(working)] for working in one.working] for one in optimizers]
        reduced = [(one + other) / RANKS for one, other in zip(*taken)]
        for optimizer in optimizers:
            optimizer.step(None if step == SKIPPED else reduced)
        if step != SKIPPED:
            for name, gradient in zip(names, reduced):
                noted.note("grad_reduced", name, step, gradient)
        with torch.no_grad():  # the real one gathers
            for number, working in enumerate(zip(*(one.working for one in optimizers))):
                flat = torch.cat([one.masters[number] for one in optimizers])
                for one in working:
                    one.copy_(flat[: one.numel()].reshape(one.shape))
        for name, one in zip(names, optimizers[0].working):
            noted.note("weights", name, step, one)
    labels = [gradmon.colossalai.scopes(model, one) for model, one in zip(models, optimizers)]
    for monitor in monitors:
        monitor.stop()
    assert traces(models, optimizers) == before
    return labels, [one for optimizer in optimizers for one in optimizer.masters], noted


def traces(models: "list[Any]", optimizers: "list[Any]") -> "list[Any]":
    """The traces that gradmon could leave."""
    found: "list[Any]" = [sorted(vars(one)) for one in optimizers]
    found += [sorted(vars(one.optim)) for one in optimizers]
    found += [len(one.optim._optimizer_step_pre_hooks) for one in optimizers]
    for model in models:
        found += [len(one._post_accumulate_grad_hooks or ()) for one in model.parameters()]
    return found


def run_of(scope: "dict[str, Any]") -> "tuple[int, int]":
    assert scope["scope"] == "piece"
    return scope["begin"], scope["count"]


@pytest.mark.parametrize("takes_away", [False, True])
def test_rows_are_of_whole_gradients_and_of_each_ranks_pieces(tmp_path: Path, takes_away: bool) -> None:
    _, bare, _ = train(None, takes_away)
    labels, watched, noted = train(tmp_path, takes_away)
    assert all(torch.equal(one, other) for one, other in zip(bare, watched))
    for rank in range(RANKS):
        out = tmp_path / f"out{rank}"
        unreduced = noted.tensors[f"grad_unreduced/{rank}"]
        twice.check_rows(twice.read(out, "grad_unreduced", rank), unreduced, "grad_unreduced")
        for kind, whole in (("grad_reduced", "grad_reduced"), ("param_updated", "weights")):
            expected = {}
            for (name, step, micro), tensor in noted.tensors[whole].items():
                if step != SKIPPED:
                    begin, count = run_of(labels[rank][kind][name])
                    expected[name, step, micro] = tensor.flatten()[begin : begin + count]
            twice.check_rows(twice.read(out, kind, rank), expected, kind)
        steps = {step for _, step, _ in twice.read(out, "exp_avg", rank)}
        assert steps == set(range(1, STEPS)) - {SKIPPED}
    for name in labels[0]["grad_reduced"]:  # each element once
        runs = [run_of(labels[rank]["grad_reduced"][name]) for rank in range(RANKS)]
        shape = labels[0]["grad_reduced"][name]["shape"]
        assert runs[0][0] == 0 and runs[0][1] == runs[1][0]
        assert sum(runs[1]) == torch.Size(shape).numel()


class GeminiOptimizer:
    def step(self) -> None:
        pass


def test_gemini_is_refused_by_name(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    config = jobs.write_config(tmp_path, wg_distribution=True)
    optimizer = GeminiOptimizer()
    monitor = gradmon.colossalai.watch(jobs.make_net(), optimizer, config, dynamic=False)
    assert monitor.status() is None and "step" not in vars(optimizer)
    assert "nothing is watched: GeminiOptimizer: Gemini takes gradients away" in capfd.readouterr().err
