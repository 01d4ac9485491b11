# SPDX-License-Identifier: Apache-2.0
"""torchft's replica groups are jobs of their own, and a step that is not committed has no update. With
torchft itself: trainers/test_torchft.py."""
import sys
import types
from pathlib import Path
from typing import Any, Optional

import gradmon
import jobs
import pytest
import ranks
import torch
from gradmon._communication import replica_group_of


class Manager:
    """What gradmon knows of torchft's."""

    def __init__(self, replica_id: Optional[str], made: str, commits: "list[bool]" = []) -> None:
        self._replica_id = replica_id
        self._logger = types.SimpleNamespace(_replica_id=made)
        self.commits = list(commits)
        self.loaded: "Optional[torch.Tensor]" = None

    def should_commit(self) -> bool:
        return self.commits.pop(0)


class OptimizerWrapper(torch.optim.Optimizer):
    """As torchft's: without the state of torch's own class."""

    def __init__(self, manager: Manager, optim: Any) -> None:
        self.optim = optim
        self.manager = manager

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.optim.zero_grad(set_to_none)

    def step(self, closure: Any = None) -> None:
        assert closure is None
        if self.manager.should_commit():
            if self.manager.loaded is not None:  # another group's weights
                with torch.no_grad():
                    self.param_groups[0]["params"][0].copy_(self.manager.loaded)
            self.optim.step()

    @property
    def param_groups(self) -> Any:
        return self.optim.param_groups

    @param_groups.setter
    def param_groups(self, groups: Any) -> None:
        raise AssertionError

    @property
    def state(self) -> Any:
        return self.optim.state


OptimizerWrapper.__module__ = "torchft.optim"
UUID = "3f1c8c1e-0000-4000-8000-000000000012"


@pytest.mark.parametrize(
    ("replica_id", "made", "group"),
    [
        ("train_ddp_1", f"train_ddp_1:{UUID}", "1"),
        (None, f"train_ddp_12:{UUID}", "12"),  # only the first rank gives it
        ("alpha/b", f"alpha/b:{UUID}", "alpha_b"),
        (None, UUID, UUID),
    ],
)
def test_the_manager_names_the_group(replica_id: Any, made: str, group: str) -> None:
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    assert replica_group_of(OptimizerWrapper(Manager(replica_id, made), optimizer)) == group
    assert replica_group_of(optimizer) == replica_group_of(None) == ""


def trained(out: Path, steps: int, manager: Manager, **keys: Any) -> "tuple[Any, Any]":
    model = jobs.make_net()
    inner = torch.optim.Adam(model.parameters(), lr=0.1)
    optimizer = OptimizerWrapper(manager, inner)
    options = {**jobs.ALONE, "output_dir": out}
    with jobs.monitor(out, options, **{**jobs.EVERYTHING, **keys}).watch(model, optimizer):
        jobs.train(model, optimizer, steps)
    assert "step" not in vars(inner) and "step" not in vars(optimizer)
    return model, inner


def test_a_step_that_is_not_committed_has_all_rows_but_the_updates(tmp_path: Path) -> None:
    model, _ = trained(tmp_path, 4, Manager("a_0", f"a_0:{UUID}", [True, False, True, False]))
    out = tmp_path / "group-0"
    for kind in ("grad_unreduced", "grad_reduced", "param_origin", "actv"):
        assert {step for _, step, _ in jobs.rows(out, kind)} == {0, 1, 2, 3}, kind
    assert {step for _, step, _ in jobs.rows(out, "param_updated")} == {0, 2}
    plain = jobs.make_net()
    optimizer = torch.optim.Adam(plain.parameters(), lr=0.1)
    rows = jobs.rows(out, "grad_reduced")

    def check(step: int) -> None:
        for name, parameter in plain.named_parameters():
            if parameter.grad is not None:
                norm = rows[name, step, 0]["norm"]
                assert norm == pytest.approx(parameter.grad.norm().item(), rel=1e-6)

    manager = Manager("a_0", f"a_0:{UUID}", [True, False, True, False])
    jobs.train(plain, OptimizerWrapper(manager, optimizer), 4, reduced=check)
    assert all(torch.equal(one, other) for one, other in zip(model.parameters(), plain.parameters()))


def test_weights_that_torchft_loads_are_those_before_the_update(tmp_path: Path) -> None:
    manager = Manager("a_0", f"a_0:{UUID}", [True])
    manager.loaded = torch.full((6, 4), 2.0)
    trained(tmp_path, 1, manager)
    row = jobs.rows(tmp_path / "group-0", "param_origin")["fc1.weight", 0, 0]
    assert (row["min"], row["max"]) == (2.0, 2.0)


