#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The speed of what reads rows after training, beside an older gradmonctl and msprobe; tools/bench --offline
runs it."""
import argparse
import functools
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional

import numpy
from baseline_bench import built
from figures import Figure, in_turns, parse, parser_of, report, text_of

MIB = 1 << 20


class Size(NamedTuple):
    ranks: int
    steps: int
    names: int
    steps_of_a_file: int = 1

    def rows(self) -> int:
        return self.ranks * self.steps * self.names

    def text(self) -> str:
        return (
            f"{self.rows()} rows: {self.ranks} ranks, {self.steps} steps ({self.steps_of_a_file} a file), "
            f"{self.names} names, six values each"
        )


def name_of(i: int) -> str:
    parts = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.up_proj")
    return f"layers.{i // len(parts)}.{parts[i % len(parts)]}.weight"


def write_run(output: Path, size: Size) -> Path:
    """CSV files as gradmon writes them."""
    random = numpy.random.default_rng(51)
    template = "\n".join(
        f'0,{name_of(i)},STEP,%.6g,%.6g,%.6g,%.6g,0,%.6g,"[512, 512]",torch.float32'
        for i in range(size.names)
    )
    for rank in range(size.ranks):
        directory = output / f"Nov24_08-30-12-rank{rank}-8c0ffee0"
        directory.mkdir(parents=True)
        for first in range(0, size.steps, size.steps_of_a_file):
            steps = range(first, first + size.steps_of_a_file)
            text = "vpp_stage,name,step,norm,min,max,mean,nans,zeros,shape,dtype\n"
            for step in steps:
                values = random.standard_normal(5 * size.names)
                text += template.replace("STEP", str(step)) % tuple(values) + "\n"
            (directory / f"grad_reduced_{first}-{steps[-1]}.csv").write_text(text)
    return output


class Ran(NamedTuple):
    seconds: float
    peak: int  # bytes; the greatest of the process and its children


def run(command: "list[str]") -> Ran:
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    error = process.stderr.read().decode(errors="replace")
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {error.strip()}")
    return Ran(time.perf_counter() - began, usage.ru_maxrss << 10)


class Bench:
    """The programs and the size of the input."""

    def __init__(self, options: argparse.Namespace, scratch: Path) -> None:
        self.gradmonctl = os.environ["GRADMON_BIN"] + "/gradmonctl"
        self.baseline = options.baseline and f"{built(options.baseline, 'gradmonctl')}/bin/gradmonctl"
        self.msprobe: Optional[str] = options.msprobe
        self.scratch = scratch
        self.quick: bool = options.quick
        self.rounds = 1 if options.quick else 3
        self.size = Size(2, 20, 10) if options.quick else Size(4, 2500, 1000)

    @functools.lru_cache(maxsize=None)
    def run_of(self, name: str, size: Size) -> Path:
        """The rows of a run of this size, written once."""
        return write_run(self.scratch / name, size)

    @property
    def job(self) -> Path:
        return self.run_of("job", self.size)

    def both(self, work: "Callable[[str], Ran]") -> "tuple[list[Ran], list[Ran]]":
        """Runs of this and of the older gradmonctl, in turns."""
        programs = [program for program in (self.gradmonctl, self.baseline) if program]
        ours, *older = in_turns(self.rounds, *(functools.partial(work, program) for program in programs))
        return ours, older[0] if older else []

    def converted(self, program: str, form: str, job: Path, *options: str) -> Ran:
        """Removes the output."""
        output = self.scratch / form
        ran = run([program, "convert", form, str(job), "--output-dirpath", str(output), *options])
        shutil.rmtree(output)
        return ran


def median(runs: "list[Ran]") -> float:
    return statistics.median(one.seconds for one in runs)


def against(ours: "list[Ran]", older: "list[Ran]") -> "tuple[float, str]":
    """The ratio of the times, of a bench without --baseline 0."""
    if not older:
        return 0.0, f"{text_of(median(ours))} s; without --baseline there is no ratio"
    return median(ours) / median(older), f"{text_of(median(ours))} s against {text_of(median(older))} s"


def analyse(bench: Bench, which: str, what: str) -> Figure:
    ours, older = bench.both(lambda program: run([program, "analyse", which, str(bench.job)]))
    if what == "peak":
        peak = max(one.peak for one in ours) / MIB
        return Figure(f"analyse_{which}_peak_mib", peak, "MiB", 512, f"{bench.size.text()}; peak memory")
    ratio, text = against(ours, older)
    how = f"{bench.size.text()}; time of the older gradmonctl is 1; {text}"
    return Figure(f"analyse_{which}_vs_baseline", ratio, "times", 1.2, how)


def convert_alone(bench: Bench, form: str, steps: int) -> "tuple[Ran, Size]":
    """A run of one process, with the rows of one rank."""
    size = Size(1, 50, 100, 50) if bench.quick else Size(1, steps, 1000, 100)
    job = bench.run_of(f"one_rank_{steps}", size)
    return bench.converted(bench.gradmonctl, form, job, "--process-num", "1"), size


def conversion_rate(bench: Bench, form: str) -> Figure:
    done = [convert_alone(bench, form, 1000) for _ in range(1 if bench.quick else 7)]
    size = done[0][1]
    how = f"gradmonctl convert {form}, one process; {size.text()}"
    rate = size.rows() / median([ran for ran, _ in done])
    return Figure(f"rows_per_s_{form}", rate, "rows/s", 300_000, how, at_least=True)


def conversion_peak(bench: Bench, form: str) -> Figure:
    ran, size = convert_alone(bench, form, 10_000)
    return Figure(f"{form}_peak_mib", ran.peak / MIB, "MiB", 256, f"{size.text()}; peak memory")


def convert(bench: Bench, form: str) -> Figure:
    ours, older = bench.both(lambda program: bench.converted(program, form, bench.job))
    ratio, text = against(ours, older)
    how = f"{bench.size.text()}; rate of the older gradmonctl is 1; {text}"
    return Figure(f"{form}_vs_baseline", 1 / ratio if ratio else 0, "times", 0.5, how, at_least=True)


_MSPROBE = """import sys
from msprobe.pytorch import monitor  # noqa: F401
from msprobe.core.monitor.csv2db import CSV2DBConfig, import_data
directories = {i: path for i, path in enumerate(sys.argv[2:])}
import_data(CSV2DBConfig(directories, db_file=sys.argv[1], micro_step=False))
"""


def convert_against_msprobe(bench: Bench) -> Figure:
    """csv2db of a hundredth of the rows: msprobe reads some thousand rows a second."""
    size = Size(1, 2, 10) if bench.quick else Size(1, 20, 1000)
    rate = bench.size.rows() / bench.converted(bench.gradmonctl, "csv2db", bench.job).seconds
    if bench.msprobe is None:
        how = f"{text_of(rate)} rows/s; without --msprobe there is no ratio"
        return Figure("csv2db_vs_msprobe", 0, "times", 100, how, at_least=True)
    job = bench.run_of("small", size)
    directories = [str(path) for path in sorted(job.glob("*-rank*"))]
    theirs = run([bench.msprobe, "-c", _MSPROBE, str(bench.scratch / "theirs.trend.db"), *directories])
    their_rate = size.rows() / theirs.seconds
    how = (
        f"rows a second: {text_of(rate)} of {bench.size.text()}; "
        f"msprobe's {text_of(their_rate)} of {size.text()}"
    )
    return Figure("csv2db_vs_msprobe", rate / their_rate, "times", 100, how, at_least=True)


def layer_query(bench: Bench, form: str, goal: float) -> Figure:
    """Times a query of one layer in a job of many ranks, from CSV files or a Parquet dataset."""
    size = Size(4, 10, 10, 10) if bench.quick else Size(1000, 100, 100, 100)
    place = bench.run_of("wide", size)
    if form == "parquet":
        job, place = place, bench.scratch / "parquet"
        run([bench.gradmonctl, "convert", "parquet", str(job), "-o", str(place)])
    sql = f"SELECT rank, step, value FROM rows WHERE name = '{name_of(7)}' AND op = 'norm'"
    words = [bench.gradmonctl, "query", sql, str(place), "--format", "csv"]
    seconds = statistics.median(run(words).seconds for _ in range(bench.rounds))
    how = f"gradmonctl query for one name and statistic; {size.text()}"
    return Figure(f"layer_query_{form}_s", seconds, "s", goal, how)


BENCHES: "dict[str, Callable[[Bench], Figure]]" = {
    **{
        f"analyse_{which}_{name}": functools.partial(analyse, which=which, what=what)
        for which in ("top", "first")
        for name, what in (("vs_baseline", "time"), ("peak_mib", "peak"))
    },
    **{f"rows_per_s_{form}": functools.partial(conversion_rate, form=form) for form in ("csv2tb", "csv2db")},
    **{f"{form}_peak_mib": functools.partial(conversion_peak, form=form) for form in ("csv2tb", "csv2db")},
    **{f"{form}_vs_baseline": functools.partial(convert, form=form) for form in ("csv2tb", "csv2db")},
    "csv2db_vs_msprobe": convert_against_msprobe,
    "layer_query_parquet_s": functools.partial(layer_query, form="parquet", goal=1),
    "layer_query_csv_s": functools.partial(layer_query, form="csv", goal=5),
}


def main() -> int:
    parser = parser_of("--offline", __doc__)
    parser.add_argument("--baseline", metavar="COMMIT", help="an older one, for the ratios to its gradmonctl")
    parser.add_argument("--msprobe", metavar="PYTHON", help="a Python that has msprobe 26.2")
    options: Any = parse(parser, list(BENCHES))
    with tempfile.TemporaryDirectory(prefix="gradmon-offline-") as scratch:
        bench = Bench(options, Path(scratch))
        return report(options, lambda name: BENCHES[name](bench))


if __name__ == "__main__":
    sys.exit(main())
