# SPDX-License-Identifier: Apache-2.0
"""Trainings by torchtitan's Trainer in one of two ranks. Run by test_torchtitan.py."""
import functools
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator, Optional

import jobs
import loops
import sharded_loops
import titan_cpu  # before torchtitan
import torch
import torch.distributed as dist
import twice
from torchtitan.components.checkpoint import CheckpointManager
from torchtitan.components.dataloader import BaseDataLoader
from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss
from torchtitan.components.metrics import MetricsProcessor
from torchtitan.components.optimizer import OptimizersContainer, ParamGroupConfig
from torchtitan.components.tokenizer import BaseTokenizer
from torchtitan.config import ParallelismConfig, TrainingConfig
from torchtitan.distributed.activation_checkpoint import FullAC
from torchtitan.models import llama3
from torchtitan.models.common import ComplexRoPE, Embedding, Linear, RMSNorm
from torchtitan.models.common.attention import ScaledDotProductAttention
from torchtitan.trainer import Trainer

import gradmon

STEPS = 3
TOKENS, WIDTH, LENGTH, BATCH = 16, 16, 8, 2
CLIP = 0.5  # norm of all gradients, below what they have
KINDS = ("grad_unreduced", "grad_reduced", "param_origin", "param_updated", "exp_avg", "exp_avg_sq")
# What a case adds to the trainer's config; "micro": micro batches of a step.
CASES: "dict[str, dict[str, Any]]" = {
    "plain": {"micro": 1},
    "accumulated": {"micro": 2},
    "chunked": {"micro": 2},  # the loss calls the last layer, and its backward, once for each part
    "checkpointed": {"micro": 1},
}


def batches(rank: int, count: int, length: int) -> "Iterator[tuple[dict[str, torch.Tensor], torch.Tensor]]":
    numbers = torch.arange(count * (length + 1))
    step = 0
    while True:
        tokens = (numbers * (3 + rank) + numbers**2 % 7 + 5 * step).reshape(count, -1) % TOKENS
        yield {"input": tokens[:, :-1].contiguous()}, tokens[:, 1:].contiguous()
        step += 1


class Data(BaseDataLoader):
    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        pass

    def __init__(self, config: Any, *, dp_rank: int, seq_len: int, local_batch_size: int, **_: Any) -> None:
        self._made = (dp_rank, local_batch_size, seq_len)

    def __iter__(self) -> Any:
        return batches(*self._made)

    def state_dict(self) -> "dict[str, Any]":
        return {}

    def load_state_dict(self, state_dict: "dict[str, Any]") -> None:
        pass


class NoTokenizer(BaseTokenizer):
    @dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):
        pass

    def __init__(self, config: Any, **_: Any) -> None:
        super().__init__()

    def encode(self, *_: Any, **__: Any) -> "list[int]":
        return []

    def decode(self, *_: Any, **__: Any) -> str:
        return ""

    def get_vocab_size(self) -> int:
        return TOKENS


