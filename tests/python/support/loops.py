# SPDX-License-Identifier: Apache-2.0
"""What the tests of training loops share: a model, an optimizer that notes what it uses, the same training
in plain torch, and a config that is edited in mid-run."""
import json
import time
from pathlib import Path
from typing import Any, Callable, Iterator, Optional

import jobs
import torch
import torch.distributed as dist
import twice
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

ROWS = 10  # of the data
BATCH = 2  # rows of a micro batch: an epoch has 5
MICRO = 2  # micro batches of a step; the third and last step of an epoch has one
EPOCHS = 2
CLIP = 0.05  # norm of all gradients, below what they have

# Arguments of Monitor beside the config; None: train without gradmon.
Options = Optional["dict[str, Any]"]
Training = Callable[[twice.Noted, Options], None]


class Net(torch.nn.Module):
    """Returns the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = torch.nn.Linear(4, 6)
        self.norm = torch.nn.LayerNorm(6)
        self.fc2 = torch.nn.Linear(6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(self.norm(torch.tanh(self.fc1(x)))).pow(2).mean()


NAMES = {name for name, _ in Net().named_parameters()}


class Data(torch.utils.data.Dataset[torch.Tensor]):
    def __init__(self, rows: int = ROWS, first: int = 0) -> None:
        self._rows, self._first = rows, first

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, row: int) -> torch.Tensor:
        return torch.sin(torch.arange(4.0) * 0.7 + self._first + row)


def loader(rows: int = ROWS, first: int = 0) -> "torch.utils.data.DataLoader[torch.Tensor]":
    return torch.utils.data.DataLoader(Data(rows, first), batch_size=BATCH)


class NotingAdamW(torch.optim.AdamW):
    """Notes what its steps use and make, by the names that the parameters have in the model."""

    def __init__(self, model: torch.nn.Module, noted: twice.Noted, prefix: str = "", first: int = 0) -> None:
        super().__init__([p for p in model.parameters() if p.requires_grad], lr=0.01)
        self.noted = noted
        self.named = [(prefix + name, p) for name, p in model.named_parameters() if p.requires_grad]
        self.number = first  # of the step
        for name, parameter in self.named:
            parameter.register_post_accumulate_grad_hook(self._accumulated(name))

    def _accumulated(self, name: str) -> "Callable[[torch.Tensor], None]":
        def accumulated(parameter: torch.Tensor) -> None:  # the last call in a step is the one that stays
            assert parameter.grad is not None
            self.noted.note("grad_unreduced", name, self.number, parameter.grad)

        return accumulated

    def step(self, closure: Any = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for name, parameter in self.named:
            assert parameter.grad is not None
            self.noted.note("grad_reduced", name, self.number, parameter.grad)
            self.noted.note("param_origin", name, self.number, parameter)
            if parameter in self.state:
                self.noted.note("exp_avg", name, self.number, self.state[parameter]["exp_avg"])
        super().step()
        for name, parameter in self.named:
            self.noted.note("param_updated", name, self.number, parameter)
        self.number += 1
        return loss


def note_activations(noted: twice.Noted, model: torch.nn.Module, optimizer: NotingAdamW) -> None:
    """Notes what `fc1` and `fc2` return, with the micro step."""
    micro: "dict[int, int]" = {}

    def begun(module: torch.nn.Module, _: Any) -> None:
        if module.training and torch.is_grad_enabled():
            micro[optimizer.number] = micro.get(optimizer.number, -1) + 1

    def left(name: str) -> "Callable[..., None]":
        def hook(module: torch.nn.Module, _: Any, output: torch.Tensor) -> None:
            if module.training and torch.is_grad_enabled():
                noted.note("actv", f"{name}.output", optimizer.number, output, micro[optimizer.number])

        return hook

    model.get_submodule("fc1").register_forward_pre_hook(begun)
    for name in ("fc1", "fc2"):
        model.get_submodule(name).register_forward_hook(left(name))


def plain(
    noted: twice.Noted, _: Options = None, divisor: "Callable[[int], int]" = lambda count: count
) -> None:
    """The training in plain torch. divisor: what a loss is divided by, of the step's micro batches."""
    model = Net()
    optimizer = NotingAdamW(model, noted)
    note_activations(noted, model, optimizer)
    for _epoch in range(EPOCHS):
        for group in groups(loader()):
            for x in group:
                (model(x) / divisor(len(group))).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
            optimizer.zero_grad()
    noted.end(model, optimizer)


