# SPDX-License-Identifier: Apache-2.0
"""Trainings by DeepSpeed's engine in one of two ranks. Run by test_deepspeed.py."""
import contextlib
import copy
import json
import os
import sys
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional

import deepspeed
import engine_oracle
import jobs
import loops
import torch
import torch.distributed as dist
import twice
from deepspeed.moe.layer import MoE
from deepspeed.moe.utils import split_params_into_different_moe_groups_for_optimizer

import gradmon

STEPS = 4


class Case(NamedTuple):
    stage: str
    kind: str = "float32"
    micro: int = 1  # micro batches of a step
    how: str = "stepped"  # see accumulate()
    config: "dict[str, Any]" = {}  # over that of make_engine()
    scale: float = 1  # of the loss

    @property
    def divisor(self) -> int:
        """What DeepSpeed divides each loss by."""
        return (
            1 if self.how == "unscaled" else int(self.config.get("gradient_accumulation_steps", self.micro))
        )


CASES = [
    Case("0"),
    Case("1"),
    Case("1", micro=2),
    Case("2"),
    Case("2", micro=2),
    Case("3"),
    Case("3", micro=2),
    Case("0", "bfloat16"),
    Case("1", "bfloat16", 2),
    Case("2", "bfloat16"),
    Case("3", "bfloat16"),
]
UNMANAGED = {"managed_gradient_accumulation": False, "gradient_accumulation_steps": 1}
# Three micro batches of a step, whose number DeepSpeed does not know, or another reduction or clipping.
MODES = {
    **{f"unmanaged{one}": Case(one, micro=3, how="at once", config=UNMANAGED) for one in "0123"},
    **{
        f"coalesced{one}": Case(one, micro=3, how="coalesced", config={"gradient_accumulation_steps": 1})
        for one in "123"
    },
    **{
        f"no_sync{one}": Case(one, micro=3, how="no_sync", config={"gradient_accumulation_steps": 1})
        for one in "01"
    },
    **{
        f"sum{one}": Case(one, micro=2, config={"gradient_allreduce_op": "sum", "gradient_clipping": 0.0})
        for one in "012"
    },
    **{f"clip{one}": Case(one, config={"gradient_clipping": None}, scale=50) for one in "0123"},
    **{f"unscaled{one}": Case(one, micro=2, how="unscaled") for one in "0123"},
    **{
        f"offload{one}": Case(
            one,
            micro=2,
            config={
                "zero_optimization": {"offload_optimizer": {"device": "cpu"}},
                "zero_force_ds_cpu_optimizer": False,
            },
        )
        for one in "123"
    },
}
MUON = {
    "optimizer": {
        "type": "Muon",
        "params": {"lr": 0.01, "momentum": 0.95, "betas": [0.9, 0.999], "eps": 1e-8, "torch_adam": True},
    },
    "gradient_clipping": 0.0,
    "zero_optimization": {"reduce_scatter": False},
}
MUON_CASES = {
    **{f"muon{one}": Case(one, micro=2, config=MUON) for one in "0123"},
    "muon_bfloat16": Case("1", "bfloat16", 2, config=MUON),
    **{
        f"muon_unmanaged{one}": Case(one, micro=2, how="at once", config={**MUON, **UNMANAGED})
        for one in "0123"
    },
    **{
        f"muon_offload{one}": Case(
            one,
            micro=2,
            config={
                **MUON,
                "zero_optimization": {"reduce_scatter": False, "offload_optimizer": {"device": "cpu"}},
                "zero_force_ds_cpu_optimizer": False,
            },
        )
        for one in "123"
    },
}
OVERFLOWS = 1  # the step whose gradient is infinite, in overflow()


def begin() -> None:
    torch.set_num_threads(1)
    os.environ["LOCAL_RANK"] = os.environ["RANK"]
    # DeepSpeed's own all-reduce in shared memory would be compiled first; without it, gloo does everything.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed("gloo", auto_mpi_discovery=False)


