# SPDX-License-Identifier: Apache-2.0
"""gradmon.TrainerMon, and the stand-in for msprobe."""
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable

import gradmon
import jobs
import numpy as np
import pytest
from scale import if_full
import torch

KEYS = {"wg_distribution": True, "xy_distribution": True, "all_xy": True}


@pytest.fixture
def training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("MONITOR_OUTPUT_DIR", str(tmp_path / "out"))
    monkeypatch.delenv("DYNAMIC_MONITOR", raising=False)
    return (jobs.write_config(tmp_path, **KEYS), *jobs.make())


def steps_written(tmp_path: Path) -> "list[int]":
    return jobs.steps_of(jobs.rows(tmp_path / "out", "grad_reduced"))["fc1.weight"]


def test_both_orders_of_set_monitor(tmp_path: Path, training: Any) -> None:
    config, model, optimizer = training
    for attempt, call in enumerate(
        [
            lambda mon: mon.set_monitor(model, 1, optimizer, None, None, 5),
            lambda mon: mon.set_monitor(model, optimizer, 1, None, None, 5),
            lambda mon: mon.set_monitor(model, optimizer, grad_acc_steps=1, start_iteration=5),
            lambda mon: mon.set_monitor(
                model, grad_acc_steps=1, optimizer=optimizer, dp_group=None, start_iteration=5
            ),
            lambda mon: mon.set_monitor(model, optimizer=optimizer, start_iteration=5),
            lambda mon: mon.set_monitor(model, None, optimizer, start_iteration=5),
            lambda mon: mon.set_monitor(model, optimizer, 1.0, start_iteration=5),
            lambda mon: mon.set_monitor(model, 0, optimizer, start_iteration=5.0),
            lambda mon: mon.set_monitor(
                model, grad_acc_steps=np.array(1), optimizer=optimizer, start_iteration=torch.tensor(5)
            ),
            lambda mon: mon.monitor_gnorm_with_ad(model, 1, optimizer, None, None, 5),
            lambda mon: mon.monitor_gnorm_with_ad(model, optimizer, 1.0, None, None, 5),
        ]
    ):
        out = tmp_path / f"out{attempt}"
        os.environ["MONITOR_OUTPUT_DIR"] = str(out)
        mon = gradmon.TrainerMon(str(config), process_group=None, params_have_main_grad=True, opt_ty=None)
        call(mon)
        jobs.train(model, optimizer, 2)
        mon.summary_writer.close()
        assert jobs.steps_of(jobs.rows(out, "grad_reduced"))["fc1.weight"] == [5, 6]


@pytest.mark.parametrize("steps", [1.5, float("inf"), float("nan"), "2"])
def test_steps_that_are_no_whole_number_are_refused_by_name(training: Any, steps: Any) -> None:
    config, model, optimizer = training
    with pytest.raises(ValueError, match="grad_acc_steps: found"):
        gradmon.TrainerMon(str(config)).set_monitor(model, grad_acc_steps=steps, optimizer=optimizer)


