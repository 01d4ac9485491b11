# SPDX-License-Identifier: Apache-2.0
"""The time that collecting adds to a step of a transformer of a billion parameters that fills the device."""
import json
import statistics
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Sequence

import torch
from figures import Figure, spread

OPS = ["norm", "min", "max", "mean", "nans", "zeros"]
GRADIENTS_AND_WEIGHTS = {"wg_distribution": True, "param_distribution": True}
ACTIVATIONS = {**GRADIENTS_AND_WEIGHTS, "xy_distribution": True, "all_xy": True}
LENGTH = 2048
# Calls that make the host wait for the device. The profiler itself synchronises the device when it ends.
WAITS = {
    "cudaStreamSynchronize",
    "cudaEventSynchronize",
    "cudaDeviceSynchronize",
    "cudaMemcpy",
    "cuStreamSynchronize",
}


class Training:
    """Llama's architecture in bfloat16, random weights and tokens, fused AdamW."""

    def __init__(self, quick: bool) -> None:
        import transformers

        config = transformers.LlamaConfig(
            vocab_size=32000,
            hidden_size=2048,
            intermediate_size=5632,
            num_hidden_layers=2 if quick else 22,
            num_attention_heads=32,
            num_key_value_heads=4,
            max_position_embeddings=LENGTH,
            use_cache=False,
        )
        torch.manual_seed(0)
        with torch.device("cuda"):
            self.model = transformers.LlamaForCausalLM(config).to(torch.bfloat16)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5, fused=True)
        self.batch = 2 if quick else self._largest_batch()

    def parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.model.parameters())

    def step(self) -> None:
        tokens = torch.randint(0, 32000, (self.batch, LENGTH), device="cuda")
        self.optimizer.zero_grad()
        self.model(input_ids=tokens, labels=tokens).loss.backward()
        self.optimizer.step()

    def _largest_batch(self) -> int:
        most = round(torch.cuda.get_device_properties(0).total_memory / (6.6 * 2**30))  # 12 on 80 GB
        for batch in range(most, 0, -2):
            self.batch = batch
            try:
                self.step()
                self.step()
                return batch
            except torch.cuda.OutOfMemoryError:
                self.optimizer.zero_grad()
                torch.cuda.empty_cache()
        raise RuntimeError("not even two sequences fit into the device's memory")


class Monitored:
    """The training under a monitor that is off until asked."""

    def __init__(self, training: Training, keys: "Dict[str, Any]") -> None:
        import gradmon

        self._training = training
        self._scratch = tempfile.TemporaryDirectory(prefix="gradmon-bench-", ignore_cleanup_errors=True)
        config = Path(self._scratch.name) / "monitor_config.json"
        config.write_text(json.dumps({"dynamic_on": False, "collect_times": 1_000_000, "ops": OPS, **keys}))
        self.output = Path(self._scratch.name) / "monitor_output"
        self.monitor = gradmon.Monitor(config, rank=0, world_size=1, output_dir=self.output, dynamic=True)
        self.monitor.watch(training.model, training.optimizer)

    def switch(self, on: bool) -> None:
        self.monitor.on() if on else self.monitor.off()
        deadline = time.monotonic() + 30
        while self.monitor.status().state != ("on" if on else "off"):
            if time.monotonic() > deadline:
                raise RuntimeError(f"the monitor is {self.monitor.status().state}")
            self._training.step()
        for _ in range(2):
            self._training.step()

    def stop(self) -> int:
        """Ends it, and returns the rows on disk."""
        self.monitor.stop()
        if self.monitor.status().ranks[0].dropped > 0:
            raise RuntimeError("rows were dropped")
        rows = sum(len(path.read_text().splitlines()) - 1 for path in self.output.rglob("*.csv"))
        self._scratch.cleanup()
        return rows


def seconds_of_a_step(step: "Callable[[], None]", steps: int) -> float:
    """Waits for the device at the begin and the end alone."""
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - begun) / steps


def waits_of(step: "Callable[[], None]", steps: int) -> "Dict[str, int]":
    """Calls that make the host wait, in so many steps."""
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(steps):
            step()
    return dict(Counter(event.name for event in profile.events() if event.name in WAITS))


def overhead(
    training: Training, keys: "Dict[str, Any]", name: str, goal: float, quick: bool
) -> "List[Figure]":
    blocks, steps = (1, 1) if quick else (3, 4)
    monitored = Monitored(training, keys)
    ratios: List[float] = []
    monitored.switch(on=True)
    monitored.switch(on=False)
    before = seconds_of_a_step(training.step, steps)
    idle = [before]
    for _ in range(blocks):
        monitored.switch(on=True)
        collected = seconds_of_a_step(training.step, steps)
        monitored.switch(on=False)
        after = seconds_of_a_step(training.step, steps)
        ratios.append(collected / ((before + after) / 2))
        before = after
        idle.append(after)
    waits_off = waits_of(training.step, 2)
    monitored.switch(on=True)
    waits_on = waits_of(training.step, 2)
    rows = monitored.stop()
    if rows == 0:
        raise RuntimeError("nothing was collected")
    added = sum(waits_on.values()) - sum(waits_off.values())
    what = (
        f"{training.parameters() / 1e9:.2f} billion parameters, bfloat16, {training.batch} × {LENGTH} tokens"
    )
    how = (
        f"{what}; blocks of {steps} steps, each against those before and after it "
        f"({statistics.median(idle) * 1000:.1f} ms a step); {rows} rows; {spread(ratios)}"
    )
    waits = f"calls that wait for the device; off {waits_off}, on {waits_on}"
    return [
        Figure(name, statistics.median(ratios), "times the step", goal, how),
        Figure(f"{name}_waits", added / 2, "a step", 0, waits),
    ]


def idle_figure(training: Training, quick: bool) -> "Figure":
    """A monitor that is off, against the steps before it is attached and after it has stopped."""
    rounds, steps = (1, 1) if quick else (3, 4)
    bare = [seconds_of_a_step(training.step, steps)]
    ratios: List[float] = []
    for _ in range(rounds):
        monitored = Monitored(training, GRADIENTS_AND_WEIGHTS)
        training.step()
        idle = seconds_of_a_step(training.step, steps)
        monitored.monitor.stop()
        training.step()
        bare.append(seconds_of_a_step(training.step, steps))
        ratios.append(idle / ((bare[-2] + bare[-1]) / 2))
    how = f"a monitor that is off; without it {spread([1000 * one for one in bare])} ms; {spread(ratios)}"
    return Figure("gpu_idle", round(statistics.median(ratios), 3), "times the step", 1.0, how)


PARTS = ("idle", "gradients", "activations")


def figures(quick: bool, parts: "Sequence[str]") -> "Iterator[Figure]":
    training = Training(quick)
    if "idle" in parts:
        yield idle_figure(training, quick)
    if "gradients" in parts:
        yield from overhead(training, GRADIENTS_AND_WEIGHTS, "gpu_overhead", 1.01, quick)
    if "activations" in parts:
        yield from overhead(training, ACTIVATIONS, "gpu_overhead_activations", 1.05, quick)
