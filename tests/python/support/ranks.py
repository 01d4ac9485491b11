# SPDX-License-Identifier: Apache-2.0
"""Runs a script in two ranks with gloo."""
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import torch

WITHIN = 120  # seconds
# Further arguments of a TCPStore: Debian's torch 2.6 is built without libuv, but asks for it.
STORE_OPTIONS: "dict[str, bool]" = {"use_libuv": False} if torch.__version__.startswith("2.6.") else {}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run(tmp_path: Path, script: str, **options: object) -> "list[str]":
    """Returns each rank's standard output. The script gets `options` as JSON in sys.argv[1]."""
    env = {
        **os.environ,
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "USE_LIBUV": "0",
        "GRADMON_RUN_ID": tmp_path.name,
        "OMP_NUM_THREADS": "1",
    }
    processes = [
        subprocess.Popen(
            [sys.executable, "-B", "-c", script, json.dumps(options)],
            env={**env, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        said = [process.communicate(timeout=WITHIN) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, (_, error) in zip(processes, said):
        assert process.returncode == 0, "\n".join(error for _, error in said)
    return [out for out, _ in said]