def make_spec() -> Any:
    """Llama 3 with two small layers; its attention is torch's, since torchtitan's compiles a kernel."""
    spec = llama3.model_registry("debugmodel")
    layers = llama3._build_llama3_layers(
        n_layers=2,
        dim=WIDTH,
        n_heads=2,
        hidden_dim=24,
        rope=ComplexRoPE.Config(dim=WIDTH // 2, max_seq_len=64, theta=10000),
        attn_backend="flex",
    )
    for layer in layers:
        layer.attention.inner_attention = ScaledDotProductAttention.Config()
    spec.model = llama3.Llama3Model.Config(
        dim=WIDTH,
        vocab_size=TOKENS,
        tok_embeddings=Embedding.Config(
            num_embeddings=TOKENS, embedding_dim=WIDTH, param_init=llama3._EMBEDDING_INIT
        ),
        norm=RMSNorm.Config(normalized_shape=WIDTH, param_init=llama3._NORM_INIT),
        lm_head=Linear.Config(
            in_features=WIDTH, out_features=TOKENS, param_init=llama3._output_linear_init(WIDTH)
        ),
        layers=layers,
    )
    spec.parallelize_fn = titan_cpu.summing(spec.parallelize_fn)
    return spec


def training(batches: int, steps: int) -> TrainingConfig:
    """batches: of all ranks in a step."""
    return TrainingConfig(
        local_batch_size=BATCH,
        global_batch_size=BATCH * batches,
        seq_len=LENGTH,
        steps=steps,
        max_norm=CLIP,
        disable_cuda_graphs=True,
        mixed_precision_param="float32",
    )


def make_trainer(directory: Path, case: str = "plain", steps: int = STEPS, **keys: Any) -> Any:
    loss: Any = CrossEntropyLoss.Config(global_vocab_size=TOKENS)
    if case == "chunked":
        loss = ChunkedLossWrapper.Config(loss_fn=loss, num_chunks=4)
    config = {
        "model_spec": make_spec(),
        "dump_folder": str(directory),
        "tokenizer": NoTokenizer.Config(),
        "dataloader": Data.Config(),
        "optimizer": OptimizersContainer.Config(
            implementation="for-loop",
            param_groups=[
                ParamGroupConfig(pattern="norm", optimizer_name="Adam", optimizer_kwargs={"lr": 0.01}),
                ParamGroupConfig(pattern=".*", optimizer_name="AdamW", optimizer_kwargs={"lr": 0.02}),
            ],
        ),
        "loss": loss,
        "training": training(CASES[case]["micro"] * dist.get_world_size(), steps),
        "activation_checkpoint": FullAC.Config() if case == "checkpointed" else None,
        "parallelism": ParallelismConfig(spmd_backend="partial_dtensor"),
        **keys,
    }
    torch.manual_seed(7)
    return Trainer(Trainer.Config(**config))


def parallel(**degrees: Any) -> "dict[str, Any]":
    """What two ranks that are not data parallel add to the trainer's config."""
    return {
        "parallelism": ParallelismConfig(spmd_backend="partial_dtensor", **degrees),
        "training": training(1, STEPS),
    }


# Modes whose rows are compared with what the optimizers hold.
MODES: "dict[str, dict[str, Any]]" = {
    "tensor_parallel": parallel(tensor_parallel_degree=2),
    "pipelined": {
        **parallel(
            pipeline_parallel_degree=2,
            pipeline_parallel_first_stage_less_layers=0,
            pipeline_parallel_last_stage_less_layers=0,
        ),
        "optimizer": OptimizersContainer.Config(
            implementation="for-loop",
            param_groups=[
                ParamGroupConfig(pattern=".*", optimizer_name="AdamW", optimizer_kwargs={"lr": 0.02})
            ],
        ),
    },
}


def canonical(name: str) -> str:
    return name.replace("_checkpoint_wrapped_module.", "").replace("_orig_mod.", "")


class Noting:
    """Notes what the trainer's optimizers use and make, by name and step, as this rank holds it."""

    def __init__(self, trainer: Any) -> None:
        self.found: "dict[str, dict[twice.Key, dict[str, float]]]" = {kind: {} for kind in KINDS}
        self.rates: "list[list[float]]" = []  # of each step's groups
        self._trainer = trainer
        self._step = trainer.optimizers.step
        trainer.optimizers.step = self.step

    def step(self) -> None:
        optimizers = self._trainer.optimizers.optimizers
        self.rates.append([group["lr"] for one in optimizers for group in one.param_groups])
        states = {parameter: state for one in optimizers for parameter, state in one.state.items()}
        for name, parameter in self._trainer.model_parts[0].named_parameters():
            self._note("grad_reduced", name, parameter.grad)
            self._note("param_origin", name, parameter)
            for key in ("exp_avg", "exp_avg_sq"):
                self._note(key, name, states.get(parameter, {}).get(key))
        self._step()
        for name, parameter in self._trainer.model_parts[0].named_parameters():
            self._note("param_updated", name, parameter)

    def _note(self, kind: str, name: str, tensor: Any) -> None:
        if tensor is not None:
            key = (canonical(name), self._trainer.step, 0)
            self.found[kind][key] = sharded_loops.statistics(tensor)


def train(trainer: Any, options: "Optional[dict[str, Any]]") -> "dict[str, Any]":
    before = traces(trainer)
    monitor: Any = twice.NoMonitor()
    if options is not None:
        own = dict(options)
        monitor = gradmon.torchtitan.watch(trainer, own.pop("config"), **own)
    noting = Noting(trainer)
    collectives = sharded_loops.counted(trainer.train)
    monitor.stop()
    trainer.optimizers.__dict__.pop("step")
    assert traces(trainer) == before
    ends = [sharded_loops.local(one).clone() for one in trainer.model_parts[0].parameters()]
    for optimizer in trainer.optimizers.optimizers:
        for state in optimizer.state.values():
            ends += [sharded_loops.local(one).clone() for one in state.values() if torch.is_tensor(one)]
    trainer.close()
    return {"collectives": collectives, "ends": ends, "noting": noting}


def traces(trainer: Any) -> "list[Any]":
    """The traces that gradmon could leave."""
    left: "list[Any]" = [sorted(vars(trainer)), sorted(vars(trainer.optimizers))]
    for optimizer in trainer.optimizers.optimizers:
        left.append(sorted(set(vars(optimizer)) - {"_opt_called"}))  # of the scheduler
        left += [len(optimizer._optimizer_step_pre_hooks), len(optimizer._optimizer_step_post_hooks)]
    for module in trainer.model_parts[0].modules():
        left.append((len(module._forward_hooks), len(module._forward_pre_hooks)))
    for parameter in trainer.model_parts[0].parameters():
        left.append(len(parameter._post_accumulate_grad_hooks or ()))
    return left


def plain(model: torch.nn.Module, micro: int, rates: "list[list[float]]") -> "dict[str, Any]":
    """The same training in plain torch, in one process that computes the gradients of all ranks: by kind,
    name and step, the tensor; of unreduced gradients those of this rank's last micro batch, as each is
    reduced by itself."""
    world = dist.get_world_size()
    named = dict(model.named_parameters())
    norms = [one for name, one in named.items() if "norm" in name]
    others = [one for name, one in named.items() if "norm" not in name]
    optimizers = [torch.optim.Adam(norms), torch.optim.AdamW(others)]
    data = [batches(rank, BATCH, LENGTH) for rank in range(world)]
    found: "dict[str, dict[twice.Key, torch.Tensor]]" = {kind: {} for kind in KINDS}
    for step in range(1, STEPS + 1):
        total = {name: torch.zeros_like(one) for name, one in named.items()}
        for rank in range(world):
            for _ in range(micro):
                model.zero_grad()
                inputs, labels = next(data[rank])
                output = model(inputs["input"]).flatten(0, 1).float()
                loss = torch.nn.functional.cross_entropy(output, labels.flatten(), reduction="sum")
                (loss / (world * micro * BATCH * LENGTH)).backward()
                for name, one in named.items():
                    total[name] += one.grad
                    if rank == dist.get_rank():
                        found["grad_unreduced"][name, step, 0] = one.grad.clone()
        for name, one in named.items():
            one.grad = total[name]
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        for optimizer, rate in zip(optimizers, rates[step - 1]):
            optimizer.param_groups[0]["lr"] = rate
        states = {parameter: state for one in optimizers for parameter, state in one.state.items()}
        for name, one in named.items():
            found["grad_reduced"][name, step, 0] = one.grad.clone()
            found["param_origin"][name, step, 0] = one.detach().clone()
            for key in ("exp_avg", "exp_avg_sq"):
                if one in states:
                    found[key][name, step, 0] = states[one][key].clone()
        for optimizer in optimizers:
            optimizer.step()
        for name, one in named.items():
            found["param_updated"][name, step, 0] = one.detach().clone()
    return found


def compare(directory: Path, case: str) -> None:
    """Trains without gradmon and with it: equal bit for bit, as many collectives, rows of what the optimizers
    hold, and of plain torch's gradients."""
    bare = train(make_trainer(directory, case), None)
    config = jobs.write_config(loops.own_directory(directory), **twice.EVERYTHING)
    trainer = make_trainer(directory, case)
    weights = {
        canonical(name): one.full_tensor().detach().clone()
        for name, one in trainer.model_parts[0].named_parameters()
    }
    out = directory / "out"
    watched = train(trainer, {"config": config, "output_dir": out, "dynamic": False})
    assert bare["collectives"] == watched["collectives"] > 0
    assert all(torch.equal(one, other) for one, other in zip(bare["ends"], watched["ends"], strict=True))
    model = trainer.model_config.build()
    with torch.no_grad():
        model.init_weights(buffer_device=None)
    assert dict(model.named_parameters()).keys() == weights.keys()
    model.load_state_dict(weights, strict=False)
    truth = plain(model, CASES[case]["micro"], bare["noting"].rates)
    rank, world = dist.get_rank(), dist.get_world_size()
    for kind in KINDS:
        found = twice.read(out, kind, rank)
        assert found.keys() == truth[kind].keys(), (kind, sorted(found.keys() ^ truth[kind].keys())[:6])
        if kind != "grad_unreduced":
            check_close(found, watched["noting"].found[kind], kind, 1e-13)
            truth[kind] = {key: one.chunk(world)[rank] for key, one in truth[kind].items()}
        expected = {key: sharded_loops.statistics(one) for key, one in truth[kind].items()}
        check_close(found, expected, kind, 2e-6)
    torch.save(truth, directory / f"truth.{rank}")


def mode(directory: Path, name: str) -> None:
    """As compare(), without plain torch: of this rank's own parts."""
    bare = train(make_trainer(directory, **MODES[name]), None)
    config = jobs.write_config(loops.own_directory(directory), **twice.EVERYTHING)
    out = directory / "out"
    options = {"config": config, "output_dir": out, "dynamic": False}
    watched = train(make_trainer(directory, **MODES[name]), options)
    assert bare["collectives"] == watched["collectives"] > 0
    assert all(torch.equal(one, other) for one, other in zip(bare["ends"], watched["ends"], strict=True))
    rank = dist.get_rank()
    for kind in KINDS:
        rows = twice.read(out, kind, rank)
        if kind == "grad_unreduced":
            assert rows.keys() == twice.read(out, "grad_reduced", rank).keys()
        else:
            check_close(rows, watched["noting"].found[kind], kind, 1e-13)
    assert {step for _, step, _ in twice.read(out, "actv", rank)} == set(range(1, STEPS + 1))


def raises(directory: Path, after_update: bool) -> None:
    """A training in which the second step raises: because its loss is not finite, after the update; or after
    the backward."""
    trainer = make_trainer(directory, metrics=MetricsProcessor.Config(log_freq=1))
    original = trainer.forward_backward_step

    def forward_backward_step(**given: Any) -> Any:
        if trainer.step == 2 and after_update:
            with torch.no_grad():
                sharded_loops.local(trainer.model_parts[0].norm.weight).fill_(float("nan"))
        loss = original(**given)
        if trainer.step == 2 and not after_update:
            raise RuntimeError("planned")
        return loss

    trainer.forward_backward_step = forward_backward_step
    out = directory / "out"
    config = jobs.write_config(
        loops.own_directory(directory), wg_distribution=True, param_distribution=True, xy_distribution=True
    )
    try:
        with gradmon.torchtitan.watch(trainer, config, output_dir=out, dynamic=False):
            trainer.train()
    except RuntimeError as error:
        assert ("Loss is not finite" if after_update else "planned") in str(error), error
    else:
        raise AssertionError("it trained on")
    trainer.close()
    rank = dist.get_rank()
    for kind in ("grad_unreduced", "grad_reduced", "param_origin"):
        rows = jobs.rows(out, kind, rank)
        assert {step for _, step, _ in rows} == {1, 2}, kind
        assert (rows["lm_head.weight", 2, 0]["nans"] > 0) == (after_update and kind != "param_origin"), kind
    steps = {step for _, step, _ in jobs.rows(out, "param_updated", rank)}
    assert steps == ({1, 2} if after_update else {1})


def simple_fsdp(directory: Path) -> None:
    """SimpleFSDP of torchtitan's graph_trainer, not compiled."""
    from torch.distributed.device_mesh import init_device_mesh
    from torchtitan.experiments.graph_trainer.simple_fsdp import data_parallel

    model, optimizer = jobs.with_sgd(
        data_parallel(jobs.make_net(), init_device_mesh("cpu", (2,)), mode="fully_shard"), foreach=False
    )
    out = directory / "out"
    config = jobs.write_config(loops.own_directory(directory), wg_distribution=True, param_distribution=True)
    truth: "dict[twice.Key, float]" = {}
    with gradmon.Monitor(config, output_dir=out, dynamic=False).watch(model, optimizer) as monitor:
        for step in range(2):
            optimizer.zero_grad()
            model(jobs.batch(step) + dist.get_rank()).pow(2).mean().backward()
            for name, one in model.named_parameters():
                if one.grad is not None:
                    truth[name, step, 0] = one.grad._local_tensor.norm().item()
            optimizer.step()
        said = "autograd reduces the gradient on the way to it"
        assert dist.get_rank() != 0 or jobs.eventually(
            lambda: any(said in one for one in getattr(monitor.status(), "warnings", []))
        )
    assert jobs.rows(out, "grad_unreduced", dist.get_rank()) == {}
    rows = jobs.rows(out, "grad_reduced", dist.get_rank())
    found = {key: row["norm"] for key, row in rows.items()}
    assert found.keys() == {key for key, norm in truth.items() if key in rows or norm}
    assert all(abs(found[key] - truth[key]) <= 2e-6 * truth[key] for key in found)


def check_close(found: Any, expected: Any, kind: str, tolerance: float) -> None:
    assert found.keys() == expected.keys()
    for key, values in expected.items():
        for op in ("norm", "min", "max", "mean"):
            scale = values["norm"] if op == "norm" else max(abs(values["min"]), abs(values["max"]))
            row = found[key][op]
            assert abs(row - values[op]) <= tolerance * scale, (kind, key, op, row, values[op])


def resume(directory: Path) -> None:
    """A training that goes on from its checkpoint, which the trainer loads within train()."""
    keeps = {"checkpoint": CheckpointManager.Config(enable=True, interval=2, last_save_model_only=False)}
    first = make_trainer(directory, steps=2, **keeps)
    first.train()
    first.close()
    config = jobs.write_config(loops.own_directory(directory), wg_distribution=True)
    second = make_trainer(directory, steps=4, **keeps)
    with gradmon.torchtitan.watch(second, config, output_dir=directory / "out", dynamic=False):
        second.train()
    second.close()


def switch(directory: Path) -> None:
    """Trains until both edits of the config have been collected."""
    edits = loops.Edits(directory)
    trainer = make_trainer(directory, steps=1_000_000)
    trainer.should_continue_training = lambda: not edits()
    before = traces(trainer)
    config = directory / "config.json"
    with gradmon.torchtitan.watch(trainer, config, output_dir=directory / "out", dynamic=True):
        trainer.train()
    assert traces(trainer) == before
    trainer.close()


def others(directory: Path) -> None:
    """A monitor that is stopped before the first step; a config that is wrong; CUDA graphs."""
    trainer = make_trainer(directory, steps=1)
    before = traces(trainer)
    config = jobs.write_config(loops.own_directory(directory), wg_distribution=True)
    options = {"output_dir": directory / "out", "dynamic": False}
    gradmon.torchtitan.watch(trainer, config, **options).stop()
    assert traces(trainer) == before
    wrong = loops.own_directory(directory / "wrong") / "config.json"
    wrong.write_text('{"collect_times": "many"}')
    gradmon.torchtitan.watch(trainer, wrong, **options)
    try:
        trainer.train()
    except ValueError as error:
        assert "collect_times" in str(error)
    else:
        raise AssertionError("the wrong config was taken")
    assert traces(trainer) == before
    trainer.config.training.disable_cuda_graphs = False
    gradmon.torchtitan.watch(trainer, config, **options)
    assert traces(trainer) == before
    trainer.config.training.disable_cuda_graphs = True
    trainer.close()


def main() -> None:
    given = json.loads(sys.argv[1])
    directory = Path(given["directory"])
    os.environ["LOCAL_RANK"] = "0"
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    parts: "dict[str, Any]" = {"others": others, "switch": switch, "resume": resume}
    if given["what"] == "modes":
        parts = {name: functools.partial(mode, name=name) for name in MODES}
        parts["simple_fsdp"] = simple_fsdp
        for name, after_update in (("not_finite", True), ("raises", False)):
            parts[name] = functools.partial(raises, after_update=after_update)
    for name in CASES if given["what"] == "train" else parts:
        place = directory / name
        place.mkdir(exist_ok=True)
        dist.barrier()
        if name in CASES:
            compare(place, name)
        else:
            parts[name](place)
        (place / f"done.{dist.get_rank()}").touch()
    dist.destroy_process_group()
