# SPDX-License-Identifier: Apache-2.0
"""Forks ranks from one process that has imported torch, because the import takes two seconds of a core.

Reads jobs from standard input, one a line, as JSON: "script" (code), "arguments" (sys.argv[1:]),
"directory" (the files RANK.out and RANK.err go there) and "environments" (one a rank). Forks the ranks,
waits for them, and prints their exit codes as a list (-N: killed by signal N). Each rank runs the script at
the top of its main module and ends as an interpreter of its own.
"""
import contextlib
import gc
import importlib
import json
import os
import re
import sys
from typing import Any

import torch.distributed
from scale import FULL

torch.optim.SGD([torch.zeros(1)], lr=0.1)  # torch 2 imports half of itself when the first optimizer is made


def become(job: "dict[str, Any]", rank: int) -> str:
    """Takes the arguments, environment and files of a rank of the job; returns its script."""
    os.environ.clear()
    os.environ.update(job["environments"][rank])
    for descriptor, name in ((0, os.devnull), (1, f"{rank}.out"), (2, f"{rank}.err")):
        how = os.O_RDWR if descriptor == 0 else os.O_WRONLY | os.O_CREAT
        file = os.open(os.path.join(job["directory"], name), how)  # join() leaves an absolute path as it is
        os.dup2(file, descriptor)
        os.close(file)
    sys.argv = ["-c", *job["arguments"]]
    script: str = job["script"]
    return script


def share(script: str) -> None:
    """Imports those parts of torch that the script imports, for all its ranks; in the full tier each rank
    imports them itself, after gradmon. A rank's garbage collections then leave out what was here before: the
    last ones of its interpreter would take a second."""
    if not FULL:
        for module in sorted(set(re.findall(r"^\s*(?:from|import) (torch\.[\w.]+)", script, re.MULTILINE))):
            with contextlib.suppress(ImportError):
                importlib.import_module(module)
    gc.collect()
    gc.freeze()


def next_script() -> "str | None":
    """Returns the script in a forked rank, and None in the server at the end of its input."""
    while line := sys.stdin.readline():
        job = json.loads(line)
        share(job["script"])
        processes = []
        for rank in range(len(job["environments"])):
            process = os.fork()
            if process == 0:
                return become(job, rank)
            processes.append(process)
        codes = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes]
        print(json.dumps(codes), flush=True)
    return None


script_of_rank = next_script()
if script_of_rank is not None:
    exec(compile(script_of_rank, "<string>", "exec"))
