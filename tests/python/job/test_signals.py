# SPDX-License-Identifier: Apache-2.0
"""Handlers of signals that run within gradmon: while it waits, and in Python code that its hooks run."""
import os
import subprocess
import sys
from pathlib import Path

import jobs
import pytest

GRADIENTS = {"wg_distribution": True}

# The handler runs in the hook of the first gradient that is read, and there calls stop().
IN_A_HOOK = """
import signal, sys, gradmon, jobs, torch
config, out = sys.argv[1:]

class Fused(torch.nn.Parameter):
    @property
    def grad_added_to_main_grad(self):
        if not said:
            signal.raise_signal(signal.SIGUSR1)
        return False

def handler(*_):
    monitor.stop()
    said.append(monitor.status().reason == "stopped")

said = []
signal.signal(signal.SIGUSR1, handler)
model = jobs.make_net()
model.fc1.weight = Fused(model.fc1.weight.detach())
model.fc1.weight.main_grad = torch.zeros_like(model.fc1.weight)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
monitor = gradmon.Monitor(config, output_dir=out, dynamic=False, rank=0, world_size=1)
monitor.watch(model, optimizer)
for _ in range(3):
    jobs.train(model, optimizer, 1)
    said.append(monitor.status().reason == "stopped")
print(said)
"""

# Rank 1 never comes.
WHILE_WAITING = """
import signal, sys, time, gradmon, jobs, torch
config, out, raises = sys.argv[1:]

def handler(*_):
    if raises == "yes":
        raise TimeoutError("preempted")
    monitor.stop()

model = jobs.make_net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
jobs.train(model, optimizer, 1)  # torch 2.x imports much of itself only now
signal.signal(signal.SIGALRM, handler)

def set_timer_once(_):
    if not timers:
        timers.append(signal.setitimer(signal.ITIMER_REAL, 0.3))

timers = []
model.fc1.weight.register_hook(set_timer_once)  # in the step before the one that waits
monitor = gradmon.Monitor(config, output_dir=out, dynamic=True, rank=0, world_size=2)
begun = time.monotonic()
try:
    monitor.watch(model, optimizer)
    while monitor.status().reason != "stopped":
        jobs.train(model, optimizer, 1)
except TimeoutError:
    assert raises == "yes"
print(time.monotonic() - begun < 15, monitor.status().reason)
jobs.train(model, optimizer, 2)  # goes on, without the monitor
"""


def printed(script: str, *arguments: object) -> str:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    env = {**os.environ, "GRADMON_RUN_ID": "alone", "XDG_RUNTIME_DIR": str(arguments[1])}
    result = subprocess.run(command, capture_output=True, text=True, env=env, timeout=100)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_a_stop_within_a_hook_is_left_to_the_next_step(tmp_path: Path) -> None:
    config = jobs.write_config(tmp_path, **GRADIENTS)
    said = printed(IN_A_HOOK, config, tmp_path / "out")
    assert said == "[False, True, True, True]\n"
    assert {step for _, step, _ in jobs.rows(tmp_path / "out", "grad_reduced")} == {0}


@pytest.mark.parametrize("raises", ["yes", "no"])
def test_the_handler_of_a_signal_ends_the_wait_for_other_ranks(tmp_path: Path, raises: str) -> None:
    config = jobs.write_config(tmp_path, dynamic_on=True, **GRADIENTS)
    assert printed(WHILE_WAITING, config, tmp_path, raises) == "True stopped\n"
