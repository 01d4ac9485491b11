#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The costs of gradmon beside those of an older commit and of msprobe; tools/bench --baseline runs it. Each
side is measured in processes of its own, in turns."""
import argparse
import functools
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Iterable, Optional

import numpy
import torch
from collecting_rig import OPS, EmptyStep, Touched, rows_on_disk, scratch_job, until
from figures import Figure, in_turns, parse, parser_of, report, spread, text_of

ROOT = Path(__file__).resolve().parents[2]
STEPS = "tests/benchmarks/switched_steps.cc"
SIZES = (100, 1000, 5000, 10000)  # parameters of four elements
WITH_MSPROBE = (1000, 5000)
WORSE = 0.95  # of the baseline's rate; from here on it is not worse
AT_LEAST = ("rows/s", "values/s", "times as fast", "of a plain read's speed", "times the bytes", "%")  # units
OWN = "ours"
# The most of our own value, and of its ratio to the other side.
GOALS = {"switch_ms_10000": 5.0, "python_switch_ms_10000": 40.0, "python_resident_mb_10000": 15.0}
RATIOS = {
    "reading_ns": 0.3,
    "python_record_us_10000": 0.25,
    "python_record_cpu_us_10000": 0.25,
    "python_record_cpu_vs_msprobe_5000": 1 / 200,
}
# measure_gradmon() gives them. "cpu": processor time, which other processes lengthen less than time itself.
SMALL = {
    **dict.fromkeys(("record_us", "record_cpu_us"), SIZES),
    **dict.fromkeys(("switch_ms", "switch_cpu_ms", "resident_mb"), SIZES[2:]),
}


# --- A process that measures.


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6


def steps_of(monitored_by: str, config: Path, parameters: int, count: int) -> "dict[str, Any]":
    """Steps without collecting, of the switch, and with it: as switched_steps.cc, or of msprobe."""
    torch.set_num_threads(2)
    model = Touched([torch.Size([4])] * parameters)
    optimizer = EmptyStep(model)
    steps: "list[list[float]]" = []
    end_step: "Callable[[], Any]" = lambda: None

    def step() -> None:
        begin, begin_cpu = time.perf_counter(), time.thread_time()
        model.backward()
        optimizer.step()
        end_step()
        cpu = time.thread_time() - begin_cpu
        steps.append([time.perf_counter() - begin, cpu, resident_mb()])

    def step_until(reached: "Callable[[], bool]") -> None:
        until(reached, step, f"the monitor gets on: step {len(steps)}", seconds=300)

    if monitored_by == "msprobe":  # writes within the step
        from msprobe.pytorch import TrainerMon

        os.environ["MONITOR_OUTPUT_DIR"] = str(config.parent)
        begin, count = 1, max(2, count // 10)  # each takes a hundred times as long
        step_until(lambda: len(steps) == begin + count)
        monitor = TrainerMon(str(config), params_have_main_grad=False)
        monitor.set_monitor(model, optimizer=optimizer, grad_acc_steps=1)
        on = len(steps)
    else:
        import gradmon

        output = config.parent / "monitor_output"  # as of scratch_job()
        monitor = gradmon.Monitor(config, rank=0, world_size=1, output_dir=output, dynamic=True)
        monitor.watch(model, optimizer)
        end_step = monitor.step
        step_until(lambda: monitor.status().reason == "never turned on")
        begin = len(steps) + 5
        step_until(lambda: len(steps) == begin + count)
        monitor.on()
        step_until(lambda: monitor.status().state == "on")
        on = monitor.status().effective_step
    step_until(lambda: len(steps) >= on + count)
    if monitored_by != "msprobe":
        monitor.stop()
    return {"begin": begin, "asked": begin + count, "on": on, "steps": steps}


def costs(run: "dict[str, Any]", parameters: int) -> "dict[str, float]":
    """The costs of steps: seconds by the clock, seconds of processor time of the training thread, memory."""
    begin, asked, on = run["begin"], run["asked"], run["on"]
    steps = numpy.array(run["steps"])
    idle, collected = (numpy.median(part[:, :2], axis=0) for part in (steps[begin:asked], steps[on:]))
    record = (collected - idle) / (2 * parameters) * 1e6
    switch = numpy.max([*(steps[asked:on, :2] - idle), steps[on, :2] - collected], axis=0) * 1e3
    resident = steps[asked:, 2].max() - steps[asked - 1, 2]
    return dict(zip(SMALL, map(float, (*record, *switch, resident))))


# --- The other sides.


def bash(folder: Path, commands: str, *words: str) -> None:
    """With the functions of the folder's tools/setup.sh, and the torch that tools/bench chose."""
    start = 'chosen=$torch; source "$0/tools/setup.sh"; torch=$chosen gradmon_python=$1; shift; '
    subprocess.run(["bash", "-c", start + commands, str(folder), sys.executable, *words], check=True)