def test_the_oldest_way_of_naming_the_optimizer(
    tmp_path: Path, training: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, model, optimizer = training
    monkeypatch.setattr(gradmon.TrainerMon, "_wrapped_for_all", lambda: None)
    gradmon.TrainerMon.set_wrapped_optimizer(optimizer)
    mon = gradmon.TrainerMon(str(config))
    mon.monitor_gnorm_with_ad(model)
    jobs.train(model, optimizer, 1)
    mon.summary_writer.close()
    assert steps_written(tmp_path) == [0]


def test_the_older_way_of_naming_the_optimizer(tmp_path: Path, training: Any) -> None:
    config, model, optimizer = training
    mon = gradmon.TrainerMon(str(config), opt_ty="Megatron_DistributedOptimizer")
    with pytest.raises(TypeError, match="set_wrapped_optimizer"):
        mon.monitor_gnorm_with_ad(model)
    mon.set_wrapped_optimizer(optimizer)
    mon.monitor_gnorm_with_ad(model)
    jobs.train(model, optimizer, 2)
    mon.monitor.stop()
    assert steps_written(tmp_path) == [0, 1]


def test_what_does_not_fit_a_signature_is_refused(training: Any) -> None:
    config, model, optimizer = training
    mon = gradmon.TrainerMon(str(config))
    with pytest.raises(TypeError, match="optimizer"):
        mon.set_monitor(model, 1)
    with pytest.raises(TypeError, match="unexpected"):
        mon.set_monitor(model, optimizer, steps=3)


def test_several_chunks_are_virtual_stages(tmp_path: Path, training: Any) -> None:
    config, model, optimizer = training
    mon = gradmon.TrainerMon(str(config))
    second = torch.nn.Linear(2, 2)
    mon.set_monitor([model, second], 1, optimizer, start_iteration=None)  # as without it: 0
    second(torch.ones(1, 2)).sum().backward()
    jobs.train(model, optimizer, 1)
    reduced, _ = mon.generate_wgrad_metrics()
    actv, _ = mon.generate_xy_metrics()
    mon.monitor.stop()
    assert "1:model.output:0/rank0/actv" in actv and "0:fc1.output:0/rank0/actv" in actv
    assert "0:fc1.weight/rank0/post_grad" in reduced
    assert steps_written(tmp_path) == [0]


@pytest.mark.parametrize("per_micro_batch", [False, True])
def test_metrics_are_tagged_as_msprobe_does(tmp_path: Path, training: Any, per_micro_batch: bool) -> None:
    _, model, optimizer = training
    config = jobs.write_config(tmp_path, monitor_mbs_grad=per_micro_batch, **KEYS)
    mon = gradmon.TrainerMon(str(config))
    mon.set_monitor(model, 1, optimizer)
    jobs.train(model, optimizer, 1)
    reduced, unreduced = mon.generate_wgrad_metrics({})
    actv, actv_grad = mon.generate_xy_metrics()
    mon.monitor.stop()
    tag = "0:fc1.weight:0/rank0/pre_grad" if per_micro_batch else "0:fc1.weight/rank0/acc_grad"
    assert unreduced[tag] == reduced["0:fc1.weight/rank0/post_grad"]
    rows = jobs.rows(tmp_path / "out", "actv")
    assert actv["0:fc1.output:0/rank0/actv"] == pytest.approx(rows["fc1.output", 0, 0])
    assert "0:fc1.output:0/rank0/actv_grad" in actv_grad


def test_the_rank_is_the_launchers(tmp_path: Path, training: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _, model, optimizer = training
    config = jobs.write_config(tmp_path, format="api", **KEYS)  # no rank waits for rank 0 to write a file
    monkeypatch.setenv("SLURM_PROCID", "3")
    monkeypatch.setenv("SLURM_NTASKS", "4")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_STEP_ID", "0")
    mon = gradmon.TrainerMon(str(config))
    mon.set_monitor(model, 1, optimizer)
    jobs.train(model, optimizer, 1)
    assert "0:fc1.weight/rank3/post_grad" in mon.generate_wgrad_metrics()[0]
    mon.monitor.stop()


SCRIPT = """
import sys
from msprobe.pytorch import TrainerMon
import jobs, torch
model, optimizer = jobs.make()
monitor = TrainerMon(config_file_path=sys.argv[1], params_have_main_grad=False)
monitor.set_monitor(model, grad_acc_steps=1, optimizer=optimizer, dp_group=None, start_iteration=0)
jobs.train(model, optimizer, 3)
"""


def run_as_msprobe(tmp_path: Path, script: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    (tmp_path / "script.py").write_text(script)
    command = [sys.executable, "-m", "gradmon.as_msprobe", str(tmp_path / "script.py"), *arguments]
    env = {**os.environ, "MONITOR_OUTPUT_DIR": str(tmp_path / "out")}
    return subprocess.run(command, capture_output=True, text=True, env=env, cwd=tmp_path)


def test_processes_that_a_script_spawns_find_the_stand_in(tmp_path: Path) -> None:
    script = "from msprobe.pytorch import TrainerMon\nimport torch.multiprocessing as mp\n"
    script += "def child(i):\n    print(TrainerMon.__module__)\n"
    script += "if __name__ == '__main__':\n    mp.spawn(child, nprocs=1)\n"
    result = run_as_msprobe(tmp_path, script)
    assert (result.returncode, result.stdout) == (0, "gradmon.trainer_mon\n"), result.stderr


@pytest.mark.parametrize("module", ["msprobe.pytorch", if_full("msprobe.pytorch.monitor.module_hook")])
def test_a_script_for_msprobe_runs_unchanged(tmp_path: Path, module: str) -> None:
    script = SCRIPT.replace("msprobe.pytorch", module)
    result = run_as_msprobe(tmp_path, script, str(jobs.write_config(tmp_path, **KEYS)))
    assert result.returncode == 0, result.stderr
    assert steps_written(tmp_path) == [0, 1, 2]


NOT_STOOD_IN_FOR = """
for line in (
    "from msprobe.pytorch import PrecisionDebugger",
    "from msprobe.pytorch.monitor.module_hook import ModuleHookContext",
    "from msprobe import PrecisionDebugger",
    "import msprobe.visualization",
    "from msprobe.core.monitor import data_writers",
):
    try:
        exec(line)
    except ImportError as error:
        print(error)
"""


def test_other_names_of_msprobe_are_refused_with_what_there_is(tmp_path: Path) -> None:
    result = run_as_msprobe(tmp_path, NOT_STOOD_IN_FOR)
    refused = result.stdout.splitlines()
    assert len(refused) == 5, result.stderr
    for said in refused:
        assert said.startswith("gradmon does not stand in for msprobe.")
        assert "only for msprobe.pytorch.TrainerMon" in said


def test_modules_that_gradmon_stands_in_for_are_imported_from_their_packages(tmp_path: Path) -> None:
    script = "from msprobe import pytorch\nfrom msprobe.core.monitor import csv2db\n"
    script += "from msprobe.pytorch.monitor import csv2tb\n"
    script += "print(pytorch.TrainerMon.__name__, csv2db.csv2db.__name__, csv2tb.__name__)\n"
    result = run_as_msprobe(tmp_path, script)
    assert result.stdout == "TrainerMon csv2db msprobe.pytorch.monitor.csv2tb\n", result.stderr


SEEDED = """
import random
from msprobe.pytorch import seed_all
import numpy, torch
for mode in False, True:
    seed_all(seed=7, mode=mode)
    print(random.random(), numpy.random.rand(), torch.rand(1).item())
    print(torch.are_deterministic_algorithms_enabled())
seed_all(rm_dropout=True)
print(torch.initial_seed())
"""


def test_seed_all_seeds_what_a_training_draws_from(tmp_path: Path) -> None:
    result = run_as_msprobe(tmp_path, SEEDED)
    assert result.returncode == 0, result.stderr
    drawn, off, drawn_again, on, default = result.stdout.splitlines()
    assert (drawn, off, on, default) == (drawn_again, "False", "True", "1234")
    assert "rm_dropout" in result.stderr  # not supported: logs a warning


def test_ops_and_activations_change_while_a_static_job_runs(tmp_path: Path, training: Any) -> None:
    config, model, optimizer = training
    jobs.write_config(tmp_path, wg_distribution=True, all_xy=True, step_interval=2, ops=["norm"])
    mon = gradmon.TrainerMon(str(config))
    mon.set_monitor(model, optimizer)
    assert mon.ops == ["norm"]

    def each(step: int) -> None:
        if step == 2:
            mon.ops = ["min", "max"]
            mon.reload_xy(xy_distribution=True)
        if step == 4:
            mon.reload_xy()

    jobs.train(model, optimizer, 8, each)
    assert mon.ops == ["min", "max"]
    mon.monitor.stop()
    gradients = jobs.rows(tmp_path / "out", "grad_reduced")
    assert {step: list(gradients["fc1.weight", step, 0]) for step in steps_written(tmp_path)} == {
        0: ["norm"],
        2: ["norm"],
        4: ["min", "max"],
        6: ["min", "max"],
    }
    assert {step for _, step, _ in jobs.rows(tmp_path / "out", "actv")} == {4}
    assert json.loads(config.read_text())["ops"] == ["norm"]


def test_ops_that_are_set_before_the_model_is_known(tmp_path: Path, training: Any) -> None:
    config, model, optimizer = training
    mon = gradmon.TrainerMon(str(config))
    mon.ops = ["max"]
    mon.set_monitor(model, optimizer)
    jobs.train(model, optimizer, 2)
    mon.monitor.stop()
    assert list(jobs.rows(tmp_path / "out", "grad_reduced")["fc1.weight", 1, 0]) == ["max"]


def test_a_dynamic_job_follows_its_file_and_the_program(
    tmp_path: Path, training: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, model, optimizer = training
    monkeypatch.setenv("DYNAMIC_MONITOR", "True")
    config = jobs.write_config(tmp_path, dynamic_on=False, **KEYS)
    mon = gradmon.TrainerMon(str(config))
    mon.set_monitor(model, 1, optimizer)

    def until(condition: Callable[[], bool]) -> None:
        jobs.train_until(model, optimizer, condition)

    jobs.train(model, optimizer, 3)
    assert not list((tmp_path / "out").rglob("*.csv"))
    jobs.write_config(tmp_path, dynamic_on=True, collect_times=2, **KEYS)
    until(lambda: not json.loads(config.read_text())["dynamic_on"])
    mon.ops = ["max"]
    until(lambda: json.loads(config.read_text())["ops"] == ["max"])
    mon.monitor.on(collect_times=1)
    until(lambda: json.loads(config.read_text())["collect_times"] == 1)
    until(lambda: not json.loads(config.read_text())["dynamic_on"])
    mon.monitor.stop()
    gradients = jobs.rows(tmp_path / "out", "grad_reduced")
    first, second, third = sorted(step for name, step, _ in gradients if name == "fc1.weight")
    assert second == first + 1 and third > second and first >= 3
    ops = [list(gradients["fc1.weight", step, 0]) for step in (first, second, third)]
    assert ops == [jobs.OPS, jobs.OPS, ["max"]]


@pytest.mark.parametrize("per_micro_batch", [False, True])
def test_files_have_msprobes_headers(tmp_path: Path, training: Any, per_micro_batch: bool) -> None:
    _, model, optimizer = training
    keys = {**jobs.EVERYTHING, "mg_direction": False, "monitor_mbs_grad": per_micro_batch}
    mon = gradmon.TrainerMon(str(jobs.write_config(tmp_path, **{**keys, "ops": ["norm", "min"]})))
    mon.set_monitor(model, 1, torch.optim.AdamW(model.parameters()))
    jobs.train(model, mon.monitor._steps._optimizers[0].optimizer, 2)
    mon.monitor.stop()
    plain, of_micro_batches = (
        ["vpp_stage,name,step,norm,min,shape,dtype"],
        ["vpp_stage,name,step,micro_step,norm,min,shape,dtype"],
    )
    found = {
        path.name.rsplit("_", 1)[0]: path.read_text().splitlines()[:1]
        for path in (tmp_path / "out").rglob("*.csv")
    }
    assert found == {
        "actv": of_micro_batches,
        "actv_grad": of_micro_batches,
        "grad_unreduced": of_micro_batches if per_micro_batch else plain,
        "grad_reduced": plain,
        "exp_avg": plain,
        "exp_avg_sq": plain,
        "param_origin": plain,
        "param_updated": plain,
    }


def test_a_setting_that_makes_no_valid_config_changes_nothing(
    tmp_path: Path, training: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    config, model, optimizer = training
    mon = gradmon.TrainerMon(str(config))
    mon.set_monitor(model, optimizer)
    mon.monitor.set("step_interval", 0)
    jobs.train(model, optimizer, 2)
    mon.monitor.stop()
    assert steps_written(tmp_path) == [0, 1]
    assert "step_interval" in capfd.readouterr().err
