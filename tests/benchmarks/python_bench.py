#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The costs of gradmon in Python, in figures; tools/bench --python runs it."""
import functools
import importlib.util
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, NamedTuple

import numpy
import torch
import torch._inductor.config

import gradmon

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "demo"))
import train_ddp  # noqa: E402
from collecting_rig import (  # noqa: E402
    OPS,
    CollectingRig,
    EmptyStep,
    Touched,
    rows_on_disk,
    scratch_job,
    seconds_of,
    sharded,
    until,
)
from figures import (  # noqa: E402
    Figure,
    in_turns,
    median_figure,
    median_interval,
    parse,
    parser_of,
    report,
    spread,
    text_of,
)

TOKENS = 2048
GRADIENTS = {"wg_distribution": True}
ACTIVATIONS = {"xy_distribution": True, "all_xy": True}


def transformer(quick: bool) -> "tuple[train_ddp.CharTransformer, train_ddp.Text]":
    text = train_ddp.Text(Path(train_ddp.__file__), 0)
    torch.manual_seed(1)
    return train_ddp.CharTransformer(*((1, 64) if quick else (6, 512)), text.characters), text


def backward_of(model: Any, optimizer: Any, text: train_ddp.Text, batch: int) -> "Callable[[], None]":
    """The part of a step of train_ddp.py before the optimizer."""

    def backward() -> None:
        given, wanted = text.batch(batch)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(given).flatten(0, 1), wanted.flatten()).backward()

    return backward


# --- A monitor that is idle.


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


# The watched model.
IDLE = {
    "python_idle_step": "",
    "python_idle_step_fsdp2": " a model under FSDP2 (one rank)",
    "python_idle_step_megatron": " classes like Megatron's DistributedDataParallel and chained optimizer",
}


def idle_step(quick: bool, name: str) -> Figure:
    """A monitor watches one of two equal optimizer steps."""
    rounds, steps = (3, 2000) if quick else (40, 50000)
    megatron = name == "python_idle_step_megatron"
    model = MegatronModel() if megatron else torch.nn.Linear(4, 3)
    if name == "python_idle_step_fsdp2":
        sharded(model)
    bare, watched = ((MegatronOptimizer if megatron else EmptyStep)(model) for _ in range(2))

    def microseconds(optimizer: EmptyStep) -> float:
        begin = time.thread_time()
        for _ in range(steps):
            optimizer.step()
        return (time.thread_time() - begin) / steps * 1e6

    with scratch_job(dynamic_on=False) as (config, options):
        watch = gradmon.megatron.watch if megatron else gradmon.Monitor(config, **options).watch
        more = {"config": config, **options} if megatron else {}
        with watch(model, watched, **more) as monitor:
            tasks = (functools.partial(microseconds, one) for one in (bare, watched))
            without, idle = in_turns(rounds + 1, *tasks)
            until(  # an idle rank reports its step once a second
                lambda: monitor.status().ranks[0].step >= rounds * steps,
                lambda: time.sleep(0.05),
                "the monitor takes part",
            )
    added = [one - other for one, other in zip(idle[1:], without[1:])]
    how = (
        f"processor time that an idle monitor, watching{IDLE[name]} in dynamic mode, adds to an optimizer's "
        f"empty step, in blocks of {steps} with and without, in turns (msprobe: 6.7 to 12.4)"
    )
    return median_figure(name, added, "µs", 1, how)


# --- Collected steps.


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
        "threads, in turns"
    )
    return median_figure(name, [seconds / read for seconds in added], "times the read", 1.5, how)


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
    rig = CollectingRig(ACTIVATIONS, model, optimizer, backward_of(model, optimizer, text, batch))
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


