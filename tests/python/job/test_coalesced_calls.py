# SPDX-License-Identifier: Apache-2.0
"""The methods of torch.distributed around calls that are sent together. The calls themselves: tests/gpu."""
from pathlib import Path
from typing import Any, Iterator

import gradmon
import jobs
import pytest
import torch
import torch.distributed as dist
from gradmon import _gradmon
from torch.distributed.distributed_c10d import ProcessGroup, Work

METHODS = [(ProcessGroup, "_start_coalescing"), (ProcessGroup, "_end_coalescing"), (Work, "wait")]


@pytest.fixture
def group() -> Iterator[Any]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.distributed_c10d._get_default_group()
    dist.destroy_process_group()


def methods() -> "list[Any]":
    return [vars(owner)[name] for owner, name in METHODS]


def check_coalesced_calls(group: Any, over: "list[int]", work: Any) -> None:
    group._start_coalescing()
    assert group._end_coalescing(None) is None
    assert len(over) == 1  # The current stream runs calls that have no work.
    group._start_coalescing()
    assert group._end_coalescing(work) is work
    assert len(over) == 1
    for _ in range(2):
        work.wait()
        assert len(over) == 2
    assert 0 < over[0] < over[1]


def test_calls_are_over_once_the_program_has_waited_for_them(
    tmp_path: Path, group: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ProcessGroup, "_start_coalescing", lambda group: None)  # Gloo has none
    monkeypatch.setattr(ProcessGroup, "_end_coalescing", lambda group, work: work)
    over: "list[int]" = []
    monkeypatch.setattr(_gradmon, "coalesced_calls_are_over", over.append)
    plain = methods()

    def each(step: int) -> None:
        collects_now = step % 2 == 1
        assert all((one is not other) == collects_now for one, other in zip(methods(), plain))
        if collects_now:
            check_coalesced_calls(group, over, dist.broadcast(torch.ones(2), 0, async_op=True))
            over.clear()

    model = jobs.make_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    config = jobs.write_config(tmp_path, cc_distribution={"enable": True}, step_interval=2)
    out = tmp_path / "out"
    with gradmon.Monitor(config, output_dir=out, dynamic=False, rank=0, world_size=1).watch(model, optimizer):
        jobs.train(model, optimizer, 6, each)
    assert methods() == plain
    assert {step for _, step, _ in jobs.rows(out, "other")} == {2, 4}  # step 6 has not ended
