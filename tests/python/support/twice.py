# SPDX-License-Identifier: Apache-2.0
"""Trains twice, without gradmon and with it. Both must be equal bit for bit, and gradmon's rows must be
the values of plain torch."""
import csv
from collections import defaultdict
from pathlib import Path
from typing import Any, Callable, Optional

import gradmon
import jobs
import torch

Key = "tuple[str, int, int]"  # name (after "1:" where it is the second chunk's), step, micro step
EVERYTHING = {**jobs.EVERYTHING, "ndigits": 100}  # every bit of a double
# The kinds that a program can hand in.
HANDED_IN = {f"{kind}_distribution": True for kind in ("wg", "param", "mv", "xy")}


class Noted:
    """The values that a training notes of its own tensors, and its final state."""

    def __init__(self) -> None:
        self.tensors: "dict[str, dict[Key, torch.Tensor]]" = defaultdict(dict)  # by kind
        self.fired: "list[str]" = []  # the user's hooks
        self.ends: "list[torch.Tensor]" = []
        self.hooks: "list[object]" = []

    def note(self, kind: str, name: str, step: int, tensor: torch.Tensor, micro: int = 0) -> None:
        unwrapped = name.replace("_checkpoint_wrapped_module.", "").replace("_orig_mod.", "")
        self.tensors[kind][unwrapped, step, micro] = tensor.detach().clone()

    def gradients(
        self, model: torch.nn.Module, step: int, kind: str = "", prefix: str = "", micro: int = 0
    ) -> None:
        """Notes gradients. Without `kind` as both kinds: one process reduces nothing."""
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                for one in [kind] if kind else ["grad_unreduced", "grad_reduced"]:
                    self.note(one, prefix + name, step, parameter.grad, micro)

    def weights(self, model: torch.nn.Module, step: int, kind: str, prefix: str = "") -> None:
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                self.note(kind, prefix + name, step, parameter)

    def fire(self, what: str) -> Callable[..., None]:
        """A hook of the program that notes `what` when it is called."""
        return lambda *_: self.fired.append(what)

    def stop(self, monitor: Any, model: torch.nn.Module, *optimizers: Any) -> None:
        monitor.stop()
        self.end(model, *optimizers)

    def end(self, model: torch.nn.Module, *optimizers: Any) -> None:
        """Notes the final state of a training, after stop()."""
        self.ends += [tensor.detach().clone() for tensor in model.state_dict().values()]
        for optimizer in optimizers:
            for state in optimizer.state.values():
                self.ends += [value for value in state.values() if torch.is_tensor(value)]
            self.hooks.append(sorted(vars(optimizer)))
        self.hooks += [
            (len(module._forward_hooks), len(module._forward_pre_hooks), _attributes(module))
            for module in model.modules()
        ]
        self.ends.append(torch.random.get_rng_state())


def _attributes(module: torch.nn.Module) -> "list[str]":
    """Without those that stay at modules within compiled code, which has guards on them."""
    return sorted(name for name in vars(module) if not name.startswith("_gradmon_"))


class NoMonitor:
    """Takes the place of a Monitor and does nothing."""

    def watch(self, *_: Any, **__: Any) -> "NoMonitor":
        return self

    def step(self) -> bool:
        return False

    def stop(self) -> None:
        pass


Training = Callable[[Noted, Any], None]  # its second argument is a Monitor or a NoMonitor


