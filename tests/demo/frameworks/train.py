# SPDX-License-Identifier: Apache-2.0
"""One rank of one framework: train.py JOB DIRECTORY. tools/demo --frameworks starts it under torchrun."""
import os
import sys
import warnings
from pathlib import Path

warnings.simplefilter("ignore")  # of the frameworks

import engine_jobs  # noqa: E402
import loop_jobs  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch_jobs  # noqa: E402
from run import train_twice  # noqa: E402

JOBS = {
    "plain": torch_jobs.plain,
    "ddp": torch_jobs.ddp,
    "fsdp2": torch_jobs.fsdp2,
    "fsdp2_tp": torch_jobs.fsdp2_tp,
    "hugging_face": loop_jobs.hugging_face,
    "accelerate": loop_jobs.accelerate,
    "lightning": loop_jobs.lightning,
    "deepspeed2": engine_jobs.deepspeed2,
    "deepspeed3": engine_jobs.deepspeed3,
    "megatron": engine_jobs.megatron,
}


def main() -> None:
    torch.set_num_threads(1)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        dist.init_process_group("gloo")
    train_twice(Path(sys.argv[2]), JOBS[sys.argv[1]])
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
