# SPDX-License-Identifier: Apache-2.0
"""Jobs under the real torchrun."""
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable

import jobs
import pytest
from scale import if_full
from training import gradmonctl

ROOT = Path(__file__).resolve().parents[3]
TORCHRUN = [str(Path(sys.executable).parent / "torchrun")]
if sys.executable == "/usr/bin/python3":
    TORCHRUN = [sys.executable, "-B", str(ROOT / "tests/python/support/debian_torchrun.py")]
WITHIN = 120  # seconds


class Job:
    """Use it in a `with` statement, which ends the job."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory = directory
        self.out = directory / "out"
        self.config = jobs.write_config(directory, dynamic_on=False, wg_distribution=True)
        self.env = {
            **os.environ,
            "DYNAMIC_MONITOR": "True",
            "MONITOR_OUTPUT_DIR": str(self.out),
            "XDG_RUNTIME_DIR": str(directory),
            "OMP_NUM_THREADS": "1",
            "USE_LIBUV": "0",  # Debian's torch is built without it
            # Otherwise a restarted rank may find another one's address from before the restart in the store,
            # and torch fails or hangs, with gradmon and without.
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        }
        self.last_status: "dict[str, Any]" = {}
        self.log = (directory / "log").open("w+")
        program = [str(ROOT / "tests" / "demo" / "train_ddp.py"), "--config", str(self.config)]
        command = [*TORCHRUN, *options, *program, *"--steps 100000000 --step-ms 10 --layers 1".split()]
        self.process = subprocess.Popen(command, env=self.env, stdout=self.log, stderr=subprocess.STDOUT)

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, *_: Any) -> None:
        self.process.terminate()
        try:
            self.process.wait(WITHIN)
        finally:
            for pid in self.processes():
                os.kill(pid, signal.SIGKILL)
            self.log.close()

    def processes(self) -> "list[int]":
        """The processes that run in the job's environment: torchrun, ranks and hubs."""
        wanted = f"MONITOR_OUTPUT_DIR={self.out}".encode()
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:  # It has ended, or is another user's.
                pass
        return found

    def ctl(self, *arguments: str) -> str:
        done = gradmonctl(*arguments, env=self.env, timeout=WITHIN)
        assert done.returncode == 0, done.stderr + self.printed()
        return done.stdout

    def status(self) -> "dict[str, Any]":
        """Empty while no hub answers. Kept as last_status."""
        done = gradmonctl("status", "--json", env=self.env, timeout=WITHIN)
        self.last_status = dict(json.loads(done.stdout)) if done.returncode == 0 else {}
        return self.last_status

    def printed(self) -> str:
        return (self.directory / "log").read_text()[-4000:]

    def until(self, condition: Callable[[], bool]) -> None:
        assert jobs.eventually(condition, 180), f"{self.status()}\n{self.printed()}"

    def trains_with(self, ranks: int) -> Callable[[], bool]:
        def all_step() -> bool:
            of_ranks = self.status().get("ranks", [])
            return len(of_ranks) == ranks and all(rank["step"] > 3 for rank in of_ranks)

        return all_step

    def collects(self, ranks: int) -> "list[int]":
        """Collects three steps, and checks that every rank wrote just these. Returns them."""
        first = int(self.ctl("on", "--collect-times", "3", "--wait"))
        self.until(lambda: not json.loads(self.config.read_text())["dynamic_on"])
        steps = [first, first + 1, first + 2]
        for rank in range(ranks):
            self.until(lambda: self.collected(rank)[-3:] == steps)
        return steps

    def collected(self, rank: int) -> "list[int]":
        """The collected steps in the newest run directory of the rank."""
        runs = sorted(self.out.glob(f"*-rank{rank}-*"), key=lambda path: path.stat().st_ctime)
        found = set()
        for path in runs[-1].glob("grad_reduced_*.csv") if runs else ():
            found.update(line.split(",")[2] for line in path.read_text().splitlines()[1:])
        return sorted(int(step) for step in found)


@pytest.mark.parametrize("ranks", [if_full(1), 2, if_full(4)])
def test_all_ranks_collect_the_same_steps_and_nothing_runs_on(tmp_path: Path, ranks: int) -> None:
    with Job(tmp_path, "--standalone", "--nproc-per-node", str(ranks)) as job:
        job.until(job.trains_with(ranks))
        job.collects(ranks)
        job.process.terminate()
        assert jobs.eventually(lambda: not job.processes())


def test_ranks_that_are_started_again_after_a_kill_are_a_new_launch(tmp_path: Path) -> None:
    options = ["--standalone", "--nproc-per-node", "2", "--max-restarts", "2"]
    with Job(tmp_path, *options) as job:
        job.until(job.trains_with(2))
        before = job.collects(2)
        job.until(lambda: bool(job.status()))
        status = job.last_status
        os.kill(status["ranks"][1]["pid"], signal.SIGKILL)
        job.until(lambda: job.status().get("launch_id", status["launch_id"]) != status["launch_id"])
        job.until(job.trains_with(2))
        job.until(lambda: job.status().get("epoch", status["epoch"]) != status["epoch"])
        after = job.collects(2)
        runs = list(job.out.glob("*-rank*"))
        assert len(runs) == 4 and len(before) == len(after)
        job.process.terminate()
        assert jobs.eventually(lambda: not job.processes())
