# SPDX-License-Identifier: Apache-2.0
"""Communication on the device, by NCCL."""
from pathlib import Path
from typing import Any, Iterator

import pytest
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _coalescing_manager
from watching import Rows, batch, make_model, near, rows_of, sgd, watched

wait_tensor, all_reduce_ = torch.ops._c10d_functional.wait_tensor, torch.ops._c10d_functional.all_reduce_


@pytest.fixture
def nccl(tmp_path: Path) -> "Iterator[None]":
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("nccl", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Job:
    """A small model of which communication is collected."""

    def __init__(self, directory: Path, **keys: Any) -> None:
        self.directory = directory
        self.model = make_model()
        self.optimizer = sgd(self.model.parameters())
        cc_distribution = {"enable": True, **keys}
        self.monitor = watched(directory, self.model, self.optimizer, cc_distribution=cc_distribution)

    def backward(self, step: int) -> "list[torch.Tensor]":
        """Returns gradients of two parameters."""
        self.optimizer.zero_grad()
        self.model(batch(step)).pow(2).mean().backward()
        return [self.model[layer].weight.grad for layer in (0, 2)]

    def rows(self) -> Rows:
        self.monitor.stop()
        return rows_of(self.directory, "other")

    def by_step(self) -> "list[tuple[int, dict[str, float]]]":
        """The rows of a job that makes one call in each step."""
        rows = self.rows()
        return [(step, rows[name, step]) for name, step in sorted(rows, key=lambda key: key[1])]


def test_collective_calls_under_nccl(tmp_path: Path, nccl: None) -> None:
    job = Job(tmp_path, cc_pre_hook=True)
    gradients = []
    for step in range(3):
        first, last = job.backward(step)
        gradients.append([first.clone(), last.clone()])
        dist.all_reduce(first)
        work = dist.all_reduce(last, async_op=True)
        work.wait()
        job.optimizer.step()
    found = job.rows()
    lines = sorted({name.partition("@")[2] for name, _ in found})
    assert len(lines) == 2 and len(found) == 3 * 2 * 2, found.keys()
    for (name, step), row in found.items():
        assert near(row, gradients[step][lines.index(name.partition("@")[2])]), (name, step)


def test_calls_that_nccl_sends_together(tmp_path: Path, nccl: None) -> None:
    """What each has received is read once the program has waited for all of them."""
    device = torch.device("cuda", 0)
    job = Job(tmp_path)
    for step in range(3):
        gradients = job.backward(step)
        received = torch.zeros_like(batch(step))
        torch.cuda._sleep(50_000_000)
        sent = batch(step)
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, sent, 0), dist.P2POp(dist.irecv, received, 0)])
        for work in works:
            work.wait()
        with _coalescing_manager(None, device):
            for gradient in gradients:
                dist.broadcast(gradient, 0)
        received.zero_()
        torch.cuda._sleep(50_000_000)
        with _coalescing_manager(None, device, async_ops=True) as coalesced:
            dist.all_to_all_single(received, sent, async_op=True)
        coalesced.wait()
        job.optimizer.step()
    found = job.rows()
    assert torch.equal(received, sent)
    calls = sorted({name.partition("@")[0] for name, _ in found})
    assert calls == ["all_to_all_single.post_0", "broadcast.post_0", "recv.post_0"]
    assert len(found) == 4 * 3, found.keys()
    for (name, step), row in found.items():
        if not name.startswith("broadcast"):
            assert near(row, batch(step)), (name, step)


