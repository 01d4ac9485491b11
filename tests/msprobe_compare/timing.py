# SPDX-License-Identifier: Apache-2.0
"""Step times of plain torch, msprobe and gradmon: a process each, of which one runs at a time."""
import argparse
import json
import math
import os
import statistics
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Callable

from launching import command, environment

_OPS = ["norm", "min", "max", "mean", "nans", "zeros"]
_GRADIENTS = {"wg_distribution": True}
_CONFIGS: "dict[str, dict[str, Any]]" = {
    "gradients": _GRADIENTS,
    "gradients, weights, moments": {**_GRADIENTS, "param_distribution": True, "mv_distribution": True},
    "activations": {"xy_distribution": True, "all_xy": True},
    "off": {"dynamic_on": False},
}
_PLAIN, _AGAIN = "plain torch", "plain torch, again"


class TimedRun:
    """A training that makes a step whenever it is asked to."""

    def __init__(self, label: str, side: str, config: "dict[str, Any]", scratch: Path, package: Path) -> None:
        self.label = label
        self.seconds: "list[float]" = []
        self.processor: "list[float]" = []  # seconds of all threads, until they are idle
        folder = scratch / label.replace(" ", "_").replace(",", "")
        folder.mkdir(parents=True)
        path = folder / "monitor_config.json"
        path.write_text(json.dumps({"ops": _OPS, "targets": {}, **config}))
        variables = environment(side, folder / "output", package)
        variables["OMP_NUM_THREADS"] = str(os.cpu_count() or 1)
        variables["OMP_WAIT_POLICY"] = "passive"  # the threads of waiting trainings must not spin
        if "dynamic_on" in config:
            variables["DYNAMIC_MONITOR"] = "True"
        with open(folder / "log", "w") as log:
            self._process = subprocess.Popen(
                command(side, "timed", str(path), "--steps", "1"),
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
        self._process.communicate()


def runs(scratch: Path, package: Path, stack: ExitStack) -> "list[TimedRun]":
    """All trainings. Those without a monitor are half a round apart: their mean stands for the round."""
    wanted: "list[tuple[str, str, dict[str, Any]]]" = []
    for name, config in _CONFIGS.items():
        wanted += [(f"msprobe, {name}", "msprobe", config), (f"gradmon, {name}", "gradmon", config)]
    wanted.insert(len(wanted) // 2, (_AGAIN, "plain", {}))
    wanted.insert(0, (_PLAIN, "plain", {}))
    started = []
    for label, side, config in wanted:
        started.append(TimedRun(label, side, dict(config), scratch, package))
        stack.callback(started[-1].close)
    return started


def measure(options: argparse.Namespace, scratch: Path) -> "tuple[int, dict[str, Any]]":
    """Times steps in turns: one process runs at a time, and each round has another order."""
    with ExitStack() as stack:
        timed = runs(scratch, options.package, stack)
        for number in range(options.rounds + 1):  # the first round warms up
            order = timed[number % len(timed) :] + timed[: number % len(timed)]
            for one in order if number % 2 else reversed(order):
                one.step()
    plain = [one for one in timed if one.label in (_PLAIN, _AGAIN)]
    figures = [figure(one, plain) for one in timed]
    columns = f"{'seconds':>9}{'ratio':>8}{'95 %':>17}{'processor time':>17}"
    print(f"{'a step of 2,048 tokens':38}{columns}")
    for entry in figures:
        between = "{:.3f} to {:.3f}".format(*entry["interval"])
        print(
            f"{entry['name']:38}{entry['seconds']:>9.3f}{entry['ratio']:>8.3f}{between:>17}"
            f"{entry['processor_ratio']:>17.3f}"
        )
    print(
        f"Medians of {options.rounds} rounds. A ratio is to the mean of the two trainings of plain torch in\n"
        "the same round; the ratio of one of these is to the other, and its distance from 1 is noise.\n"
        "95 % is the confidence interval of the ratio. Processor time is a ratio too, of all threads\n"
        "until the process is idle: it includes the work of a monitor beside training."
    )
    return 0, {"rounds": options.rounds, "times": figures}


def figure(one: TimedRun, plain: "list[TimedRun]") -> "dict[str, Any]":
    """Medians of a run, without its first round."""
    bare = [other for other in plain if other is not one]

    def ratios(times: "Callable[[TimedRun], list[float]]") -> "list[float]":
        return [
            mine / statistics.mean(of_bare)
            for mine, *of_bare in zip(times(one)[1:], *(times(other)[1:] for other in bare))
        ]

    seconds = ratios(lambda run: run.seconds)
    return {
        "name": one.label,
        "seconds": statistics.median(one.seconds[1:]),
        "ratio": statistics.median(seconds),
        "interval": median_interval(seconds),
        "processor_ratio": statistics.median(ratios(lambda run: run.processor)),
    }


def median_interval(values: "list[float]") -> "tuple[float, float]":
    """The 95 % confidence interval of the median, for any distribution (tests/benchmarks/measure.h)."""
    count = len(values)
    cut = max(0, math.floor((count - 1) / 2 - 0.98 * math.sqrt(count)))
    return sorted(values)[cut], sorted(values)[count - 1 - cut]
