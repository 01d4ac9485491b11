# SPDX-License-Identifier: Apache-2.0
"""A job of gradmon-train, of one rank, in directories of its own."""
import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import jobs

BIN = Path(os.environ["GRADMON_BIN"])
LAUNCH = "places"
WITHIN = 60  # seconds


class TrainedPlace:
    """A runtime directory, an output directory and a config file. Use it in a `with` statement, which ends
    what train() has started."""

    def __init__(self, config: "dict[str, Any]") -> None:
        self.path = Path(tempfile.mkdtemp(prefix="gp-"))  # short: it holds sockets
        self.out = self.path / "out"
        self.config = self.path / "config.json"
        self.config.write_text(json.dumps(config))
        self.job = self.path / "gradmon" / LAUNCH
        self.job.mkdir(parents=True)
        for directory in (self.job.parent, self.job):
            directory.chmod(0o700)
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("GRADMON_")}
        self.env = {
            **inherited,
            "XDG_RUNTIME_DIR": str(self.path),
            "MONITOR_OUTPUT_DIR": str(self.out),
            "DYNAMIC_MONITOR": "1",
            "GRADMON_RUN_ID": LAUNCH,
            "OMP_NUM_THREADS": "1",
        }
        self.trainings: "list[subprocess.Popen[bytes]]" = []

    def __enter__(self) -> "TrainedPlace":
        return self

    def __exit__(self, *_: Any) -> None:
        for training in self.trainings:
            training.kill()
            training.wait()
        assert jobs.eventually(self.hub_is_killed)  # it would make its directory again
        shutil.rmtree(self.path, ignore_errors=True)

    def train(
        self, binaries: Path = BIN, *options: str, steps: int = 100_000_000
    ) -> "subprocess.Popen[bytes]":
        """Starts gradmon-train, and waits until gradmonctl finds the job."""
        command = [str(binaries / "gradmon-train"), "--config", str(self.config)]
        pace = ["--steps", str(steps), "--step-ms", "5"]
        shape = ["--layers", "1", "--width", "4", "--batch", "1", "--context", "8"]
        with (self.path / "log").open("ab") as log:
            training = subprocess.Popen(
                [*command, *pace, *shape, *options], env=self.env, stdout=log, stderr=log
            )
        self.trainings.append(training)
        assert jobs.eventually(lambda: self.ctl("status").returncode == 0), self.log()
        return training

    def ctl(self, *arguments: str, binaries: Path = BIN) -> "subprocess.CompletedProcess[str]":
        command = [str(binaries / "gradmonctl"), *arguments]
        return subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=WITHIN)

    def json(self, *arguments: str, binaries: Path = BIN) -> "dict[str, Any]":
        said = self.ctl(*arguments, "--json", binaries=binaries)
        assert said.returncode == 0, said.stderr + self.log()
        return dict(json.loads(said.stdout))

    def hub(self) -> int:
        """The process of the hub, as the job's directory is its first argument; 0: none."""
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                arguments = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:  # It has ended.
                continue
            if arguments[1:2] == [str(self.job).encode()]:
                return int(entry.name)
        return 0

    def hub_is_killed(self) -> bool:
        hub = self.hub()
        if hub != 0:
            with contextlib.suppress(ProcessLookupError):
                os.kill(hub, signal.SIGKILL)
        return hub == 0

    def log(self) -> str:
        return (self.path / "log").read_text()
