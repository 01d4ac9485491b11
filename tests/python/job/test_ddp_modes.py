# SPDX-License-Identifier: Apache-2.0
"""Every mode of DistributedDataParallel: gradients before and after reduction are those of plain torch,
bit for bit, and so is the training."""
import contextlib
import copy
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Optional

import jobs
import pytest
import ranks
import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
import twice

STEPS = 3


class Net(torch.nn.Module):
    """`spare` is called if `branch` says so. If `tied`, `head` has the weight of `fc1`."""

    def __init__(self, tied: bool = False, reentrant: Optional[bool] = None) -> None:
        super().__init__()
        self.fc1 = torch.nn.Linear(4, 4)
        self.fc2 = torch.nn.Linear(4, 4)
        self.frozen = torch.nn.Linear(4, 4).requires_grad_(False)
        self.head = torch.nn.Linear(4, 4)
        self.spare: Optional[torch.nn.Linear] = None
        if tied:
            self.head.weight = self.fc1.weight
        self.reentrant = reentrant

    def middle(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.frozen(torch.nn.functional.gelu(self.fc2(x))))

    def forward(self, x: torch.Tensor, branch: bool = False) -> torch.Tensor:
        x = torch.tanh(self.fc1(x))
        if self.reentrant is None:
            x = self.middle(x)
        else:
            x = checkpoint(self.middle, x, use_reentrant=self.reentrant)
        return self.spare(x) if branch and self.spare is not None else x


@dataclass
class Mode:
    ddp: "dict[str, Any]" = field(default_factory=dict)
    net: "dict[str, Any]" = field(default_factory=dict)
    micro: int = 1
    no_sync: bool = True
    each_micro: bool = False  # rows of each micro batch
    spare: bool = False
    branch: "Callable[[int, int], bool]" = lambda rank, step: False
    watched: str = "model"  # "model", "ddp", "first": before DDP is made
    zero: bool = False
    comm_hook: bool = False
    autocast: bool = False
    uneven: bool = False  # the last rank trains one step less
    python_reducer: bool = False  # reduces in post-accumulate hooks


MANY = {"bucket_cap_mb": 1e-5}  # one bucket per parameter
MODES = {
    "watched_as_ddp": Mode(watched="ddp"),
    "watched_before_ddp": Mode(watched="first", ddp={"gradient_as_bucket_view": True, **MANY}),
    "accumulated": Mode(micro=3),
    "accumulated_in_buckets": Mode(micro=3, ddp={"gradient_as_bucket_view": True}),
    "reduced_each_micro_batch": Mode(micro=2, no_sync=False, each_micro=True),
    "reduced_once_but_seen_each_micro_batch": Mode(
        micro=3, each_micro=True, ddp={"gradient_as_bucket_view": True}
    ),
    "static_graph": Mode(ddp={"static_graph": True, "gradient_as_bucket_view": True}),
    "unused": Mode(ddp={"find_unused_parameters": True}, spare=True),
    "used_by_one_rank": Mode(
        ddp={"find_unused_parameters": True}, spare=True, branch=lambda rank, step: rank == step % 2
    ),
    "tied": Mode(net={"tied": True}),
    "checkpointed": Mode(net={"reentrant": False}),
    "checkpointed_reentrant": Mode(net={"reentrant": True}),
    "checkpointed_and_tied": Mode(net={"reentrant": True, "tied": True}, ddp={"static_graph": True}),
    "zero": Mode(zero=True),
    "compressed": Mode(comm_hook=True),
    "autocast": Mode(autocast=True),
    "uneven": Mode(uneven=True),
}
if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 13):  # before, it reduces in compiled code only
    MODES["reducer_in_python"] = Mode(python_reducer=True)
    MODES["reducer_in_python_watched_before"] = Mode(python_reducer=True, watched="first")
    MODES["reducer_in_python_accumulated"] = Mode(python_reducer=True, micro=3)


def batch(rank: int, step: int, micro: int) -> torch.Tensor:
    return jobs.batch(step + 10 * rank, micro)


def loss_of(model: torch.nn.Module, mode: Mode, rank: int, step: int, micro: int) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=mode.autocast):
        output = model(batch(rank, step, micro), mode.branch(rank, step))
    return output.float().pow(2).mean()


def alone(model: Net, mode: Mode, rank: int, step: int, noted: twice.Noted) -> None:
    """This rank's gradients before reduction, by plain autograd on a copy without DDP."""
    plain = copy.deepcopy(model)
    plain.reentrant = None
    for parameter in plain.parameters():
        parameter.grad = None
    for micro in range(mode.micro):
        if mode.each_micro:
            plain.zero_grad(set_to_none=True)
        loss_of(plain, mode, rank, step, micro).backward()
        noted.gradients(plain, step, "grad_unreduced", micro=micro if mode.each_micro else 0)


