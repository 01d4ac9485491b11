# SPDX-License-Identifier: Apache-2.0
"""The names in a framework that gradmon relies on, whether an installed one has them, and its modes."""
import importlib
import importlib.metadata
import inspect
import re
from typing import Any, Callable, NamedTuple

from gradmon import megatron

_UPDATES = "grad_reduced, param_*, exp_avg*"
_OF_MUON = "grad_reduced, exp_avg of parameters that Muon updates"


class Name(NamedTuple):
    """An attribute of a class, or of its instances."""

    module: str
    owner: str
    attribute: str
    needed_for: str


class Mode(NamedTuple):
    """A way of training with a framework. FRAMEWORKS.md has these as a table."""

    name: str
    rows: str  # the kinds that have rows: "all kinds", "none"
    sentence: str = ""  # in the log and in status(), where some have none


_STAGE_1_2 = ("deepspeed.runtime.zero.stage_1_and_2", "DeepSpeedZeroOptimizer")
_STAGE_3 = ("deepspeed.runtime.zero.stage3", "DeepSpeedZeroOptimizer_Stage3")
_BFLOAT16 = ("deepspeed.runtime.bf16_optimizer", "BF16_Optimizer")
_UNFUSED = ("deepspeed.runtime.fp16.unfused_optimizer", "FP16_UnfusedOptimizer")
_FUSED = ("deepspeed.runtime.fp16.fused_optimizer", "FP16_Optimizer")
_ENGINE = ("deepspeed.runtime.engine", "DeepSpeedEngine")
_FRAGMENT = ("deepspeed.utils.tensor_fragment", "tensor_fragment")
_ADDRESS = ("deepspeed.utils.tensor_fragment", "fragment_address")
_BUCKETS = ("megatron.core.distributed.param_and_grad_buffer", "_ParamAndGradBucketGroup")
_BUCKET = ("megatron.core.distributed.param_and_grad_buffer", "_ParamAndGradBucket")
_WRAPPER = ("megatron.core.distributed", "DistributedDataParallel")
_DISTRIBUTED = ("megatron.core.optimizer.distrib_optimizer", "DistributedOptimizer")
_FLOAT16 = ("megatron.core.optimizer.optimizer", "Float16OptimizerWithFloat16Params")
_MEGATRON = ("megatron.core.optimizer.optimizer", "MegatronOptimizer")
_PARALLEL = ("megatron.core", "parallel_state")
_STEP_GRAPH = ("megatron.core.optimizer.optimizer_cuda_graph", "OptimizerCudaGraphWrapper")
_FULL_GRAPH = ("megatron.core.full_cuda_graph", "FullCudaGraphWrapper")
_CONFIG = ("megatron.core.transformer.transformer_config", "TransformerConfig")
_LAYER_WISE = ("megatron.core.optimizer.layer_wise_optimizer", "LayerWiseDistributedOptimizer")
_SHARD = ("megatron.core.tensor_parallel.generalized_tensor_parallelism", "GTPShardedParam")
_CHAIN = ("megatron.core.optimizer.optimizer", "ChainedOptimizer")
_ZERO = ("colossalai.zero.low_level.low_level_optim", "LowLevelZeroOptimizer")
_BUCKET_STORE = ("colossalai.zero.low_level.bookkeeping.bucket_store", "BucketStore")
_TRAINER = ("torchtitan.trainer", "Trainer")
_CONTAINER = ("torchtitan.components.optimizer", "OptimizersContainer")

