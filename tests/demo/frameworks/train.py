# SPDX-License-Identifier: Apache-2.0
"""One rank's training under one framework: train.py JOB DIRECTORY. tools/demo --frameworks starts it under
torchrun. It edits the config while it runs, and notes the values that are compared later."""
import json
import os
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, Optional

warnings.simplefilter("ignore")  # of the frameworks

import gpt  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

import gradmon  # noqa: E402

MOST_STEPS = 2000
FIRST_EDIT = 8  # steps before it
OPS = ["norm", "min", "max", "mean", "nans", "zeros"]
_ALWAYS = {"ops": OPS, "ndigits": 100, "step_count_per_record": MOST_STEPS, "squash_name": False}
EVERYTHING = {
    "collect_times": 6,
    "wg_distribution": True,
    "param_distribution": True,
    "mv_distribution": True,
    "xy_distribution": True,
    "all_xy": True,
}
GRADIENTS = {"collect_times": 3, "step_interval": 2, "wg_distribution": True}
EDITS = (EVERYTHING, GRADIENTS)


class Run:
    """A training, watched or not. The watched one ends when all edits have been collected on all ranks, the
    other one after as many steps."""

    def __init__(self, directory: Path, steps: Optional[int] = None) -> None:
        """steps: of a training that is not watched."""
        self.directory = directory
        self.rank = dist.get_rank() if dist.is_initialized() else 0
        self.watched = steps is None
        self.seconds: "list[float]" = []  # of each step
        self.ends: "list[torch.Tensor]" = []
        self._steps = steps
        self._left = list(EDITS)
        self._config = directory / "monitor_config.json"
        self._begin = time.perf_counter()
        self._collectives = _collectives()
        if self.watched and self.rank == 0:
            self._write(False, {})
        if dist.is_initialized():
            dist.barrier()

    def watch(self, attach: "Callable[..., Any]") -> Any:
        """Returns attach(config, options of Monitor), or None where nothing is watched."""
        options = {"output_dir": self.directory / "out", "dynamic": True}
        return attach(self._config, **options) if self.watched else None

    def step_ended(self) -> bool:
        """To be called after each step. Returns whether the training ends."""
        self.seconds.append(time.perf_counter() - self._begin)
        ends = torch.tensor(float(self.rank == 0 and self._ends()))
        if dist.is_initialized():
            dist.all_reduce(ends)
        self._begin = time.perf_counter()
        return bool(ends.item() > 0)

    def steps(self, monitor: Any) -> "Iterator[int]":
        """The numbers of the steps, for a loop. At its end the monitor stops, if there is one."""
        for step in range(MOST_STEPS):
            yield step
            if self.step_ended():
                break
        if monitor is not None:
            monitor.stop()

    def ended(self, model: torch.nn.Module) -> None:
        """Notes what is compared between the two trainings."""
        self.collectives = _collectives() - self._collectives
        for tensor in model.state_dict().values():
            self.ends.append(getattr(tensor, "_local_tensor", tensor).detach().clone())

    def _ends(self) -> bool:
        if self._steps is not None:
            return len(self.seconds) >= self._steps
        if len(self.seconds) >= MOST_STEPS:
            raise RuntimeError(f"after {MOST_STEPS} steps, {len(self._left)} edits have not been collected")
        if len(self.seconds) < FIRST_EDIT or self._collects():
            return False
        if not self._left:
            return True
        self._write(True, self._left.pop(0))
        return False

    def _collects(self) -> bool:
        """True if the last edit has not been collected yet on all ranks: gradmon then writes false back."""
        try:
            return bool(json.loads(self._config.read_text())["dynamic_on"])
        except ValueError:  # it is just being written
            return True

    def _write(self, dynamic_on: bool, keys: "dict[str, Any]") -> None:
        self._config.write_text(json.dumps({"dynamic_on": dynamic_on, **_ALWAYS, **keys}))


def _collectives() -> int:
    """How many have been started, in all groups."""
    if not dist.is_initialized():
        return 0
    groups = dist.distributed_c10d._world.pg_map
    return sum(int(group._get_sequence_number_for_group()) for group in groups if group is not None)


def train_twice(directory: Path, train: "Callable[[Run], None]") -> None:
    """Trains with gradmon and without, and writes this rank's outcome."""
    watched = Run(directory)
    train(watched)
    bare = Run(directory, len(watched.seconds))
    train(bare)
    same = len(bare.ends) > 0 and len(bare.ends) == len(watched.ends)
    outcome = {
        "equal": same and all(torch.equal(one, other) for one, other in zip(bare.ends, watched.ends)),
        "collectives": [bare.collectives, watched.collectives],
        "seconds": {"bare": bare.seconds, "watched": watched.seconds},
    }
    (directory / f"rank{watched.rank}.json").write_text(json.dumps(outcome))


# --- Loops of plain torch: alone, and with torch's own ways to use several ranks.


def _loop(run: Run, model: Any, places: "Iterable[int]", watched: Any = None, **keys: Any) -> None:
    """places: of the micro batches of a step. watched: a model for the monitor in place of this one. keys: of
    watch()."""
    places = list(places)
    optimizer = gpt.adam(model)

    def attach(config: Any, **options: Any) -> Any:
        return gradmon.Monitor(config, **options).watch(watched or model, optimizer, **keys)

    for step in run.steps(run.watch(attach)):
        optimizer.zero_grad()
        for place in places:
            (model(gpt.batch(step, place)) / len(places)).backward()
        optimizer.step()
    run.ended(model)