def make_model() -> torch.nn.Module:
    torch.manual_seed(7)
    return loops.Net()


def make_engine(
    model: torch.nn.Module,
    stage: str,
    kind: str,
    micro: int,
    over: "Optional[dict[str, Any]]" = None,
    model_parameters: Any = None,
) -> Any:
    """over: keys of the config; None leaves a key out."""
    config: "dict[str, Any]" = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": micro,
        "gradient_clipping": loops.CLIP,
        "zero_optimization": {"stage": int(stage), "stage3_param_persistence_threshold": 0},
        "optimizer": {"type": "AdamW", "params": {"lr": engine_oracle.LR, "torch_adam": True}},
        "steps_per_print": 1000,
    }
    if kind == "bfloat16":
        config["bf16"] = {"enabled": True}
        if stage == "1":
            config["data_types"] = {"grad_accum_dtype": "fp32"}
    for key, value in (over or {}).items():
        config[key] = {**config[key], **value} if key == "zero_optimization" else value
    config = {key: value for key, value in config.items() if value is not None}
    parameters = model_parameters or model.parameters()
    return deepspeed.initialize(model=model, config=config, model_parameters=parameters)[0]


def batch(step: int, micro: int, rank: int) -> torch.Tensor:
    return jobs.batch(step, 5 * micro + 11 * rank)


def loss_of(x: torch.Tensor, scale: float = 1) -> "Callable[[torch.nn.Module], torch.Tensor]":
    def loss(model: torch.nn.Module) -> torch.Tensor:
        return scale * model(x.to(next(model.parameters()).dtype)).float()

    return loss


def accumulate(engine: Any, case: Case, step: int) -> None:
    """All micro batches of a step, and its end."""
    dtype = getattr(torch, case.kind)

    def backward(number: int) -> None:
        loss = case.scale * engine(batch(step, number, dist.get_rank()).to(dtype)).float()
        engine.backward(loss, scale_wrt_gas=case.how != "unscaled")

    if case.how in ("stepped", "unscaled"):
        for number in range(case.micro):
            backward(number)
            engine.step()
        return
    last_outside = case.how == "no_sync"
    within = {"coalesced": engine.coalesce_grad_reduction, "no_sync": engine.no_sync}
    with within.get(case.how, contextlib.nullcontext)():
        for number in range(case.micro - last_outside):
            backward(number)
    if last_outside:
        backward(case.micro - 1)
    engine.step()


def train(case: Case, options: "Optional[dict[str, Any]]") -> "dict[str, Any]":
    engine = make_engine(make_model(), case.stage, case.kind, case.micro, case.config)
    before = traces(engine)
    weights = []
    monitor: Any = twice.NoMonitor()
    if options is not None:
        own = dict(options)
        monitor = gradmon.deepspeed.watch(engine, own.pop("config"), **own)
    with engine_oracle.CountedCollectives() as counted:
        for step in range(STEPS):
            weights.append(whole_weights(engine))
            accumulate(engine, case, step)
    weights.append(whole_weights(engine))
    labels = gradmon.deepspeed.scopes(engine)
    monitor.stop()
    assert traces(engine) == before
    ends = [one.detach().clone() for one in engine.module.state_dict().values()]
    inner = getattr(engine.optimizer, "optimizer", engine.optimizer)
    for group in inner.param_groups:
        ends += [one.detach().clone() for one in group["params"]]
    for state in inner.state.values():
        ends += [one.clone() for one in state.values() if torch.is_tensor(one)]
    return {"collectives": counted.count, "ends": ends, "scopes": labels, "weights": weights}


def whole_weights(engine: Any) -> "dict[str, torch.Tensor]":
    with deepspeed.zero.GatheredParameters(list(engine.module.parameters())):
        return {name: one.detach().clone() for name, one in engine.module.named_parameters()}


