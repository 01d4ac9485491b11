# SPDX-License-Identifier: Apache-2.0
"""Trainings by Megatron core's own classes on a CPU, in one of two ranks. Run by test_megatron.py."""
import contextlib
import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional

warnings.simplefilter("ignore")  # Megatron's: no Apex, no Transformer Engine

import engine_oracle  # noqa: E402
import jobs  # noqa: E402
import loops  # noqa: E402
import megatron_cpu  # noqa: E402
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

    @property
    def name(self) -> str:
        return "-".join(str(int(x) if isinstance(x, bool) else x) for x in self)


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
]


def make_config(case: Case) -> TransformerConfig:
    return TransformerConfig(
        num_layers=2,
        hidden_size=8,
        num_attention_heads=2,
        use_cpu_initialization=True,
        bf16=case.kind == "bfloat16",
        params_dtype=getattr(torch, case.kind),
        hidden_dropout=0.0,
        attention_dropout=0.0,
        tensor_model_parallel_size=case.tensor_parallel,
        gradient_accumulation_fusion=False,
    )


def make_model(case: Case, chunk: int = 0) -> torch.nn.Module:
    torch.manual_seed(7 + chunk)
    return GPTModel(
        make_config(case),
        get_gpt_layer_local_spec(),
        vocab_size=VOCABULARY,
        max_sequence_length=SEQUENCE,
        share_embeddings_and_output_weights=False,
    )


def wrapped(case: Case, chunk: int) -> DistributedDataParallel:
    model, config = make_model(case, chunk), make_config(case)
    if case.kind == "bfloat16":
        model = Float16Module(config, model)
    return DistributedDataParallel(
        config,
        DistributedDataParallelConfig(
            use_distributed_optimizer=case.distributed,
            overlap_grad_reduce=case.overlap,
            grad_reduce_in_fp32=True,
            bucket_size=400,
        ),
        model,
    )


def make_optimizer(case: Case, chunks: "list[DistributedDataParallel]") -> Any:
    return get_megatron_optimizer(
        OptimizerConfig(
            optimizer="adam",
            lr=engine_oracle.LR,
            weight_decay=0.0,
            adam_eps=1e-8,
            adam_beta2=0.999,
            bf16=case.kind == "bfloat16",
            params_dtype=getattr(torch, case.kind),
            use_distributed_optimizer=case.distributed,
            clip_grad=loops.CLIP,
        ),
        chunks,
    )


def loss_of(step: int, micro: int) -> "Callable[[torch.nn.Module], torch.Tensor]":
    """Data-parallel ranks have different tokens, tensor-parallel ones the same."""
    place = parallel_state.get_data_parallel_rank()
    generator = torch.Generator().manual_seed(100 * step + 10 * micro + place)
    tokens = torch.randint(0, VOCABULARY, (2, SEQUENCE), generator=generator)
    places = torch.arange(SEQUENCE).expand(2, SEQUENCE)

    def loss(model: torch.nn.Module) -> torch.Tensor:
        found: torch.Tensor = model(tokens, places, None, labels=tokens)
        return found.float().mean()

    return loss


def run_step(chunks: "list[DistributedDataParallel]", optimizer: Any, step: int) -> Any:
    for chunk in chunks:
        chunk.zero_grad_buffer()
    optimizer.zero_grad()
    for micro in range(MICRO):
        with contextlib.ExitStack() as stack:
            for chunk in chunks:
                if micro + 1 < MICRO:
                    stack.enter_context(chunk.no_sync())
                (loss_of(step, micro)(chunk) / MICRO).backward()
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
    with engine_oracle.CountedCollectives() as counted:
        for step in range(STEPS):
            assert run_step(chunks, optimizer, step)[0]
    labels = gradmon.megatron.scopes(chunks, optimizer)
    monitor.stop()
    assert traces(chunks, optimizer) == before
    ends = [one.detach().clone() for chunk in chunks for one in chunk.parameters()]
    for one in optimizer.chained_optimizers:
        ends += [p.detach().clone() for group in one.optimizer.param_groups for p in group["params"]]
        for state in one.optimizer.state.values():
            ends += [value.clone() for value in state.values() if torch.is_tensor(value)]
    return {"collectives": counted.count, "ends": ends, "scopes": labels}


def traces(chunks: "list[DistributedDataParallel]", optimizer: Any) -> "list[Any]":
    """What gradmon could leave."""
    left: "list[Any]" = ["step" in vars(optimizer)]
    for one in optimizer.chained_optimizers:
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
    noted = plain_of(case)
    scopes: "dict[str, Any]" = {kind: {} for kind in watched["scopes"][0]}
    for chunk, of_chunk in enumerate(watched["scopes"]):
        for kind, labels in of_chunk.items():
            scopes[kind].update({prefix_of(chunk) + name: label for name, label in labels.items()})
    assert {label["global_name"] for label in scopes["grad_unreduced"].values()} == set(
        dict(make_model(case).named_parameters())
    )
    if case.kind == "float32":
        engine_oracle.check_rows(directory / "out", rank, noted, scopes)
        whole = engine_oracle.whole_of(noted, scopes, parallel_state.get_tensor_model_parallel_group())
        if rank == 0:
            engine_oracle.save(directory, whole)
    else:
        check_bfloat16(directory / "out", rank, noted, scopes)


def prefix_of(chunk: int) -> str:
    return f"{chunk}:" if chunk else ""


def plain_of(case: Case) -> twice.Noted:
    """The model without Megatron's DistributedDataParallel and optimizer."""
    noted = twice.Noted()
    group = parallel_state.get_data_parallel_group()
    chunks = []
    for chunk in range(case.chunks):
        model = make_model(case, chunk).to(getattr(torch, case.kind))
        chunks.append(engine_oracle.Plain(model, noted, MICRO, group, decay=0.0, prefix=prefix_of(chunk)))
    for step in range(STEPS):
        for plain in chunks:
            plain.accumulate([loss_of(step, micro) for micro in range(MICRO)])
        ranks = parallel_state.get_tensor_model_parallel_group()
        engine_oracle.clip([plain.masters for plain in chunks], loops.CLIP, is_counted(case), ranks)
        for plain in chunks:
            plain.update()
    return noted


def is_counted(case: Case) -> "Callable[[torch.Tensor, str], bool]":
    """Whether a parameter counts in the norm on this rank: what all tensor-parallel ranks hold, once."""
    parameters = make_model(case).named_parameters()
    split = {name for name, one in parameters if getattr(one, "tensor_model_parallel", False)}
    first = parallel_state.get_tensor_model_parallel_rank() == 0
    return lambda _tensor, name: first or name in split


def check_bfloat16(out: Path, rank: int, noted: twice.Noted, scopes: "dict[str, Any]") -> None:
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
        parallel = cases[0].tensor_parallel if cases else 1
        parallel_state.initialize_model_parallel(tensor_model_parallel_size=parallel)
        for case in cases:
            compare(directory / case.name, case)
        if given["what"] == "switch":
            switch(directory, given["times"])
        elif given["what"] == "infinite":
            infinite(directory / "infinite")
        parallel_state.destroy_model_parallel()
    dist.destroy_process_group()
