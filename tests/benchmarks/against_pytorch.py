#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The six statistics of one tensor by gradmon, by torch, by torch.compile and by NumPy, in turns;
tools/bench --against pytorch runs it."""
import ctypes
import functools
import math
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Callable, List

import numpy
import torch
from figures import Figure, in_turns, median_figure, parse, parser_of, report, text_of

MIB = 1 << 20
EPS = 1e-8
OPS = ["min", "max", "mean", "norm", "nans", "zeros"]  # as gradmon::Op counts them
DTYPES = {name: getattr(torch, name) for name in ("float32", "bfloat16", "float16", "float64")}
# The numbers that torch gives to its types.
SCALAR_TYPES = {torch.float16: 5, torch.float32: 6, torch.float64: 7, torch.bfloat16: 15}

Values = List[float]
Way = Callable[[], Values]


def by_gradmon(x: torch.Tensor) -> Way:
    library = ctypes.CDLL(str(Path(os.environ["GRADMON_BIN"]) / "libgradmon-bench-stats.so"))
    stats = library.gradmon_bench_stats
    stats.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_double, ctypes.c_void_p]
    values = (ctypes.c_double * 16)()

    def read() -> Values:
        if stats(x.data_ptr(), x.numel(), SCALAR_TYPES[x.dtype], EPS, values) != 0:
            raise RuntimeError("gradmon cannot read the tensor")
        return list(values[: len(OPS)])

    return read


def by_torch(x: torch.Tensor) -> Way:
    def read() -> Values:
        zeros = x.abs().lt(EPS).sum() / x.numel()
        found = (x.min(), x.max(), x.mean(), x.norm(), x.isnan().sum(), zeros)
        return [value.item() for value in found]

    return read


def six(x: torch.Tensor) -> "tuple[torch.Tensor, ...]":
    """Inductor fuses these into one loop. Half precision is added in float32, as gradmon adds it."""
    y = x if x.dtype == torch.float64 else x.float()
    nans, zeros = y.isnan().sum(), y.abs().lt(EPS).sum() / y.numel()
    return y.amin(), y.amax(), y.mean(), torch.linalg.vector_norm(y), nans, zeros


def by_compile(x: torch.Tensor) -> Way:
    compiled = torch.compile(six, fullgraph=True, dynamic=False)
    return lambda: [value.item() for value in compiled(x)]


def by_numpy(x: torch.Tensor) -> Way:
    array = x.numpy()
    wide = numpy.float64 if x.dtype == torch.float64 else numpy.float32

    def read() -> Values:
        norm = math.sqrt(numpy.square(array, dtype=wide).sum())
        mean = array.mean(dtype=wide)
        zeros = (numpy.abs(array) < EPS).sum() / array.size
        found = (array.min(), array.max(), mean, norm, numpy.isnan(array).sum(), zeros)
        return [float(value) for value in found]

    return read


WAYS = {
    "torch": (by_torch, "torch's ops one after another"),
    "compile": (by_compile, "torch.compile of them"),
    "numpy": (by_numpy, "NumPy's"),
}
# NumPy has no bfloat16.
NAMES = [
    f"stats_vs_{way}_{dtype}" for dtype in DTYPES for way in WAYS if (way, dtype) != ("numpy", "bfloat16")
]


def check(name: str, found: Values, wanted: Values, tolerance: float) -> None:
    """All ways compute the same; otherwise their times cannot be compared."""
    for op, a, b in zip(OPS, found, wanted):
        if not abs(a - b) <= tolerance * max(abs(b), 1):
            raise RuntimeError(f"{name}: {op} is {a}; gradmon's is {b}")


@functools.lru_cache(maxsize=None)
def figures_of(dtype: str, ways: "tuple[str, ...]", quick: bool) -> "dict[str, Figure]":
    """How many times as fast gradmon is as each of the ways: at least 1 where it is ahead."""
    mebibytes, rounds = (1, 2) if quick else (64, 20)
    torch.manual_seed(1)
    kind = DTYPES[dtype]
    x = torch.randn(mebibytes * MIB // kind.itemsize).to(kind)
    ours = by_gradmon(x)
    others = {name: WAYS[name][0](x) for name in ways}
    tolerance = 1e-3 if kind.itemsize >= 4 else 0.1  # torch's own norm of 32 million halves is 4 % too low
    for name, way in others.items():
        check(f"{name}, {dtype}", way(), ours(), tolerance)
    count = torch.get_num_threads()
    clock = time.thread_time if count == 1 else time.perf_counter

    def seconds(way: Way) -> float:
        begin = clock()
        way()
        return clock() - begin

    own, *times = in_turns(rounds, *(functools.partial(seconds, way) for way in (ours, *others.values())))
    found = {}
    for way, theirs in zip(ways, times):
        name = f"stats_vs_{way}_{dtype}"
        threads = "processor time of one thread" if count == 1 else f"{count} threads each (NumPy: 1)"
        how = (
            f"six ops on {mebibytes} MiB of {dtype} ({text_of(statistics.median(own) * 1000)} ms) against "
            f"{WAYS[way][1]} ({text_of(statistics.median(theirs) * 1000)} ms), {threads}, in turns"
        )
        ratios = [their / our for their, our in zip(theirs, own)]
        found[name] = median_figure(name, ratios, "times as fast", 1, how, at_least=True)
    return found


def main() -> int:
    parser = parser_of("--against pytorch", __doc__)
    parser.add_argument("--threads", type=int, default=1, help="of torch, for all but NumPy; default: 1")
    options = parse(parser, NAMES)
    torch.set_num_threads(options.threads)

    def bench(name: str) -> Figure:
        dtype = name.rpartition("_")[2]
        ways = tuple(way for way in WAYS if f"stats_vs_{way}_{dtype}" in options.names)
        return figures_of(dtype, ways, options.quick)[name]

    return report(options, bench)


if __name__ == "__main__":
    sys.exit(main())