def make_optimizer(model: Net, mode: Mode) -> Any:
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if mode.zero:
        return ZeroRedundancyOptimizer(parameters, optimizer_class=torch.optim.Adam, lr=0.01)
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def train(noted: twice.Noted, monitor: Any, mode: Mode) -> None:
    rank = dist.get_rank()
    model = Net(**mode.net)
    if mode.spare:
        model.spare = torch.nn.Linear(4, 4)
    optimizer = make_optimizer(model, mode)
    options = {"grad_acc_steps": mode.micro}
    model.fc2.weight.register_hook(noted.fire("before"))
    if mode.watched == "first":
        monitor.watch(model, optimizer, **options)
    ddp = DistributedDataParallel(model, **mode.ddp)
    if mode.comm_hook:
        ddp.register_comm_hook(None, halved)
    if mode.watched != "first":
        monitor.watch(ddp if mode.watched == "ddp" else model, optimizer, **options)
    model.fc2.weight.register_hook(noted.fire("after"))
    ddp.register_forward_hook(noted.fire("forward"))
    with ddp.join() if mode.uneven else contextlib.nullcontext():
        for step in range(STEPS - (rank if mode.uneven else 0)):
            optimizer.zero_grad()
            alone(model, mode, rank, step, noted)
            for micro in range(mode.micro):
                put_off = mode.no_sync and micro + 1 < mode.micro
                with ddp.no_sync() if put_off else contextlib.nullcontext():
                    loss_of(ddp, mode, rank, step, micro).backward()
            noted.gradients(model, step, "grad_reduced")
            note_moments(noted, model, optimizer, step)
            optimizer.step()
            noted.weights(model, step, "param_updated")
    noted.stop(monitor, model, optimizer)


def reducing_in_python() -> Any:
    return torch._dynamo.config.patch(optimize_ddp="python_reducer")


def halved(_: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """A communication hook of the program: reduces in bfloat16."""
    rough = bucket.buffer().bfloat16().float() / dist.get_world_size()
    work = dist.all_reduce(rough, async_op=True)
    return work.get_future().then(lambda done: done.value()[0])


def note_moments(noted: twice.Noted, model: Net, optimizer: Any, step: int) -> None:
    """Notes the moments that this rank keeps; with ZeRO, only a part of all."""
    state = optimizer.optim.state if isinstance(optimizer, ZeroRedundancyOptimizer) else {}
    for name, parameter in model.named_parameters():
        for kind in ("exp_avg", "exp_avg_sq"):
            if kind in state.get(parameter, {}):
                noted.note(kind, name, step, state[parameter][kind])


def run(mode: Mode, directory: Path) -> None:
    def training(noted: twice.Noted, monitor: Any) -> None:
        with reducing_in_python() if mode.python_reducer else contextlib.nullcontext():
            train(noted, monitor, mode)

    plain = twice.without(training)
    watched = twice.with_monitor(directory / "config.json", directory / "out", training)
    twice.check_same_training(plain, watched)
    torch.save(dict(plain.tensors), directory / f"plain{dist.get_rank()}.pt")
    dist.barrier()


def main() -> None:
    directory = Path(json.loads(sys.argv[1])["directory"])
    dist.init_process_group("gloo")
    for name, mode in MODES.items():
        print(name, file=sys.stderr)
        run(mode, directory / name)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: Any) -> "tuple[Path, str]":
    """Trains in all modes, one after another, in one job. A failed mode is the last one and has its error."""
    directory = tmp_path_factory.mktemp("modes")
    for name, mode in MODES.items():
        (directory / name).mkdir()
        jobs.write_config(directory / name, **twice.EVERYTHING, monitor_mbs_grad=mode.each_micro)
    try:
        ranks.run(directory, "import test_ddp_modes; test_ddp_modes.main()", directory=str(directory))
    except AssertionError as error:
        return directory, str(error)
    return directory, ""


@pytest.mark.parametrize("name", MODES)
def test_values_are_plain_torchs_and_training_is_the_same(trained: "tuple[Path, str]", name: str) -> None:
    directory, trouble = trained[0] / name, trained[1]
    files = [directory / f"plain{rank}.pt" for rank in range(2)]
    assert all(file.exists() for file in files), trouble
    plain = [torch.load(file) for file in files]
    for rank in range(2):
        assert {"grad_unreduced", "grad_reduced", "param_updated"} <= plain[rank].keys()
        for kind, tensors in plain[rank].items():
            twice.check_rows(twice.read(directory / "out", kind, rank), tensors, kind)
    unreduced, reduced = ([noted[kind] for noted in plain] for kind in ("grad_unreduced", "grad_reduced"))
    for key in unreduced[0].keys() & unreduced[1].keys():
        assert not torch.equal(unreduced[0][key], unreduced[1][key])
    for key in reduced[0].keys() & reduced[1].keys():
        assert torch.equal(reduced[0][key], reduced[1][key])
    assert (reduced[0].keys() == reduced[1].keys()) != MODES[name].uneven
    assert ("exp_avg" in plain[0]) == MODES[name].zero


def test_the_job_ends_well(trained: "tuple[Path, str]") -> None:
    assert trained[1] == ""
