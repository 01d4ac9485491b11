# SPDX-License-Identifier: Apache-2.0
"""Trainings by engines that reduce gradients and update weights in tensors of their own: DeepSpeed and
Megatron."""
import gpt
from run import MOST_STEPS, Run

import gradmon


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


def deepspeed2(run: Run) -> None:
    _deepspeed(run, 2)


def deepspeed3(run: Run) -> None:
    _deepspeed(run, 3)


def megatron(run: Run) -> None:
    """The model under Megatron core's DistributedDataParallel and distributed optimizer."""
    import megatron_cpu
    from megatron.core import parallel_state

    with megatron_cpu.on_cpu():
        if not parallel_state.is_initialized():
            parallel_state.initialize_model_parallel()
        _megatron(run)


def _megatron(run: Run) -> None:
    import torch
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
