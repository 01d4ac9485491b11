# SPDX-License-Identifier: Apache-2.0
"""The methods of torch.distributed by which a program waits. What is read then: tests/gpu."""
import datetime
import gc
from pathlib import Path
from typing import Any

import jobs
import pytest
import torch
import torch.distributed as dist
from gradmon import _gradmon
from torch.distributed.distributed_c10d import ProcessGroup, Work

WAITS = [name for name in ("wait", "synchronize", "block_current_stream") if name in vars(Work)]
METHODS = [
    (ProcessGroup, "_start_coalescing"),
    (ProcessGroup, "_end_coalescing"),
    *[(Work, w) for w in WAITS],
    (Work, "get_future"),
]
Over = "list[tuple[str, int]]"
# Its Python object outlives Gloo's works: torch 2.6 waits for their thread as a group ends, and that one for
# the GIL if it has to free such an object.
SENT = torch.ones(2)


def methods() -> "list[Any]":
    return [vars(owner)[name] for owner, name in METHODS]


@pytest.fixture
def over(group: Any, monkeypatch: pytest.MonkeyPatch) -> Over:
    """What gradmon is told of coalesced calls: "over", "waited_for" or "dropped", and their number."""
    # Gloo has none of these.
    monkeypatch.setattr(ProcessGroup, "_start_coalescing", lambda group, fails=False: 1 / (not fails))
    monkeypatch.setattr(ProcessGroup, "_end_coalescing", lambda group, work: work)
    if "block_current_stream" in WAITS:
        monkeypatch.setattr(Work, "block_current_stream", lambda work: None)
    told: Over = []
    for what in ("over", "waited_for", "dropped"):
        monkeypatch.setattr(
            _gradmon, f"coalesced_calls_are_{what}", lambda number, what=what: told.append((what, number))
        )
    return told


def watched(tmp_path: Path, **keys: Any) -> Any:
    model, optimizer = jobs.make()
    monitor = jobs.monitor(tmp_path, jobs.ALONE, **keys)
    return model, optimizer, monitor.watch(model, optimizer)


def collecting(tmp_path: Path) -> Any:
    """The monitor of a step in which communication is collected."""
    plain = methods()
    monitor = watched(tmp_path, cc_distribution={"enable": True})[2]
    assert all(one is not other for one, other in zip(methods(), plain))
    return monitor


def broadcast() -> Any:
    return dist.broadcast(SENT, 0, async_op=True)


def check_calls(group: Any, over: Over, wait: str) -> None:
    group._start_coalescing()
    assert group._end_coalescing(None) is None
    assert [what for what, _ in over] == ["over"]
    work, other = broadcast(), broadcast()
    for each in (work, other):
        group._start_coalescing()
        assert group._end_coalescing(each) is each
    assert len(over) == 1
    for _ in range(2):
        getattr(work, wait)()
    del work, other, each
    gc.collect()
    assert [what for what, _ in over] == ["over", "waited_for", "dropped"]
    numbers = [number for _, number in over]
    assert numbers == list(range(numbers[0], numbers[0] + 3)) and numbers[0] > 0


@pytest.mark.parametrize("wait", WAITS)
def test_calls_are_over_once_they_were_waited_for(tmp_path: Path, group: Any, over: Over, wait: str) -> None:
    plain = methods()

    def each(step: int) -> None:
        collects_now = step % 2 == 1
        assert all((one is not other) == collects_now for one, other in zip(methods(), plain))
        if collects_now:
            dist.all_reduce(SENT)
            check_calls(group, over, wait)
            over.clear()

    model, optimizer, monitor = watched(tmp_path, cc_distribution={"enable": True}, step_interval=2)
    with monitor:
        jobs.train(model, optimizer, 6, each)
    assert methods() == plain
    rows = jobs.rows(tmp_path / "out", "other")
    assert {step for name, step, _ in rows if "all_reduce" in name} == {2, 4}  # step 6 has not ended


def test_methods_stay_as_they_are_where_no_communication_is_collected(tmp_path: Path, over: Over) -> None:
    plain = methods()
    model, optimizer, monitor = watched(tmp_path, wg_distribution=True)
    with monitor:
        jobs.train(model, optimizer, 2, lambda step: methods() == plain or pytest.fail("replaced"))


def test_what_has_not_started_does_not_count(tmp_path: Path, group: Any, over: Over) -> None:
    with collecting(tmp_path):
        with pytest.raises(ZeroDivisionError):
            group._start_coalescing(True)
        assert _gradmon.end_coalescing() == 0
        work = broadcast()
        group._end_coalescing(work)
        group._end_coalescing(None)
        work.wait()
    assert over == []


def test_code_that_has_wrapped_a_method_keeps_one_that_does_nothing(
    tmp_path: Path, group: Any, over: Over, monkeypatch: pytest.MonkeyPatch
) -> None:
    for owner, name in METHODS:
        monkeypatch.setattr(owner, name, vars(owner)[name])  # what is there again after the test
    with collecting(tmp_path):
        for owner, name in METHODS:
            monkeypatch.setattr(owner, name, lambda *given, ours=vars(owner)[name]: ours(*given))
    group._start_coalescing()
    assert group._end_coalescing(None) is None
    broadcast().wait()
    assert over == [] and _gradmon.end_coalescing() == 0


