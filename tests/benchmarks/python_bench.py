#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The costs of gradmon in Python, in figures; tools/bench --python runs it."""
import functools
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable

import numpy
import torch

import gradmon

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "demo"))
import compiled_bench  # noqa: E402
import train_ddp  # noqa: E402
from collecting_rig import CollectingRig, EmptyStep, Touched, scratch_job, sharded  # noqa: E402
from figures import Figure, measured, parse, parser_of, report, spread, text_of  # noqa: E402

TOKENS = 2048
HAS_FSDP2 = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 13)  # on a CPU
GRADIENTS = {"wg_distribution": True}


def transformer(quick: bool) -> "tuple[train_ddp.CharTransformer, train_ddp.Text]":
    text = train_ddp.Text(Path(train_ddp.__file__), 0)
    torch.manual_seed(1)
    return train_ddp.CharTransformer(*((1, 64) if quick else (6, 512)), text.characters), text


class MegatronOptimizer(EmptyStep):
    """Like a chained optimizer of Megatron core: its own step ends a step of training."""

    chained_optimizers: "list[Any]" = []


class MegatronModel(torch.nn.Module):
    """Like Megatron core's DistributedDataParallel: a model with groups of buckets."""

    def __init__(self) -> None:
        super().__init__()
        self.module = torch.nn.Linear(4, 3)
        self.bucket_groups: "list[Any]" = []
        self.expert_parallel_bucket_groups: "list[Any]" = []


def under_monitor(
    model: torch.nn.Module, optimizer: EmptyStep, config: Path, options: "dict[str, Any]"
) -> Any:
    return gradmon.Monitor(config, **options).watch(model, optimizer)


def under_megatron(
    model: torch.nn.Module, optimizer: EmptyStep, config: Path, options: "dict[str, Any]"
) -> Any:
    return gradmon.megatron.watch(model, optimizer, config, **options)


# The model and the optimizer that a monitor watches, and how.
IDLE: "dict[str, tuple[Callable[[], torch.nn.Module], type[EmptyStep], Callable[..., Any], str]]" = {
    "python_idle_step": (lambda: torch.nn.Linear(4, 3), EmptyStep, under_monitor, ""),
    "python_idle_step_fsdp2": (
        lambda: sharded(torch.nn.Linear(4, 3)),
        EmptyStep,
        under_monitor,
        " a model under FSDP2 (one rank)",
    ),
    "python_idle_step_megatron": (
        MegatronModel,
        MegatronOptimizer,
        under_megatron,
        " classes of the form of Megatron's DistributedDataParallel and chained optimizer",
    ),
}


def idle_step(quick: bool, name: str) -> Figure:
    """A monitor watches one of two equal optimizer steps."""
    rounds, steps = (3, 2000) if quick else (40, 50000)
    make_model, make_optimizer, watch, where = IDLE[name]
    model = make_model()
    bare, watched = make_optimizer(model), make_optimizer(model)

    def microseconds(optimizer: EmptyStep) -> float:
        begin = time.thread_time()
        for _ in range(steps):
            optimizer.step()
        return (time.thread_time() - begin) / steps * 1e6

    with scratch_job(dynamic_on=False) as job, watch(model, watched, *job) as monitor:
        added = []
        for turn in range(rounds + 1):
            pair = [microseconds(one) for one in ((bare, watched) if turn % 2 else (watched, bare))]
            added.append(pair[1] - pair[0] if turn % 2 else pair[0] - pair[1])
        until = time.monotonic() + 10  # an idle rank reports its step once a second
        while monitor.status().ranks[0].step < rounds * steps:
            if time.monotonic() > until:
                raise RuntimeError("the monitor did not take part")
            time.sleep(0.05)
    how = (
        f"processor time that an idle monitor, watching{where} in dynamic mode, adds to an optimizer's empty "
        f"step, in blocks of {steps} with and without, in turns; {spread(added[1:])} (msprobe: 6.7 to 12.4)"
    )
    return Figure(name, statistics.median(added[1:]), "µs", 1, how)


