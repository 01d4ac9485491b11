# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed with Muon, and with micro batches that it does not count. Stand-ins make the calls of DeepSpeed
0.19.8 in one process; frameworks/test_deepspeed.py has the package."""
import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Iterator

import gradmon
import jobs
import pytest
import torch
import twice

STEPS, MICRO = 3, 3
CUT = 5  # elements of fc1.weight that this rank does not update
BETA = 0.95


class StandInMuon(torch.optim.Optimizer):
    """Adds the gradients of flat tensors: the engine's optimizer has put the updates there."""

    def __init__(self, groups: "list[dict[str, Any]]") -> None:
        super().__init__(groups, {"lr": 0.01, "momentum": BETA})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.add_(parameter.grad, alpha=-group["lr"])


class Zero:
    """ZeRO 1 with Muon in one rank of two: the matrices lie in a flat tensor, less the first elements."""

    cpu_offload = False
    loss_scale = 1.0
    group_argument = "param_group_idx"

    def __init__(self, model: torch.nn.Module) -> None:
        self.overflows = False
        self.noted = twice.Noted()
        self.number = 0
        self.named = [(n, p) for n, p in model.named_parameters() if p.ndim > 1 and "spare" not in n]
        self.bit16_groups = [[p for _, p in self.named]]
        flat = torch.cat([p.detach().flatten() for _, p in self.named])[CUT:]
        self.single_partition_of_fp32_groups = [flat.clone()]
        start = -CUT
        for _, parameter in self.named:
            first = max(0, -start)
            parameter.use_muon = True  # type: ignore[attr-defined]
            parameter._hp_mapping = SimpleNamespace(  # type: ignore[attr-defined]
                hp_fragment_address=SimpleNamespace(start=start + first, numel=parameter.numel() - first),
                lp_fragment_address=SimpleNamespace(start=first),
            )
            start += parameter.numel()
        self.optimizer = StandInMuon([{"params": self.single_partition_of_fp32_groups}])
        self.all_grad_tensors: "dict[int, Any]" = {}
        self.reduced: Any = None

    def pieces(self) -> "Iterator[tuple[str, int, int, int]]":
        """Name, first element, number of elements, and where they are in the flat tensor."""
        for name, parameter in self.named:
            address = parameter._hp_mapping.hp_fragment_address  # type: ignore[attr-defined]
            first: int = parameter._hp_mapping.lp_fragment_address.start  # type: ignore[attr-defined]
            yield name, first, address.numel, address.start

    def reduce(self) -> None:
        """At the end of the last backward: the gradients of all ranks are there, and get replaced."""
        gradients = [parameter.grad.clone() * 0.5 for _, parameter in self.named]  # type: ignore[union-attr]
        momentum = self.optimizer.state[self.single_partition_of_fp32_groups[0]].get("momentum_buffer")
        start = 0
        for (name, first, numel, _), gradient in zip(self.pieces(), gradients):
            if not self.overflows:
                self.noted.note("grad_reduced", name, self.number, gradient.flatten()[first : first + numel])
                if momentum is not None:
                    piece = momentum[start + first : start + first + numel]
                    self.noted.note("exp_avg", name, self.number, piece)
            start += gradient.numel()
        self.all_grad_tensors[0] = gradients
        parameters = [parameter for _, parameter in self.named]
        keywords = {"dtype": torch.float32, "device": "cpu", "return_tensor_list": True}
        self.reduced = self.get_flat_partition(parameters, CUT, 0, **{self.group_argument: 0, **keywords})

    def get_flat_partition(
        self, tensor_list: Any, first_offset: int, partition_size: int, **keywords: Any
    ) -> Any:
        state = self.optimizer.state[self.single_partition_of_fp32_groups[0]]
        gradients = self.all_grad_tensors[keywords[self.group_argument]]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(flat)  # of the whole matrices
        if not self.overflows:
            state["momentum_buffer"].lerp_(flat, 1 - BETA)
        for gradient in gradients:
            gradient.sign_()
        return torch.cat([gradient.flatten() for gradient in gradients])[first_offset:]

    def step(self) -> None:
        if self.overflows:
            return
        (flat,) = self.single_partition_of_fp32_groups
        flat.grad = self.reduced
        for name, _, numel, start in self.pieces():
            self.noted.note("param_origin", name, self.number, flat.narrow(0, start, numel))
        groups, self.optimizer.param_groups = self.optimizer.param_groups, self.optimizer.param_groups[:1]
        self.optimizer.step()
        self.optimizer.param_groups = groups
        for name, _, numel, start in self.pieces():
            self.noted.note("param_updated", name, self.number, flat.narrow(0, start, numel))


