#!/bin/bash
# One would guess: a hook of register_step_post_hook() runs once for each step() of its optimizer, whatever else the
# process has done.
# What happens: torch wraps `step` of a class when the first instance of exactly that class is made. A subclass whose
# step() calls super().step() therefore runs its hooks once, until somebody makes an instance of the parent class,
# anywhere in the process; from then on every hook runs twice for each step, pre-hooks, too. Code that counts steps by
# hooks counts double after an unrelated `torch.optim.SGD(...)`.
# Seen with torch 2.13.0 on the CPU (Optimizer._patch_step_function, profile_hook_step).
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.3.5 2>/dev/null
"$place/venv/bin/python" - <<'END'
import torch


class Own(torch.optim.SGD):
    def step(self, closure=None):
        return super().step(closure)


weight = torch.nn.Parameter(torch.ones(1))
optimizer = Own([weight], lr=0.1)
calls = []
optimizer.register_step_post_hook(lambda *_: calls.append("post"))
weight.grad = torch.ones(1)
optimizer.step()
before = len(calls)
torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)  # another optimizer, never stepped
optimizer.step()
after = len(calls) - before
print("torch", torch.__version__, "| hooks run by one step:", before, "| after another class had an instance:", after)
assert (before, after) == (1, 2), "this has changed"
END
