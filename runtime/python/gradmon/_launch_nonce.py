# SPDX-License-Identifier: Apache-2.0
"""The launch nonce: a number that all ranks of the default process group share and no other launch has."""
import itertools
import os
import secrets
import time
from typing import Any, Callable, Optional

import torch.distributed as dist

_FIRST_S = 3.0  # longest wait in watch()
_LATER_S = 0.0  # a later look: one exchange with the store
_PAUSE_S = 0.01
_LONGEST_PAUSE_S = 0.4
_OFTEN_S, _OFTEN_FOR_S, _SELDOM_S = 1.0, 60.0, 10.0

_made = itertools.count(1)  # all ranks make their monitors in the same order


class LaunchNonce:
    """Rank 0 puts the number into the process group's store; the other ranks read it.

    Training thread only. Uses only the store's add(): every store has it, it does not wait for a
    key, and add(key, 0) reads.
    """

    def __init__(self, store: Any, rank: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._rank = rank
        self._clock = clock
        self._key = _key(next(_made))
        self._since = self._next = clock()

    def wait(self) -> Optional[str]:
        """For watch(): waits up to 3 s for rank 0's number. None: unknown so far, or no store answers."""
        found = self._look(_FIRST_S)
        self._since = self._clock()
        self._next = self._since + _OFTEN_S
        return found

    def poll(self) -> Optional[str]:
        """For each step, if wait() returned None. Looks once a second for a minute, then every 10 s.
        Does not wait."""
        now = self._clock()
        if now < self._next:
            return None
        self._next = now + (_OFTEN_S if now - self._since < _OFTEN_FOR_S else _SELDOM_S)
        return self._look(_LATER_S)

    def _look(self, seconds: float) -> Optional[str]:
        end = self._clock() + seconds
        pause = _PAUSE_S
        try:
            while True:
                held = self._store.add(self._key, 0)
                if held == 0 and self._rank == 0:
                    held = self._store.add(self._key, 1 + secrets.randbits(62))
                if held != 0:
                    return f"{held:x}"
                if self._clock() + pause > end:
                    return None
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)
        except Exception:  # the program's own store may raise anything
            return None


def launch_nonce() -> Optional[LaunchNonce]:
    """None if the program has no default process group, or torch does not give access to its store."""
    if not (dist.is_available() and dist.is_initialized()):
        return None
    try:
        store = dist.distributed_c10d._get_default_store()
    except (AttributeError, RuntimeError, ValueError):
        return None
    return None if store is None else LaunchNonce(store, dist.get_rank())


def _key(monitor: int) -> str:
    # A store that torchrun's agent serves outlives a restart of the ranks, so the key needs the restart
    # count. Any other store is new after a restart. The restart counts of several agents may differ.
    environment = os.environ
    lasting = environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    lasting = lasting and environment.get("GROUP_WORLD_SIZE") == "1"
    restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") if lasting else "0"
    return f"gradmon/launch/{restart}/{monitor}"