class Engine:
    """As DeepSpeedEngine."""

    def __init__(self, module: torch.nn.Module, stage: int, optimizer: Any, managed: bool = True) -> None:
        self.module, self.stage, self.optimizer, self.managed = module, stage, optimizer, managed
        self.global_steps = 0

    def zero_optimization_stage(self) -> int:
        return self.stage

    def gradient_accumulation_steps(self) -> int:
        return 1

    def managed_gradient_accumulation(self) -> bool:
        return self.managed

    def step(self) -> None:
        self.optimizer.step()
        self.global_steps += 1


def watch(engine: Engine, directory: Path, **keys: Any) -> gradmon.Monitor:
    config = jobs.write_config(directory, **{**twice.EVERYTHING, **keys})
    return gradmon.deepspeed.watch(engine, config, output_dir=directory / "out", dynamic=False)


def train_with_muon(directory: Path, overflow: "int | None") -> Zero:
    model = jobs.make_net()
    optimizer = Zero(model)
    engine = Engine(model, 1, optimizer)
    with watch(engine, directory):
        for optimizer.number in range(STEPS):
            optimizer.overflows = optimizer.number == overflow
            model.zero_grad()
            model(jobs.batch(optimizer.number)).pow(2).mean().backward()
            optimizer.reduce()
            engine.step()
    assert "get_flat_partition" not in vars(optimizer)
    return optimizer


@pytest.mark.parametrize("overflow", [None, 1])
def test_muons_rows_have_gradients_and_momenta_before_updates(tmp_path: Path, overflow: "int | None") -> None:
    noted = train_with_muon(tmp_path, overflow).noted
    for kind in ("grad_reduced", "exp_avg", "param_origin", "param_updated"):
        twice.check_rows(twice.read(tmp_path / "out", kind), noted.tensors[kind], kind)
    steps = {step for _, step, _ in twice.read(tmp_path / "out", "grad_unreduced")}
    assert steps == set(range(STEPS))
    signs = {step for _, step, _ in jobs.rows(tmp_path / "out", "other")}
    assert signs == set(range(1, STEPS)) - {overflow}


def step_until_said(model: torch.nn.Module, optimizer: Zero, reason: str, directory: Path) -> None:
    """Makes one step; status must say the reason."""
    engine = Engine(model, 1, optimizer)
    with watch(engine, directory) as monitor:
        model(jobs.batch(0)).pow(2).mean().backward()
        optimizer.reduce()
        engine.step()
        assert jobs.eventually(lambda: any(reason in one for one in jobs.warnings_of(monitor)))


def test_a_version_without_the_call_that_replaces_gradients_has_no_row_and_a_reason(tmp_path: Path) -> None:
    class Renamed(Zero):
        def __getattribute__(self, name: str) -> Any:
            if name == "get_flat_partition" and not object.__getattribute__(self, "inside"):
                raise AttributeError(f"no {name}")
            return object.__getattribute__(self, name)

        inside = False

        def reduce(self) -> None:
            self.inside = True
            super().reduce()
            self.inside = False

    model = jobs.make_net()
    reason = "no rows in grad_reduced and exp_avg of parameters that Muon updates: AttributeError"
    step_until_said(model, Renamed(model), reason, tmp_path)
    assert twice.read(tmp_path / "out", "grad_reduced") == {}
    assert twice.read(tmp_path / "out", "exp_avg") == {}
    assert twice.read(tmp_path / "out", "param_updated")