def built(commit: str, *targets: str) -> Path:
    """The build tree of a commit, which is checked out below build/baseline; or that of this folder."""
    if Path(commit, "bin").is_dir():
        return Path(commit)
    git = ["git", "-C", str(ROOT)]
    parsed = subprocess.run([*git, "rev-parse", f"{commit}^{{commit}}"], capture_output=True, text=True)
    if parsed.returncode != 0:
        print(f"tools/bench: --baseline: found {commit!r}; expected a commit", file=sys.stderr)
        sys.exit(2)
    folder = ROOT / "build" / "baseline" / parsed.stdout[:8]
    if not folder.is_dir():
        new = f"{folder}.new"
        shutil.rmtree(new, ignore_errors=True)
        subprocess.run([*git, "clone", "-q", "--shared", "--no-checkout", str(ROOT), new], check=True)
        subprocess.run(["git", "-C", new, "checkout", "-q", parsed.stdout.strip()], check=True)
        if not Path(new, STEPS).exists():
            with open(f"{new}/CMakeLists.txt", "a") as file:
                file.write(f"add_executable(gradmon-bench-steps {ROOT / STEPS})\n")
                file.write("target_link_libraries(gradmon-bench-steps gradmon_options gradmon::gradmon)\n")
        os.rename(new, folder)
    bash(folder, 'ensure_packages build tests && build_preset release "$@"', *targets)
    return folder / "build" / Path(os.environ["GRADMON_BIN"]).parent.name


def with_msprobe() -> "Optional[Path]":
    """A Python that has msprobe; None if it cannot be installed."""
    venv, pins = "msprobe-8.1-venv", f"{ROOT}/tools/requirements-msprobe-8.1.txt"
    try:
        bash(ROOT, 'make_venv_beside_torch "$@"', venv, pins)
    except subprocess.CalledProcessError:
        return None
    return ROOT / "build" / venv / "bin" / "python3"


# --- The processes, in turns.


def compared(name: str, values: "dict[str, list[float]]", unit: str) -> Figure:
    """Our values against those of the other side, in pairs."""
    ours, (other, theirs) = values[OWN], next(pair for pair in values.items() if pair[0] != OWN)
    ratios = [mine / its if its else math.nan for mine, its in zip(ours, theirs)]
    how = (
        f"ours {text_of(statistics.median(ours))} {unit}, {other} {text_of(statistics.median(theirs))}; "
        f"ratio of each pair: {spread(ratios)}"
    )
    if name in GOALS:
        return Figure(name, statistics.median(ours), unit, GOALS[name], how)
    at_least = unit in AT_LEAST
    goal = RATIOS.get(name, WORSE if at_least else 1 / WORSE)
    return Figure(name, statistics.median(ratios), f"of {other}'s", goal, how, at_least)