_OF_DEEPSPEED = [
    Name(*_ENGINE, "global_steps", "the end of a step"),
    Name(*_ENGINE, "step", "the end of a step"),
    Name(*_ENGINE, "gradient_accumulation_steps", "grad_unreduced"),
    Name(*_ENGINE, "managed_gradient_accumulation", "micro steps of activations"),
    Name(*_ENGINE, "zero_optimization_stage", "grad_unreduced"),
    Name(*_STAGE_1_2, "optimizer", _UPDATES),
    Name(*_STAGE_1_2, "bit16_groups", _UPDATES),
    Name(*_STAGE_1_2, "single_partition_of_fp32_groups", _UPDATES),
    Name(*_STAGE_1_2, "use_grad_accum_attribute", "grad_unreduced"),
    Name(*_STAGE_1_2, "_coalesce_grad_reduction", "grad_unreduced of micro batches"),
    Name(*_STAGE_1_2, "cpu_offload", _OF_MUON),
    Name(*_STAGE_1_2, "get_flat_partition", _OF_MUON),
    Name(*_STAGE_1_2, "all_grad_tensors", _OF_MUON),
    Name(*_STAGE_1_2, "_apply_muon_updates_cpu_offload", _OF_MUON),
    Name(*_FRAGMENT, "hp_fragment_address", _UPDATES),
    Name(*_FRAGMENT, "lp_fragment_address", _UPDATES),
    Name(*_ADDRESS, "start", _UPDATES),
    Name(*_ADDRESS, "numel", _UPDATES),
    Name(*_STAGE_3, "optimizer", _UPDATES),
    Name(*_STAGE_3, "fp16_groups", _UPDATES),
    Name(*_STAGE_3, "fp32_partitioned_groups_flat", _UPDATES),
    Name(*_STAGE_3, "grad_position", _UPDATES),
    Name(*_STAGE_3, "get_param_id", _UPDATES),
    Name(*_STAGE_3, "_coalesce_grad_reduction", "grad_unreduced of micro batches"),
    Name(*_STAGE_3, "offload_optimizer", _OF_MUON),
    Name(*_STAGE_3, "averaged_gradients", _OF_MUON),
    Name(*_STAGE_3, "_apply_muon_to_accumulated_grads", _OF_MUON),
    Name(*_BFLOAT16, "bf16_groups", _UPDATES),
    Name(*_BFLOAT16, "fp32_groups_flat_partition", _UPDATES),
    Name(*_BFLOAT16, "_prepare_muon_updates", _OF_MUON),
    Name(*_UNFUSED, "fp16_groups", _UPDATES),
    Name(*_UNFUSED, "fp32_groups", _UPDATES),
    Name(*_FUSED, "fp16_groups", _UPDATES),
    Name(*_FUSED, "fp32_groups_flat", _UPDATES),
]
_OF_MEGATRON = [
    Name(*_WRAPPER, "module", "names"),
    Name(*_WRAPPER, "bucket_groups", "grad_unreduced"),
    Name(*_WRAPPER, "expert_parallel_bucket_groups", "grad_unreduced"),
    Name(*_BUCKETS, "buckets", "grad_unreduced"),
    Name(*_BUCKETS, "start_grad_sync", "grad_unreduced"),
    Name(*_BUCKETS, "grad_reduce_handle", "grad_unreduced"),
    Name(*_BUCKET, "params_list", "grad_unreduced"),
    Name(*_MEGATRON, "optimizer", _UPDATES),
    Name(*_MEGATRON, "step", "the end of a step"),
    Name(*_CHAIN, "chained_optimizers", _UPDATES),
    Name(*_FLOAT16, "float16_groups", _UPDATES),
    Name(*_FLOAT16, "fp32_from_float16_groups", _UPDATES),
    Name(*_FLOAT16, "fp32_from_fp32_groups", _UPDATES),
    Name(*_DISTRIBUTED, "model_float16_groups", _UPDATES),
    Name(*_DISTRIBUTED, "shard_fp32_from_float16_groups", _UPDATES),
    Name(*_DISTRIBUTED, "model_fp32_groups", _UPDATES),
    Name(*_DISTRIBUTED, "shard_fp32_groups", _UPDATES),
    Name(*_DISTRIBUTED, "_get_model_param_range_map", _UPDATES),
    Name(*_PARALLEL, "get_tensor_model_parallel_group", "scopes.json"),
    Name(*_PARALLEL, "get_expert_tensor_parallel_group", "scopes.json"),
    Name(*_PARALLEL, "get_expert_model_parallel_group", "scopes.json"),
    Name(*_PARALLEL, "get_gtp_weight_remat_group", "scopes.json"),
    Name(*_PARALLEL, "get_expert_gtp_weight_remat_group", "scopes.json"),
    Name("megatron.core.tensor_parallel", "generalized_tensor_parallelism", "is_gtp_param", "scopes.json"),
    Name(*_SHARD, "group", "scopes.json"),
    Name(*_SHARD, "pad_length", "scopes.json"),
    Name(*_LAYER_WISE, "chained_optimizers", "scopes.json"),
    Name(*_STEP_GRAPH, "cuda_graph", "what is captured"),
    Name(*_FULL_GRAPH, "cuda_graph", "what is captured"),
    Name(*_CONFIG, "cuda_graph_impl", "what is captured"),
]
_OF_COLOSSALAI = [
    Name("colossalai.interface", "ModelWrapper", "module", "names"),
    Name("colossalai.interface", "OptimizerWrapper", "optim", _UPDATES),
    Name("colossalai.interface", "OptimizerWrapper", "step", "the end of a step"),
    Name(*_ZERO, "require_grad_sync", "the end of a step"),
    Name(*_ZERO, "mixed_precision_mixin", "grad_unreduced"),
    Name(*_ZERO, "get_working_to_master_map", _UPDATES),
    Name(*_ZERO, "get_param_padding_size", _UPDATES),
    Name(*_ZERO, "pid_to_bucket_store", _UPDATES),
    Name(*_BUCKET_STORE, "local_rank", _UPDATES),
    Name(*_BUCKET_STORE, "world_size", _UPDATES),
]
_OF_TORCHTITAN = [
    Name(*_TRAINER, "train_step", "all kinds"),
    Name(*_TRAINER, "model_parts", "all kinds"),
    Name(*_TRAINER, "optimizers", _UPDATES),
    Name(*_TRAINER, "step", "numbers of steps"),
    Name(*_TRAINER, "gradient_accumulation_steps", "micro steps"),
    Name(*_CONTAINER, "optimizers", _UPDATES),
    Name(*_CONTAINER, "step", "the end of a step"),
]
_OF_TORCHFT = [
    Name("torchft.optim", "OptimizerWrapper", "optim", "the end of a step"),
    Name("torchft.optim", "OptimizerWrapper", "manager", "the group's name"),
    Name("torchft.manager", "Manager", "_replica_id", "the group's name"),
    Name("torchft.manager", "Manager", "_logger", "the group's name"),
    Name("torchft.manager", "_ManagerLogger", "_replica_id", "the group's name"),
]
FRAMEWORKS = {
    "colossalai": ("colossalai", _OF_COLOSSALAI),
    "deepspeed": ("deepspeed", _OF_DEEPSPEED),
    "megatron": ("megatron-core", _OF_MEGATRON),
    "torchft": ("torchft", _OF_TORCHFT),
    "torchtitan": ("torchtitan", _OF_TORCHTITAN),
}

