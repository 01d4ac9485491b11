# SPDX-License-Identifier: Apache-2.0
"""Jobs under the real torchrun."""
import os
import signal
from pathlib import Path

import jobs
import pytest
from torchrun import Job


@pytest.mark.parametrize("ranks", [1, 2, 4])
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
