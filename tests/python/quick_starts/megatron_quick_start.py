# SPDX-License-Identifier: Apache-2.0
"""msprobe's lines for Megatron's training.py, in one of two ranks. Run by test_quick_start_megatron.py."""
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import megatron_loops
import quick_starts
import torch
import torch.distributed as dist
from megatron.core import parallel_state

import gradmon


def by_its_lines(model: "list[Any]", optimizer: Any) -> None:
    args = SimpleNamespace(global_batch_size=8, data_parallel_size=2, micro_batch_size=2)
    exec(quick_starts.MEGATRON, {"args": args, "model": model, "optimizer": optimizer})


def train(case: megatron_loops.Case, watch: Any, stop: Any) -> None:
    model = [megatron_loops.wrapped(case, 0)]
    optimizer = megatron_loops.make_optimizer(case, model)
    monitor = watch(model, optimizer)
    for step in range(megatron_loops.STEPS):
        megatron_loops.run_step(model, optimizer, step)
    stop(monitor)


def main() -> None:
    given = json.loads(sys.argv[1])
    os.chdir(given["directory"])
    os.environ["LOCAL_RANK"] = os.environ["RANK"]
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    quick_starts.stand_in()
    case = megatron_loops.Case(given["distributed"], True, "float32")
    with megatron_loops.megatron_cpu.on_cpu():
        parallel_state.initialize_model_parallel()
        os.environ["MONITOR_OUTPUT_DIR"] = "out"
        train(case, by_its_lines, lambda _: quick_starts.stop())
        train(
            case,
            lambda model, optimizer: gradmon.megatron.watch(
                model,
                optimizer,
                "monitor_config.json",
                grad_acc_steps=megatron_loops.MICRO,
                output_dir=Path("by_adapter"),
            ),
            lambda monitor: monitor.stop(),
        )
        parallel_state.destroy_model_parallel()
    dist.destroy_process_group()
