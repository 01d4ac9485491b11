# SPDX-License-Identifier: Apache-2.0
"""The costs of gradmon on a CUDA device, in figures; tools/bench --gpu runs it."""
import importlib.util
import os
import statistics
import sys
from typing import Callable, Dict, Iterator, List

import torch
import transformer_steps
from figures import Figure, parse, parser_of, report, spread

EPS = 1e-8
BYTES = 4 << 30
TENSORS = 2000


def uneven_tensors(dtype: torch.dtype) -> List[torch.Tensor]:
    """2,000 tensors of 4 GiB together; the largest has some hundred times the size of the smallest."""
    generator = torch.Generator().manual_seed(1)
    weights = (3 * (2 * torch.rand(TENSORS, generator=generator) - 1)).exp()
    sizes = (weights / weights.sum() * (BYTES // dtype.itemsize)).long().clamp(min=64) // 64 * 64
    whole = torch.empty(int(sizes.sum()), dtype=dtype, device="cuda").normal_()
    return list(whole.split(sizes.tolist()))


def start(tensors: List[torch.Tensor], kernel: bool = True) -> int:
    return int(torch.ops.gradmon_device.start(tensors, EPS, True, kernel))


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


def statistics_figures(dtype: torch.dtype, quick: bool) -> "List[Figure]":
    rounds = 2 if quick else 15
    name = str(dtype).removeprefix("torch.")
    tensors = uneven_tensors(dtype)
    handles: List[int] = []
    seconds = times(lambda: handles.append(start(tensors)), rounds)
    assert all(torch.ops.gradmon_device.by_kernel(handle) == TENSORS for handle in handles)
    for handle in handles:
        torch.ops.gradmon_device.take(handle)

    def figure(of: str, others: float, unit: str, goal: float, how: str) -> Figure:
        ratios = [others / one for one in seconds]
        how = f"seven statistics of {TENSORS} tensors, 4 GiB; {how}; {spread(ratios)}"
        return Figure(f"{of}_{name}", statistics.median(ratios), unit, goal, how, at_least=True)

    reading, by = read_plainly(tensors, rounds)
    norms = statistics.median(times(lambda: torch._foreach_norm(tensors), rounds))
    by_torch = statistics.median(times(lambda: read_by_torch(tensors), min(rounds, 5)))
    return [
        figure("gpu_stats_vs_read", reading, "of a plain read", 0.9, f"plain read by {by}"),
        figure("gpu_vs_foreach", norms, "times as fast", 1, "against torch._foreach_norm alone"),
        figure("gpu_vs_torch_ops", by_torch, "times as fast", 1, "against torch's ops, tensor by tensor"),
    ]


def measured(parts: "List[str]", quick: bool) -> "Iterator[Figure]":
    if "statistics" in parts:
        for dtype in (torch.bfloat16, torch.float32):
            yield from statistics_figures(dtype, quick)
    in_training = [part for part in parts if part in transformer_steps.PARTS]
    missing = [name for name in ("gradmon", "transformers") if importlib.util.find_spec(name) is None]
    if in_training and missing:
        print(f"not measured: {', '.join(in_training)}: {' and '.join(missing)} cannot be imported")
    elif in_training:
        yield from transformer_steps.figures(quick, in_training)


def main() -> None:
    options = parse(parser_of("--gpu", __doc__), ("statistics", *transformer_steps.PARTS))
    if not torch.cuda.is_available():
        sys.exit("tools/bench --gpu: torch finds no CUDA device")
    torch.ops.load_library(os.environ["GRADMON_DEVICE_OPERATORS"])
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    report(measured(options.names, options.quick), options, device=torch.cuda.get_device_name())


if __name__ == "__main__":
    main()
