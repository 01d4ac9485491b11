# SPDX-License-Identifier: Apache-2.0
"""Prints what gradmon finds on this machine: which kinds of rows work, and what `gradmonctl doctor` finds:

    python3 -m gradmon.doctor
    python3 -m gradmon.doctor --framework deepspeed

--framework (colossalai, deepspeed, megatron, torchft or torchtitan): prints the kinds of rows that each mode
of the framework has, and a line for each name that gradmon relies on: it is there, or missing.
Exit code 0: all kinds work and no finding is a failure, or all names are there. If the extension was built
against another torch, the import fails with that message.
"""
import argparse
import contextlib
import importlib
import importlib.metadata
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Iterator, NamedTuple

import torch

import gradmon
from gradmon import colossalai, deepspeed, megatron, torchtitan
from gradmon._built_against import TORCH
from gradmon._communication import NO_GROUP
from gradmon._framework_monitor import UPDATES
from gradmon._sharded import REDUCED_BY_AUTOGRAD
from gradmon.converting import find_gradmonctl

_KINDS: "dict[str, tuple[dict[str, Any], list[str]]]" = {
    "gradients": ({"wg_distribution": True}, ["grad_unreduced", "grad_reduced"]),
    "gradients of micro batches": ({"wg_distribution": True, "monitor_mbs_grad": True}, ["grad_unreduced"]),
    "gradient against momentum": ({"mg_direction": True}, ["other"]),
    "weights": ({"param_distribution": True}, ["param_origin", "param_updated"]),
    "moments": ({"mv_distribution": True}, ["exp_avg", "exp_avg_sq"]),
    "activations": ({"xy_distribution": True, "all_xy": True}, ["actv", "actv_grad"]),
    "L2 features": (
        {"recording_l2_features": True, "l2_targets": {"linear_hook": [], "attention_hook": ["attention"]}},
        ["linear_hook", "attention_hook"],
    ),
    "communication": ({"cc_distribution": {"enable": True}}, ["other"]),
}


@contextlib.contextmanager
def _group_of_one(scratch: Path, wanted: bool) -> "Iterator[Callable[[torch.Tensor], Any]]":
    """An allreduce in a group of this process only; a no-op if not wanted or missing in this torch."""
    if not wanted or not torch.distributed.is_available():
        yield lambda _: None
        return
    init_method = (scratch / "group").as_uri()
    torch.distributed.init_process_group("gloo", init_method=init_method, rank=0, world_size=1)
    try:
        yield torch.distributed.all_reduce
    finally:
        torch.distributed.destroy_process_group()


@contextlib.contextmanager
def _scratch() -> "Iterator[Path]":
    """A temporary directory. Removal is retried for 5 s, because the hub may still write into it."""
    path = Path(tempfile.mkdtemp(prefix="gradmon-doctor-"))
    try:
        yield path
    finally:
        end = time.monotonic() + 5
        while path.exists() and time.monotonic() < end:
            shutil.rmtree(path, ignore_errors=True)
            time.sleep(0.02)


