# SPDX-License-Identifier: Apache-2.0
"""What gradmon costs on a CUDA device, in figures; tools/bench --gpu runs it."""
import argparse
import importlib.util
import json
import os
import statistics
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import transformer_steps  # noqa: E402
from figures import Figure, spread  # noqa: E402

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
        import plain_read

        candidates["a Triton kernel"] = lambda: plain_read.read(whole.view(torch.int32))
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


def main() -> None:
    parser = argparse.ArgumentParser(prog="tools/bench --gpu", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="checks that it runs")
    parser.add_argument("--json", metavar="FILE", type=Path)
    choices = ("statistics", *transformer_steps.PARTS)
    parser.add_argument("part", nargs="*", help=f"{', '.join(choices)}; default: all")
    options = parser.parse_args()
    parts = options.part or choices
    if unknown := [part for part in parts if part not in choices]:
        parser.error(f"found {unknown[0]}; expected {', '.join(choices)}")
    if not torch.cuda.is_available():
        sys.exit("tools/bench --gpu: torch finds no CUDA device")
    torch.ops.load_library(os.environ["GRADMON_DEVICE_OPERATORS"])
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    figures: List[Figure] = []
    if "statistics" in parts:
        for dtype in (torch.bfloat16, torch.float32):
            figures += statistics_figures(dtype, options.quick)
    in_training = [part for part in parts if part in transformer_steps.PARTS]
    missing = [name for name in ("gradmon", "transformers") if importlib.util.find_spec(name) is None]
    if in_training and missing:
        print(f"not measured: {', '.join(in_training)}: {' and '.join(missing)} cannot be imported")
    elif in_training:
        figures += transformer_steps.figures(options.quick, in_training)
    report: "Dict[str, Any]" = {"device": torch.cuda.get_device_name(), "figures": []}
    for figure in figures:
        print(figure.line())
        report["figures"].append(figure.as_json())
    if options.json:
        options.json.write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
