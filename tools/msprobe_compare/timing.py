# SPDX-License-Identifier: Apache-2.0
"""Step times of plain torch, msprobe and gradmon: a process each, of which one runs at a time."""
import argparse
import json
import os
import statistics
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from launching import command, environment

_OPS = ["norm", "min", "max", "mean", "nans", "zeros"]
_CONFIGS: "dict[str, dict[str, Any]]" = {
    "gradients": {"wg_distribution": True},
    "gradients, weights, moments": {
        "wg_distribution": True,
        "param_distribution": True,
        "mv_distribution": True,
    },
    "activations": {"xy_distribution": True, "all_xy": True},
    "off": {"dynamic_on": False},
}


class TimedRun:
    """A training that makes a step whenever it is asked to."""

    def __init__(self, label: str, side: str, config: "dict[str, Any]", scratch: Path, package: Path) -> None:
        self.label = label
        self.seconds: "list[float]" = []
        self.processor: "list[float]" = []  # seconds of all threads
        folder = scratch / label.replace(" ", "_").replace(",", "")
        folder.mkdir(parents=True)
        path = folder / "monitor_config.json"
        path.write_text(json.dumps({"ops": _OPS, "targets": {}, **config}))
        variables = environment(side, folder / "output", package)
        variables["OMP_NUM_THREADS"] = str(os.cpu_count() or 1)
        variables["OMP_WAIT_POLICY"] = "passive"  # the others' threads must not spin
        if "dynamic_on" in config:
            variables["DYNAMIC_MONITOR"] = "True"
        with open(folder / "log", "w") as log:
            self._process = subprocess.Popen(
                command(side, "timed") + [str(path)],
                env=variables,
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._log = folder / "log"
        self._answer("ready")

    def _answer(self, word: str) -> "list[str]":
        """The words of the next line that begins with `word`; the monitors log to stdout too."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(word):
                return line.split()
        raise RuntimeError(f"{self.label}: training ended: {self._log.read_text()[-1000:]}")

    def step(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("step\n")
        self._process.stdin.flush()
        seconds, processor = self._answer("seconds")[1:3]
        self.seconds.append(float(seconds))
        self.processor.append(float(processor))

    def close(self) -> None:
        """Ends the training."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        for _ in self._process.stdout or ():
            pass
        self._process.wait()


def runs(scratch: Path, package: Path, stack: ExitStack) -> "list[TimedRun]":
    wanted: "list[tuple[str, str, dict[str, Any]]]" = [
        ("plain torch", "plain", {}),
        ("plain torch, again", "plain", {}),
    ]
    for name, config in _CONFIGS.items():
        wanted += [(f"msprobe, {name}", "msprobe", config), (f"gradmon, {name}", "gradmon", config)]
    started = []
    for label, side, config in wanted:
        started.append(TimedRun(label, side, dict(config), scratch, package))
        stack.callback(started[-1].close)
    return started


def measure(options: argparse.Namespace, scratch: Path) -> "tuple[int, dict[str, Any]]":
    """Times steps in turns. Each ratio is to plain torch in the same round."""
    with ExitStack() as stack:
        timed = runs(scratch, options.package, stack)
        for number in range(options.rounds + 1):
            order = timed[number % len(timed) :] + timed[: number % len(timed)]
            for one in order if number % 2 else reversed(order):
                one.step()
    figures = [figure(one, timed[0]) for one in timed]
    print(
        f"{'a step of 2,048 tokens':38}{'seconds':>9}{'ratio':>8}{'25 % to 75 %':>17}{'processor time':>17}"
    )
    for entry in figures:
        low, high = entry["quartiles"]
        between = f"{low:.3f} to {high:.3f}"
        numbers = (
            f"{entry['seconds']:>9.3f}{entry['ratio']:>8.3f}{between:>17}{entry['processor_ratio']:>17.3f}"
        )
        print(f"{entry['name']:38}{numbers}")
    print(
        f"medians of {options.rounds} rounds; ratios to plain torch in the same round. Processor time is that"
    )
    print("of all threads of the training: beside other work it varies less than seconds")
    return 0, {"rounds": options.rounds, "times": figures}


def figure(one: TimedRun, plain: TimedRun) -> "dict[str, Any]":
    """Medians of a run, without its first round."""
    ratios = [mine / bare for mine, bare in zip(one.seconds[1:], plain.seconds[1:])]
    processor = [mine / bare for mine, bare in zip(one.processor[1:], plain.processor[1:])]
    quartiles = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    return {
        "name": one.label,
        "seconds": statistics.median(one.seconds[1:]),
        "ratio": statistics.median(ratios),
        "quartiles": [quartiles[0], quartiles[2]],
        "processor_ratio": statistics.median(processor),
    }
