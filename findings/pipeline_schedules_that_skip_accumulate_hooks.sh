#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# One would guess that a hook which runs after a parameter's gradient has accumulated runs once for each micro batch
# under any pipeline schedule of torch: register_post_accumulate_grad_hook() is how optimizers in the backward,
# gradient clipping by layer and monitors attach. torch 2.13.0 has schedules that split a backward into one for
# activations and one for weights. There the gradients of weights come from torch.autograd.grad() and are added to
# `grad` by torch/distributed/pipelining/_backward.py, stage_backward_weight(): no hook runs, and nothing is said.
# With four stages and four micro batches:
#   ScheduleInterleaved1F1B        each parameter's hook runs 4 times, in all stages
#   ScheduleInterleavedZeroBubble  4 times in stage 0, never in stages 1 to 3
#   ScheduleZBVZeroBubble          4 times in stage 0, never in stages 1 to 3
#   ScheduleDualPipeV              4 times in stage 0, but 3 times in stages 1 to 3: one micro batch is split, so that
#                                  a hook which counts to the last micro batch never comes to it
# The gradients themselves are the same under all four. Tensor hooks (register_hook) do run.
# Without gradmon; two processes with gloo on 127.0.0.1. Fails if any of this changes.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.3.5
cat >"$place/split.py" <<'END'
import sys

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, schedules

MICRO_BATCHES = 4
name = sys.argv[1]
dist.init_process_group("gloo")
rank = dist.get_rank()
as_v = name in ("ScheduleZBVZeroBubble", "ScheduleDualPipeV")
numbers = [rank, 3 - rank] if as_v else [rank, rank + 2]
torch.manual_seed(0)
layers = [torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh()) for _ in range(4)]
fired = {number: 0 for number in numbers}
for number in numbers:

    def count(_, number=number):
        fired[number] += 1

    layers[number][0].weight.register_post_accumulate_grad_hook(count)
stages = [PipelineStage(layers[number], number, 4, torch.device("cpu")) for number in numbers]
schedule = getattr(schedules, name)(stages, MICRO_BATCHES, loss_fn=torch.nn.functional.mse_loss)
x = torch.linspace(-1, 1, 32 * MICRO_BATCHES).reshape(-1, 4)
schedule.step(*[x] if 0 in numbers else [], **{"target": x} if 3 in numbers else {})
mine = {number: (fired[number], round(layers[number][0].weight.grad.norm().item(), 5)) for number in numbers}
parts = [None, None]
dist.all_gather_object(parts, mine)
if rank == 0:
    seen = {**parts[0], **parts[1]}
    print(name, *(f"stage {n}: hook {seen[n][0]} times, gradient {seen[n][1]};" for n in sorted(seen)))
dist.barrier()
dist.destroy_process_group()
END
"$place/venv/bin/python" -c 'import sys, torch; print("Python", sys.version.split()[0], "torch", torch.__version__)'
gradients=
for pair in "Interleaved1F1B 4 4 4 4" "InterleavedZeroBubble 4 0 0 0" "ZBVZeroBubble 4 0 0 0" "DualPipeV 4 3 3 3"; do
  read -r name expected <<<"$pair"
  line=$(OMP_NUM_THREADS=1 timeout 600 "$place/venv/bin/python" -m torch.distributed.run --standalone \
    --local-addr 127.0.0.1 --nproc-per-node 2 "$place/split.py" "Schedule$name" 2>"$place/log" | grep "^Schedule") ||
    { cat "$place/log"; exit 1; }
  echo "$line"
  times=$(grep -o 'hook [0-9]*' <<<"$line" | cut -d' ' -f2 | xargs)
  [ "$times" = "$expected" ] || { echo "changed: the hooks of Schedule$name ran $times times, not $expected"; exit 1; }
  found=$(grep -o 'gradient [^;]*' <<<"$line" | xargs)
  [ "${gradients:=$found}" = "$found" ] || { echo "changed: the gradients differ"; exit 1; }
done
echo "as it was: schedules that split a backward run no hook for the gradients of weights"