def grads_vs_read(quick: bool, under_fsdp2: bool) -> Figure:
    rounds = 2 if quick else 40
    model: Any = transformer(quick)[0]
    parameters = list(model.parameters())
    sizes = [parameter.numel() for parameter in parameters]
    count = sum(sizes)
    gradients = torch.zeros(count + count % 2)  # contiguous, so that one call can read them
    words = gradients.view(torch.int64)  # torch's sum of these is a plain read
    if under_fsdp2:
        name, where = "python_fsdp2_grads_vs_read", "under FSDP2 in one rank, "
        model = sharded(Touched([parameter.shape for parameter in parameters]))
        backward = model.backward
    else:
        name, where = "python_grads_vs_read", ""
        for parameter, part in zip(parameters, gradients.split([*sizes, count % 2])):
            parameter.grad = part.view_as(parameter)
        factors = [torch.full_like(parameter, 1e-3) for parameter in parameters]
        # It costs hardly more than writing the gradients.
        backward = functools.partial(torch.autograd.backward, parameters, factors)
    rig = CollectingRig(GRADIENTS, model, EmptyStep(model), backward)
    added, _, reads = rig.measure(rounds, lambda: (words.sum(), words.sum()))
    rig.check(2 * len(parameters) * rounds)
    read, adds = statistics.median(reads), statistics.median(added)
    how = (
        f"what collecting all gradients before and after reduction, six ops, adds to a step {where}of a "
        f"model of {count / 1e6:.1f} million parameters ({text_of(adds * 1000)} ms; its backward and "
        f"optimizer made cheap), over two plain reads of those bytes ({text_of(read * 1000)} ms), on two "
        f"threads, in turns; {spread([seconds / read for seconds in added])}"
    )
    return Figure(name, adds / read, "times the read", 1.5, how)


def fsdp2_hook(quick: bool) -> Figure:
    rounds, count = (2, 20) if quick else (100, 200)
    shapes = [torch.Size([8])] * count
    costs = []
    for model in (Touched(shapes), sharded(Touched(shapes))):
        rig = CollectingRig(GRADIENTS, model, EmptyStep(model), model.backward)
        added, _, _ = rig.measure(rounds)
        rig.check(2 * count * rounds)
        costs.append([seconds / count * 1e6 for seconds in added])
    plain, under_fsdp2 = (statistics.median(values) for values in costs)
    how = (
        "what collecting the gradients of a parameter of 8 elements, before and after reduction, adds to a "
        f"step under FSDP2 ({text_of(under_fsdp2)} µs; {spread(costs[1])}), beyond what it adds without "
        f"({text_of(plain)} µs), of {count} parameters: hooks by Python beside those by C++"
    )
    return Figure("python_fsdp2_hook", under_fsdp2 - plain, "µs", 5, how)


def activations(quick: bool) -> Figure:
    rounds = 2 if quick else 8
    model, text = transformer(quick)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    batch = TOKENS // train_ddp.CONTEXT

    def backward() -> None:
        given, wanted = text.batch(batch)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(given).flatten(0, 1), wanted.flatten()).backward()

    rig = CollectingRig({"xy_distribution": True, "all_xy": True}, model, optimizer, backward)
    added, idle, _ = rig.measure(rounds)
    share = rig.own_share()
    rig.check(rounds * len(list(model.modules())))
    step = statistics.median(idle)
    blas = "OpenBLAS" if "openblas" in Path("/proc/self/maps").read_text() else "not OpenBLAS"
    how = (
        "what all inputs, outputs and their gradients, six ops, take of the training thread in a step of "
        f"tests/demo/train_ddp.py --layers 6 --width 512 --batch {batch} ({TOKENS} tokens, "
        f"{text_of(step * 1000)} ms) on two threads ({blas}), by the monitor's own meter, which sees what "
        "runs in C++ (gradmonctl status); the whole step against the two beside it, which hold the rest, and "
        f"the machine's noise: {spread([seconds / step for seconds in added])}"
    )
    return Figure("python_activations", share, "of a step", 0.10, how)