class Unhashable(Work):
    def __eq__(self, other: object) -> bool:
        return self is other


def test_a_work_need_not_be_hashable(tmp_path: Path, group: Any, over: Over) -> None:
    with collecting(tmp_path):
        for work in (Unhashable(), broadcast()):
            group._start_coalescing()
            assert group._end_coalescing(work) is work
        work.wait()
        assert [what for what, _ in over] == ["dropped", "waited_for"]


class Counting(Work):
    """A work in Python, whose base's method asks for this one."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def wait(self, *timeout: Any) -> bool:
        self.calls += 1
        if self.calls > 3:
            raise AssertionError("called again and again")
        return bool(super().wait(*timeout))


def test_a_work_in_python_may_call_its_base(tmp_path: Path, over: Over) -> None:
    def calls() -> int:
        work = Counting()
        with pytest.raises(Exception):  # The base completes nothing.
            work.wait(datetime.timedelta(milliseconds=1))
        return work.calls

    expected = calls()
    with collecting(tmp_path):
        assert calls() == expected


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> "list[tuple[str, Any]]":
    """What gradmon is told of futures, as if calls on a device were not waited for."""
    told: "list[tuple[str, Any]]" = []
    monkeypatch.setattr(_gradmon, "calls_are_unwaited", lambda: True)
    for what in ("call_is_waited_for", "future_is_taken"):
        monkeypatch.setattr(_gradmon, what, lambda future, what=what: told.append((what, future)))
    return told


@pytest.mark.parametrize("wait", WAITS)
def test_the_future_of_a_call_is_told_once_it_is_waited_for(
    tmp_path: Path, group: Any, told: Any, wait: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if wait == "block_current_stream":
        monkeypatch.setattr(Work, wait, lambda work: None)  # Gloo has none.
    work = dist.all_reduce(SENT, async_op=True)
    work.wait()
    assert told == []
    with collecting(tmp_path):
        getattr(work, wait)()
        ((what, future),) = told
        assert what == "call_is_waited_for"
        assert future.value()[0].data_ptr() == SENT.data_ptr()
    getattr(work, wait)()
    work.get_future()
    assert len(told) == 1


def test_a_future_is_told_once_the_program_has_it(tmp_path: Path, group: Any, told: Any) -> None:
    with collecting(tmp_path):
        future = broadcast().get_future()
        assert told == [("future_is_taken", future)]
        future.then(lambda done: done.value()).wait()
    assert len(told) == 1


class Without(Work):
    """A work in Python that has no future."""

    def get_future(self) -> Any:
        raise LookupError("none")

    def wait(self, *timeout: Any) -> bool:
        return True


class WithAnother(Without):
    def get_future(self) -> Any:
        return "soon"


@pytest.mark.parametrize("kind", [Without, WithAnother])
def test_what_has_no_future_may_be_waited_for(
    tmp_path: Path, group: Any, told: Any, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Work, "synchronize", lambda work: None)
    with collecting(tmp_path):
        kind().synchronize()
    assert told == []


def test_any_future_may_be_told(tmp_path: Path, group: Any) -> None:
    done: "torch.futures.Future[Any]" = torch.futures.Future()
    done.set_result("of another library")
    failed: "torch.futures.Future[Any]" = torch.futures.Future()
    failed.set_exception(RuntimeError("of another library"))
    with collecting(tmp_path):
        work = broadcast()
        work.wait()
        for future in (work.get_future(), torch.futures.Future(), done, failed):
            _gradmon.call_is_waited_for(future)
            _gradmon.future_is_taken(future)
        assert not _gradmon.calls_are_unwaited()  # those on the CPU do not count


@pytest.mark.skipif(
    tuple(map(int, torch.__version__.split(".")[:2])) < (2, 11),
    reason="a group that only pretends takes no meta tensors before torch 2.11",
)
def test_calls_of_python_are_read_at_their_waits_and_those_of_torchs_c_are_not(tmp_path: Path) -> None:
    from torch.distributed.utils import _sync_params_and_buffers
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    try:
        world: Any = dist.group.WORLD
        tensor = torch.ones(2, device="meta")
        with collecting(tmp_path):
            _sync_params_and_buffers(world, [tensor], 1 << 20, 0)
            assert not _gradmon.calls_are_unwaited()
            dist.all_reduce(tensor, async_op=True)
            assert _gradmon.calls_are_unwaited()
        assert not _gradmon.calls_are_unwaited()
    finally:
        dist.destroy_process_group()


def test_the_compilers_tensors_are_waited_for(
    tmp_path: Path, group: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    """They may have sizes that are not known yet."""
    from torch._subclasses import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    with collecting(tmp_path):
        torch._dynamo.mark_dynamic(tensor := torch.ones(5, 3), 0)
        with FakeTensorMode(shape_env=ShapeEnv()) as mode:
            fake = mode.from_tensor(tensor)
            assert isinstance(fake.shape[0], torch.SymInt)
            torch.ops._c10d_functional.wait_tensor(fake)
            torch.ops._c10d_functional.all_reduce(fake, "sum", group.group_name)
    assert "hook failed" not in capfd.readouterr().err
