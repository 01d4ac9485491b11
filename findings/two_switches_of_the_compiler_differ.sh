#!/bin/bash
# Two variables are taken for synonyms that turn torch.compile off: TORCHDYNAMO_DISABLE=1 and TORCH_COMPILE_DISABLE=1
# (torch/_dynamo/config.py: "Disable dynamo", forced by TORCH_COMPILE_DISABLE). One would guess that a compiled
# function then runs eagerly with both. In torch 2.13.0 that holds for TORCHDYNAMO_DISABLE=1 only. With
# TORCH_COMPILE_DISABLE=1 a function compiled with fullgraph=True raises RuntimeError ("found no compiled frames"), so the
# step() of torchao 0.18.0's AdamW8bit, AdamW4bit and AdamWFp8 fails: they compile with fullgraph=True, and the program
# has no say in that. A job that is run without the compiler to look for an error stops in its first step.
# Source: torch/_dynamo/eval_frame.py, compile_wrapper; torchao/optim/adam.py, step().
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q torch==2.13.0
"$folder/venv/bin/pip" install -q --no-deps torchao==0.18.0
cat >"$folder/seen.py" <<'PYTHON'
import os
import sys

import torch
import torchao
from torchao.optim import AdamW8bit

layer = torch.nn.Linear(64, 64)
optimizer = AdamW8bit(layer.parameters(), lr=0.01)
layer(torch.ones(2, 64)).sum().backward()
try:
    optimizer.step()
    seen = "steps"
except RuntimeError as error:
    seen = str(error).splitlines()[0]
print(f"torch {torch.__version__}, torchao {torchao.__version__}, {sys.argv[1]}=1: {seen}")
expected = {"TORCHDYNAMO_DISABLE": "steps", "TORCH_COMPILE_DISABLE": "found no compiled frames"}[sys.argv[1]]
sys.exit(0 if expected in seen else 1)
PYTHON
for name in TORCHDYNAMO_DISABLE TORCH_COMPILE_DISABLE; do
  env "$name=1" "$folder/venv/bin/python3" "$folder/seen.py" "$name" 2>"$folder/err" ||
    { cat "$folder/err"; echo "$name: changed"; exit 1; }
done
