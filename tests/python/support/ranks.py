# SPDX-License-Identifier: Apache-2.0
"""Runs a script in two or more ranks with gloo."""
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Optional

import torch

WITHIN = 120  # seconds
# Further arguments of a TCPStore: Debian's torch 2.6 is built without libuv, but asks for it.
STORE_OPTIONS: "dict[str, bool]" = {"use_libuv": False} if torch.__version__.startswith("2.6.") else {}

_server: "Optional[subprocess.Popen[str]]" = None  # rank_server.py; it ends when this process does


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run_each(script: str, argument: str, environments: "list[dict[str, str]]") -> "list[str]":
    """Runs one rank with each environment, all at once; returns their standard output."""
    with tempfile.TemporaryDirectory() as directory:
        job = {"script": script, "argument": argument, "directory": directory, "environments": environments}
        codes = _answer(json.dumps(job) + "\n")
        out, said = (
            [Path(directory, f"{rank}.{name}") for rank in range(len(environments))]
            for name in ("out", "err")
        )
        trouble = "\n".join(path.read_text() for path in said if path.exists())
        assert codes == [0] * len(environments), f"{codes}\n{trouble}"
        return [path.read_text() for path in out]


def run(tmp_path: Path, script: str, world: int = 2, **options: object) -> "list[str]":
    """Returns each rank's standard output. The script gets `options` as JSON in sys.argv[1]."""
    env = {
        **os.environ,
        "WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "USE_LIBUV": "0",
        "GRADMON_RUN_ID": tmp_path.name,
        "OMP_NUM_THREADS": "1",
    }
    return run_each(script, json.dumps(options), [{**env, "RANK": str(rank)} for rank in range(world)])


def _answer(job: str) -> "Optional[list[int]]":
    """The exit codes of the job's ranks, or None if it did not end in time and was killed."""
    global _server
    if _server is None:
        _server = subprocess.Popen(
            [sys.executable, "-B", str(Path(__file__).with_name("rank_server.py"))],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    assert _server.stdin is not None and _server.stdout is not None
    _server.stdin.write(job)
    _server.stdin.flush()
    codes: "list[int]" = []
    if select.select([_server.stdout], [], [], WITHIN)[0]:
        codes = json.loads(_server.stdout.readline() or "[]")
    if codes:
        return codes
    os.killpg(_server.pid, signal.SIGKILL)  # the ranks, too
    _server.wait()
    _server = None
    return None
