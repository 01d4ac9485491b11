# SPDX-License-Identifier: Apache-2.0
"""Trainings in the loops of others, each with DistributedDataParallel: transformers' Trainer, Accelerate,
Lightning. Each import belongs to one job."""
import tempfile
from typing import Any

import gpt
import torch
from run import MOST_STEPS, Run

import gradmon


def hugging_face(run: Run) -> None:
    import transformers
    from accelerate.state import AcceleratorState, GradientState

    class Model(gpt.GPT):
        def forward(self, tokens: torch.Tensor) -> "dict[str, torch.Tensor]":  # type: ignore[override]
            return {"loss": super().forward(tokens)}

    class Steps(transformers.TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            control.should_training_stop = run.step_ended()

    AcceleratorState._reset_state(reset_partial_state=False)  # of the training before in this process
    GradientState._reset_state()
    model = gpt.seeded(Model)
    callback = run.watch(gradmon.hf.Callback)
    with tempfile.TemporaryDirectory() as place:
        arguments = transformers.TrainingArguments(
            place,
            max_steps=MOST_STEPS,
            per_device_train_batch_size=gpt.ROWS,
            max_grad_norm=0.0,
            lr_scheduler_type="constant",
            train_sampling_strategy="sequential",
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
            dataloader_pin_memory=False,
            remove_unused_columns=False,
            use_cpu=True,
            ddp_backend="gloo",
        )
        transformers.Trainer(
            model,
            arguments,
            data_collator=lambda rows: {"tokens": torch.stack(rows)},
            train_dataset=gpt.Tokens(MOST_STEPS),
            optimizers=(gpt.adam(model), None),
            callbacks=[*([] if callback is None else [callback]), Steps()],
        ).train()
    run.ended(model)


def accelerate(run: Run) -> None:
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, GradientState

    AcceleratorState._reset_state(reset_partial_state=False)
    GradientState._reset_state()
    accelerator = Accelerator(cpu=True)
    model = gpt.seeded()
    rows = torch.utils.data.DataLoader(gpt.Tokens(MOST_STEPS), batch_size=gpt.ROWS)
    prepared, optimizer, loader = accelerator.prepare(model, gpt.adam(model), rows)

    def attach(config: Any, **options: Any) -> Any:
        return gradmon.accelerate.watch(accelerator, config, prepared, optimizer, **options)

    monitor = run.watch(attach)
    for _, tokens in zip(run.steps(monitor), loader):
        accelerator.backward(prepared(tokens))
        optimizer.step()
        optimizer.zero_grad()
    run.ended(model)


def lightning(run: Run) -> None:
    import warnings

    warnings.filterwarnings("ignore", module="lightning")
    import lightning as pl

    class Model(gpt.GPT, pl.LightningModule):  # type: ignore[misc]
        def configure_optimizers(self) -> Any:
            return gpt.adam(self)

        def training_step(self, tokens: torch.Tensor, _: int) -> Any:
            return self(tokens)

    class Steps(pl.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            trainer.should_stop = run.step_ended()

    model = gpt.seeded(Model)
    callback = run.watch(gradmon.lightning.Callback)
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=gpt.PLACES,
        strategy="ddp",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        callbacks=[*([] if callback is None else [callback]), Steps()],
    )
    # Each of its items is a batch.
    batches = torch.utils.data.DataLoader(gpt.Batches(MOST_STEPS, run.rank), batch_size=None)
    trainer.fit(model, batches)
    run.ended(model)