def observe(quick: bool, name: str, goal: float) -> Figure:
    steps, calls = (20, 64) if quick else (400, 64)
    on = name == "python_observe_on"
    names = [f"tensor_{i}" for i in range(calls)]
    x = torch.ones(1024)
    spent = []
    with scratch_job(**ACTIVATIONS, format=["api"], start_step=0 if on else 10**6) as (config, options):
        with gradmon.Monitor(config, **{**options, "dynamic": False}) as monitor:
            monitor.watch(torch.nn.Linear(4, 3), None)
            for _ in range(steps):
                begin = time.thread_time()
                for tensor in names:
                    gradmon.observe(x, tensor)
                spent.append((time.thread_time() - begin) / calls * 1e6)
                monitor.step()
    state = "in a collected step" if on else "while nothing is collected"
    how = (
        f"processor time of a call of gradmon.observe() with a tensor of 4 KiB, {state}, in blocks of "
        f"{calls} names"
    )
    return median_figure(name, spent[steps // 10 :], "µs", goal, how)  # the first fill caches


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
        f"of six values, per second of processor time; the process grows by {text_of(peak)} bytes a row at "
        "most (goal: 200)"
    )
    return median_figure("load_rows_per_s", rates, "rows/s", 300000, how, at_least=True)


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


# --- A training step that torch.compile has compiled.


class Compiled(NamedTuple):
    what: str
    plain: "Callable[[], float]"  # makes a step without gradmon; returns its time
    watched: "Callable[[], float]"
    model: torch.nn.Module  # the watched one
    optimizer: torch.optim.Optimizer

    def shares(self, rounds: int) -> "list[float]":
        """Times of watched steps, each over that of a step without gradmon beside it."""
        bare, own = in_turns(rounds, self.plain, self.watched)
        return [mine / other for mine, other in zip(own, bare)]


def compiled(layers: int, width: int, tokens: int, backend: str) -> Compiled:
    torch._inductor.config.force_disable_caches = True  # of earlier processes: torch compiles each graph
    torch._dynamo.reset()
    text = train_ddp.Text(Path(train_ddp.__file__), 0)

    def training(module: Any) -> "tuple[Any, torch.optim.Optimizer, Callable[[], float]]":
        """The compiled model, its optimizer, and a step, which returns its time."""
        torch.manual_seed(1)
        model = torch.compile(module.CharTransformer(layers, width, text.characters), backend=backend)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        backward = backward_of(model, optimizer, text, max(1, tokens // train_ddp.CONTEXT))
        return model, optimizer, lambda: seconds_of(lambda: (backward(), optimizer.step()))

    _, _, plain = training(loaded_again(train_ddp))
    model, optimizer, watched = training(train_ddp)
    what = (
        f"a step of tests/demo/train_ddp.py --layers {layers} --width {width}, {tokens} tokens, "
        f"torch.compile(model, backend={backend!r}), on two threads"
    )
    return Compiled(what, plain, watched, model, optimizer)


def off_vs_plain(quick: bool) -> Figure:
    """Short steps are measured, because it takes a thousand pairs to tell 1 % apart beside other programs."""
    steps = compiled(1, 64, 256, "aot_eager") if quick else compiled(2, 256, 512, "inductor")
    with scratch_job(dynamic_on=False, **ACTIVATIONS) as (config, options):
        with gradmon.Monitor(config, **options).watch(steps.model, steps.optimizer):
            steps.shares(2)  # compile
            off = steps.shares(10 if quick else 1500)
    how = (
        f"{steps.what}: watched, off, against the same without gradmon, in turns; 95 % of the median within "
        "{:.3f} to {:.3f}".format(*median_interval(off))
    )
    return median_figure("compiled_off_vs_plain", off, "times", 1.01, how)


class CompiledOn(NamedTuple):
    what: str
    compiling: float  # seconds of torch's own compilation
    switch: float  # of the longest step until the switch: the one in which the graph is compiled once more
    on: "list[float]"


@functools.lru_cache(maxsize=None)
def compiled_on(quick: bool) -> CompiledOn:
    rounds = 3 if quick else 25
    steps = compiled(1, 64, 256, "aot_eager") if quick else compiled(6, 512, TOKENS, "inductor")
    first, second = steps.plain(), steps.plain()
    keys = {**ACTIVATIONS, "ops": OPS, "collect_times": 10**6}
    with scratch_job(dynamic_on=False, **keys) as (config, options):
        with gradmon.Monitor(config, **options).watch(steps.model, steps.optimizer) as monitor:
            steps.shares(2)
            config.write_text(json.dumps({"dynamic_on": True, **keys}))
            took = [steps.watched()]
            until(
                lambda: monitor.status().state == "on",
                lambda: took.append(steps.watched()),
                "the monitor is on",
                seconds=600,
            )
            took += [steps.watched(), steps.watched()]
            on = steps.shares(rounds)
        if rows_on_disk(options["output_dir"]) < rounds:
            raise RuntimeError("too little was collected")
    return CompiledOn(steps.what, first - second, max(took), on)


def loaded_again(module: Any) -> Any:
    """With classes and code of its own: modules of one class share compiled code, and torch then ignores the
    hooks of the second one (findings/hooks_of_a_second_module_are_not_called.sh)."""
    spec = importlib.util.spec_from_file_location(module.__name__ + "_again", module.__file__)
    assert spec is not None and spec.loader is not None
    again = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(again)
    return again


def on_vs_off(quick: bool) -> Figure:
    found = compiled_on(quick)
    how = (
        f"{found.what}: all inputs, outputs and their gradients, six ops, against the same without gradmon, "
        "in turns"
    )
    return median_figure("compiled_on_vs_off", found.on, "times", 1.10, how)


def first_switch(quick: bool) -> Figure:
    found = compiled_on(quick)
    how = (
        f"{found.what}: the step in which the switch compiles the graph once more; torch's own compilation "
        f"of it without gradmon took {text_of(found.compiling)} s (goal: 1.3 times that)"
    )
    return Figure("first_switch_s", found.switch, "s", 1.3 * found.compiling, how)


BENCHES: "dict[str, Callable[[bool], Figure]]" = {
    **{name: functools.partial(idle_step, name=name) for name in IDLE},
    "python_grads_vs_read": functools.partial(grads_vs_read, under_fsdp2=False),
    "python_activations": activations,
    "python_observe_off": functools.partial(observe, name="python_observe_off", goal=0.3),
    "python_observe_on": functools.partial(observe, name="python_observe_on", goal=3),
    "load_rows_per_s": rows_of_load,
    "python_fsdp2_grads_vs_read": functools.partial(grads_vs_read, under_fsdp2=True),
    "python_fsdp2_hook": fsdp2_hook,
    "compiled_off_vs_plain": off_vs_plain,
    "compiled_on_vs_off": on_vs_off,
    "first_switch_s": first_switch,
}
NEEDS_2_13 = ("fsdp2", "compiled", "first_switch")  # torch: rows within compiled code, FSDP2 on a CPU


def main() -> int:
    has_it = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 13)
    names = [name for name in BENCHES if has_it or not any(word in name for word in NEEDS_2_13)]
    options = parse(parser_of("--python", __doc__), names)
    os.environ.setdefault("GRADMON_LOG", "error")
    torch.set_num_threads(2)
    return report(options, lambda name: BENCHES[name](options.quick))


if __name__ == "__main__":
    sys.exit(main())
