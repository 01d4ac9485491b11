# SPDX-License-Identifier: Apache-2.0
"""How an interpreter ends that is being monitored: as it does without us."""
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jobs
import pytest

FULL = os.environ.get("GRADMON_TEST_SCALE") == "full"
ENDS_OF_EACH = 125 if FULL else 5  # 500, 20
AT_ONCE = 4

SCRIPT = """
import os, queue, signal, sys, threading, torch, jobs
end, config, out = sys.argv[1:4]
model = jobs.make_net()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
if config:
    import gradmon
    monitor = gradmon.Monitor(config, output_dir=out, dynamic=True, rank=0, world_size=1)
    monitor.watch(model, optimizer)
jobs.train(model, optimizer, 5)
if end == "exception":
    raise RuntimeError("the loss is not finite")
if end == "sigterm":
    os.kill(os.getpid(), signal.SIGTERM)
if end == "daemon":
    # Not within torch: there it aborts without us, too (torch 1.13, 30 of 30).
    threading.Thread(target=queue.Queue().get, daemon=True).start()
    threading.Thread(target=lambda: [sum(range(1000)) for _ in iter(int, 1)], daemon=True).start()
    if config:
        threading.Thread(target=lambda: [monitor.status() for _ in iter(int, 1)], daemon=True).start()
"""
CODES = {"normal": 0, "exception": 1, "sigterm": -15, "daemon": 0}


def end_once(directory: Path, end: str, monitored: bool) -> "tuple[int, str]":
    directory.mkdir()
    config = ""
    if monitored:
        keys = {"wg_distribution": True, "xy_distribution": True, "all_xy": True, "mv_distribution": True}
        config = str(jobs.write_config(directory, dynamic_on=True, collect_times=1_000_000, **keys))
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT, end, config, str(directory / "out")],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "XDG_RUNTIME_DIR": str(directory), "OMP_NUM_THREADS": "1"},
    )
    return result.returncode, result.stderr


@pytest.mark.parametrize("end", CODES)
def test_an_interpreter_ends_as_it_does_without_us(tmp_path: Path, end: str) -> None:
    assert end_once(tmp_path / "bare", end, monitored=False)[0] == CODES[end]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        jobs_done = pool.map(lambda i: end_once(tmp_path / str(i), end, monitored=True), range(ENDS_OF_EACH))
        for i, (code, said) in enumerate(jobs_done):
            assert code == CODES[end], said
            assert "Fatal" not in said and "terminate called" not in said
            if end == "normal":
                assert jobs.rows(tmp_path / str(i) / "out", "grad_reduced")
