# SPDX-License-Identifier: Apache-2.0
"""gradmon.lightning.FabricCallback with the real Fabric: rows are plain torch's, training is the same."""
from pathlib import Path
from typing import Any

import jobs
import lightning_loops
import loops
import ranks
import torch
import twice
from lightning.fabric.plugins import MixedPrecision
from torch.optim.optimizer import _global_optimizer_pre_hooks

SCRIPT = "import lightning_loops; lightning_loops.main()"
NAMES = {name for name, _ in loops.Net().named_parameters()}


def test_rows_are_plain_torchs_also_of_a_short_last_accumulation(tmp_path: Path) -> None:
    noted = loops.compare(tmp_path, lightning_loops.train_by_fabric)
    loops.check_equal(noted, loops.plain_noted(lambda count: count))
    assert {step for _, step, _ in noted.tensors["grad_reduced"]} == set(range(6))


def test_two_ranks_write_their_own_and_the_reduced_gradients(tmp_path: Path) -> None:
    ranks.run(tmp_path, SCRIPT, directory=str(tmp_path), what="train_by_fabric")
    unreduced, reduced = (
        [jobs.rows(tmp_path / "out", kind, rank) for rank in range(2)]
        for kind in ("grad_unreduced", "grad_reduced")
    )
    assert reduced[0] and reduced[0] == reduced[1]
    assert {name for name, _, _ in reduced[0]} == NAMES
    assert unreduced[0].keys() == unreduced[1].keys() == reduced[0].keys()
    assert all(unreduced[0][key] != unreduced[1][key] for key in unreduced[0])


def test_an_edit_in_mid_run_switches_one_rank(tmp_path: Path) -> None:
    lightning_loops.switch_by_fabric(tmp_path)
    loops.check_switched(tmp_path, ranks=1)


def test_an_edit_in_mid_run_switches_two_ranks_at_one_step(tmp_path: Path) -> None:
    ranks.run(tmp_path, SCRIPT, directory=str(tmp_path), what="switch_by_fabric")
    loops.check_switched(tmp_path, ranks=2)


def make_watched(tmp_path: Path, **keys: Any) -> "tuple[Any, Any]":
    plugins = {"plugins": keys.pop("plugins")} if "plugins" in keys else {}
    config = jobs.write_config(tmp_path, **twice.EVERYTHING)
    options = {"config": config, "output_dir": tmp_path / "out", "dynamic": False, **keys}
    return lightning_loops.make_fabric(options, **plugins)


def test_a_step_that_the_scaler_leaves_out_counts(tmp_path: Path) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    own = sorted(vars(scaler))
    fabric, callback = make_watched(tmp_path, plugins=[MixedPrecision("16-mixed", "cpu", scaler)])
    model = loops.Net()
    noted = twice.Noted()
    wrapped, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for step in range(4):
        fabric.backward(wrapped(jobs.batch(step)) * (3e38 if step == 1 else 1))
        for name, parameter in model.named_parameters():
            noted.note("grad_reduced", name, step, parameter.grad / scaler.get_scale())
        optimizer.step()
        optimizer.zero_grad()
    callback.stop()
    assert sorted(vars(scaler)) == own
    reduced = twice.read(tmp_path / "out", "grad_reduced")
    assert {(name, step) for name, step, _ in reduced} == {
        (name, step) for name in NAMES for step in range(4)
    }
    for key, row in reduced.items():
        if key[1] != 1:
            twice.check_bits(row, noted.tensors["grad_reduced"][key])
    assert jobs.steps_of(jobs.rows(tmp_path / "out", "param_updated"))["fc1.weight"] == [0, 2, 3]


def test_two_models_with_two_optimizers_make_one_step(tmp_path: Path) -> None:
    fabric, callback = make_watched(tmp_path, optimizer_steps=2)
    models = [loops.Net(), loops.Net()]
    pairs = [fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1)) for model in models]
    other = torch.optim.SGD(loops.Net().parameters(), lr=0.1)  # of no watched model
    for step in range(3):
        for model, optimizer in pairs:
            optimizer.zero_grad()
            fabric.backward(model(jobs.batch(step)))
            optimizer.step()
        other.step()
    callback.monitor.stop()  # the callback learns of it
    late = loops.Net()
    fabric.setup(late, torch.optim.SGD(late.parameters(), lr=0.1))  # no effect
    assert callback._models == []
    names = NAMES | {f"1:{name}" for name in NAMES}
    found = twice.read(tmp_path / "out", "grad_reduced")
    assert {(name, step) for name, step, _ in found} == {(name, step) for name in names for step in range(3)}
    assert not _global_optimizer_pre_hooks and not other._optimizer_step_pre_hooks