class _Adam:
    """Has Adam's moments. Torch's own imports torch's compiler, which takes longer than all else here."""

    def __init__(self, parameters: "Iterator[torch.Tensor]") -> None:
        group = {"params": list(parameters), "lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8}
        self.param_groups: "list[dict[str, Any]]" = [group]
        self.state: "dict[torch.Tensor, dict[str, torch.Tensor]]" = {}

    def step(self) -> None:
        with torch.no_grad():
            for weight in self.param_groups[0]["params"]:
                known = self.state.setdefault(weight, {"exp_avg": weight * 0, "exp_avg_sq": weight * 0})
                known["exp_avg"].lerp_(weight.grad, 0.1)
                known["exp_avg_sq"].lerp_(weight.grad**2, 0.001)
                weight -= 1e-3 * known["exp_avg"]


def _try(keys: "dict[str, Any]", files: "list[str]") -> str:
    """Trains two steps of a small model in a scratch directory. Returns why a kind has no rows, or ""."""
    with _scratch() as scratch:
        config = scratch / "config.json"
        config.write_text(json.dumps({**keys, "step_count_per_record": 10}))
        model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
        optimizer = _Adam(model.parameters())
        monitor = gradmon.Monitor(config, output_dir=scratch, dynamic=False, rank=0, world_size=1)
        communicates = "cc_distribution" in keys
        with _group_of_one(scratch, communicates) as reduce, monitor.watch(model, optimizer):
            for _ in range(2):
                model.zero_grad()
                loss = model(torch.ones(1, 2)).sum()
                monitor.attention("attention", torch.ones(1, 2, 1, 2), torch.ones(1, 2, 1, 2))
                loss.backward()
                reduce(loss.detach())
                optimizer.step()
        missing = [name for name in files if not list(scratch.rglob(f"{name}_*.csv"))]
        status = monitor.status()
        error = status.ranks[0].error if status is not None and status.ranks else ""
    return f"no {', '.join(missing)} ({error or 'no reason is known'})" if missing else ""


def examine(say: "Callable[[str], None]" = print) -> bool:
    """Prints the report line by line. Returns True if all kinds work."""
    say(f"python {sys.version.split()[0]} ({sys.executable})")
    say(f"torch {torch.__version__} ({torch.__file__})")
    say(f"gradmon {gradmon.__version__}, built against torch {TORCH}: they match")
    say("optimizer step: hooked on the instance; modules: forward hooks, keyword inputs are visible")
    say(f"torch.distributed: {'there' if torch.distributed.is_available() else 'not in this torch'}")
    well = True
    for kind, (keys, files) in _KINDS.items():
        try:
            why = _try(keys, files)
        except (OSError, RuntimeError, ValueError) as error:  # no disk, no network
            why = " ".join(str(error).split())
        well = well and not why
        say(f"{kind}: {why or 'works'}")
    devices = f"{torch.cuda.device_count()} CUDA" if torch.cuda.is_available() else "CPU only"
    say(f"devices: {devices}")
    return well


def examine_host(say: "Callable[[str], None]" = print) -> bool:
    """Prints the findings of `gradmonctl doctor`. Returns True if none is a failure."""
    try:
        command = [find_gradmonctl(), "doctor"]
    except FileNotFoundError as error:
        say(f"host: {error}")
        return False
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    for line in (done.stdout + done.stderr).splitlines():
        say(line)
    return done.returncode == 0


# Frameworks: their modes, and the names that gradmon relies on.


class Mode(NamedTuple):
    """A way of training with a framework. FRAMEWORKS.md has these as a table."""

    name: str
    rows: str = "all kinds"  # the kinds that have rows: "all kinds", "none"
    sentence: str = ""  # in the log and in status(), where some have none


class Framework(NamedTuple):
    """names: the classes and modules, and below each the attributes that a kind of rows needs. modes: each
    that is tested, and each that has no rows in some kinds."""

    package: str
    names: str
    modes: "list[Mode]"


class Name(NamedTuple):
    """An attribute of a class, of its instances, or of a module."""

    owner: str  # with its module
    attribute: str
    needed_for: str


def _refused(mode: str, why: str) -> Mode:
    return Mode(mode, "none", f"nothing is watched: {why}")


_COLOSSALAI = Framework(
    "colossalai",
    f"""
    colossalai.interface.ModelWrapper / names: module
    colossalai.interface.OptimizerWrapper
        {UPDATES}: optim
        the end of a step: step
    colossalai.zero.low_level.low_level_optim.LowLevelZeroOptimizer
        the end of a step: require_grad_sync
        grad_unreduced: mixed_precision_mixin
        {UPDATES}: get_working_to_master_map get_param_padding_size pid_to_bucket_store
    colossalai.zero.low_level.bookkeeping.bucket_store.BucketStore / {UPDATES}: local_rank world_size
    """,
    [
        Mode("LowLevelZeroPlugin, stage 1 or 2"),
        Mode("TorchDDPPlugin, and no plugin"),
        _refused("TorchFSDPPlugin", colossalai.IS_FSDP),
        _refused("GeminiPlugin", f"GeminiDDP: {colossalai.REFUSED['GeminiDDP']}"),
        _refused(
            "HybridParallelPlugin in mixed precision",
            f"MixedPrecisionOptimizer: {colossalai.REFUSED['MixedPrecisionOptimizer']}",
        ),
    ],
)
_DEEPSPEED = Framework(
    "deepspeed",
    f"""
    deepspeed.runtime.engine.DeepSpeedEngine
        the end of a step: global_steps step
        grad_unreduced: gradient_accumulation_steps zero_optimization_stage
        micro steps of activations: managed_gradient_accumulation
    deepspeed.runtime.zero.stage_1_and_2.DeepSpeedZeroOptimizer
        {UPDATES}: optimizer bit16_groups single_partition_of_fp32_groups
        grad_unreduced: use_grad_accum_attribute
        grad_unreduced of micro batches: _coalesce_grad_reduction
        {deepspeed.OF_MUON}: cpu_offload get_flat_partition
        {deepspeed.OF_MUON}: all_grad_tensors _apply_muon_updates_cpu_offload
    deepspeed.utils.tensor_fragment.tensor_fragment / {UPDATES}: hp_fragment_address lp_fragment_address
    deepspeed.utils.tensor_fragment.fragment_address / {UPDATES}: start numel
    deepspeed.runtime.zero.stage3.DeepSpeedZeroOptimizer_Stage3
        {UPDATES}: optimizer fp16_groups fp32_partitioned_groups_flat grad_position get_param_id
        grad_unreduced of micro batches: _coalesce_grad_reduction
        {deepspeed.OF_MUON}: offload_optimizer averaged_gradients _apply_muon_to_accumulated_grads
    deepspeed.runtime.bf16_optimizer.BF16_Optimizer
        {UPDATES}: bf16_groups fp32_groups_flat_partition
        {deepspeed.OF_MUON}: _prepare_muon_updates
    deepspeed.runtime.fp16.unfused_optimizer.FP16_UnfusedOptimizer / {UPDATES}: fp16_groups fp32_groups
    deepspeed.runtime.fp16.fused_optimizer.FP16_Optimizer / {UPDATES}: fp16_groups fp32_groups_flat
    """,
    [
        Mode("ZeRO 0, 1, 2, 3; float32, bfloat16"),
        Mode("managed_gradient_accumulation: false, no_sync()"),
        Mode(
            "coalesce_grad_reduction()",
            "all kinds; of monitor_mbs_grad the first micro batch with ZeRO 2, 3",
            "no row: the framework accumulates the micro batches, so the gradient of one cannot be read",
        ),
        Mode("the optimizer offloaded to the CPU"),
        Mode(
            "Muon",
            "all kinds but exp_avg_sq of what it updates",
            "no row: its optimizer keeps no exp_avg_sq that gradmon can read",
        ),
        Mode(
            "Muon, where DeepSpeed lacks the method in which 0.19.8 makes the update",
            "all kinds but grad_reduced, exp_avg* of what it updates",
            f"no rows in {deepspeed.OF_MUON}: AttributeError: the name",
        ),
        Mode("MoE; experts are local, so they are not joined"),
        _refused("PipelineEngine", f"PipelineEngine {deepspeed.RUNS_A_PIPELINE}"),
        *(_refused(mode, why) for mode, why in deepspeed.REFUSED.items()),
    ],
)
_MEGATRON = Framework(
    "megatron-core",
    f"""
    megatron.core.distributed.DistributedDataParallel
        names: module
        grad_unreduced: bucket_groups expert_parallel_bucket_groups
    megatron.core.distributed.param_and_grad_buffer._ParamAndGradBucketGroup
        grad_unreduced: buckets start_grad_sync grad_reduce_handle
    megatron.core.distributed.param_and_grad_buffer._ParamAndGradBucket / grad_unreduced: params_list
    megatron.core.optimizer.optimizer.MegatronOptimizer
        {UPDATES}: optimizer
        the end of a step: step
    megatron.core.optimizer.optimizer.ChainedOptimizer / {UPDATES}: chained_optimizers
    megatron.core.optimizer.optimizer.Float16OptimizerWithFloat16Params
        {UPDATES}: float16_groups fp32_from_float16_groups fp32_from_fp32_groups
    megatron.core.optimizer.distrib_optimizer.DistributedOptimizer
        {UPDATES}: model_float16_groups shard_fp32_from_float16_groups
        {UPDATES}: model_fp32_groups shard_fp32_groups _get_model_param_range_map
    megatron.core.parallel_state
        scopes.json: get_tensor_model_parallel_group get_expert_tensor_parallel_group
        scopes.json: get_expert_model_parallel_group
        scopes.json: get_gtp_weight_remat_group get_expert_gtp_weight_remat_group
    megatron.core.tensor_parallel.generalized_tensor_parallelism / scopes.json: is_gtp_param
    megatron.core.tensor_parallel.generalized_tensor_parallelism.GTPShardedParam
        scopes.json: group pad_length
    megatron.core.optimizer.layer_wise_optimizer.LayerWiseDistributedOptimizer
        scopes.json: chained_optimizers
    megatron.core.optimizer.optimizer_cuda_graph.OptimizerCudaGraphWrapper / what is captured: cuda_graph
    megatron.core.full_cuda_graph.FullCudaGraphWrapper / what is captured: cuda_graph
    megatron.core.transformer.transformer_config.TransformerConfig / what is captured: cuda_graph_impl
    """,
    [
        Mode("DistributedDataParallel; float32, bfloat16, float16"),
        Mode("use_distributed_optimizer"),
        Mode("tensor parallelism, sequence_parallel"),
        Mode("pipeline parallelism"),
        Mode("expert parallelism, an expert in each tensor"),
        Mode("tensor_parallel_num_weight_shards (GTP)"),
        Mode("use_layer_wise_distributed_optimizer (Muon)"),
        Mode(
            "optimizer_cuda_graph",
            "grad_unreduced, param_*, exp_avg*, actv, actv_grad",
            megatron.STEP_IS_CAPTURED,
        ),
        Mode("cuda_graph_impl full_iteration", UPDATES, megatron.PASSES_ARE_CAPTURED),
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
        _refused("Megatron-FSDP", megatron.IS_FSDP),
    ],
)
_TORCHFT = Framework(
    "torchft",
    """
    torchft.optim.OptimizerWrapper
        the end of a step: optim
        the group's name: manager
    torchft.manager.Manager / the group's name: _replica_id _logger
    torchft.manager._ManagerLogger / the group's name: _replica_id
    """,
    [
        Mode("OptimizerWrapper: each replica group a job, in group-NAME of the output directory"),
        Mode(
            "LocalSGD, DiLoCo, without REPLICA_GROUP_ID", "all kinds, of ranks that may be mixed up", NO_GROUP
        ),
    ],
)
_TORCHTITAN = Framework(
    "torchtitan",
    f"""
    torchtitan.trainer.Trainer
        all kinds: train_step model_parts
        {UPDATES}: optimizers
        numbers of steps: step
        micro steps: gradient_accumulation_steps
    torchtitan.components.optimizer.OptimizersContainer
        {UPDATES}: optimizers
        the end of a step: step
    """,
    [
        Mode("fully_shard"),
        Mode("tensor parallelism"),
        Mode("several optimizers, TorchFT's container"),
        Mode(
            "SimpleFSDP (graph_trainer), FlexShard",
            "all kinds but grad_unreduced",
            f"no rows in grad_unreduced of NAME and N more: {REDUCED_BY_AUTOGRAD}",
        ),
        _refused("CUDA graphs", torchtitan.IS_CAPTURED),
    ],
)
FRAMEWORKS = dict(
    colossalai=_COLOSSALAI, deepspeed=_DEEPSPEED, megatron=_MEGATRON, torchft=_TORCHFT, torchtitan=_TORCHTITAN
)


def names_in(table: str) -> "Iterator[Name]":
    """table: lines "owner", "needed for: attributes", or both of them in one line."""
    owner = ""
    for line in table.strip().splitlines():
        head, colon, attributes = line.strip().partition(": ")
        first, _, needed_for = head.rpartition(" / ")
        owner = first or (owner if colon else head)
        yield from (Name(owner, attribute, needed_for) for attribute in attributes.split())


def examine_framework(framework: str, say: "Callable[[str], None]" = print) -> bool:
    """Prints a line for each mode and each name; returns True if the installed framework has all names."""
    package, names, modes = FRAMEWORKS[framework]
    for mode in modes:
        say(f"{mode.name}: rows of {mode.rows}" + (f" ({mode.sentence})" if mode.sentence else ""))
    try:
        say(f"{package} {importlib.metadata.version(package)}")
    except importlib.metadata.PackageNotFoundError:
        say(f"{package}: not installed")
        return False
    well = True
    for name in names_in(names):
        why = _missing(name)
        well = well and not why
        say(f"{name.owner}.{name.attribute}: {why or 'there'}")
    return well


def _missing(name: Name) -> str:
    module, _, owner = name.owner.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), owner)
    except (ImportError, AttributeError, OSError, RuntimeError) as error:
        return f"cannot be imported ({error}): no {name.needed_for}"
    return "" if _has(found, name.attribute) else f"missing: no {name.needed_for}"


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


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python3 -m gradmon.doctor", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--framework", choices=sorted(FRAMEWORKS), help="examine this one instead")
    framework = parser.parse_args().framework
    os.environ.setdefault("GRADMON_LOG", "error")  # The lines of the small trainings are no findings.
    well = all([examine(), examine_host()]) if framework is None else examine_framework(framework)
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
