# SPDX-License-Identifier: Apache-2.0
"""Tells gradmon when communication that a program sends as one is over.

NCCL's calls in torch.distributed.batch_isend_irecv() and _coalescing_manager(device=...) have no work of
their own. One work, which the manager returns, is that of all of them.
"""
import weakref
from typing import Any, Callable

import torch.distributed as dist

from gradmon import _gradmon

_Method = Callable[..., Any]
_number_of: "weakref.WeakKeyDictionary[Any, int]" = weakref.WeakKeyDictionary()  # by work, until its wait()


def _around_start(start: _Method) -> _Method:
    def start_coalescing(*arguments: Any, **keywords: Any) -> Any:
        _gradmon.begin_coalescing()
        return start(*arguments, **keywords)

    return start_coalescing


def _around_end(end: _Method) -> _Method:
    def end_coalescing(*arguments: Any, **keywords: Any) -> Any:
        number = _gradmon.end_coalescing()
        work = end(*arguments, **keywords)
        if work is None:  # The current stream runs them.
            _gradmon.coalesced_calls_are_over(number)
        else:
            _number_of[work] = number
        return work

    return end_coalescing


def _around_wait(wait: _Method) -> _Method:
    def wait_for(work: Any, *arguments: Any, **keywords: Any) -> Any:
        result = wait(work, *arguments, **keywords)
        number = _number_of.pop(work, None)
        if number is not None:
            _gradmon.coalesced_calls_are_over(number)
        return result

    return wait_for


class CoalescedCalls:
    """While set, replaces methods of torch.distributed's classes. One for each rank of the process."""

    _users = 0
    _replaced: "list[tuple[Any, str, _Method, _Method]]" = []  # class, name, original, ours

    def __init__(self) -> None:
        self._wanted = False

    def set(self, wanted: bool) -> None:
        if wanted == self._wanted or not dist.is_available():
            return
        self._wanted = wanted
        CoalescedCalls._users += 1 if wanted else -1
        if CoalescedCalls._users == 1 and wanted:
            group = dist.distributed_c10d.ProcessGroup
            self._replace(group, "_start_coalescing", _around_start)
            self._replace(group, "_end_coalescing", _around_end)
            self._replace(dist.distributed_c10d.Work, "wait", _around_wait)
        elif CoalescedCalls._users == 0:
            self._restore()

    @classmethod
    def _replace(cls, owner: Any, name: str, around: "Callable[[_Method], _Method]") -> None:
        original = vars(owner).get(name)
        if original is None:  # another torch
            return
        ours = around(original)
        setattr(owner, name, ours)
        cls._replaced.append((owner, name, original, ours))

    @classmethod
    def _restore(cls) -> None:
        for owner, name, original, ours in cls._replaced:
            if vars(owner).get(name) is ours:  # Other code that has wrapped ours keeps it.
                setattr(owner, name, original)
        cls._replaced.clear()