# Each mode that is tested, and each that has no rows in some kinds.
MODES: "dict[str, list[Mode]]" = {
    "colossalai": [
        Mode("LowLevelZeroPlugin, stage 1 or 2", "all kinds"),
        Mode("TorchDDPPlugin, and no plugin", "all kinds"),
        Mode(
            "TorchFSDPPlugin",
            "none",
            "nothing is watched: TorchFSDPPlugin: gradmon.Monitor watches a model in FSDP, with torch's "
            "optimizer",
        ),
        Mode(
            "GeminiPlugin",
            "none",
            "nothing is watched: GeminiDDP: Gemini takes gradients away within backward",
        ),
        Mode(
            "HybridParallelPlugin in mixed precision",
            "none",
            "nothing is watched: MixedPrecisionOptimizer: its master copies are not followed",
        ),
    ],
    "deepspeed": [
        Mode("ZeRO 0, 1, 2, 3; float32, bfloat16", "all kinds"),
        Mode("managed_gradient_accumulation: false, no_sync()", "all kinds"),
        Mode(
            "coalesce_grad_reduction()",
            "all kinds; of monitor_mbs_grad the first micro batch with ZeRO 2, 3",
            "no row: the framework accumulates the micro batches, so the gradient of one cannot be read",
        ),
        Mode("the optimizer offloaded to the CPU", "all kinds"),
        Mode(
            "Muon",
            "all kinds but exp_avg_sq of what it updates",
            "no row: its optimizer keeps no exp_avg_sq that gradmon can read",
        ),
        Mode(
            "Muon, where DeepSpeed lacks the method in which 0.19.8 makes the update",
            "all kinds but grad_reduced, exp_avg* of what it updates",
            "no rows in grad_reduced and exp_avg of parameters that Muon updates: AttributeError: the name",
        ),
        Mode("MoE; experts are local, so they are not joined", "all kinds"),
        Mode(
            "PipelineEngine",
            "none",
            "nothing is watched: PipelineEngine runs a pipeline, which gradmon does not follow",
        ),
        Mode(
            "the optimizer's state on NVMe",
            "none",
            "nothing is watched: DeepSpeed keeps the optimizer's state on NVMe: reading it would page it in",
        ),
        Mode("SuperOffload", "none", "nothing is watched: SuperOffload updates in another process"),
        Mode("ZenFlow", "none", "nothing is watched: ZenFlow updates outside the optimizer's step"),
    ],
    "megatron": [
        Mode("DistributedDataParallel; float32, bfloat16, float16", "all kinds"),
        Mode("use_distributed_optimizer", "all kinds"),
        Mode("tensor parallelism, sequence_parallel", "all kinds"),
        Mode("pipeline parallelism", "all kinds"),
        Mode("expert parallelism, an expert in each tensor", "all kinds"),
        Mode("tensor_parallel_num_weight_shards (GTP)", "all kinds"),
        Mode("use_layer_wise_distributed_optimizer (Muon)", "all kinds"),
        Mode(
            "optimizer_cuda_graph",
            "grad_unreduced, param_*, exp_avg*, actv, actv_grad",
            megatron.STEP_IS_CAPTURED,
        ),
        Mode(
            "cuda_graph_impl full_iteration",
            "grad_reduced, param_*, exp_avg*",
            megatron.PASSES_ARE_CAPTURED,
        ),
        Mode(
            "cuda_graph_impl local, transformer_engine",
            "grad_*, param_*, exp_avg*",
            megatron.LAYERS_ARE_CAPTURED,
        ),
        Mode(
            "use_precision_aware_optimizer",
            "grad_unreduced, actv, actv_grad",
            megatron.NO_MASTER.format("DistributedOptimizer"),
        ),
        Mode(
            "Megatron-FSDP",
            "none",
            f"nothing is watched: {megatron.IS_FSDP}",
        ),
    ],
    "torchft": [
        Mode(
            "OptimizerWrapper: each replica group a job, in group-NAME of the output directory", "all kinds"
        ),
        Mode(
            "LocalSGD, DiLoCo, without REPLICA_GROUP_ID",
            "all kinds, of ranks that may be mixed up",
            "torchft is imported, but the replica group is unknown: ranks of several groups share the output "
            "directory and may join one job. Set REPLICA_GROUP_ID, or pass torchft's OptimizerWrapper to "
            "watch()",
        ),
    ],
    "torchtitan": [
        Mode("fully_shard", "all kinds"),
        Mode("tensor parallelism", "all kinds"),
        Mode("several optimizers, TorchFT's container", "all kinds"),
        Mode(
            "SimpleFSDP (graph_trainer), FlexShard",
            "all kinds but grad_unreduced",
            "no rows in grad_unreduced of NAME and N more: forward uses another tensor, and autograd reduces "
            "the gradient on the way to it",
        ),
        Mode(
            "CUDA graphs",
            "none",
            "nothing is watched: torchtitan captures steps in CUDA graphs (set "
            "--training.disable_cuda_graphs)",
        ),
    ],
}


