# SPDX-License-Identifier: Apache-2.0
"""A monitored interpreter ends as without gradmon, also by a signal whose handler runs within gradmon."""
import os
import re
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jobs
import pytest
import ranks
from scale import FULL, if_full


ENDS_OF_EACH = 125 if FULL else 1  # 500 or 4 in all
AT_ONCE = 4

SCRIPT = """
import os, queue, signal, sys, threading, torch, jobs
end, config, out = sys.argv[1:4]
model = jobs.make_net()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
if config:
    import gradmon
    monitor = gradmon.Monitor(config, output_dir=out, dynamic=True, rank=0, world_size=1)
    jobs.reach_the_hub(monitor.watch(model, optimizer))
jobs.train(model, optimizer, 5)
if end == "exception":
    raise RuntimeError("the loss is not finite")
if end == "sigterm":
    os.kill(os.getpid(), signal.SIGTERM)
if end == "daemon":
    threading.Thread(target=queue.Queue().get, daemon=True).start()
    threading.Thread(target=lambda: [sum(range(1000)) for _ in iter(int, 1)], daemon=True).start()
    if config:
        threading.Thread(target=lambda: [monitor.status() for _ in iter(int, 1)], daemon=True).start()
"""
IN_A_FORKED_PROCESS = """
import multiprocessing, sys, jobs

def train(config, out):
    import gradmon
    model, optimizer = jobs.make()
    monitor = gradmon.Monitor(config, output_dir=out, dynamic=False, rank=0, world_size=1)
    monitor.watch(model, optimizer)
    jobs.train(model, optimizer, 200)

process = multiprocessing.get_context("fork").Process(target=train, args=sys.argv[1:3])
process.start()
process.join()
sys.exit(process.exitcode)
"""
CODES = {"normal": 0, "exception": 1, "sigterm": -15, "daemon": 0}


def run(
    directory: Path, script: str, *arguments: object, **environment: str
) -> "subprocess.CompletedProcess[str]":
    own = {"XDG_RUNTIME_DIR": str(directory), "OMP_NUM_THREADS": "1", **environment}
    return ranks.run_program(script, [*map(str, arguments)], {**os.environ, **own})


def end_once(directory: Path, end: str, monitored: bool) -> "tuple[int, str]":
    directory.mkdir()
    config: object = ""
    if monitored:
        keys = {**jobs.GRADIENTS, **jobs.ACTIVATIONS, "mv_distribution": True}
        config = jobs.write_config(directory, dynamic_on=True, collect_times=1_000_000, **keys)
    result = run(directory, SCRIPT, end, config, directory / "out")
    return result.returncode, result.stderr


@pytest.mark.parametrize("end", [if_full("normal"), "exception", "sigterm", if_full("daemon")])
def test_an_interpreter_ends_as_it_does_without_gradmon(tmp_path: Path, end: str) -> None:
    assert end_once(tmp_path / "bare", end, monitored=False)[0] == CODES[end]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        jobs_done = pool.map(lambda i: end_once(tmp_path / str(i), end, monitored=True), range(ENDS_OF_EACH))
        for i, (code, said) in enumerate(jobs_done):
            assert code == CODES[end], said
            assert "Fatal" not in said and "terminate called" not in said
            if end == "normal":
                assert jobs.rows(tmp_path / str(i) / "out", "grad_reduced")


ALL_KINDS = ["actv", "actv_grad", "grad_reduced", "grad_unreduced", "param_origin", "param_updated"]
SLOW_DISK = """
import sys, torch, jobs, gradmon
end, config, out, steps = sys.argv[1:5]
model = jobs.make_net()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
monitor = gradmon.Monitor(config, output_dir=out, dynamic=False, rank=0, world_size=1)
jobs.reach_the_hub(monitor.watch(model, optimizer))
jobs.train(model, optimizer, int(steps))
if end == "interrupt":
    raise KeyboardInterrupt
if end != "normal":
    monitor.stop(*map(float, end.split()[1:]))
    print(monitor.status().ranks[0].dropped)
"""