def groups(batches: Any) -> "Iterator[list[torch.Tensor]]":
    group: "list[torch.Tensor]" = []
    for number, batch in enumerate(batches):
        group.append(batch)
        if len(group) == MICRO or number + 1 == len(batches):
            yield group
            group = []


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def end(noted: twice.Noted, model: torch.nn.Module, *optimizers: Any) -> None:
    """Notes the final state, with all hooks that gradmon could have left."""
    noted.end(model, *optimizers)
    for optimizer in optimizers:
        inner = getattr(optimizer, "optimizer", optimizer)
        noted.hooks += [len(inner._optimizer_step_pre_hooks), len(inner._optimizer_step_post_hooks)]
        noted.hooks.append(sorted(vars(inner)))
        noted.hooks.append(sorted(vars(getattr(optimizer, "scaler", None) or Net)))
    noted.hooks += [len(_global_optimizer_pre_hooks), len(_global_optimizer_post_hooks)]
    noted.hooks += [len(p._post_accumulate_grad_hooks or ()) for p in model.parameters()]


def own_directory(directory: Path) -> Path:
    """A directory of this rank within."""
    own = directory / f"rank{rank()}"
    own.mkdir(parents=True)
    return own


def train_twice(directory: Path, training: Training, out: Path, **keys: Any) -> twice.Noted:
    """Trains without gradmon and with it. Both must be equal bit for bit. Returns what the first noted."""
    bare, watched = twice.Noted(), twice.Noted()
    config = jobs.write_config(directory, **{**twice.EVERYTHING, **keys})
    for noted, options in ((bare, None), (watched, {"config": config, "output_dir": out, "dynamic": False})):
        torch.manual_seed(7)
        training(noted, options)
    twice.check_same_training(bare, watched)
    return bare


def compare(directory: Path, training: Training, **keys: Any) -> twice.Noted:
    """As train_twice(). This rank's rows must be what the training noted."""
    out = directory / "out"
    bare = train_twice(own_directory(directory), training, out, **keys)
    kinds = {"grad_unreduced", "grad_reduced", "param_origin", "param_updated", "exp_avg"}
    assert bare.tensors.keys() >= kinds
    for kind, tensors in bare.tensors.items():
        found = twice.read(out, kind, rank())
        if kind == "actv":
            found = {key: row for key, row in found.items() if key in tensors or key[0].endswith(".output@2")}
        twice.check_rows(found, tensors, kind)
    return bare


def check_scaled(directory: Path, training: Training) -> None:
    """A training of four steps whose scaler leaves out an update: all steps count."""
    bare = train_twice(directory, training, directory / "out")
    reduced = twice.read(directory / "out", "grad_reduced")
    assert reduced.keys() == {(name, step, 0) for name in NAMES for step in range(4)}
    for key, tensor in bare.tensors["grad_reduced"].items():
        twice.check_bits(reduced[key], tensor)
    updated = twice.read(directory / "out", "param_updated")
    twice.check_rows(updated, bare.tensors["param_updated"], "param_updated")


def plain_noted(divisor: "Callable[[int], int]") -> twice.Noted:
    noted = twice.Noted()
    torch.manual_seed(7)
    plain(noted, None, divisor)
    return noted


class Edits:
    """Edits a config while training runs. Rank 0 edits; every rank calls it after each step."""

    SWITCHES = (
        {"collect_times": 3, "wg_distribution": True},
        {"collect_times": 2, "wg_distribution": True, "param_distribution": True},
    )

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.config = directory / "config.json"
        self._left = list(self.SWITCHES)
        self._until = time.monotonic() + 100
        if rank() == 0:
            jobs.write_config(directory, dynamic_on=False)

    def repeat(self, times: int) -> None:
        """Makes all edits that often. Call it before the first step."""
        self._left = self._left * times

    def __call__(self) -> bool:
        """True if all that was asked for is collected, on all ranks."""
        assert time.monotonic() < self._until
        done = rank() == 0 and self._edit()
        if not dist.is_initialized():
            return done
        said = torch.tensor(float(done))
        dist.all_reduce(said)
        return bool(said > 0)

    def _edit(self) -> bool:
        try:
            if json.loads(self.config.read_text())["dynamic_on"]:
                return False
        except ValueError:  # it is just being written
            return False
        if not self._left:
            return True
        jobs.write_config(self.directory, dynamic_on=True, **self._left.pop(0))
        return False


def check_switched(directory: Path, ranks: int) -> None:
    """Both edits have been collected, for as many steps as they say, in the same steps on all ranks."""
    for kind, counts in (("grad_reduced", (3, 2)), ("param_updated", (2,))):
        steps = [jobs.steps_of(jobs.rows(directory / "out", kind, rank)) for rank in range(ranks)]
        assert steps[0] and all(of_rank == steps[0] for of_rank in steps)
        assert set(steps[0]) == NAMES
        for numbers in steps[0].values():
            assert runs_of(numbers) == list(counts), numbers


def runs_of(numbers: "list[int]") -> "list[int]":
    """Lengths of the runs of consecutive numbers."""
    lengths: "list[int]" = []
    for number in numbers:
        if lengths and number - 1 in numbers:
            lengths[-1] += 1
        else:
            lengths.append(1)
    return lengths