def plain(run: Run) -> None:
    """One process: a step has one micro batch for each of the others' data-parallel ranks."""
    _loop(run, gpt.seeded(), range(gpt.PLACES), grad_acc_steps=gpt.PLACES)


def ddp(run: Run) -> None:
    model = gpt.seeded()
    wrapped = torch.nn.parallel.DistributedDataParallel(model)
    # The model in it, whose names are the user's; its first rank writes what all ranks hold.
    _loop(run, wrapped, [run.rank], watched=model, dp_group=dist.group.WORLD)


def fsdp2(run: Run) -> None:
    from torch.distributed.fsdp import fully_shard

    model = gpt.seeded()
    for block in model.blocks:  # type: ignore[union-attr]
        fully_shard(block)
    fully_shard(model)
    _loop(run, model, [run.rank])


def fsdp2_tp(run: Run) -> None:
    """Data-parallel ranks times two tensor-parallel ones."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    model = gpt.seeded()
    shape = (gpt.PLACES, dist.get_world_size() // gpt.PLACES)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("data", "tensor"))
    columns = {
        name: ColwiseParallel() for name in ("attention.query", "attention.key", "attention.value", "up")
    }
    rows = {name: RowwiseParallel() for name in ("attention.out", "down")}
    for block in model.blocks:  # type: ignore[union-attr]
        parallelize_module(block, mesh["tensor"], {**columns, **rows})
        fully_shard(block, mesh=mesh["data"])
    fully_shard(model, mesh=mesh["data"])
    _loop(run, model, [mesh.get_coordinate()[0]])


# --- The loops of others, each with DistributedDataParallel. Each import belongs to one job.


def _forget_accelerator() -> None:
    """Ends the training before in this process."""
    from accelerate.state import AcceleratorState, GradientState

    AcceleratorState._reset_state(reset_partial_state=False)
    GradientState._reset_state()


def hugging_face(run: Run) -> None:
    import transformers

    class Model(gpt.GPT):
        def forward(self, tokens: torch.Tensor) -> "dict[str, torch.Tensor]":  # type: ignore[override]
            return {"loss": super().forward(tokens)}

    class Steps(transformers.TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            control.should_training_stop = run.step_ended()

    _forget_accelerator()
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

    _forget_accelerator()
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


# --- Engines that reduce gradients and update weights in tensors of their own.


def _deepspeed(run: Run, stage: int) -> None:
    import deepspeed

    # Its own all-reduce in shared memory would be compiled first; without it, gloo does everything.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed("gloo", auto_mpi_discovery=False)
    model = gpt.seeded()
    config = {
        "train_micro_batch_size_per_gpu": gpt.ROWS,
        "gradient_accumulation_steps": 1,
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
        "optimizer": {
            "type": "AdamW",
            "params": {"lr": gpt.LR, "weight_decay": 0.0, "torch_adam": True},
        },
        "steps_per_print": MOST_STEPS,
    }
    engine = deepspeed.initialize(model=model, config=config, model_parameters=model.parameters())[0]
    monitor = run.watch(lambda config, **options: gradmon.deepspeed.watch(engine, config, **options))
    for step in run.steps(monitor):
        engine.backward(engine(gpt.batch(step, run.rank)))
        engine.step()
    run.ended(engine.module)
    if stage == 3:  # at rest the model has no elements
        run.ends = [parameter.ds_tensor.detach().clone() for parameter in engine.module.parameters()]


def megatron(run: Run) -> None:
    """The model under Megatron core's DistributedDataParallel and distributed optimizer."""
    import megatron_cpu
    from megatron.core import parallel_state

    with megatron_cpu.on_cpu():
        if not parallel_state.is_initialized():
            parallel_state.initialize_model_parallel()
        _megatron(run)


def _megatron(run: Run) -> None:
    from megatron.core import distributed
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.transformer.transformer_config import TransformerConfig

    config = TransformerConfig(
        num_layers=gpt.LAYERS,
        hidden_size=gpt.WIDTH,
        num_attention_heads=gpt.HEADS,
        use_cpu_initialization=True,
        gradient_accumulation_fusion=False,
    )
    buckets = distributed.DistributedDataParallelConfig(
        use_distributed_optimizer=True,
        overlap_grad_reduce=True,
        grad_reduce_in_fp32=True,
        bucket_size=2000,
    )
    chunk = distributed.DistributedDataParallel(config, buckets, gpt.seeded())
    settings = OptimizerConfig(
        optimizer="adam",
        lr=gpt.LR,
        weight_decay=0.0,
        adam_eps=1e-8,
        adam_beta2=0.999,
        params_dtype=torch.float32,
        use_distributed_optimizer=True,
        clip_grad=0.0,
    )
    optimizer = get_megatron_optimizer(settings, [chunk])
    monitor = run.watch(
        lambda config, **options: gradmon.megatron.watch([chunk], optimizer, config, **options)
    )
    for step in run.steps(monitor):
        chunk.zero_grad_buffer()
        optimizer.zero_grad()
        chunk(gpt.batch(step, run.rank)).backward()
        distributed.finalize_model_grads([chunk])
        optimizer.step()
    run.ended(chunk)


JOBS: "dict[str, Callable[[Run], None]]" = {
    "plain": plain,
    "ddp": ddp,
    "fsdp2": fsdp2,
    "fsdp2_tp": fsdp2_tp,
    "hugging_face": hugging_face,
    "accelerate": accelerate,
    "lightning": lightning,
    "deepspeed2": lambda run: _deepspeed(run, 2),
    "deepspeed3": lambda run: _deepspeed(run, 3),
    "megatron": megatron,
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
