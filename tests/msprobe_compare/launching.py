# SPDX-License-Identifier: Apache-2.0
"""Runs a script under msprobe, under gradmon in msprobe's place, and without a monitor."""
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from readings import Side, every, merged, read_side, rebased

FOLDER = Path(__file__).resolve().parent
_LIMIT = 300.0  # seconds for a training that takes a few
_HUB_LIMIT = 30.0  # seconds for a hub's end; an entry that stays longer is reported as a file of its own


@dataclass
class Case:
    """A script with a config."""

    name: str
    script: str
    config: "dict[str, Any]"
    option: str = ""
    ranks: int = 1
    steps: int = 4
    dynamic: bool = False
    # Where msprobe is wrong with `option`, or watches one of several models: it runs with each of these
    # options instead, and the n-th run stands for the n-th model that gradmon watches.
    one_by_one: "list[str]" = field(default_factory=list)
    # msprobe counts this many steps for one of training.
    stride: int = 1
    # Releases of msprobe that the case is not for, each with the reason.
    not_in: "dict[str, str]" = field(default_factory=dict)

    @property
    def ndigits(self) -> int:
        return int(self.config.get("ndigits", 6))


def read_cases(path: Path) -> "list[Case]":
    """The cases; `config` is laid over `everything`, `plain_config` stands alone."""
    document = json.loads(path.read_text())
    cases = []
    for entry in document["cases"]:
        config = entry.pop("plain_config", None)
        if config is None:
            config = {**document["everything"], **entry.pop("config")}
        cases.append(Case(config=config, **entry))
    return cases


def environment(side: str, output: Path, gradmon_python: Path) -> "dict[str, str]":
    added = {"msprobe": "", "gradmon": str(gradmon_python), "plain": str(FOLDER / "plain")}[side]
    return {**os.environ, "MONITOR_OUTPUT_DIR": str(output), "PYTHONPATH": added, "OMP_NUM_THREADS": "1"}


def command(side: str, script: str, *arguments: str) -> "list[str]":
    through = ["-m", "gradmon.as_msprobe"] if side == "gradmon" else []
    return [sys.executable, "-B", *through, str(FOLDER / "scripts" / "train.py"), script, *arguments]


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def run(case: Case, side: str, scratch: Path, gradmon_python: Path) -> Side:
    """Runs the case on one side and reads its output."""
    if side != "msprobe":
        return _run(case, side, scratch / side, gradmon_python)
    if case.one_by_one:
        runs = [(f"msprobe-{n}", replace(case, option=option)) for n, option in enumerate(case.one_by_one)]
        return merged([_run(one, side, scratch / name, gradmon_python) for name, one in runs])
    return every(case.stride, _run(case, side, scratch / side, gradmon_python))


def _run(case: Case, side: str, folder: Path, gradmon_python: Path) -> Side:
    """Runs a script; each rank is a process."""
    shutil.rmtree(folder, ignore_errors=True)
    output, config, record = folder / "output", folder / "monitor_config.json", folder / "record"
    output.mkdir(parents=True)
    config.write_text(json.dumps(case.config))
    if case.dynamic and side == "plain":  # the scripts train until the collection has ended
        config.write_text(json.dumps({**case.config, "dynamic_on": False}))
    variables = environment(side, output, gradmon_python)
    if case.dynamic:
        variables["DYNAMIC_MONITOR"] = "True"
    arguments = ["--record", str(record), "--steps", str(case.steps), "--option", case.option]
    started = command(side, case.script, str(config), *arguments)
    port = str(_free_port()) if case.ranks > 1 else ""
    processes, logs = [], []
    for rank in range(case.ranks):
        if case.ranks > 1:
            variables.update(RANK=str(rank), WORLD_SIZE=str(case.ranks), LOCAL_RANK=str(rank))
            variables.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
        logs.append(folder / f"log-rank{rank}")
        with open(logs[-1], "w") as log:
            own = dict(variables)
            processes.append(subprocess.Popen(started, env=own, stdout=log, stderr=log, cwd=folder))
    codes = [_exit_code(process) for process in processes]
    _wait_for_hub(output)
    log_text = "".join(log.read_text(errors="replace") for log in logs)
    read = read_side(output, record, case.ranks, next((code for code in codes if code), 0), log_text)
    return rebased(read) if case.dynamic else read


def _wait_for_hub(output: Path) -> None:
    """The hub removes the job's entry shortly after the last rank has ended."""
    until = time.monotonic() + _HUB_LIMIT
    while any(output.glob(".gradmon/jobs/*.json")) and time.monotonic() < until:
        time.sleep(0.05)


def _exit_code(process: "subprocess.Popen[bytes]") -> int:
    try:
        return process.wait(_LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