def observe(quick: bool, on: bool) -> Figure:
    steps, calls = (20, 64) if quick else (400, 64)
    names = [f"tensor_{i}" for i in range(calls)]
    x = torch.ones(1024)
    spent = []
    keys = {"xy_distribution": True, "all_xy": True, "format": ["api"], "start_step": 0 if on else 10**6}
    with scratch_job(**keys) as (config, options):
        monitor = gradmon.Monitor(config, **{**options, "dynamic": False})
        with monitor.watch(torch.nn.Linear(4, 3), None):
            for _ in range(steps):
                begin = time.thread_time()
                for name in names:
                    gradmon.observe(x, name)
                spent.append((time.thread_time() - begin) / calls * 1e6)
                monitor.step()
    del spent[: steps // 10]  # they fill caches
    state = "in a collected step" if on else "while nothing is collected"
    how = (
        f"processor time of a call of gradmon.observe() with a tensor of 4 KiB, {state}, in blocks of "
        f"{calls} names; {spread(spent)}"
    )
    name = "python_observe_on" if on else "python_observe_off"
    return Figure(name, statistics.median(spent), "µs", 3 if on else 0.3, how)


def rows_of_load(quick: bool) -> Figure:
    """Loads the files in a process of its own, which prints its peak memory."""
    files, tensors, rounds = (30, 10, 2) if quick else (3000, 50, 5)
    numbers = numpy.random.default_rng(1).normal(size=(6, files * tensors)).round(6)
    head = "vpp_stage,name,step,norm,min,max,mean,nans,zeros,shape,dtype\n"
    with tempfile.TemporaryDirectory(prefix="gradmon-bench-") as scratch:
        directory = Path(scratch) / "Nov21_10-00-00-rank0-0123abcd"
        directory.mkdir()
        rows = (
            f'0,layers.{i % tensors}.w,{i // tensors},{",".join(map(str, cells))},"[8, 8]",torch.float32\n'
            for i, cells in enumerate(zip(*numbers))
        )
        for step in range(files):
            text = head + "".join(itertools.islice(rows, tensors))
            (directory / f"grad_reduced_{step}-{step}.csv").write_text(text)
        command = [sys.executable, "-B", "-c", LOAD, scratch]
        found = [json.loads(subprocess.check_output(command)) for _ in range(rounds)]
    if any(rows != files * tensors * 6 for rows, _, _ in found):
        raise RuntimeError("rows are missing")
    rates = [rows / seconds for rows, seconds, _ in found]
    peak = statistics.median(bytes_ / rows for rows, _, bytes_ in found)
    how = (
        f"rows of the table (a value each) that gradmon.load() makes of {files} CSV files of {tensors} rows "
        f"of six values, per second of processor time; {spread(rates)}; the process grows by "
        f"{text_of(peak)} bytes a row at most (goal: 200)"
    )
    return Figure("load_rows_per_s", statistics.median(rates), "rows/s", 300000, how, at_least=True)


LOAD = """
import json, os, sys, time
import pandas, gradmon
def memory(key):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(key))
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")  # VmHWM begins again
before = memory("VmRSS")
begin = time.process_time()
table = gradmon.load(sys.argv[1])
print(json.dumps([len(table), time.process_time() - begin, memory("VmHWM") - before]))
"""


BENCHES: "dict[str, Callable[[bool], Figure]]" = {
    **{name: functools.partial(idle_step, name=name) for name in IDLE},
    "python_grads_vs_read": functools.partial(grads_vs_read, under_fsdp2=False),
    "python_activations": activations,
    "python_observe_off": functools.partial(observe, on=False),
    "python_observe_on": functools.partial(observe, on=True),
    "load_rows_per_s": rows_of_load,
    "python_fsdp2_grads_vs_read": functools.partial(grads_vs_read, under_fsdp2=True),
    "python_fsdp2_hook": fsdp2_hook,
    **compiled_bench.BENCHES,
}
if not HAS_FSDP2:  # nor rows within compiled code
    without = ("fsdp2", *compiled_bench.BENCHES)
    BENCHES = {name: bench for name, bench in BENCHES.items() if not any(one in name for one in without)}


def main() -> int:
    options = parse(parser_of("--python", __doc__), list(BENCHES))
    os.environ.setdefault("GRADMON_LOG", "error")
    torch.set_num_threads(2)
    figures = measured(options.names, lambda name: BENCHES[name](options.quick))
    return 0 if report(figures, options) == len(options.names) else 1


if __name__ == "__main__":
    sys.exit(main())