def traces(engine: Any) -> "list[Any]":
    """The traces that gradmon could leave."""
    inner = getattr(engine.optimizer, "optimizer", engine.optimizer)
    left: "list[Any]" = ["step" in vars(engine), sorted(vars(inner))]
    left += [len(inner._optimizer_step_pre_hooks), len(inner._optimizer_step_post_hooks)]
    for module in engine.module.modules():
        left.append((len(module._forward_hooks), len(module._forward_pre_hooks)))
    for parameter in engine.module.parameters():
        left.append(list((parameter._post_accumulate_grad_hooks or {}).values()))
        left.append(sorted(name for name in vars(parameter) if "gradmon" in name))
    return left


def compare(directory: Path, case: Case) -> None:
    stage, kind, micro, how, _, scale = case
    rank = dist.get_rank()
    bare = train(case, None)
    config = jobs.write_config(own_directory(directory), **twice.EVERYTHING)
    watched = train(case, {"config": config, "output_dir": directory / "out", "dynamic": False})
    engine_oracle.check_same(bare, watched)
    noted = twice.Noted()
    model = make_model().to(getattr(torch, kind))
    last_alone = how != "coalesced" and (stage in "23" or (stage, kind) == ("1", "bfloat16"))
    sums = case.config.get("gradient_allreduce_op") == "sum"
    group = dist.group.WORLD
    plain = engine_oracle.Plain(model, noted, case.divisor, group, last_alone=last_alone, sums=sums)
    clip = case.config.get("gradient_clipping", loops.CLIP)
    for step in range(STEPS):
        plain.accumulate([loss_of(batch(step, number, rank), scale) for number in range(micro)])
        if clip != 0.0:
            engine_oracle.clip([plain.masters], 1.0 if clip is None else clip)
        plain.update()
    if kind == "float32":
        engine_oracle.check_rows(directory / "out", rank, noted, watched["scopes"])
        if rank == 0:
            engine_oracle.save(directory, noted)
    else:
        check_bfloat16(directory / "out", rank, noted, watched["scopes"])


def compare_muon(directory: Path, case: Case) -> None:
    """Muon's rows have the gradients of plain torch, of the weights that DeepSpeed's training had."""
    rank = dist.get_rank()
    bare = train(case, None)
    config = jobs.write_config(own_directory(directory), **twice.EVERYTHING)
    watched = train(case, {"config": config, "output_dir": directory / "out", "dynamic": False})
    engine_oracle.check_same(bare, watched)
    noted = twice.Noted()
    model = make_model().to(getattr(torch, case.kind))
    plain = engine_oracle.Plain(model, noted, case.divisor, dist.group.WORLD, last_alone=case.stage in "23")
    momenta: "dict[str, torch.Tensor]" = {}
    for step in range(STEPS):
        plain.take_weights(bare["weights"][step])
        plain.accumulate([loss_of(batch(step, number, rank)) for number in range(case.micro)])
        for name, master in plain.masters.items():
            if master.ndim > 1:
                if step > 0:
                    noted.note("exp_avg", name, step, momenta[name])
                gradient = master.grad
                assert gradient is not None
                momenta[name] = momenta.get(name, torch.zeros_like(master)).lerp(gradient, 1 - 0.95)
        plain.update(
            {name for name, master in plain.masters.items() if master.ndim > 1}, bare["weights"][step + 1]
        )
    if case.kind == "float32":
        engine_oracle.check_rows(directory / "out", rank, noted, watched["scopes"], zeros_first=("exp_avg",))
        if rank == 0:
            engine_oracle.save(directory, noted)
    else:
        check_roughly(directory / "out", rank, noted, watched["scopes"])
    signs = jobs.rows(directory / "out", "other", rank)
    assert {(name, step) for name, step, _ in signs} >= {
        (name, step) for name in watched["scopes"]["exp_avg"] for step in range(1, STEPS)
    }, signs.keys()


