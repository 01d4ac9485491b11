# SPDX-License-Identifier: Apache-2.0
"""Runs a script in two or more ranks with gloo."""
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Optional

import torch
from scale import FULL

WITHIN = 240  # seconds
# Further arguments of a TCPStore: Debian's torch 2.6 is built without libuv, but asks for it.
STORE_OPTIONS: "dict[str, bool]" = {"use_libuv": False} if torch.__version__.startswith("2.6.") else {}

# The beginning of a script for ranks of a Gloo group.
GLOO = """
import gc, json, os, sys, time, torch, torch.distributed as dist, gradmon, jobs
options = json.loads(sys.argv[1])
dist.init_process_group("gloo")
rank = dist.get_rank()
"""
# rank_server.py, by LD_PRELOAD; they end when this process does.
_servers: "dict[str, subprocess.Popen[str]]" = {}


def free_port() -> int:
    """A port that the system gives to nobody who asks for any port, as gloo does."""
    while True:
        port = random.SystemRandom().randrange(10_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass


def run_each(script: str, argument: str, environments: "list[dict[str, str]]") -> "list[str]":
    """Runs one rank with each environment, all at once; returns their standard output."""
    codes, out, said = _run(script, [argument], environments)
    trouble = "\n".join(said)
    assert codes == [0] * len(environments), f"{codes}\n{trouble}"
    return out


def run_program(
    script: str, arguments: "list[str]", environment: "dict[str, str]"
) -> "subprocess.CompletedProcess[str]":
    """Runs the script in a process of its own, which has imported torch; with GRADMON_TEST_SCALE=full, in a
    new interpreter."""
    if FULL:
        command = [sys.executable, "-c", script, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=WITHIN, env=environment)
    codes, (out,), (said,) = _run(script, arguments, [environment])
    assert codes is not None, f"it did not end in {WITHIN} s\n{said}"
    return subprocess.CompletedProcess(arguments, codes[0], out, said)


def _run(
    script: str, arguments: "list[str]", environments: "list[dict[str, str]]"
) -> "tuple[Optional[list[int]], list[str], list[str]]":
    """The exit codes (None: the processes did not end in time), standard outputs and logs."""
    with tempfile.TemporaryDirectory() as directory:
        job = {"script": script, "arguments": arguments, "directory": directory, "environments": environments}
        codes = _answer(json.dumps(job) + "\n", environments[0].get("LD_PRELOAD", ""))

        def texts(name: str) -> "list[str]":
            paths = [Path(directory, f"{rank}.{name}") for rank in range(len(environments))]
            return [path.read_text() if path.exists() else "" for path in paths]

        return codes, texts("out"), texts("err")


def reports(tmp_path: Path, script: str, world: int = 2, **options: object) -> "list[Any]":
    """Runs the script as run() does; returns what each rank has printed last, as JSON."""
    return [json.loads(out.strip().splitlines()[-1]) for out in run(tmp_path, script, world, **options)]


def run(tmp_path: Path, script: str, world: int = 2, **options: object) -> "list[str]":
    """Returns each rank's standard output. The script gets `options` as JSON in sys.argv[1]."""
    env = {
        **os.environ,
        "WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "USE_LIBUV": "0",
        "GRADMON_RUN_ID": f"{tmp_path.name}-{os.getpid()}",
        "OMP_NUM_THREADS": "1",
    }
    return run_each(script, json.dumps(options), [{**env, "RANK": str(rank)} for rank in range(world)])


def _answer(job: str, preload: str) -> "Optional[list[int]]":
    """The exit codes of the job's ranks, or None if it did not end in time and was killed."""
    server = _servers.get(preload)
    if server is None:
        server = _servers[preload] = subprocess.Popen(
            [sys.executable, "-B", str(Path(__file__).with_name("rank_server.py"))],
            env={**os.environ, "OMP_NUM_THREADS": "1", "LD_PRELOAD": preload},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    assert server.stdin is not None and server.stdout is not None
    server.stdin.write(job)
    server.stdin.flush()
    codes: "list[int]" = []
    if select.select([server.stdout], [], [], WITHIN)[0]:
        codes = json.loads(server.stdout.readline() or "[]")
    if codes:
        return codes
    os.killpg(server.pid, signal.SIGKILL)  # the ranks, too
    server.wait()
    del _servers[preload]
    return None
