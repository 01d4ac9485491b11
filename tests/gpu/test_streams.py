# SPDX-License-Identifier: Apache-2.0
"""Nothing waits, nothing is allocated, and what happens to a tensor after the call does no harm."""
import threading
import time
from typing import List

import pytest
import torch
from reading import Started, check


def busy(milliseconds: float) -> None:
    """Keeps the current stream busy."""
    torch.cuda._sleep(int(milliseconds * 1.5e6))


def numbers(count: int, size: int = 10_000) -> List[torch.Tensor]:
    return [torch.full((size + i,), float(i + 1), device="cuda") for i in range(count)]


@pytest.fixture(autouse=True)
def warm(gpu: None) -> None:
    Started([torch.ones(3, device="cuda")]).rows()
    torch.cuda.synchronize()


@pytest.mark.parametrize("grouped", [True, False])
def test_nothing_waits(grouped: bool) -> None:
    tensors = numbers(300)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        busy(300)
        begun = time.monotonic()
        started = Started(tensors, grouped=grouped)
        assert not started.ready()
        assert time.monotonic() - begun < 0.2
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for i, row in enumerate(started.rows()):
        assert row["min"] == row["max"] == i + 1


def test_calls_of_the_driver() -> None:
    """Counted by the profiler: launches and events; no synchronisation, no allocation, no copy."""
    tensors = numbers(300) + [tensor.bfloat16() for tensor in numbers(300)]
    Started(tensors).rows()
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        started = Started(tensors)
    names = [event.name for event in profile.events()]
    assert started.by_kernel == 600
    assert sum(name.startswith("gradmon_many") for name in names) == 2, names
    calls = [name for name in names if name.startswith("cu")]
    # The profiler itself synchronises the device when it ends.
    allowed = {
        "cuLaunchKernel",
        "cudaEventRecord",
        "cudaEventRecordWithFlags",
        "cudaDeviceSynchronize",
        "cudaEventCreateWithFlags",
        "cudaStreamIsCapturing",
        "cudaEventQuery",
    }
    assert set(calls) <= allowed, sorted(set(calls))
    assert calls.count("cudaDeviceSynchronize") <= 2
    started.rows()


def test_takes_no_memory_after_the_first_step() -> None:
    tensors = numbers(1500)
    for _ in range(3):
        Started(tensors).rows()
    allocated = torch.cuda.memory_stats()["allocation.all.allocated"]
    for grouped in (True, False):
        Started(tensors, grouped=grouped).rows()
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == allocated
    assert torch.cuda.memory_stats()["allocated_bytes.all.peak"] >= 0


def test_tensors_freed_right_after_the_call() -> None:
    busy(100)
    started = []
    for i in range(1000):
        tensor = torch.full((20_000,), float(i), device="cuda")
        started.append(Started([tensor], grouped=False))
        del tensor
        torch.full((20_000,), -1.0, device="cuda")  # takes its memory
    for i, one in enumerate(started):
        row = one.rows()[0]
        assert row["min"] == row["max"] == i


def test_tensors_overwritten_after_the_call() -> None:
    tensors = numbers(200)
    busy(50)
    started = Started(tensors)
    for tensor in tensors:
        tensor.fill_(-7)
    for i, row in enumerate(started.rows()):
        assert row["min"] == row["max"] == i + 1


def test_tensor_of_another_stream_freed_right_after_the_call() -> None:
    other = torch.cuda.Stream()
    with torch.cuda.stream(other):
        tensor = torch.full((1 << 20,), 5.0, device="cuda")
    torch.cuda.current_stream().wait_stream(other)
    busy(100)
    started = Started([tensor])
    del tensor
    other.wait_stream(torch.cuda.current_stream())  # as a program must that has used it here
    with torch.cuda.stream(other):
        taken = [torch.full((1 << 20,), -1.0, device="cuda") for _ in range(10)]
    row = started.rows()[0]
    assert row["min"] == row["max"] == 5
    del taken


def test_several_streams_and_threads() -> None:
    failed: List[BaseException] = []

    def work(seed: int) -> None:
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                for turn in range(20):
                    tensors = [
                        torch.full((30_000 + i,), float(seed * 1000 + i), device="cuda") for i in range(50)
                    ]
                    started = Started(tensors, grouped=turn % 2 == 0)
                    for i, row in enumerate(started.rows()):
                        assert row["min"] == row["max"] == seed * 1000 + i
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed


def test_many_streams() -> None:
    """More streams than have memory of their own: the others are read by torch's ops."""
    streams = [torch.cuda.Stream(priority=priority) for priority in (0, -1) for _ in range(64)]
    for stream in streams:
        with torch.cuda.stream(stream):
            tensor = torch.full((1000,), 3.0, device="cuda")
            row = Started([tensor]).rows()[0]
        assert row["min"] == row["max"] == 3


def test_a_graph_is_captured_unharmed() -> None:
    static = torch.ones(1000, device="cuda")
    before = Started([torch.ones(5, device="cuda")])
    graph = torch.cuda.CUDAGraph()
    refused = []
    polled = []
    with torch.cuda.graph(graph):
        doubled = static * 2
        try:
            Started([doubled])
        except RuntimeError as error:
            refused.append(str(error))
        thread = threading.Thread(target=lambda: polled.append(before.ready()))
        thread.start()
        thread.join()
        doubled += 1
    assert len(refused) == 1 and "captured into a CUDA graph" in refused[0]
    assert polled == [True]
    graph.replay()
    torch.cuda.synchronize()
    assert doubled.tolist() == [3.0] * 1000
    row = Started([doubled]).rows()[0]
    assert row["min"] == row["max"] == 3
    before.rows()


def test_values_of_a_replayed_graph_are_read_after_it() -> None:
    static = torch.ones(1000, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        doubled = static * 2
    for i in range(5):
        static.fill_(i)
        graph.replay()
        assert Started([doubled]).rows()[0]["max"] == 2 * i


def test_out_of_memory() -> None:
    """With not a byte left, tensors are still read, and training goes on."""
    tensors = numbers(100)
    hoard = []
    size = 1 << 30
    while size >= 512:
        try:
            hoard.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        except torch.cuda.OutOfMemoryError:
            size //= 2
    for grouped in (True, False):
        for i, row in enumerate(Started(tensors, grouped=grouped).rows()):
            assert row["min"] == row["max"] == i + 1
    with torch.cuda.stream(torch.cuda.Stream()):  # which has no memory of its own yet
        try:
            rows = Started(tensors).rows()
            assert len(rows) == 100
        except RuntimeError as error:
            assert "out of memory" in str(error)
    hoard.clear()
    check(Started(tensors[:1]).rows()[0], tensors[0])
