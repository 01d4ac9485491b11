#!/bin/bash
# One would guess: torch.distributed.checkpoint's get_optimizer_state_dict() only reads an optimizer.
# What happens: for an optimizer that has not stepped yet it calls optimizer.step(closure=None) with gradients of zeros
# and a learning rate of 0, so that the state exists. The step hooks of the program run, a schedule's call counter
# moves (torch then no longer warns of lr_scheduler.step() before optimizer.step()), and Adam's own `step` is 1 in what
# is saved, although no update was made: the first real update then has the bias correction of the second one.
# Seen with torch 2.13.0 on the CPU (checkpoint/state_dict.py, _init_optim_state).
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.3.5 2>/dev/null
"$place/venv/bin/python" - <<'END'
import torch
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict


def first_update(saves):
    torch.manual_seed(0)
    net = torch.nn.Linear(2, 1, bias=False)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    calls = []
    optimizer.register_step_post_hook(lambda *_: calls.append(1))
    if saves:
        get_optimizer_state_dict(net, optimizer)
    hooks = len(calls)
    before = net.weight.detach().clone()
    net(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    return hooks, (before - net.weight).abs().max().item()


plain, saved = first_update(False), first_update(True)
print("torch", torch.__version__, "| hooks run by reading the state:", saved[0])
print(f"first update without a save before it: {plain[1]:.4f}, with one: {saved[1]:.4f}")
assert plain[0] == 0 and saved[0] == 1 and abs(plain[1] - saved[1]) > 0.01, "this has changed"
END
