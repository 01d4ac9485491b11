#!/bin/bash
# One would guess: torch._dynamo.utils.counters["frames"], which torch's own tests and many projects' use to count
# compilations, counts them whatever the options.
# What happens: with fullgraph=True it stays empty, however often a function is compiled. A test that compares its
# numbers before and after compares 0 with 0, and cannot fail. counters["stats"]["unique_graphs"] counts in both ways.
# The counting is in the wrapper that converts a frame and may fall back to eager code; fullgraph=True does without
# that wrapper. Seen with torch 2.13.0 on the CPU (torch/_dynamo/convert_frame.py).
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.3.5 2>/dev/null
"$place/venv/bin/python" - 2>/dev/null <<'END'
import torch
from torch._dynamo.utils import counters


def counted(**options):
    torch._dynamo.reset()
    counters.clear()
    compiled = torch.compile(lambda x: x.sin() + 1, backend="aot_eager", **options)
    for shape in ((2,), (3,), (4, 4)):  # each compiles once more
        compiled(torch.ones(shape))
    return dict(counters["frames"]), counters["stats"]["unique_graphs"]


plain, whole = counted(), counted(fullgraph=True)
print("torch", torch.__version__)
print("default:        frames", plain[0], "unique graphs", plain[1])
print("fullgraph=True: frames", whole[0], "unique graphs", whole[1])
assert plain == ({"total": 3, "ok": 3}, 3) and whole == ({}, 3), "this has changed"
END
