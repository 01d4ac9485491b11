#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What gradmon costs in Python, in figures; tools/bench --python runs it."""
import argparse
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
from typing import Any, Callable, Optional

import numpy
import torch

import gradmon

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "demo"))
sys.path.insert(0, str(Path(__file__).resolve().parent / "python_rigs"))
import sharded_model  # noqa: E402
import train_ddp  # noqa: E402
import watched_steps  # noqa: E402
from collecting_rig import CollectingRig  # noqa: E402
from figures import Figure, spread, text_of  # noqa: E402
from watched_steps import EmptyStep  # noqa: E402

TOKENS = 2048


def transformer(quick: bool) -> "tuple[train_ddp.CharTransformer, train_ddp.Text]":
    text = train_ddp.Text(Path(train_ddp.__file__), 0)
    torch.manual_seed(1)
    return train_ddp.CharTransformer(*((1, 64) if quick else (6, 512)), text.characters), text


def idle_step(quick: bool, name: str = "python_idle_step") -> Figure:
    rounds, steps = (3, 2000) if quick else (40, 50000)
    make, where = IDLE[name]

    def microseconds(step: "Callable[[], Any]") -> float:
        begin = time.thread_time()
        for _ in range(steps):
            step()
        return (time.thread_time() - begin) / steps * 1e6

    with tempfile.TemporaryDirectory(prefix="gradmon-bench-", ignore_cleanup_errors=True) as scratch:
        config = Path(scratch) / "monitor_config.json"
        config.write_text('{"dynamic_on": false}')
        options = {"rank": 0, "world_size": 1, "output_dir": scratch, "dynamic": True}
        monitor, bare, watched = make(config, options)
        with monitor:
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


IDLE = {
    "python_idle_step": (watched_steps.plain, ""),
    "python_idle_step_fsdp2": (watched_steps.under_fsdp2, " a model under FSDP2 (one rank)"),
    "python_idle_step_megatron": (
        watched_steps.under_megatron,
        " what has the form of Megatron's DistributedDataParallel and chained optimizer",
    ),
}


def grads_vs_read(quick: bool) -> Figure:
    rounds = 2 if quick else 40
    model = transformer(quick)[0]
    parameters = list(model.parameters())
    factors = [torch.full_like(parameter, 1e-3) for parameter in parameters]
    count = sum(parameter.numel() for parameter in parameters)
    gradients = torch.zeros(count + count % 2)  # contiguous, so that one call can read them
    for parameter, part in zip(parameters, gradients.split([p.numel() for p in parameters] + [count % 2])):
        parameter.grad = part.view_as(parameter)
    words = gradients.view(torch.int64)  # torch's sum of these is a plain read

    def backward() -> None:  # costs hardly more than writing the gradients
        torch.autograd.backward(parameters, factors)

    rig = CollectingRig({"wg_distribution": True}, model, EmptyStep(parameters), backward)
    added, _, reads = rig.measure(rounds, lambda: (words.sum(), words.sum()))
    rig.check(2 * len(parameters) * rounds)
    read = statistics.median(reads)
    how = (
        "what collecting all gradients before and after reduction, six ops, adds to a step of a model of "
        f"{count / 1e6:.1f} million parameters ({text_of(statistics.median(added) * 1000)} ms; its backward "
        f"and optimizer made cheap), over two plain reads of those bytes ({text_of(read * 1000)} ms), on "
        f"two threads, in turns; {spread([seconds / read for seconds in added])}"
    )
    return Figure("python_grads_vs_read", statistics.median(added) / read, "times the read", 1.5, how)


def fsdp2_grads_vs_read(quick: bool) -> Figure:
    rounds = 2 if quick else 40
    shapes = [parameter.shape for parameter in transformer(quick)[0].parameters()]
    model = sharded_model.sharded(shapes)
    count = sum(shape.numel() for shape in shapes)
    words = torch.zeros(count + count % 2).view(torch.int64)  # torch's sum of these is a plain read
    rig = CollectingRig({"wg_distribution": True}, model, EmptyStep(list(model.parameters())), model.backward)
    added, _, reads = rig.measure(rounds, lambda: (words.sum(), words.sum()))
    rig.check(2 * len(shapes) * rounds)
    read = statistics.median(reads)
    how = (
        "what collecting all gradients before and after reduction, six ops, adds to a step under FSDP2 in "
        f"one rank, of {count / 1e6:.1f} million parameters ({text_of(statistics.median(added) * 1000)} ms; "
        "forward, backward and optimizer made cheap), over two plain reads of those bytes "
        f"({text_of(read * 1000)} ms), on two threads, in turns; "
        f"{spread([seconds / read for seconds in added])}"
    )
    return Figure("python_fsdp2_grads_vs_read", statistics.median(added) / read, "times the read", 1.5, how)


