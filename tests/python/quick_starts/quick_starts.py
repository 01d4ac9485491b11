# SPDX-License-Identifier: Apache-2.0
"""msprobe's quick starts: the lines that its pages have a user put into Megatron's training.py and into
transformers/trainer.py."""
import inspect
import os
import sys
import textwrap
from pathlib import Path
from typing import Any

import gradmon

MEGATRON = """
from msprobe.pytorch import TrainerMon
monitor = TrainerMon(
    config_file_path="./monitor_config.json",
    params_have_main_grad=True,  # 权重是否使用main_grad，通常megatron为True，deepspeed为False。默认为True。
)
# 挂载监控对象
monitor.set_monitor(
    model,
    grad_acc_steps=args.global_batch_size//args.data_parallel_size//args.micro_batch_size,
    optimizer=optimizer,
    dp_group=None,
    tp_group=None,
    start_iteration=0  # 断点续训时提供当前iteration，默认从0开始
)
"""
TRANSFORMERS = """
from msprobe.pytorch import TrainerMon
monitor = TrainerMon(
    config_file_path="./monitor_config.json",
    params_have_main_grad=False,
)
monitor.set_monitor(
    model,
    grad_acc_steps=args.gradient_accumulation_steps,
    optimizer={optimizer},
    dp_group=None,
    tp_group=None,
    start_iteration=0
)
"""
_LOOP = "\n    for epoch in range(epochs_trained, num_train_epochs):"

made: "list[Any]" = []  # the TrainerMon objects, which the lines keep to themselves


class KeptTrainerMon(gradmon.TrainerMon):
    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        made.append(self)


def stand_in() -> None:
    """Lets `from msprobe.pytorch import TrainerMon` find gradmon's, as gradmon.as_msprobe does."""
    sys.path.insert(0, str(Path(os.fspath(gradmon.__file__)).parent / "stand_in"))
    import msprobe.pytorch  # type: ignore[import-not-found]

    msprobe.pytorch.TrainerMon = KeptTrainerMon


def edit_trainer(optimizer: str) -> None:
    """Puts the lines into the installed transformers' Trainer, in front of its loop over epochs."""
    from transformers import trainer

    source = textwrap.dedent(inspect.getsource(trainer.Trainer._inner_training_loop))
    assert source.count(_LOOP) == 1, source
    lines = textwrap.indent(TRANSFORMERS.format(optimizer=optimizer), "    ")
    exec(compile(source.replace(_LOOP, lines + _LOOP), trainer.__file__, "exec"), vars(trainer))
    trainer.Trainer._inner_training_loop = vars(trainer)["_inner_training_loop"]


def stop() -> None:
    (monitor,) = made
    monitor.summary_writer.close()
    made.clear()
