#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The six statistics of one tensor by gradmon, by torch, by torch.compile and by NumPy, in turns;
tools/bench --against pytorch runs it."""
import ctypes
import math
import os
import statistics
import time
from pathlib import Path
from typing import Callable, Iterator, List

import numpy
import torch
from figures import Figure, parse, parser_of, report, spread, text_of

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


WAYS: "dict[str, Callable[[torch.Tensor], Way]]" = {
    "torch": by_torch,
    "compile": by_compile,
    "numpy": by_numpy,
}
THEIRS = {"torch": "torch's ops one after another", "compile": "torch.compile of them", "numpy": "NumPy's"}
# NumPy has no bfloat16.
NAMES = [
    f"stats_vs_{way}_{dtype}" for dtype in DTYPES for way in WAYS if (way, dtype) != ("numpy", "bfloat16")
]


def check(name: str, found: Values, wanted: Values, tolerance: float) -> None:
    """All ways compute the same; otherwise their times cannot be compared."""
    for op, a, b in zip(OPS, found, wanted):
        if not abs(a - b) <= tolerance * max(abs(b), 1):
            raise RuntimeError(f"{name}: {op} is {a}; gradmon's is {b}")


def figures_of(dtype: str, ways: "list[str]", mebibytes: int, rounds: int) -> "list[Figure]":
    """How many times as fast gradmon is as each of the ways: at least 1 where it is ahead."""
    torch.manual_seed(1)
    kind = DTYPES[dtype]
    bytes_each = torch.empty(0, dtype=kind).element_size()
    x = torch.randn(mebibytes * MIB // bytes_each).to(kind)
    ours = by_gradmon(x)
    others = {name: WAYS[name](x) for name in ways}
    tolerance = 1e-3 if bytes_each >= 4 else 0.1  # torch's own norm of 32 million halves is 4 % too low
    for name, way in others.items():
        check(f"{name}, {dtype}", way(), ours(), tolerance)
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    times: "dict[str, list[float]]" = {name: [] for name in ["gradmon", *others]}
    for _ in range(rounds):
        for name, way in [("gradmon", ours), *others.items()]:
            begin = clock()
            way()
            times[name].append(clock() - begin)
    return [figure(dtype, mebibytes, name, times[name], times["gradmon"]) for name in others]


def figure(dtype: str, mebibytes: int, name: str, theirs: "list[float]", ours: "list[float]") -> Figure:
    ratios = [their / our for their, our in zip(theirs, ours)]
    count = torch.get_num_threads()
    threads = "processor time of one thread" if count == 1 else f"{count} threads each (NumPy: 1)"
    how = (
        f"six ops on {mebibytes} MiB of {dtype} ({text_of(statistics.median(ours) * 1000)} ms) against "
        f"{THEIRS[name]} ({text_of(statistics.median(theirs) * 1000)} ms), {threads}, in turns; "
        f"{spread(ratios)}"
    )
    value = statistics.median(ratios)
    return Figure(f"stats_vs_{name}_{dtype}", value, "times as fast", 1, how, at_least=True)


def measured(names: "list[str]", quick: bool) -> "Iterator[Figure]":
    for dtype in DTYPES:
        ways = [way for way in WAYS if f"stats_vs_{way}_{dtype}" in names]
        yield from figures_of(dtype, ways, *((1, 2) if quick else (64, 20))) if ways else ()


def main() -> None:
    parser = parser_of("--against pytorch", __doc__)
    parser.add_argument("--threads", type=int, default=1, help="of torch, for all but NumPy; default: 1")
    options = parse(parser, NAMES)
    torch.set_num_threads(options.threads)
    report(measured(options.names, options.quick), options)


if __name__ == "__main__":
    main()