def fsdp2_hook(quick: bool) -> Figure:
    rounds, count = (2, 20) if quick else (100, 200)
    shapes = [torch.Size([8])] * count
    costs = []
    for model in (sharded_model.Touched(shapes), sharded_model.sharded(shapes)):
        optimizer = EmptyStep(list(model.parameters()))
        rig = CollectingRig({"wg_distribution": True}, model, optimizer, model.backward)
        added, _, _ = rig.measure(rounds, lambda: None)
        rig.check(2 * count * rounds)
        costs.append([seconds / count * 1e6 for seconds in added])
    plain, sharded = (statistics.median(values) for values in costs)
    how = (
        "what collecting the gradients of a parameter of 8 elements, before and after reduction, adds to a "
        f"step under FSDP2 ({text_of(sharded)} µs; {spread(costs[1])}), beyond what it adds without "
        f"({text_of(plain)} µs), of {count} parameters: hooks by Python beside those by C++"
    )
    return Figure("python_fsdp2_hook", sharded - plain, "µs", 5, how)


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
    added, idle, _ = rig.measure(rounds, lambda: None)
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
    with tempfile.TemporaryDirectory(prefix="gradmon-bench-", ignore_cleanup_errors=True) as scratch:
        config = Path(scratch) / "monitor_config.json"
        config.write_text(
            json.dumps(
                {
                    "xy_distribution": True,
                    "all_xy": True,
                    "format": ["api"],
                    "start_step": 0 if on else 10**6,
                }
            )
        )
        monitor = gradmon.Monitor(config, rank=0, world_size=1, output_dir=scratch, dynamic=False)
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
    with tempfile.TemporaryDirectory(prefix="gradmon-bench-", ignore_cleanup_errors=True) as scratch:
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
    "python_grads_vs_read": grads_vs_read,
    "python_activations": activations,
    "python_observe_off": lambda quick: observe(quick, on=False),
    "python_observe_on": lambda quick: observe(quick, on=True),
    "load_rows_per_s": rows_of_load,
}

if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 13):  # FSDP2 on a CPU
    BENCHES["python_fsdp2_grads_vs_read"] = fsdp2_grads_vs_read
    BENCHES["python_fsdp2_hook"] = fsdp2_hook
else:
    del BENCHES["python_idle_step_fsdp2"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools/bench --python", description=__doc__)
    quick = "checks that every benchmark runs; the values are not meaningful"
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--json", type=Path, metavar="FILE", help="the figures, as gradmon-bench has them")
    parser.add_argument("--list", action="store_true", help="the names of all figures")
    parser.add_argument("names", nargs="*", metavar="NAME", help="of figures; all without one")
    options = parser.parse_args()
    for name in options.names:
        if name not in BENCHES:
            parser.error(f"no figure is named {name}")
    if options.list:
        print(*BENCHES, sep="\n")
        return 0
    return run(options.names or list(BENCHES), options.quick, options.json)


def run(names: "list[str]", quick: bool, file: "Optional[Path]") -> int:
    os.environ.setdefault("GRADMON_LOG", "error")
    torch.set_num_threads(2)
    figures = []
    for name in names:
        try:
            figure = BENCHES[name](quick)
        except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
            print(f"gradmon-bench: {name}: {error}", file=sys.stderr)
            continue
        figure.how += "; quick: the value is not meaningful" if quick else ""
        print(figure.line(), flush=True)
        figures.append(figure)
    if file is not None:
        text = json.dumps({"figures": [figure.as_json() for figure in figures]}, indent=2, ensure_ascii=False)
        file.write_text(text + "\n")
    return 0 if len(figures) == len(names) else 1


if __name__ == "__main__":
    sys.exit(main())
