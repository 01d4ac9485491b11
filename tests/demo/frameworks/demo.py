#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Trains one small GPT under every framework while the config is edited, and prints one table: demo.py BUILD
DIRECTORY. tools/demo --frameworks runs it, with the build directory that has the environments."""
import argparse
import importlib.metadata
import os
import subprocess
import sys
import warnings
from pathlib import Path

warnings.simplefilter("ignore")  # torch's: a hook on an embedding, whose input needs no gradient

import torch  # noqa: E402
from compare import (  # noqa: E402
    FRAMEWORKS,
    KINDS,
    LEFT_OUT,
    Framework,
    Outcome,
    Reference,
    Result,
    compare,
    of_plain_run,
)

HERE = Path(__file__).resolve().parent
WITHIN = 600  # seconds, for the job of one framework
_HEADER = ("framework", "ranks", "agreed steps", *KINDS, "largest diff.", "collectives", "step time")


class JobFailed(Exception):
    """The message has the end of the job's output."""


def run_job(framework: Framework, build: Path, directory: Path) -> None:
    """Trains under torchrun, in the framework's environment."""
    directory.mkdir(parents=True)
    python = build / framework.venv / "bin" / "python3"
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(framework.ranks)]
    command = [str(python), "-B", *launch, str(HERE / "train.py"), framework.job, str(directory)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    log = directory / "training.log"
    with log.open("w") as output:
        job = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
        try:
            code = job.wait(WITHIN)
        except BaseException:
            job.terminate()  # torchrun ends its ranks
            job.wait()
            raise
    if code != 0:
        raise JobFailed(f"exit code {code}\n" + "".join(log.read_text().splitlines(keepends=True)[-30:]))


def version_of(framework: Framework, build: Path) -> str:
    """The version of the framework's package in its environment."""
    paths = [str(path) for path in (build / framework.venv).glob("lib/python3*/site-packages")]
    found = list(importlib.metadata.distributions(name=framework.package, path=paths))
    return found[0].version if found else torch.__version__


def outcomes_of(chosen: "list[Framework]", build: Path, directory: Path) -> "list[Outcome | Result]":
    """Runs the job of each framework. Returns what its ranks have left, or the result of a failed job."""
    found: "list[Outcome | Result]" = []
    for framework in chosen:
        print(f"{framework.title} {version_of(framework, build)}: {framework.ranks} rank(s)", flush=True)
        try:
            run_job(framework, build, directory / framework.job)
            found.append(Outcome(framework, directory / framework.job))
        except (JobFailed, subprocess.TimeoutExpired, OSError, ValueError) as error:
            found.append(Result(framework, problems=[f"its job failed: {error}"]))
    return found


def results_of(outcomes: "list[Outcome | Result]") -> "list[Result]":
    """Trains with plain torch for as many steps as the frameworks have collected, and compares."""
    steps = {step for outcome in outcomes if isinstance(outcome, Outcome) for step in outcome.collected()}
    print(f"plain torch's own values, in {max(steps, default=-1) + 1} steps", flush=True)
    expected = Reference(steps).train() if steps else {}
    found = []
    for outcome in outcomes:
        if isinstance(outcome, Outcome):
            alone = outcome.framework.ranks == 1
            outcome_expected = of_plain_run(expected) if alone else expected
            found.append(compare(outcome, outcome_expected))
        else:
            found.append(outcome)
    return found


def agreed_text(result: Result) -> str:
    """The first step after each edit, once where all ranks have the same."""
    texts = [", ".join(map(str, steps)) for steps in result.agreed]
    if not texts:
        return "none"
    return texts[0] if len(set(texts)) == 1 else " | ".join(texts)


def cells_of(result: Result) -> "list[str]":
    counts = [str(result.counts.get(kind, 0)) for kind in KINDS]
    return [
        result.framework.title,
        str(result.framework.ranks),
        agreed_text(result),
        *counts,
        f"{result.largest:.1e}",
        f"{result.collectives_added:+d}" if result.collectives_added else "0",
        f"{result.ratio:.2f}",
    ]


def print_table(results: "list[Result]") -> None:
    lines = [list(_HEADER), *map(cells_of, results)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(_HEADER))]
    for line in lines:
        cells = [
            cell.ljust(width) if i in (0, 2) else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths))
        ]
        print("  ".join(cells).rstrip())
    print(
        "\nagreed steps: the first collected step after each of the two edits, the same on all ranks unless\n"
        "the ranks are listed. Kinds: rows of all ranks. largest diff.: relative, of all joined values from\n"
        "plain torch's. collectives: added to the training's own. step time: of a step that collects\n"
        "everything, over one of the same training without gradmon, medians."
    )


def print_rest(results: "list[Result]") -> None:
    print("\nWhat cannot be had:")
    for result in results:
        for line in result.cannot_be_had:
            print(f"  {result.framework.title}: {line}")
    print("\nWhat was left out:")
    for line in LEFT_OUT:
        print(f"  {line}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools/demo --frameworks", description=__doc__)
    parser.add_argument("build", type=Path)
    parser.add_argument("directory", type=Path)
    parser.add_argument("jobs", nargs="*", metavar="JOB", help="of train.py; all without one")
    options = parser.parse_args()
    known = [one.job for one in FRAMEWORKS]
    for job in options.jobs:
        if job not in known:
            parser.error(f"no job is named {job}; expected some of {', '.join(known)}")
    chosen = [one for one in FRAMEWORKS if not options.jobs or one.job in options.jobs]
    torch.set_num_threads(1)
    results = results_of(outcomes_of(chosen, options.build, options.directory))
    print()
    print_table(results)
    print_rest(results)
    failed = [result for result in results if result.problems]
    for result in failed:
        print(f"\n{result.framework.title} failed:")
        for problem in result.problems:
            print(f"  {problem}")
    return 1 if failed or len(results) < len(chosen) else 0


if __name__ == "__main__":
    sys.exit(main())