def check_roughly(out: Path, rank: int, noted: twice.Noted, scopes: "dict[str, Any]") -> None:
    """Muon's matrices have plain torch's gradients and momenta, up to bfloat16's rounding."""
    for kind in ("grad_reduced", "exp_avg"):
        found = twice.read(out, kind, rank)
        for key, tensor in noted.tensors[kind].items():
            if key[0] not in scopes[kind] or tensor.ndim < 2:
                continue
            norm = engine_oracle.cut_by(scopes[kind][key[0]], tensor).double().norm().item()
            assert abs(found[key]["norm"] - norm) <= 2e-2 * tensor.double().norm().item(), (kind, key, norm)


def check_bfloat16(out: Path, rank: int, noted: twice.Noted, scopes: "dict[str, Any]") -> None:
    """Names and steps are plain torch's, and so are the gradients of step 0, up to bfloat16's rounding.

    Weights and moments are not compared: DeepSpeed's optimizer makes a step with zeros when it is made, after
    which Adam counts one step more and has moments before step 0."""
    for kind in ("grad_unreduced", *engine_oracle.REDUCED):
        moments = kind.startswith("exp_avg")
        found = {k: row for k, row in twice.read(out, kind, rank).items() if not moments or k[1] > 0}
        expected = {key: tensor for key, tensor in noted.tensors[kind].items() if key[0] in scopes[kind]}
        assert found.keys() == expected.keys(), (kind, sorted(found.keys() ^ expected.keys())[:8])
        for key, tensor in expected.items():
            assert found[key]["dtype"] == ("torch.bfloat16" if kind == "grad_unreduced" else "torch.float32")
            if key[1] > 0 or moments or kind == "param_updated":
                continue
            norm = engine_oracle.cut_by(scopes[kind][key[0]], tensor).double().norm().item()
            bound = 2e-2 * tensor.double().norm().item()
            assert abs(found[key]["norm"] - norm) <= bound, (kind, key, found[key], norm)


def overflow(directory: Path, over: "dict[str, Any]") -> None:
    """An infinite gradient leaves out the update of one step."""
    engine = make_engine(make_model(), "2", "bfloat16", 1, over)
    config = jobs.write_config(own_directory(directory), **twice.EVERYTHING)
    with gradmon.deepspeed.watch(engine, config, output_dir=directory / "out", dynamic=False):
        for step in range(STEPS):
            loss = engine(batch(step, 0, dist.get_rank()).bfloat16()).float()
            engine.backward(loss * (float("inf") if step == OVERFLOWS else 1))
            engine.step()
    assert engine.skipped_steps == 1 and engine.global_steps == STEPS


def micro_batches(directory: Path, case: Case) -> None:
    """Each micro batch by itself, by monitor_mbs_grad. Of coalesced ones, the first is."""
    engine = make_engine(make_model(), case.stage, case.kind, case.micro, case.config)
    config = jobs.write_config(
        own_directory(directory), wg_distribution=True, monitor_mbs_grad=True, ndigits=100
    )
    with gradmon.deepspeed.watch(engine, config, output_dir=directory / "out", dynamic=False):
        for step in range(STEPS):
            accumulate(engine, case, step)
    model = make_model()
    found = twice.read(directory / "out", "grad_unreduced", dist.get_rank())
    micro = 1 if case.how == "coalesced" else case.micro
    assert len(found) == STEPS * micro * len(list(model.parameters()))
    for number in range(micro):  # of step 0: before any update
        model.zero_grad()
        (model(batch(0, number, dist.get_rank())) / case.divisor).backward()
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None
            grad = parameter.grad
            engine_oracle.check_close(found[name, 0, number], grad.flatten(), grad, (name, number))


def switch(directory: Path, stage: str) -> None:
    """Trains until both edits of the config have been collected."""
    engine = make_engine(make_model(), stage, "float32", 2)
    before = traces(engine)
    edits = loops.Edits(directory)
    monitor = gradmon.deepspeed.watch(
        engine, directory / "config.json", output_dir=directory / "out", dynamic=True
    )
    number = 0
    while not edits():
        for micro in range(2):
            engine.backward(engine(batch(number % 7, micro, dist.get_rank())).float())
            engine.step()
        number += 1
    collecting = copy.copy(traces(engine))
    monitor.stop()
    assert traces(engine) == before
    assert collecting[1:] == before[1:]  # the last edit has been collected: all but the outer step is off


