# SPDX-License-Identifier: Apache-2.0
"""torch's pipelines: split backwards, and forwards that only infer the shapes of a stage."""
import sys
import threading
from typing import Any, Iterable, Optional

from gradmon import _gradmon
from gradmon._attributes import ReplacedAttribute

_STAGE = "torch.distributed.pipelining.stage"
# In torch 2.13; in torch 2.6 to 2.12.
_FUNCTIONS = ("_forward_metadata_inference", "_shape_inference")


def infers_shapes() -> bool:
    """Returns True if the caller runs within such a forward: its tensors are uninitialised memory, and it is
    no micro batch. It precedes a stage's first micro batch, and the first one of other shapes.

    A module cannot detect it, and stages have no hooks, so this searches the callers once the program has
    imported torch.distributed.pipelining. Any thread."""
    stage = sys.modules.get(_STAGE)
    if stage is None:
        return False
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_name in _FUNCTIONS and code.co_filename == stage.__file__:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


class SplitBackwards:
    """While set, reports the additions of zero-bubble schedules to gradients of a stage's weights: they use
    torch.autograd.grad(), which runs no hook. One for each rank of the process. Any thread."""

    _lock = threading.RLock()  # A collection of garbage may call set() within set().
    _users = 0  # guarded by _lock, as is _replaced
    _replaced: Optional[ReplacedAttribute] = None

    def __init__(self) -> None:
        self._wanted = False

    def set(self, wanted: bool) -> None:
        """Call it in each collected step: the program may import torch's pipelines late."""
        cls = SplitBackwards
        if wanted == self._wanted and (cls._replaced is not None or not wanted or _STAGE not in sys.modules):
            return
        with cls._lock:
            cls._users += int(wanted) - int(self._wanted)
            self._wanted = wanted
            if cls._users and cls._replaced is None:
                cls._replace()
            elif not cls._users and cls._replaced is not None:
                cls._replaced.remove()
                cls._replaced = None

    @classmethod
    def _replace(cls) -> None:
        stage = sys.modules.get(_STAGE)
        original: Any = getattr(stage, "stage_backward_weight", None)
        if original is None:  # another torch
            return

        def stage_backward_weight(weights: Iterable[Any], *arguments: Any, **keywords: Any) -> Any:
            if not cls._users:  # Other code that has wrapped ours has kept it.
                return original(weights, *arguments, **keywords)
            listed = list(weights)
            _gradmon.begin_weight_pass()
            try:
                result = original(iter(listed), *arguments, **keywords)
            finally:
                _gradmon.end_weight_pass()
            _gradmon.accumulated(listed)
            return result

        cls._replaced = ReplacedAttribute(stage, "stage_backward_weight", stage_backward_weight)
