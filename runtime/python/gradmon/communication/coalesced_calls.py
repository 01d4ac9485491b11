# SPDX-License-Identifier: Apache-2.0
"""Tells gradmon when communication that a program sends as one is over.

What NCCL is called for in torch.distributed.batch_isend_irecv() and _coalescing_manager(device=...) is sent
at the end, and has one work, for which the program waits.
"""
import threading
import types
import weakref
from typing import Any, Callable

import torch.distributed as dist

from gradmon import _gradmon

_Method = Callable[..., Any]
_number_of: "weakref.WeakKeyDictionary[Any, int]" = (
    weakref.WeakKeyDictionary()
)  # by work, until it is waited for


def _started(_group: Any, _result: Any) -> None:
    _gradmon.begin_coalescing()


def _ended(_group: Any, work: Any) -> None:
    number = _gradmon.end_coalescing()
    if work is None:
        _gradmon.coalesced_calls_are_over(number, False)
    elif number != 0:
        _number_of[work] = number


def _waited(work: Any, _result: Any) -> None:
    number = _number_of.pop(work, None) if _number_of else None
    if number is not None:
        _gradmon.coalesced_calls_are_over(number, True)


class CoalescedCalls:
    """While set, methods of torch.distributed's classes are replaced. One for each rank of the process. Any
    thread."""

    _lock = threading.RLock()  # A collection of garbage may call set() within set().
    _users = 0  # guarded by _lock, as is _replaced
    _replaced: "list[tuple[Any, str, _Method, _Method]]" = []  # class, name, original, ours

    def __init__(self) -> None:
        self._wanted = False

    def set(self, wanted: bool) -> None:
        if wanted == self._wanted or not dist.is_available():
            return
        self._wanted = wanted
        with CoalescedCalls._lock:
            CoalescedCalls._users += 1 if wanted else -1
            if CoalescedCalls._users == 1 and wanted:
                self._replace_all()
            elif CoalescedCalls._users == 0:
                self._restore_all()

    @classmethod
    def _replace_all(cls) -> None:
        group, work = dist.distributed_c10d.ProcessGroup, dist.distributed_c10d.Work
        cls._replace(group, "_start_coalescing", _started)
        cls._replace(group, "_end_coalescing", _ended)
        for name in ("wait", "synchronize", "block_current_stream"):
            cls._replace(work, name, _waited)

    @classmethod
    def _replace(cls, owner: Any, name: str, after: "Callable[[Any, Any], None]") -> None:
        original = vars(owner).get(name)
        if original is None:  # another torch
            return

        def method(self: Any, *arguments: Any, **keywords: Any) -> Any:
            result = original(self, *arguments, **keywords)
            if cls._users:  # Other code that has wrapped ours may keep it.
                after(self, result)
            return result

        # pybind11 knows by this name that a method of a class in Python calls the one of its base.
        ours = types.FunctionType(
            method.__code__.replace(co_name=name), method.__globals__, name, None, method.__closure__
        )
        setattr(owner, name, ours)
        cls._replaced.append((owner, name, original, ours))

    @classmethod
    def _restore_all(cls) -> None:
        for owner, name, original, ours in cls._replaced:
            if vars(owner).get(name) is ours:
                setattr(owner, name, original)
        cls._replaced.clear()
