# SPDX-License-Identifier: Apache-2.0
"""Trainings by Megatron core's own classes on a CPU, in one of several ranks. Run by test_megatron.py."""
import contextlib
import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any, Callable, Iterator, NamedTuple, Optional

warnings.simplefilter("ignore")  # Megatron's: no Apex, no Transformer Engine

import engine_oracle  # noqa: E402
import jobs  # noqa: E402
import loops  # noqa: E402
import megatron_cpu  # noqa: E402
import megatron_own  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import twice  # noqa: E402
from megatron.core import parallel_state  # noqa: E402
from megatron.core.distributed import (  # noqa: E402
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.models.gpt import GPTModel  # noqa: E402
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec  # noqa: E402
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer  # noqa: E402
from megatron.core.optimizer.layer_wise_optimizer import (  # noqa: E402
    LayerWiseDistributedOptimizer,
    tag_params_for_buffer_routing,
)
from megatron.core.optimizer.optimizer_cuda_graph import OptimizerCudaGraphWrapper  # noqa: E402
from megatron.core.pipeline_parallel import get_forward_backward_func  # noqa: E402
from megatron.core.tensor_parallel import gtp_api  # noqa: E402
from megatron.core.transformer.module import Float16Module  # noqa: E402
from megatron.core.transformer.transformer_config import TransformerConfig  # noqa: E402

import gradmon  # noqa: E402

STEPS, MICRO = 3, 2
SEQUENCE, VOCABULARY = 8, 16


class Case(NamedTuple):
    distributed: bool  # the distributed optimizer
    overlap: bool  # of the reduction with the backward: several buckets
    kind: str
    tensor_parallel: int = 1
    chunks: int = 1  # models in one list, as an interleaved pipeline has
    mode: str = ""  # what else is split over the ranks, or how

    @property
    def name(self) -> str:
        return "-".join(str(int(x) if isinstance(x, bool) else x) for x in self if x != "")

    def groups(self) -> "dict[str, int]":
        """As initialize_model_parallel() takes them."""
        found = {"tensor_model_parallel_size": self.tensor_parallel}
        sizes = {
            "shards": "gtp_remat_size",
            "pipeline": "pipeline_model_parallel_size",
            "experts": "expert_model_parallel_size",
        }
        return {**found, **({sizes[self.mode]: 2} if self.mode in sizes else {})}


CASES = [
    Case(False, False, "float32"),
    Case(False, True, "float32"),
    Case(True, False, "float32"),
    Case(True, True, "float32"),
    Case(False, True, "bfloat16"),
    Case(True, True, "bfloat16"),
    Case(True, True, "float32", chunks=2),
    Case(False, False, "float32", tensor_parallel=2),
    Case(True, False, "float32", tensor_parallel=2),
    Case(False, True, "float32", mode="shards"),
    Case(True, True, "float32", mode="shards"),
    Case(True, False, "float32", tensor_parallel=2, mode="shards"),
    Case(True, True, "float32", tensor_parallel=2, mode="sequence"),
    Case(True, False, "float32", mode="pipeline"),
    Case(False, True, "float32", mode="experts"),
    Case(True, True, "float32", mode="experts"),
    Case(False, True, "bfloat16", mode="layers"),
    Case(True, True, "bfloat16", mode="layers"),
    Case(True, True, "float16"),
]
OWN = ("pipeline", "experts", "layers")  # modes that are compared with Megatron's own tensors


def make_config(case: Case) -> TransformerConfig:
    more: "dict[str, Any]" = {}
    if case.mode == "shards":
        more = {"tensor_parallel_num_weight_shards": 2 * case.tensor_parallel}
    elif case.mode == "sequence":
        more = {"sequence_parallel": True}
    elif case.mode == "pipeline":
        more = {"pipeline_model_parallel_size": 2, "pipeline_dtype": torch.float32}
    elif case.mode == "experts":
        more = {
            "num_moe_experts": 4,
            "expert_model_parallel_size": 2,
            "moe_ffn_hidden_size": 16,
            "moe_router_load_balancing_type": "none",
            "add_bias_linear": False,
        }
    return TransformerConfig(
        num_layers=2,
        hidden_size=8,
        num_attention_heads=2,
        use_cpu_initialization=True,
        bf16=case.kind == "bfloat16",
        fp16=case.kind == "float16",
        params_dtype=getattr(torch, case.kind),
        hidden_dropout=0.0,
        attention_dropout=0.0,
        tensor_model_parallel_size=case.tensor_parallel,
        gradient_accumulation_fusion=False,
        **more,
    )


def make_model(case: Case, chunk: int = 0, **of_stage: bool) -> torch.nn.Module:
    torch.manual_seed(7 + chunk)
    experts = {"num_experts": 4, "moe_grouped_gemm": False} if case.mode == "experts" else {}
    return GPTModel(
        make_config(case),
        get_gpt_layer_local_spec(**experts),
        vocab_size=VOCABULARY,
        max_sequence_length=SEQUENCE,
        share_embeddings_and_output_weights=False,
        **of_stage,
    )


def make_plain(case: Case, chunk: int = 0) -> torch.nn.Module:
    """The model, split by tensor parallelism alone, with the same weights."""
    kept = parallel_state._GTP_WEIGHT_REMAT_GROUP
    parallel_state._GTP_WEIGHT_REMAT_GROUP = None
    try:
        return make_model(case if case.mode == "experts" else case._replace(mode=""), chunk)
    finally:
        parallel_state._GTP_WEIGHT_REMAT_GROUP = kept


def wrapped(case: Case, chunk: int) -> DistributedDataParallel:
    config = make_config(case)
    if case.mode == "pipeline":
        first, last = parallel_state.is_pipeline_first_stage(), parallel_state.is_pipeline_last_stage()
        model = make_model(case, chunk, pre_process=first, post_process=last)
        whole = dict(make_plain(case).named_parameters())
        with torch.no_grad():
            for name, one in model.named_parameters():
                one.copy_(whole[name.replace(".layers.0.", ".layers.0." if first else ".layers.1.")])
    else:
        model = make_model(case, chunk)
    if case.mode == "shards":
        gtp_api.classify_gtp_remat_chains(model)
    if case.kind != "float32":
        model = Float16Module(config, model)
    reduced = DistributedDataParallelConfig(
        use_distributed_optimizer=case.distributed,
        overlap_grad_reduce=case.overlap,
        grad_reduce_in_fp32=True,
        bucket_size=400,
    )
    layout = None
    if case.mode == "layers" and case.distributed:
        tag_params_for_buffer_routing([model])
        layout = LayerWiseDistributedOptimizer.compute_full_param_layout(
            list(model.parameters()), 400, dist.get_world_size(), reduced
        )
    return DistributedDataParallel(
        config, reduced, model, **({"full_param_layout": layout} if layout else {})
    )


def make_optimizer(case: Case, chunks: "list[DistributedDataParallel]") -> Any:
    by_layers = case.mode == "layers"
    return get_megatron_optimizer(
        OptimizerConfig(
            optimizer="muon" if by_layers else "adam",
            use_layer_wise_distributed_optimizer=by_layers,
            initial_loss_scale=2.0**10,
            fp16=case.kind == "float16",
            lr=engine_oracle.LR,
            weight_decay=0.0,
            adam_eps=1e-8,
            adam_beta2=0.999,
            bf16=case.kind == "bfloat16",
            params_dtype=getattr(torch, case.kind),
            use_distributed_optimizer=case.distributed and not by_layers,
            clip_grad=loops.CLIP,
        ),
        chunks,
    )


def tokens_of(step: int, micro: int) -> torch.Tensor:
    """Data-parallel ranks have different tokens, tensor-parallel ones the same."""
    place = parallel_state.get_data_parallel_rank()
    generator = torch.Generator().manual_seed(100 * step + 10 * micro + place)
    return torch.randint(0, VOCABULARY, (2, SEQUENCE), generator=generator)


def output_of(model: torch.nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = model(tokens, torch.arange(SEQUENCE).expand(2, SEQUENCE), None, labels=tokens)
    return found


def loss_of(step: int, micro: int) -> "Callable[[torch.nn.Module], torch.Tensor]":
    tokens = tokens_of(step, micro)
    return lambda model: output_of(model, tokens).float().mean()


def run_pipeline(chunks: "list[DistributedDataParallel]", step: int) -> None:
    def forward(batches: "Iterator[torch.Tensor]", model: torch.nn.Module) -> Any:
        return output_of(model, next(batches)), lambda out: (out.float().mean(), {})

    get_forward_backward_func()(
        forward_step_func=forward,
        data_iterator=iter([tokens_of(step, micro) for micro in range(MICRO)]),
        model=chunks,
        num_microbatches=MICRO,
        seq_length=SEQUENCE,
        micro_batch_size=2,
        forward_only=False,
    )


def run_step(chunks: "list[DistributedDataParallel]", optimizer: Any, step: int) -> Any:
    for chunk in chunks:
        chunk.zero_grad_buffer()
    optimizer.zero_grad()
    if parallel_state.get_pipeline_model_parallel_world_size() > 1:
        run_pipeline(chunks, step)
        finalize_model_grads(chunks)
        return optimizer.step()
    for micro in range(MICRO):
        with contextlib.ExitStack() as stack:
            for chunk in chunks:
                if micro + 1 < MICRO:
                    stack.enter_context(chunk.no_sync())
                optimizer.scale_loss(loss_of(step, micro)(chunk) / MICRO).backward()
    finalize_model_grads(chunks)
    return optimizer.step()


def train(case: Case, options: "Optional[dict[str, Any]]") -> "dict[str, Any]":
    chunks = [wrapped(case, chunk) for chunk in range(case.chunks)]
    optimizer = make_optimizer(case, chunks)
    before = traces(chunks, optimizer)
    monitor: Any = twice.NoMonitor()
    if options is not None:
        own = dict(options)
        monitor = gradmon.megatron.watch(chunks, optimizer, own.pop("config"), grad_acc_steps=MICRO, **own)
    labels = gradmon.megatron.scopes(chunks, optimizer)
    own = megatron_own.Own(chunks, optimizer, labels)
    with engine_oracle.CountedCollectives() as counted:
        for own.step in range(STEPS):
            assert run_step(chunks, optimizer, own.step)[0]
    own.remove()
    monitor.stop()
    assert traces(chunks, optimizer) == before
    ends = [one.detach().clone() for chunk in chunks for one in chunk.parameters()]
    for one in megatron_own.inner_optimizers(optimizer):
        ends += [p.detach().clone() for group in one.optimizer.param_groups for p in group["params"]]
        for state in one.optimizer.state.values():
            ends += [value.clone() for value in state.values() if torch.is_tensor(value)]
    return {"collectives": counted.count, "ends": ends, "scopes": labels, "own": own}


def traces(chunks: "list[DistributedDataParallel]", optimizer: Any) -> "list[Any]":
    """The traces that gradmon could leave."""
    left: "list[Any]" = ["step" in vars(optimizer)]
    for one in megatron_own.inner_optimizers(optimizer):
        inner = one.optimizer
        left.append("step" in vars(inner))
        left.append((len(inner._optimizer_step_pre_hooks), len(inner._optimizer_step_post_hooks)))
    for chunk in chunks:
        for group in chunk.bucket_groups + chunk.expert_parallel_bucket_groups:
            left.append("start_grad_sync" in vars(group))
        left += [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in chunk.modules()]
        left += [len(p._post_accumulate_grad_hooks or ()) for p in chunk.parameters()]
    return left


def compare(directory: Path, case: Case) -> None:
    rank = dist.get_rank()
    bare = train(case, None)
    config = jobs.write_config(loops.own_directory(directory), squash_name=False, **twice.EVERYTHING)
    watched = train(case, {"config": config, "output_dir": directory / "out", "dynamic": False})
    engine_oracle.check_same(bare, watched)
    scopes: "dict[str, Any]" = {kind: {} for kind in watched["scopes"][0]}
    for chunk, of_chunk in enumerate(watched["scopes"]):
        for kind, labels in of_chunk.items():
            scopes[kind].update({prefix_of(chunk) + name: label for name, label in labels.items()})
    if case.mode in OWN:
        whole = watched["own"].whole()
        if rank == 0:
            engine_oracle.save(directory, whole)
        return
    noted = plain_of(case, scopes)
    names = {label["global_name"] for label in scopes["grad_unreduced"].values()}
    assert names == {name.partition(":")[2] or name for name, _, _ in noted.tensors["grad_unreduced"]}
    if case.kind != "float32":
        return check_rounded(directory / "out", rank, noted, scopes)
    summands = [name for name, label in scopes["grad_unreduced"].items() if label["scope"] == "partial"]
    assert bool(summands) == (case.mode == "sequence")
    engine_oracle.check_rows(directory / "out", rank, noted, scopes)
    group = None if case.mode == "shards" else parallel_state.get_tensor_model_parallel_group()
    whole = engine_oracle.whole_of(noted, scopes, group)
    if rank == 0:
        engine_oracle.save(directory, whole)


def prefix_of(chunk: int) -> str:
    return f"{chunk}:" if chunk else ""


def plain_of(case: Case, scopes: "dict[str, Any]") -> twice.Noted:
    """The model without Megatron's DistributedDataParallel and optimizer."""
    noted = twice.Noted()
    group = parallel_state.get_data_parallel_group()
    chunks = []
    for chunk in range(case.chunks):
        model = make_plain(case, chunk).to(getattr(torch, case.kind))
        chunks.append(engine_oracle.Plain(model, noted, MICRO, group, decay=0.0, prefix=prefix_of(chunk)))
    for step in range(STEPS):
        for plain in chunks:
            plain.accumulate([loss_of(step, micro) for micro in range(MICRO)])
        ranks = parallel_state.get_tensor_model_parallel_group()
        engine_oracle.clip([plain.masters for plain in chunks], loops.CLIP, is_counted(case), ranks)
        for plain in chunks:
            plain.update()
    if case.mode == "shards":
        for kind, tensors in noted.tensors.items():
            cut_to_shards(kind, tensors)
    return noted


def cut_to_shards(kind: str, tensors: "dict[Any, torch.Tensor]") -> None:
    """Cuts the weights that GTP splits to the rows of this rank. Megatron averages their gradients over the
    ranks of a weight before the others reduce them."""
    group = parallel_state.get_gtp_weight_remat_group()
    for key, tensor in list(tensors.items()):
        if tensor.dim() != 2 or "position_embeddings" in key[0]:
            continue
        if kind == "grad_unreduced":
            dist.all_reduce(tensor, group=group)
            tensor /= group.size()
        rows = -(-tensor.shape[0] // (16 * group.size())) * 16  # of a rank: whole runs of 16
        cut = tensor[rows * group.rank() : rows * (group.rank() + 1)]
        if len(cut):
            tensors[key] = cut
        else:
            del tensors[key]


def is_counted(case: Case) -> "Callable[[torch.Tensor, str], bool]":
    """True if a parameter counts in the norm on this rank: what all tensor-parallel ranks hold, once."""
    parameters = make_plain(case).named_parameters()
    split = {name for name, one in parameters if getattr(one, "tensor_model_parallel", False)}
    first = parallel_state.get_tensor_model_parallel_rank() == 0
    return lambda _tensor, name: first or name in split


def check_rounded(out: Path, rank: int, noted: twice.Noted, scopes: "dict[str, Any]") -> None:
    """Names and steps are plain torch's, values too up to its rounding; weights are the float32 copy."""
    for kind in ("grad_unreduced", *engine_oracle.REDUCED):
        found = twice.read(out, kind, rank)
        expected = {key: tensor for key, tensor in noted.tensors[kind].items() if key[0] in scopes[kind]}
        assert found.keys() == expected.keys(), (kind, sorted(found.keys() ^ expected.keys())[:8])
        for key, tensor in expected.items():
            cut = engine_oracle.cut_by(scopes[kind][key[0]], tensor).double()
            if key[1] == 0 and kind not in (
                "param_updated",
                "exp_avg",
                "exp_avg_sq",
            ):  # later, rounding shows
                bound = 3e-2 * tensor.double().norm().item() + 1e-6
                assert abs(found[key]["norm"] - cut.norm().item()) <= bound, (kind, *key)
            assert found[key]["dtype"] == "torch.float32"


def infinite(directory: Path) -> None:
    """Where Megatron finds an inf, the inner optimizer is not called; the step counts all the same."""
    case = Case(True, True, "bfloat16")
    chunks = [wrapped(case, 0)]
    optimizer = make_optimizer(case, chunks)
    config = jobs.write_config(loops.own_directory(directory), squash_name=False, **twice.EVERYTHING)
    found = []
    with gradmon.megatron.watch(
        chunks, optimizer, config, start_iteration=10, output_dir=directory / "out", dynamic=False
    ):
        for step in range(STEPS):
            if step == 1:
                inner = optimizer.chained_optimizers[0]
                prepare = inner.prepare_grads
                inner.prepare_grads = lambda: bool(prepare()) or True
            found.append(run_step(chunks, optimizer, step)[0])
            if step == 1:
                del inner.prepare_grads
    assert found == [True, False, True]


class Graph:
    """A CUDA graph of Megatron's optimizer step. Its capture computes, on a CPU. A replay calls no hook."""

    optimizer: Any = None

    def replay(self) -> None:
        inner = [one.optimizer for one in megatron_own.inner_optimizers(Graph.optimizer)]
        hooks = [(one._optimizer_step_pre_hooks, one._optimizer_step_post_hooks) for one in inner]
        for one in inner:
            one._optimizer_step_pre_hooks, one._optimizer_step_post_hooks = {}, {}
        type(Graph.optimizer).step(Graph.optimizer)
        for one, (before, after) in zip(inner, hooks):
            one._optimizer_step_pre_hooks, one._optimizer_step_post_hooks = (before, after)


def captured(directory: Path) -> None:
    """As in Megatron's training.py: the wrapper comes after watch(), and `del optimizer.step` at the end."""
    torch.cuda.CUDAGraph = Graph
    torch.cuda.graph = lambda *_, **__: contextlib.nullcontext()
    torch.cuda.graph_pool_handle = lambda: None
    config = jobs.write_config(loops.own_directory(directory), squash_name=False, **twice.EVERYTHING)
    ends = []
    for watched in (False, True):
        case = Case(True, True, "bfloat16")
        chunks = [wrapped(case, 0)]
        optimizer = Graph.optimizer = make_optimizer(case, chunks)
        monitor: Any = twice.NoMonitor()
        if watched:
            monitor = gradmon.megatron.watch(
                chunks, optimizer, config, output_dir=directory / "out", dynamic=False
            )
        optimizer.step = OptimizerCudaGraphWrapper(optimizer.step, cuda_graph_warmup_steps=1)
        for step in range(2 * STEPS):
            run_step(chunks, optimizer, step)
        told = gradmon.megatron.captured_by(optimizer, chunks)
        assert told is not None and "OptimizerCudaGraphWrapper" in told
        del optimizer.step
        assert OptimizerCudaGraphWrapper.cuda_graph is None  # it has gone
        OptimizerCudaGraphWrapper.curr_iteration = 0
        monitor.stop()
        ends.append([one.detach().clone() for chunk in chunks for one in chunk.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*ends))


def switch(directory: Path, times: int) -> None:
    """Trains until the edits of the config have been collected, `times` times over."""
    case = Case(True, True, "float32")
    chunks = [wrapped(case, 0)]
    optimizer = make_optimizer(case, chunks)
    before = traces(chunks, optimizer)
    edits = loops.Edits(directory)
    edits.repeat(times)
    config = directory / "config.json"
    monitor = gradmon.megatron.watch(chunks, optimizer, config, output_dir=directory / "out", dynamic=True)
    number = 0
    while not edits():
        run_step(chunks, optimizer, number % 5)
        number += 1
    assert traces(chunks, optimizer)[1:] == before[1:]  # off: only the outer step is ours
    monitor.stop()
    assert traces(chunks, optimizer) == before


def main() -> None:
    given = json.loads(sys.argv[1])
    os.environ["LOCAL_RANK"] = os.environ["RANK"]
    directory = Path(given["directory"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    with megatron_cpu.on_cpu():
        cases = [case for case in CASES if case.name == given.get("case")]
        megatron_cpu.with_weight_shards()
        megatron_cpu.with_muon(engine_oracle.LR)
        megatron_cpu.with_norms_of_sequences()
        parallel_state.initialize_model_parallel(**(cases[0] if cases else CASES[0]).groups())
        for case in cases:
            compare(directory / case.name, case)
        if given["what"] == "switch":
            switch(directory, given["times"])
        elif given["what"] == "captured":
            captured(directory / "captured")
        elif given["what"] == "infinite":
            infinite(directory / "infinite")
        parallel_state.destroy_model_parallel()
    dist.destroy_process_group()