def train(
    noted: Noted, monitor: Any, model: torch.nn.Module, steps: int = 3, micro: int = 1, **options: Any
) -> None:
    """A training that notes the gradients of each step, and its end. options: of watch()."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    monitor.watch(model, optimizer, **options)
    jobs.train(model, optimizer, steps, reduced=lambda step: noted.gradients(model, step), micro=micro)
    noted.stop(monitor, model, optimizer)


def without(training: Training) -> Noted:
    torch.manual_seed(7)
    noted = Noted()
    training(noted, NoMonitor())
    return noted


def with_monitor(config: Path, output: Path, training: Training) -> Noted:
    torch.manual_seed(7)
    noted = Noted()
    with gradmon.Monitor(config, output_dir=output, dynamic=False) as monitor:
        training(noted, monitor)
    return noted


def both(tmp_path: Path, training: Training, **keys: object) -> Noted:
    """Trains without gradmon and with it (EVERYTHING, and keys); returns what the training noted without."""
    plain = without(training)
    config = jobs.write_config(tmp_path, **{**EVERYTHING, **keys})
    check_same_training(plain, with_monitor(config, tmp_path / "out", training))
    return plain


def compare(tmp_path: Path, training: Training, since: int = 0, **keys: object) -> Noted:
    """As both(). For each kind that the training notes, the rows must be what it noted since that step."""
    plain = both(tmp_path, training, **keys)
    for kind, tensors in plain.tensors.items():
        collected = {key: tensor for key, tensor in tensors.items() if key[1] >= since}
        check_rows(read(tmp_path / "out", kind), collected, kind)
    return plain


def check_same_training(plain: Noted, watched: Noted) -> None:
    assert plain.ends and len(plain.ends) == len(watched.ends)
    assert all(torch.equal(one, other) for one, other in zip(plain.ends, watched.ends))
    assert plain.fired == watched.fired
    assert plain.hooks == watched.hooks
    check_equal(plain, watched)


def check_equal(one: Noted, other: Noted) -> None:
    """Both have noted the same: names, steps, micro steps and bits."""
    assert one.tensors.keys() == other.tensors.keys()
    for kind, tensors in one.tensors.items():
        assert tensors.keys() == other.tensors[kind].keys(), kind
        for key, tensor in tensors.items():
            assert torch.equal(tensor, other.tensors[kind][key]), (kind, key)


def read(output: Path, kind: str, rank: int = 0) -> "dict[Key, dict[str, Any]]":
    found: "dict[Key, dict[str, Any]]" = {}
    for path in sorted(output.glob(f"*-rank{rank}-*/{kind}_[0-9]*.csv")):
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                stage = "" if row["vpp_stage"] == "0" else row["vpp_stage"] + ":"
                key = (stage + row["name"], int(row["step"]), int(row.get("micro_step", 0)))
                assert key not in found, f"{key} twice in {path}"
                found[key] = {op: float(row[op]) for op in jobs.OPS if row[op]}
                found[key]["dtype"] = row["dtype"]
    return found


def check_rows(found: "dict[Key, dict[str, Any]]", tensors: "dict[Key, torch.Tensor]", kind: str) -> None:
    assert found.keys() == tensors.keys(), (kind, found.keys() ^ tensors.keys())
    for key, tensor in tensors.items():
        check_bits(found[key], tensor, (kind, *key))


def check_bits(
    found: "dict[str, Any]", tensor: torch.Tensor, what: object = "", dtype: Optional[str] = None
) -> None:
    """Allows another order of summation in double (torch's norm of 8,192 numbers was 1.04e-14 off on an AMD
    EPYC), but no wrong bit in a float. `dtype`: in the row, if not the tensor's. A GPU adds in float32."""
    assert found["dtype"] == (dtype or str(tensor.dtype)), what
    x = tensor.detach().double().flatten()
    said = {op: found[op] for op in jobs.OPS}
    assert (said["min"], said["max"]) == (x.min().item(), x.max().item()), (what, said, tensor)
    tolerance = 1e-6 if tensor.is_cuda else 1e-14 if tensor.numel() < 5_000 else 1e-13
    assert abs(said["mean"] - x.mean().item()) <= tolerance * x.abs().mean().item(), (what, said, tensor)
    assert abs(said["norm"] - x.norm().item()) <= tolerance * x.norm().item(), (what, said, tensor)
    assert (said["nans"], said["zeros"]) == (0, (x.abs() < 1e-8).double().mean().item()), (what, said)


def plain_activations(
    model: torch.nn.Module, run: Callable[[], torch.Tensor]
) -> "tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]":
    """Inputs and outputs of each module in run(), which returns a loss, and their gradients; those of its
    second call end in @2. For models that change no activation in place and use all of them."""
    seen: "dict[str, torch.Tensor]" = {}
    calls: "dict[str, int]" = defaultdict(int)
    handles: "list[Any]" = []

    def note(name: str, tensor: torch.Tensor) -> None:
        if tensor.requires_grad:
            tensor.retain_grad()
        calls[name] += 1
        seen[f"{name}@{calls[name]}" if calls[name] > 1 else name] = tensor

    def hook(name: str) -> "Callable[..., None]":
        def hooked(_: Any, inputs: Any, output: torch.Tensor) -> None:
            note(f"{name or 'model'}.input", inputs[0])
            note(f"{name or 'model'}.output", output)

        return hooked

    for name, module in model.named_modules():
        handles.append(module.register_forward_hook(hook(name)))
    run().backward()
    for handle in handles:
        handle.remove()
    gradients = {name: tensor.grad for name, tensor in seen.items() if tensor.requires_grad}
    return {name: tensor.detach().clone() for name, tensor in seen.items()}, gradients


def monitor_by_hand(directory: Path, **keys: Any) -> gradmon.Monitor:
    """In static mode; what is to be watched follows by watch()."""
    return jobs.monitor(directory, **{**HANDED_IN, "ndigits": 100, **keys})
