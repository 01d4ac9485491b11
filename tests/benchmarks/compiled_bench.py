# SPDX-License-Identifier: Apache-2.0
"""The cost of gradmon in a training step that torch.compile has compiled."""
import functools
import importlib.util
import json
import random
import statistics
import time
from pathlib import Path
from typing import Any, Callable

import torch
import torch._inductor.config
import train_ddp
from collecting_rig import OPS, scratch_job, seconds_of
from figures import Figure, spread, text_of

import gradmon

ACTIVATIONS = {"xy_distribution": True, "all_xy": True, "ops": OPS, "collect_times": 10**6}
RESAMPLES = 2000


class Training:
    """A compiled model with its optimizer and data. Equal ones compute the same."""

    def __init__(self, model: torch.nn.Module, batch: int, text: "train_ddp.Text", backend: str) -> None:
        self.model = model
        self.called = torch.compile(model, backend=backend)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        self._batch, self._text = batch, text

    def step(self) -> None:
        given, wanted = self._text.batch(self._batch)
        self.optimizer.zero_grad()
        torch.nn.functional.cross_entropy(self.called(given).flatten(0, 1), wanted.flatten()).backward()
        self.optimizer.step()


class Measured:
    """Seconds of steps, measured in turns."""

    def __init__(self, quick: bool) -> None:
        rounds = 3 if quick else 25
        torch._inductor.config.force_disable_caches = True  # of earlier processes: torch compiles each graph
        layers, width, tokens = (1, 64, 256) if quick else (6, 512, 2048)
        backend = "aot_eager" if quick else "inductor"
        text = train_ddp.Text(Path(train_ddp.__file__), 0)

        def made(module: Any) -> Training:
            torch.manual_seed(1)
            model = module.CharTransformer(layers, width, text.characters)
            return Training(model, max(1, tokens // train_ddp.CONTEXT), text, backend)

        self.what = (
            f"a step of tests/demo/train_ddp.py --layers {layers} --width {width}, {tokens} tokens, "
            f"torch.compile(model, backend={backend!r}), on two threads"
        )
        plain = made(_loaded_again(train_ddp))
        self.first_plain = seconds_of(plain.step)
        self.second_plain = seconds_of(plain.step)
        watched = made(train_ddp)
        with scratch_job(dynamic_on=False, **ACTIVATIONS) as (config, options):
            with gradmon.Monitor(config, **options).watch(watched.called, watched.optimizer) as monitor:
                watched.step()
                self.off = self._in_turns(plain.step, watched.step, rounds)
                config.write_text(json.dumps({"dynamic_on": True, **ACTIVATIONS}))
                self.first_on = self._first_on(watched, monitor)
                self.on = self._in_turns(plain.step, watched.step, rounds)
            rows = sum(
                len(path.read_text().splitlines()) for path in options["output_dir"].rglob("actv_*.csv")
            )
        if rows < rounds * layers:
            raise RuntimeError("too little was collected")

    @staticmethod
    def _in_turns(one: "Callable[[], None]", other: "Callable[[], None]", rounds: int) -> "list[float]":
        """The times of `other`, each as a share of that of `one` beside it."""
        shares = []
        for turn in range(rounds):
            if turn % 2:
                first, second = seconds_of(one), seconds_of(other)
            else:
                second, first = seconds_of(other), seconds_of(one)
            shares.append(second / first)
        return shares

    @staticmethod
    def _first_on(training: Training, monitor: Any) -> float:
        """The longest step until the switch: the one in which the graph is compiled once more."""
        deadline = time.monotonic() + 600
        longest = 0.0
        while monitor.status().state != "on" or longest == 0:
            if time.monotonic() > deadline:
                raise RuntimeError("the monitor did not reach state on")
            longest = max(longest, seconds_of(training.step))
        return max(longest, *(seconds_of(training.step) for _ in range(2)))


def _loaded_again(module: Any) -> Any:
    """With classes and code of its own: modules of one class share compiled code, and torch then ignores the
    hooks of the second one (findings/hooks_of_a_second_module_are_not_called.sh)."""
    spec = importlib.util.spec_from_file_location(module.__name__ + "_again", module.__file__)
    assert spec is not None and spec.loader is not None
    again = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(again)
    return again


@functools.lru_cache(maxsize=None)
def measured(quick: bool) -> Measured:
    return Measured(quick)


def interval(values: "list[float]") -> "tuple[float, float]":
    """The bootstrap's 95 % interval of the median."""
    chance = random.Random(1)
    medians = sorted(statistics.median(chance.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return medians[RESAMPLES // 40], medians[-RESAMPLES // 40]


def off_vs_plain(quick: bool) -> Figure:
    found = measured(quick)
    low, high = interval(found.off)
    how = (
        f"{found.what}: watched, off, against the same without gradmon, in turns; 95 % of the median within "
        f"{low:.3f} to {high:.3f}; {spread(found.off)}"
    )
    return Figure("compiled_off_vs_plain", statistics.median(found.off), "times", 1.01, how)


def on_vs_off(quick: bool) -> Figure:
    found = measured(quick)
    how = (
        f"{found.what}: all inputs, outputs and their gradients, six ops, against the same without gradmon, "
        f"in turns; {spread(found.on)}"
    )
    return Figure("compiled_on_vs_off", statistics.median(found.on), "times", 1.10, how)


def first_switch(quick: bool) -> Figure:
    found = measured(quick)
    compiling = found.first_plain - found.second_plain
    how = (
        f"{found.what}: the step in which the switch compiles the graph once more; torch's own compilation "
        f"of it without gradmon took {text_of(compiling)} s (goal: 1.3 times that)"
    )
    return Figure("first_switch_s", found.first_on, "s", 1.3 * compiling, how)


BENCHES: "dict[str, Callable[[bool], Figure]]" = {
    "compiled_off_vs_plain": off_vs_plain,
    "compiled_on_vs_off": on_vs_off,
    "first_switch_s": first_switch,
}