def refused(directory: Path) -> None:
    """A renamed attribute switches off these kinds only, and training is the same."""
    engine = make_engine(make_model(), "2", "float32", 1)
    bare = make_engine(make_model(), "2", "float32", 1)
    config = jobs.write_config(own_directory(directory), **twice.EVERYTHING)
    kept = engine.optimizer.single_partition_of_fp32_groups
    for parameter in engine.module.parameters():
        mapping = parameter._hp_mapping
        if mapping is not None:
            mapping.renamed = mapping.__dict__.pop("hp_fragment_address")
    monitor = gradmon.deepspeed.watch(engine, config, output_dir=directory / "out", dynamic=False)
    for parameter in engine.module.parameters():
        mapping = parameter._hp_mapping
        if mapping is not None:
            mapping.hp_fragment_address = mapping.renamed
    for one in (engine, bare):
        for step in range(2):
            one.backward(one(batch(step, 0, dist.get_rank())).float())
            one.step()

    def told() -> bool:
        warnings = monitor.status().warnings
        return any("no rows in grad_reduced" in one and "hp_fragment_address" in one for one in warnings)

    assert jobs.eventually(told), monitor.status().warnings
    monitor.stop()
    assert kept is engine.optimizer.single_partition_of_fp32_groups
    for one, other in zip(engine.module.parameters(), bare.module.parameters()):
        assert torch.equal(one, other)
    assert twice.read(directory / "out", "grad_unreduced", dist.get_rank())
    assert not twice.read(directory / "out", "grad_reduced", dist.get_rank())