def examine(framework: str, say: "Callable[[str], None]" = print) -> bool:
    """Prints a line for each mode and each name; returns True if the installed framework has all names."""
    package, names = FRAMEWORKS[framework]
    for mode in MODES[framework]:
        say(f"{mode.name}: rows of {mode.rows}" + (f" ({mode.sentence})" if mode.sentence else ""))
    try:
        say(f"{package} {importlib.metadata.version(package)}")
    except importlib.metadata.PackageNotFoundError:
        say(f"{package}: not installed")
        return False
    well = True
    for name in names:
        why = _missing(name)
        well = well and not why
        say(f"{name.module}.{name.owner}.{name.attribute}: {why or 'there'}")
    return well


def _missing(name: Name) -> str:
    try:
        owner = getattr(importlib.import_module(name.module), name.owner)
    except (ImportError, AttributeError, OSError, RuntimeError) as error:
        return f"cannot be imported ({error}): no {name.needed_for}"
    return "" if _has(owner, name.attribute) else f"missing: no {name.needed_for}"


def _has(owner: Any, attribute: str) -> bool:
    """Returns True if the class or a parent has it, or the code of one of them assigns it."""
    if hasattr(owner, attribute) or attribute in getattr(owner, "__dataclass_fields__", {}):
        return True
    for kind in getattr(owner, "__mro__", ()):  # none: a module
        try:
            code = inspect.getsource(kind)
        except (OSError, TypeError):
            continue
        if re.search(rf"self\.{attribute}\s*[=:,]", code):  # also in a tuple
            return True
    return False