class Bench:
    """The sides, and what they measure."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.python: bool = options.python
        targets = (
            ("gradmon_python", "gradmonctl") if self.python else ("gradmon-bench", "gradmon-bench-steps")
        )
        ours = Path(os.environ["GRADMON_BIN"]).parent
        self.trees = {OWN: ours, "baseline": built(options.baseline, *targets)}
        self.quick: bool = options.quick
        self.msprobe = with_msprobe() if self.python and not self.quick else None
        self.pairs: int = 2 if options.quick else options.pairs
        self.found: "dict[str, Figure]" = {}

    def output(self, side: str, command: "list[Any]") -> str:
        """Returns the output of a command, with the package and the programs of this side."""
        tree = self.trees.get(side, self.trees[OWN])
        if "/" not in str(command[0]):
            command = [tree / "bin" / command[0], *command[1:]]
        found = {"PYTHONPATH": str(tree / "python"), "GRADMON_BIN": str(tree / "bin"), "GRADMON_LOG": "error"}
        done = subprocess.run(command, env={**os.environ, **found}, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{side}: {' '.join(map(str, command))}: {done.stderr.strip()[-2000:]}")
        return done.stdout

    def in_turns(self, sides: "Iterable[str]", measure: "Callable[[str], Any]") -> "dict[str, list[Any]]":
        return dict(zip(sides, in_turns(self.pairs, *(functools.partial(measure, one) for one in sides))))

    # --- A model of small parameters.

    @functools.lru_cache(maxsize=None)
    def steps(self, language: str, parameters: int) -> "dict[str, list[dict[str, float]]]":
        count = 5 if self.quick else max(40, 100_000 // parameters)
        parameters = min(parameters, 50) if self.quick else parameters

        def measure(side: str) -> "dict[str, float]":
            command: "list[Any]" = ["gradmon-bench-steps"]
            if language == "python":
                python = self.msprobe if side == "msprobe" else sys.executable
                command = [python, "-B", __file__, "--steps", side]
            off = {} if side == "msprobe" else {"dynamic_on": False, "collect_times": 10**6}
            keys = {"targets": {}, "ops": OPS, "wg_distribution": True, "format": "csv", **off}
            with scratch_job(**keys) as (config, _):
                output = self.output(side, [*command, config, str(parameters), str(count)])
                rows = rows_on_disk(config.parent)
            run = json.loads("{" + output.rsplit("{", 1)[-1])
            if rows < 2 * parameters * (len(run["steps"]) - run["on"]):
                raise RuntimeError(f"{side} collected too little")
            return costs(run, parameters)

        others = ["msprobe"] if self.msprobe and parameters in WITH_MSPROBE else []
        return self.in_turns([*self.trees, *others], measure)

    def small(self, name: str) -> Figure:
        *words, size = name.removeprefix("python_").split("_")
        key, other = "_".join(words), "baseline"
        if key == "record_cpu_vs_msprobe":
            key, other = "record_cpu_us", "msprobe"
        runs = self.steps("python" if name.startswith("python_") else "C++", int(size))
        values = {side: [one[key] for one in runs[side]] for side in (OWN, other)}
        return compared(name, values, {"us": "µs", "mb": "MB"}.get(key.split("_")[-1], "ms"))

    # --- What both trees' gradmon-bench measures.

    def figure(self, name: str) -> Figure:
        if name.rsplit("_", 1)[-1] in map(str, SIZES):
            return self.small(name)
        if name not in self.found:  # one run yields several
            runs = self.in_turns(self.trees, functools.partial(self.gradmon_bench, name=name))
            for each in runs[OWN][0].keys() & runs["baseline"][0].keys():
                units = {run[each]["unit"] for of in runs.values() for run in of}
                if len(units) > 1:  # hubs_simulated: not all runs came to the same size
                    raise RuntimeError(f"{each}: different units: {', '.join(units)}")
                values = {side: [run[each]["value"] for run in of] for side, of in runs.items()}
                self.found[each] = compared(each, values, units.pop())
        return self.found[name]

    def gradmon_bench(self, side: str, name: str) -> "dict[str, Any]":
        with tempfile.TemporaryDirectory(prefix="gradmon-bench-") as scratch:
            file = Path(scratch) / "figures.json"
            self.output(side, ["gradmon-bench", *(["--quick"] if self.quick else []), "--json", file, name])
            return {figure["name"]: figure for figure in json.loads(file.read_text())["figures"]}

    def names(self) -> "list[str]":
        small = [f"{what}_{size}" for what, sizes in SMALL.items() for size in sizes]
        if self.python:
            beside = [f"record_cpu_vs_msprobe_{size}" for size in WITH_MSPROBE if self.msprobe]
            return [f"python_{name}" for name in (*small, *beside)]
        ours, theirs = (self.output(side, ["gradmon-bench", "--list"]).split() for side in self.trees)
        return [*small, *(name for name in ours if name in theirs)]


def main() -> int:
    if sys.argv[1:2] == ["--steps"]:
        side, config, parameters, count = sys.argv[2:]
        print(json.dumps(steps_of(side, Path(config), int(parameters), int(count))))
        return 0
    parser = parser_of("--baseline", __doc__)
    parser.add_argument("--baseline", metavar="COMMIT", required=True, help="an older one, or its build tree")
    parser.add_argument("--python", action="store_true", help="those in Python, instead of those in C++")
    parser.add_argument("--pairs", type=int, default=5, help="runs of each side (5)")
    bench = Bench(parser.parse_args())
    options = parse(parser, bench.names())
    return report(options, bench.figure)


if __name__ == "__main__":
    sys.exit(main())
