# SPDX-License-Identifier: Apache-2.0
"""Forked and spawned DataLoader workers do not disturb training, and write no files."""
import json
import os
import subprocess
import sys
from pathlib import Path

import jobs
import pytest
import ranks
import twice

SCRIPT = """
import json, sys
from pathlib import Path
import gradmon, jobs, torch, twice

class Batches(torch.utils.data.Dataset):
    def __init__(self, model):
        self.model = model  # as in one that computes features
    def __len__(self):
        return 4
    def __getitem__(self, i):
        if torch.utils.data.get_worker_info() is not None:
            self.model(jobs.batch(i))
        return jobs.batch(i)

def training(noted, monitor, context, persistent):
    model, optimizer = jobs.make()
    monitor.watch(model, optimizer)
    if isinstance(monitor, gradmon.Monitor):
        jobs.reach_the_hub(monitor)
    loader = torch.utils.data.DataLoader(
        Batches(model), batch_size=None, num_workers=2,
        multiprocessing_context=context, persistent_workers=persistent)
    step, processes = 0, {}
    for epoch in range(2):
        batches = iter(loader)
        processes.update({worker.pid: worker for worker in batches._workers})
        for x in batches:
            optimizer.zero_grad()
            model(x).pow(2).mean().backward()
            noted.gradients(model, step)
            optimizer.step()
            step += 1
    assert step == 8 and len(processes) == (2 if persistent else 4)
    del batches, loader  # ends persistent workers
    for worker in processes.values():
        worker.join()
        assert worker.exitcode == 0, worker.exitcode
    noted.stop(monitor, model, optimizer)

if __name__ == "__main__":
    options = json.loads(sys.argv[1])
    config, output, dynamic = options.pop("config"), options.pop("output"), options.pop("dynamic")
    plain = twice.without(lambda noted, monitor: training(noted, monitor, "fork", options["persistent"]))
    torch.manual_seed(7)
    watched = twice.Noted()
    monitor = gradmon.Monitor(config, output_dir=output, dynamic=dynamic, rank=0, world_size=1)
    training(watched, monitor, **options)
    twice.check_same_training(plain, watched)
    for kind, tensors in plain.tensors.items():
        first = 1 if dynamic else 0
        tensors = {key: tensor for key, tensor in tensors.items() if key[1] >= first}
        twice.check_rows(twice.read(Path(output), kind), tensors, kind)
    print("done")
"""
WITHIN = 240  # seconds; after that the job counts as hung


@pytest.mark.parametrize(
    "context, persistent, dynamic",
    [
        ("fork", False, False),
        ("fork", True, False),
        ("fork", False, True),
        ("spawn", True, False),
        ("spawn", True, True),
    ],
)
def test_training_goes_on_and_workers_write_nothing_and_end(
    tmp_path: Path, context: str, persistent: bool, dynamic: bool
) -> None:
    keys = {"dynamic_on": True, "collect_times": 1000} if dynamic else {}
    options = {
        "config": str(jobs.write_config(tmp_path, **twice.EVERYTHING, **keys)),
        "output": str(tmp_path / "out"),
        "context": context,
        "persistent": persistent,
        "dynamic": dynamic,
    }
    env = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    if context == "fork":
        result = ranks.run_program(SCRIPT, [json.dumps(options)], env)
    else:
        script = tmp_path / "script.py"  # that the workers import
        script.write_text(SCRIPT)
        command = [sys.executable, "-B", str(script), json.dumps(options)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN, env=env)
    assert (result.returncode, result.stdout) == (0, "done\n"), result.stderr
    for trouble in ("Traceback", "Fatal", "terminate called", "killed by signal"):
        assert trouble not in result.stderr, result.stderr
    assert len(list((tmp_path / "out").glob("*-rank*"))) == 1
    assert not list((tmp_path / "out").rglob("*.new"))
