# SPDX-License-Identifier: Apache-2.0
"""Knows the forwards in which torch's pipelines only learn the shapes of a stage."""
import sys

_STAGE = "torch.distributed.pipelining.stage"
# In torch 2.13; in torch 2.5 to 2.12.
_FUNCTIONS = ("_forward_metadata_inference", "_shape_inference")


def infers_shapes() -> bool:
    """Whether the caller runs within such a forward: its tensors are uninitialised memory, and it is no micro
    batch. It precedes a stage's first micro batch, and the first one of other shapes.

    A module cannot tell by itself, and hooks at the stage do not exist, so that the callers are looked
    through, once the program has imported torch.distributed.pipelining. Any thread."""
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
