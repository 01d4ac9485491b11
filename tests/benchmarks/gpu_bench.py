# SPDX-License-Identifier: Apache-2.0
"""The costs of gradmon on a CUDA device, in figures; tools/bench --gpu runs it: the statistics of tensors,
and what collecting adds to a step of a transformer of a billion parameters that fills the device."""
import functools
import importlib.util
import os
import statistics
import sys
import time
from collections import Counter
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List

import torch
from collecting_rig import OPS, scratch_job, stop, until
from figures import Figure, median_figure, parse, parser_of, report, spread

EPS = 1e-8
BYTES = 4 << 30
TENSORS = 2000
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

# --- The statistics of tensors.


def uneven_tensors(dtype: torch.dtype) -> List[torch.Tensor]:
    """2,000 tensors of 4 GiB together; the largest has some hundred times the size of the smallest."""
    generator = torch.Generator().manual_seed(1)
    weights = (3 * (2 * torch.rand(TENSORS, generator=generator) - 1)).exp()
    sizes = (weights / weights.sum() * (BYTES // dtype.itemsize)).long().clamp(min=64) // 64 * 64
    whole = torch.empty(int(sizes.sum()), dtype=dtype, device="cuda").normal_()
    return list(whole.split(sizes.tolist()))


def seconds_on_device(work: "Callable[[], object]") -> float:
    """Time on the device alone: it is kept busy while the work is queued."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(200_000_000)
    begin.record()
    work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1000


def times(work: "Callable[[], object]", rounds: int) -> List[float]:
    work()
    torch.cuda.synchronize()
    return [seconds_on_device(work) for _ in range(rounds)]


def read_plainly(tensors: List[torch.Tensor], rounds: int) -> "tuple[float, str]":
    """Seconds of the fastest plain read of the same memory, and which it is."""
    whole = torch.empty(0, dtype=tensors[0].dtype, device="cuda").set_(tensors[0].untyped_storage())
    candidates: Dict[str, Callable[[], object]] = {"torch.sum": lambda: whole.view(torch.float32).sum()}
    try:
        import triton_read

        candidates["a Triton kernel"] = lambda: triton_read.read(whole.view(torch.int32))
    except ImportError:
        pass
    medians = {name: statistics.median(times(read, rounds)) for name, read in candidates.items()}
    best = min(medians, key=lambda name: medians[name])
    return medians[best], f"{best}, {BYTES / medians[best] / 1e9:.0f} GB/s"


def read_by_torch(tensors: List[torch.Tensor]) -> None:
    """The same statistics, tensor by tensor."""
    for tensor in tensors:
        tensor.aminmax()
        tensor.mean(dtype=torch.float32)
        tensor.norm(dtype=torch.float32)
        tensor.isnan().sum()
        (tensor.abs() < EPS).sum()


def statistics_of(quick: bool) -> "Iterator[Figure]":
    for dtype in (torch.bfloat16, torch.float32):
        yield from statistics_figures(dtype, 2 if quick else 15)


def statistics_figures(dtype: torch.dtype, rounds: int) -> "List[Figure]":
    device = torch.ops.gradmon_device
    name = str(dtype).removeprefix("torch.")
    tensors = uneven_tensors(dtype)
    handles: List[int] = []
    seconds = times(lambda: handles.append(device.start(tensors, EPS, True, True)), rounds)
    assert all(device.by_kernel(handle) == TENSORS for handle in handles)
    for handle in handles:
        device.take(handle)

    def figure(of: str, others: float, unit: str, goal: float, how: str) -> Figure:
        how = f"seven statistics of {TENSORS} tensors, 4 GiB; {how}"
        ratios = [others / one for one in seconds]
        return median_figure(f"{of}_{name}", ratios, unit, goal, how, at_least=True)

    reading, by = read_plainly(tensors, rounds)
    norms = statistics.median(times(lambda: torch._foreach_norm(tensors), rounds))
    by_torch = statistics.median(times(lambda: read_by_torch(tensors), min(rounds, 5)))
    return [
        figure("gpu_stats_vs_read", reading, "of a plain read", 0.9, f"plain read by {by}"),
        figure("gpu_vs_foreach", norms, "times as fast", 1, "against torch._foreach_norm alone"),
        figure("gpu_vs_torch_ops", by_torch, "times as fast", 1, "against torch's ops, tensor by tensor"),
    ]


# --- Steps of training.


@functools.lru_cache(maxsize=None)
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


@contextmanager
def monitored(training: Training, keys: "Dict[str, Any]") -> "Iterator[tuple[Any, Any]]":
    """A monitor of the training that is off until asked, and its output directory."""
    import gradmon

    with scratch_job(dynamic_on=False, collect_times=10**6, ops=OPS, **keys) as (config, options):
        monitor = gradmon.Monitor(config, **options).watch(training.model, training.optimizer)
        yield monitor, options["output_dir"]


def switch(monitor: Any, step: "Callable[[], None]", state: str) -> None:
    monitor.on() if state == "on" else monitor.off()
    until(lambda: monitor.status().state == state, step, f"the monitor is {state}", seconds=30)
    step()
    step()


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


def overhead(quick: bool, keys: "Dict[str, Any]", name: str, goal: float) -> "List[Figure]":
    training = Training(quick)
    blocks, steps = (1, 1) if quick else (3, 4)
    ratios: List[float] = []
    with monitored(training, keys) as (monitor, output):
        switch(monitor, training.step, "on")
        switch(monitor, training.step, "off")
        idle = [seconds_of_a_step(training.step, steps)]
        for _ in range(blocks):
            switch(monitor, training.step, "on")
            collected = seconds_of_a_step(training.step, steps)
            switch(monitor, training.step, "off")
            idle.append(seconds_of_a_step(training.step, steps))
            ratios.append(collected / statistics.mean(idle[-2:]))
        waits_off = waits_of(training.step, 2)
        switch(monitor, training.step, "on")
        waits_on = waits_of(training.step, 2)
        rows = stop(monitor, output, 1)
    added = sum(waits_on.values()) - sum(waits_off.values())
    how = (
        f"{training.parameters() / 1e9:.2f} billion parameters, bfloat16, {training.batch} × {LENGTH} tokens"
        f"; blocks of {steps} steps, each against those before and after it "
        f"({statistics.median(idle) * 1000:.1f} ms a step); {rows} rows"
    )
    waits = f"calls that wait for the device; off {waits_off}, on {waits_on}"
    return [
        median_figure(name, ratios, "times the step", goal, how),
        Figure(f"{name}_waits", added / 2, "a step", 0, waits),
    ]


def idle_figure(quick: bool) -> "Figure":
    """A monitor that is off, against the steps before it is attached and after it has stopped."""
    training = Training(quick)
    rounds, steps = (1, 1) if quick else (3, 4)
    bare = [seconds_of_a_step(training.step, steps)]
    ratios: List[float] = []
    for _ in range(rounds):
        with monitored(training, GRADIENTS_AND_WEIGHTS) as (monitor, _):
            training.step()
            idle = seconds_of_a_step(training.step, steps)
            monitor.stop()
        training.step()
        bare.append(seconds_of_a_step(training.step, steps))
        ratios.append(idle / statistics.mean(bare[-2:]))
    how = f"a monitor that is off; without it {spread([1000 * one for one in bare])} ms; {spread(ratios)}"
    return Figure("gpu_idle", round(statistics.median(ratios), 3), "times the step", 1.0, how)


BENCHES: "Dict[str, Callable[[bool], Any]]" = {
    "statistics": statistics_of,
    "idle": idle_figure,
    "gradients": functools.partial(overhead, keys=GRADIENTS_AND_WEIGHTS, name="gpu_overhead", goal=1.01),
    "activations": functools.partial(overhead, keys=ACTIVATIONS, name="gpu_overhead_activations", goal=1.05),
}


def main() -> int:
    options = parse(parser_of("--gpu", __doc__), list(BENCHES))
    if not torch.cuda.is_available():
        sys.exit("tools/bench --gpu: torch finds no CUDA device")
    torch.ops.load_library(os.environ["GRADMON_DEVICE_OPERATORS"])
    device = torch.cuda.get_device_name()
    print(f"{device}, torch {torch.__version__}")
    in_training = [name for name in options.names if name != "statistics"]
    missing = [name for name in ("gradmon", "transformers") if importlib.util.find_spec(name) is None]
    if in_training and missing:
        print(f"not measured: {', '.join(in_training)}: {' and '.join(missing)} cannot be imported")
        options.names = [name for name in options.names if name == "statistics"]
    return report(options, lambda name: BENCHES[name](options.quick), device=device)


if __name__ == "__main__":
    sys.exit(main())