WAYS = {
    "wait": lambda tensor: dist.all_reduce(tensor, async_op=True).wait(),
    "synchronize": lambda tensor: dist.all_reduce(tensor, async_op=True).synchronize(),
    "functional": lambda tensor: wait_tensor(all_reduce_(tensor, "sum", dist.group.WORLD.group_name)),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_result_may_be_changed_once_it_is_waited_for(tmp_path: Path, nccl: None, way: str) -> None:
    """It is read where the program waits, before what comes next."""
    job = Job(tmp_path)
    tensor = torch.empty(1 << 28, device="cuda")
    for step in range(3):
        job.backward(step)
        tensor.fill_(step + 1)
        torch.cuda._sleep(50_000_000)
        WAYS[way](tensor)
        tensor.zero_()
        job.optimizer.step()
    found = job.by_step()
    assert [step for step, _ in found] == [0, 1, 2]
    for step, row in found:
        assert row == {"norm": (step + 1) * 2.0**14, "min": step + 1, "max": step + 1}


def test_a_gathered_list_may_be_changed_once_it_is_waited_for(tmp_path: Path, nccl: None) -> None:
    """NCCL gathers into one tensor of torch's, which is then copied."""
    job = Job(tmp_path)
    gathered = [torch.empty(1 << 28, device="cuda")]
    for step in range(3):
        job.backward(step)
        sent = torch.full_like(gathered[0], step + 1)
        torch.cuda._sleep(50_000_000)
        dist.all_gather(gathered, sent, async_op=True).wait()
        gathered[0].zero_()
        job.optimizer.step()
    assert [row["min"] for _, row in job.by_step()] == [1, 2, 3]


@pytest.mark.parametrize("way", ["a future", "no wait"])
def test_the_program_waits_for_no_communication_in_progress(tmp_path: Path, nccl: None, way: str) -> None:
    """Not even if torch's ops read it, because the kernel does not know its type."""
    job = Job(tmp_path)
    counts = torch.ones(64, dtype=torch.int64, device="cuda")
    slow = torch.cuda.Stream()
    for step in range(5):
        sleeps = step > 1  # the first steps compile the kernel, make the communicator, and take memory
        job.backward(step)
        torch.cuda.synchronize()
        with torch.cuda.stream(slow):
            if sleeps:
                torch.cuda._sleep(2_000_000_000)
            work = dist.all_reduce(counts, async_op=True)
            in_progress = slow.record_event()
        if way == "a future":
            work.get_future()
        job.optimizer.step()
        torch.cuda.current_stream().record_event().synchronize()
        assert not sleeps or not in_progress.query()
        work.wait()
    assert [(step, row["norm"]) for step, row in job.by_step()] == [(step, 8) for step in range(5)]


def reduced(state: None, bucket: Any) -> Any:
    future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
    return future.then(lambda done: done.value()[0])


@pytest.mark.parametrize("made_by", ["DDP", "a hook of DDP's"])
def test_what_ddp_waits_for_is_read_behind_it(tmp_path: Path, nccl: None, made_by: str) -> None:
    job = Job(tmp_path)
    model = torch.nn.parallel.DistributedDataParallel(job.model)
    if made_by != "DDP":
        model.register_comm_hook(None, reduced)
    gradients = []
    for step in range(3):
        job.optimizer.zero_grad()
        torch.cuda._sleep(50_000_000)
        model(batch(step)).pow(2).mean().backward()
        gradients.append(torch.cat([each.grad.flatten() for each in model.parameters()]))
        job.optimizer.step()
    found = {step: row for (name, step), row in job.rows().items() if name.startswith("all_reduce")}
    assert set(found) == {0, 1, 2}
    assert all(near(row, gradients[step]) for step, row in found.items())


def test_calls_that_are_sent_together_may_be_waited_for_while_others_are_read(
    tmp_path: Path, nccl: None
) -> None:
    """Their works are of another kind."""
    job = Job(tmp_path)
    tensor, received = torch.ones(64, device="cuda"), torch.zeros(64, device="cuda")
    for step in range(3):
        job.backward(step)
        unwaited = dist.all_reduce(tensor, async_op=True)
        works = dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, tensor, 0), dist.P2POp(dist.irecv, received, 0)]
        )
        for work in works:
            work.wait()
            work.wait()
        job.optimizer.step()
        unwaited.wait()
    rows = job.rows()
    assert {row["norm"] for row in rows.values()} == {8} and len(rows) == 2 * 3


CALLS = {
    "synchronous": lambda tensor: dist.all_reduce(tensor),
    "asynchronous": lambda tensor: dist.all_reduce(tensor, async_op=True).wait(),
    "with a future": lambda tensor: dist.all_reduce(tensor, async_op=True).get_future().wait(),
}


@pytest.mark.parametrize("call", CALLS)
def test_calls_may_be_captured_in_a_collected_step(tmp_path: Path, nccl: None, call: str) -> None:
    """They have no row, and the replays communicate as without gradmon."""
    job = Job(tmp_path)
    tensor, other = torch.zeros(64, device="cuda"), torch.zeros(64, device="cuda")
    graph = torch.cuda.CUDAGraph()
    for step in range(3):
        job.backward(step)
        if step == 1:
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                CALLS[call](tensor)
                tensor.add_(1)
        else:
            CALLS[call](other)
            other.add_(1)
        if step > 0:
            graph.replay()
        job.optimizer.step()
    graph.reset()  # before NCCL ends
    assert tensor.tolist() == [2] * 64 and other.tolist() == [2] * 64
    assert {step for step, _ in job.by_step()} == {0, 2}