def end_on_slow_disk(directory: Path, end: str, open_ms: int, steps: int) -> "tuple[float, str, str]":
    """Returns the seconds that the program took, its standard output and its log."""
    config = jobs.write_config(directory, collect_times=1_000_000, **jobs.EVERYTHING)
    shim = Path(os.environ["GRADMON_BUILD_DIR"]) / "lib" / "libgradmon_slow_writes.so"
    begun = time.monotonic()
    slow = {"LD_PRELOAD": str(shim), "GRADMON_SLOW_OPEN_MS": str(open_ms)}
    result = run(directory, SLOW_DISK, end, config, directory / "out", steps, **slow)
    return time.monotonic() - begun, result.stdout, result.stderr


@pytest.mark.parametrize("end", ["stop", "normal"])
@pytest.mark.parametrize("open_ms, steps", [(20, 20), (300, 1)])
def test_no_row_is_given_up_while_rows_are_written(
    tmp_path: Path, end: str, open_ms: int, steps: int
) -> None:
    said = end_on_slow_disk(tmp_path, end, open_ms, steps)[2]
    assert "rows are still being written" in said
    kinds = [kind for kind in ALL_KINDS if jobs.rows(tmp_path / "out", kind)]
    assert kinds == ALL_KINDS, said
    for kind in ALL_KINDS:
        assert {step for _, step, _ in jobs.rows(tmp_path / "out", kind)} == set(range(steps)), kind


def test_a_timeout_bounds_the_stop_and_what_is_given_up_is_counted_by_kind(tmp_path: Path) -> None:
    seconds, printed, said = end_on_slow_disk(tmp_path, "stop 0.5", open_ms=1000, steps=60)
    given_up = re.search(r"did not end in time; not written: (\d+) rows \(.*\d+ of param_updated.*\)", said)
    assert given_up, said
    assert int(printed) >= int(given_up.group(1))
    # The files take 60: the end of the process does not wait for the writer either.
    assert seconds < 30


def test_a_longer_timeout_outlasts_a_file_that_takes_long(tmp_path: Path) -> None:
    _, printed, said = end_on_slow_disk(tmp_path, "stop 60", open_ms=2500, steps=1)
    assert printed == "0\n" and "not written" not in said
    assert all(jobs.rows(tmp_path / "out", kind) for kind in ALL_KINDS)


def test_after_ctrl_c_the_rows_have_two_seconds(tmp_path: Path) -> None:
    said = end_on_slow_disk(tmp_path, "interrupt", open_ms=300, steps=20)[2]
    assert "KeyboardInterrupt" in said and "not written" in said


def test_a_process_that_multiprocessing_forks_writes_all_rows_before_it_ends(tmp_path: Path) -> None:
    config = jobs.write_config(tmp_path, wg_distribution=True)
    result = run(tmp_path, IN_A_FORKED_PROCESS, config, tmp_path / "out")
    assert result.returncode == 0, result.stderr
    assert jobs.steps_of(jobs.rows(tmp_path / "out", "grad_reduced"))["fc1.weight"] == list(range(200))


# --- handlers of signals that run while gradmon waits, and in Python code that its hooks run ---


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

model, optimizer = jobs.make()
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
    env = {**os.environ, "GRADMON_RUN_ID": "alone", "XDG_RUNTIME_DIR": str(arguments[1])}
    result = jobs.python("-c", script, *arguments, env=env)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_a_stop_within_a_hook_is_left_to_the_next_step(tmp_path: Path) -> None:
    config = jobs.write_config(tmp_path, **jobs.GRADIENTS)
    said = printed(IN_A_HOOK, config, tmp_path / "out")
    assert said == "[False, True, True, True]\n"
    assert {step for _, step, _ in jobs.rows(tmp_path / "out", "grad_reduced")} == {0}


@pytest.mark.parametrize("raises", ["yes", "no"])
def test_the_handler_of_a_signal_ends_the_wait_for_other_ranks(tmp_path: Path, raises: str) -> None:
    config = jobs.write_config(tmp_path, dynamic_on=True, **jobs.GRADIENTS)
    assert printed(WHILE_WAITING, config, tmp_path, raises) == "True stopped\n"