def test_a_renamed_argument_of_that_call_leaves_no_row_but_a_reason(tmp_path: Path) -> None:
    model = jobs.make_net()
    optimizer = Zero(model)
    optimizer.group_argument = "group"
    reason = "the engine replaces gradients before they are read: IndexError"
    step_until_said(model, optimizer, reason, tmp_path)
    assert twice.read(tmp_path / "out", "grad_reduced") == {}
    assert twice.read(tmp_path / "out", "param_updated")


class Taking:
    """ZeRO 2: takes each gradient as it arrives, unless the program coalesces them."""

    optimizer = None

    def __init__(self, model: torch.nn.Module) -> None:
        self._coalesce_grad_reduction = False
        self.taken: "dict[Any, torch.Tensor]" = {}
        self.parameters = [p for n, p in model.named_parameters() if "spare" not in n]
        self.optimizer: Any = torch.optim.AdamW(self.parameters, lr=0.01)
        self.param_groups = self.optimizer.param_groups
        for parameter in self.parameters:
            parameter.register_post_accumulate_grad_hook(self.take)

    def take(self, parameter: torch.Tensor) -> None:
        if self._coalesce_grad_reduction or parameter.grad is None:
            return
        self.taken[parameter] = self.taken.get(parameter, 0) + parameter.grad
        parameter.grad = None

    @contextlib.contextmanager
    def coalesced(self) -> "Iterator[None]":
        self._coalesce_grad_reduction = True
        yield
        self._coalesce_grad_reduction = False
        for parameter in self.parameters:
            self.take(parameter)

    def step(self) -> None:
        for parameter, gradient in self.taken.items():
            parameter.grad = gradient
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.taken.clear()


def micro_batches(model: Any, step: int) -> "Iterator[torch.Tensor]":
    """Losses. The program calls the layers by itself."""
    for micro in range(MICRO):
        yield model.fc2(model.act(model.fc1(jobs.batch(step, micro)))).pow(2).mean()


def own_gradients() -> "tuple[dict[Any, torch.Tensor], dict[Any, torch.Tensor]]":
    """Of step 0 in plain torch: of each micro batch, and of all."""
    model = jobs.make_net()
    own: "dict[Any, torch.Tensor]" = {}
    total: "dict[Any, torch.Tensor]" = {}
    for micro, loss in enumerate(micro_batches(model, 0)):
        model.zero_grad()
        loss.backward()
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                own[name, 0, micro] = parameter.grad.clone()
                so_far = total.get((name, 0, 0))
                total[name, 0, 0] = parameter.grad.clone() if so_far is None else so_far + parameter.grad
    return own, total


@pytest.mark.parametrize("each", [False, True])
def test_unmanaged_micro_batches_have_their_own_rows(tmp_path: Path, each: bool) -> None:
    model = jobs.make_net()
    optimizer = torch.optim.AdamW([p for n, p in model.named_parameters() if "spare" not in n], lr=0.01)
    engine = Engine(model, 0, optimizer, managed=False)
    with watch(engine, tmp_path, monitor_mbs_grad=each, collect_times=1):
        for loss in micro_batches(model, 0):
            loss.backward()
        engine.step()
    own, total = own_gradients()
    twice.check_rows(twice.read(tmp_path / "out", "grad_unreduced"), own if each else total, "grad_unreduced")
    activations = {key for key in twice.read(tmp_path / "out", "actv") if key[0].startswith("fc2.output")}
    assert activations == {("fc2.output", 0, micro) for micro in range(MICRO)}


@pytest.mark.parametrize("each", [False, True])
def test_a_coalesced_gradient_is_no_micro_batchs_own(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], each: bool
) -> None:
    model = jobs.make_net()
    optimizer = Taking(model)
    engine = Engine(model, 2, optimizer)
    with watch(engine, tmp_path, monitor_mbs_grad=each, collect_times=1):
        with optimizer.coalesced():
            for loss in micro_batches(model, 0):
                loss.backward()
        engine.step()
    absent = "accumulates the micro batches, so the gradient of one cannot be read"
    assert (absent in capfd.readouterr().err) == each
    own, total = own_gradients()
    expected = {key: tensor for key, tensor in own.items() if key[2] == 0} if each else total
    twice.check_rows(twice.read(tmp_path / "out", "grad_unreduced"), expected, "grad_unreduced")