def test_groups_with_one_output_directory_and_run_id_are_apart(tmp_path: Path) -> None:
    """Two groups of two ranks, as two torchruns start them."""
    config = jobs.write_config(tmp_path, wg_distribution=True, dynamic_on=True)
    script = """
import json, os, sys, torch, gradmon, jobs
given = json.loads(sys.argv[1])
group, rank = divmod(int(os.environ["RANK"]), 2)
os.environ.update(REPLICA_GROUP_ID=str(group), RANK=str(rank), WORLD_SIZE="2", GRADMON_STORE="none")
model, optimizer = jobs.make()
monitor = gradmon.Monitor(given["config"], output_dir=given["out"], dynamic=True)
with monitor.watch(model, optimizer):
    def is_whole():
        return len(monitor.status().ranks) == (2 if monitor.rank == 0 else 1)
    assert jobs.eventually(is_whole), monitor.status()
    assert monitor.rank == int(os.environ["RANK"])
    def collects():
        jobs.train(model, optimizer, 1)
        return monitor._steps.step_flags != 0
    assert jobs.eventually(collects)
    jobs.train(model, optimizer, 2)
"""
    ranks.run(tmp_path, script, 4, config=str(config), out=str(tmp_path / "out"))
    out = tmp_path / "out"
    for group in (0, 1):
        names = sorted(path.name.split("-rank")[1][0] for path in (out / f"group-{group}").glob("*-rank*"))
        assert names == ["0", "1"]
    assert not list(out.glob("*-rank*"))


class Container:
    """The optimizers of torchtitan's experiment with torchft."""

    def __init__(self, manager: Manager, optimizer: Any) -> None:
        self.optimizers = [optimizer]
        self._ft_optimizer = OptimizerWrapper(manager, self)
        self._use_ft_optimizer = True

    def step(self) -> None:
        if self._use_ft_optimizer:
            self._use_ft_optimizer = False
            self._ft_optimizer.step()
            self._use_ft_optimizer = True
        else:
            for optimizer in self.optimizers:
                optimizer.step()


class Trainer:
    def __init__(self, commits: "list[bool]", raises_in: int) -> None:
        self.model_parts = [jobs.make_net()]
        inner = torch.optim.Adam(self.model_parts[0].parameters(), lr=0.1)
        self.optimizers = Container(Manager("titan_3", f"titan_3:{UUID}", commits), inner)
        self.config = types.SimpleNamespace(training=types.SimpleNamespace(disable_cuda_graphs=True))
        self.step, self._raises_in = 0, raises_in

    def train_step(self) -> None:
        self.optimizers.optimizers[0].zero_grad()
        self.model_parts[0](jobs.batch(self.step)).pow(2).mean().backward()
        if self.step == self._raises_in:
            raise RuntimeError("planned")
        self.optimizers.step()


def test_torchtitans_steps_that_are_not_committed_or_raise_have_their_rows(tmp_path: Path) -> None:
    trainer = Trainer([True, False, True], raises_in=4)
    config = jobs.write_config(tmp_path, **jobs.EVERYTHING)
    options = {"output_dir": tmp_path, "dynamic": False, "rank": 0, "world_size": 1}
    with pytest.raises(RuntimeError, match="planned"), gradmon.torchtitan.watch(trainer, config, **options):
        for trainer.step in range(1, 5):
            trainer.train_step()
    out = tmp_path / "group-3"
    for kind in ("grad_unreduced", "grad_reduced", "param_origin", "actv"):
        assert {step for _, step, _ in jobs.rows(out, kind)} == {1, 2, 3, 4}, kind
    assert {step for _, step, _ in jobs.rows(out, "param_updated")} == {1, 3}
    assert "train_step" not in vars(trainer) and "step" not in vars(trainer.optimizers)


def test_a_group_that_is_unknown_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchft.manager", types.ModuleType("torchft.manager"))
    monkeypatch.delenv("REPLICA_GROUP_ID", raising=False)
    model, optimizer = jobs.make()
    with jobs.monitor(tmp_path, jobs.ALONE, wg_distribution=True) as monitor:
        monitor.watch(model, optimizer)
        said = "Set REPLICA_GROUP_ID"
        assert jobs.eventually(lambda: any(said in one for one in jobs.warnings_of(monitor)))
