# SPDX-License-Identifier: Apache-2.0
"""The disk that holds gradmon-hub no longer answers, as an NFS server that is gone."""
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Iterator

import jobs
import pytest
from trained_place import BIN, TrainedPlace


class HangingDisk:
    """A FUSE file system that shows the directory `backing`."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="gp-"))
        self.mount = self.path / "mount"
        self.backing = self.path / "backing"
        self.mount.mkdir()
        self.backing.mkdir()
        self.server = subprocess.Popen([BIN / "hanging-disk", self.mount, self.backing])

    def is_mounted(self) -> bool:
        return os.path.ismount(self.mount)

    def hang(self) -> None:
        self.server.send_signal(signal.SIGUSR1)

    def remove(self) -> None:
        self.server.kill()  # which ends the calls that hang
        self.server.wait()
        subprocess.run(["umount", "--lazy", str(self.mount)], capture_output=True)
        shutil.rmtree(self.path, ignore_errors=True)


@pytest.fixture
def disk() -> Iterator[HangingDisk]:
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        pytest.skip("a file system that hangs needs root and FUSE")
    made = HangingDisk()
    try:
        assert jobs.eventually(made.is_mounted)
        yield made
    finally:
        made.remove()


def threads_of(pid: int) -> "list[str]":
    return [(task / "comm").read_text().strip() for task in Path(f"/proc/{pid}/task").iterdir()]


def test_training_ends_in_time_while_the_start_of_a_hub_hangs(tmp_path: Path, disk: HangingDisk) -> None:
    shutil.copy(BIN / "gradmon-train", tmp_path)  # without a hub beside it
    shutil.copy(BIN / "gradmon-hub", disk.backing)
    with TrainedPlace({"dynamic_on": False, "wg_distribution": True}) as place:
        place.env["GRADMON_HUB"] = str(disk.mount / "gradmon-hub")
        training = place.train(tmp_path, steps=900)
        disk.hang()
        os.kill(place.hub(), signal.SIGKILL)
        assert jobs.eventually(lambda: "gradmon-call" in threads_of(training.pid)), place.log()
        assert training.wait(40) == 0, place.log()