class Experts(torch.nn.Module):
    """Each rank has an expert of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = torch.nn.Linear(4, 6)
        expert = torch.nn.Linear(6, 6)
        self.moe = MoE(6, expert, num_experts=2, ep_size=2, k=1, min_capacity=0, use_rts=False)
        self.fc2 = torch.nn.Linear(6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        routed, loss, _ = self.moe(self.fc1(x))
        return self.fc2(routed).pow(2).mean() + 0.01 * loss


def experts(directory: Path, stage: str) -> None:
    """grad_unreduced is what backward has left in the real model; grad_reduced is its mean over the ranks, or
    that of an expert, divided by the number of ranks."""
    torch.manual_seed(7)
    model = Experts()
    groups = split_params_into_different_moe_groups_for_optimizer(
        {"params": list(model.parameters()), "name": "parameters"}
    )
    over = {"gradient_clipping": 0.0, "zero_optimization": {"overlap_comm": False}}
    engine = make_engine(model, stage, "float32", 1, over, groups)
    noted, number = twice.Noted(), [0]

    def note(name: str) -> "Callable[[torch.Tensor], None]":
        def hook(grad: torch.Tensor) -> None:
            noted.note("grad_unreduced", name, number[0], grad)

        return hook

    for name, parameter in engine.module.named_parameters():
        parameter.register_hook(note(name))
    config = jobs.write_config(own_directory(directory), **twice.EVERYTHING)
    with gradmon.deepspeed.watch(engine, config, output_dir=directory / "out", dynamic=False):
        for number[0] in range(STEPS):
            engine.backward(engine(batch(number[0], 0, dist.get_rank())))
            engine.step()
        scopes = gradmon.deepspeed.scopes(engine)
    unreduced = twice.read(directory / "out", "grad_unreduced", dist.get_rank())
    assert unreduced.keys() == noted.tensors["grad_unreduced"].keys()
    reduced = twice.read(directory / "out", "grad_reduced", dist.get_rank())
    own = 0
    for key, tensor in sorted(noted.tensors["grad_unreduced"].items(), key=lambda one: one[0]):
        engine_oracle.check_close(unreduced[key], tensor.flatten(), tensor, key)
        whole = tensor.clone() / 2
        if "expert" in key[0]:
            assert scopes["grad_reduced"][key[0]] == {"scope": "local"}
        else:
            dist.all_reduce(whole)
        if key[0] in scopes["grad_reduced"]:
            cut = (
                whole.flatten()
                if "expert" in key[0]
                else engine_oracle.cut_by(scopes["grad_reduced"][key[0]], whole)
            )
            engine_oracle.check_close(reduced[key], cut, whole, key)
            own += 1
    assert own == len(reduced) > 0


def refused_pipeline(directory: Path) -> None:
    layers = [torch.nn.Linear(4, 6), torch.nn.Linear(6, 2)]
    model = deepspeed.pipe.PipelineModule(layers, num_stages=2, loss_fn=lambda x, _: x.pow(2).mean())
    engine = make_engine(model, "0", "float32", 1)
    assert type(engine).__name__ == "PipelineEngine"
    own = own_directory(directory)
    config = jobs.write_config(own, **twice.EVERYTHING)
    with jobs.stderr_to(own / "stderr"):
        with gradmon.deepspeed.watch(engine, config, output_dir=directory / "out", dynamic=False):
            engine.train_batch(iter([(batch(0, 0, 0), torch.zeros(1))]))
    said = (own / "stderr").read_text()
    assert "nothing is watched: PipelineEngine runs a pipeline, which gradmon does not follow" in said
    assert engine.global_steps == 1 and not list(directory.glob("out/*"))


def checkpoint(directory: Path, stage: str) -> None:
    """Neither initialize() nor a checkpoint counts as a step; a resumed job goes on counting."""
    config = jobs.write_config(own_directory(directory), **twice.EVERYTHING)
    first = make_engine(make_model(), stage, "float32", 1)
    with gradmon.deepspeed.watch(first, config, output_dir=directory / "one", dynamic=False):
        for step in range(2):
            accumulate(first, Case(stage), step)
            first.optimizer.state_dict()
        first.save_checkpoint(str(directory / "saved"))
        first.load_checkpoint(str(directory / "saved"))
        accumulate(first, Case(stage), 2)
    resumed = make_engine(make_model(), stage, "float32", 1)
    resumed.load_checkpoint(str(directory / "saved"))
    with gradmon.deepspeed.watch(resumed, config, output_dir=directory / "two", dynamic=False):
        accumulate(resumed, Case(stage), 2)
    ones, twos = (twice.read(directory / out, "param_updated", dist.get_rank()) for out in ("one", "two"))
    assert {step for _, step, _ in ones} == {0, 1, 2} and {step for _, step, _ in twos} == {2}
    for key, row in twos.items():
        assert row == ones[key], key


def own_directory(directory: Path) -> Path:
    own = directory / f"rank{dist.get_rank()}"
    own.mkdir(parents=True)
    return own


def name_of(case: Case) -> str:
    return f"stage{case.stage}-{case.kind}-{case.micro}"


def main() -> None:
    given = json.loads(sys.argv[1])
    directory = Path(given["directory"])
    begin()
    if given["what"] == "train":
        for case in CASES:
            if given["stage"] == case.stage:
                compare(directory / name_of(case), case)
    elif given["what"] in ("modes", "muon"):
        for name, case in (MODES if given["what"] == "modes" else MUON_CASES).items():
            if given["stage"] == case.stage:
                (compare if given["what"] == "modes" else compare_muon)(directory / name, case)
    elif given["what"] == "switch":
        switch(directory, given["stage"])
    elif given["what"] == "micro":
        cases = {"1": Case("1", micro=2), "2": Case("2", micro=2), **MODES}
        micro_batches(directory, cases[given["case"]])
    elif given["what"] == "checkpoint":
        checkpoint(directory, given["stage"])
    elif given["what"] == "experts":
        experts(directory, given["stage"])
    elif given["what"] == "pipeline":
        refused_pipeline(directory)
    else:
        overflow(directory / "overflow", {})
        overflow(directory / "muon", MUON)
        refused(directory / "refused")
    dist.destroy_process_group()
