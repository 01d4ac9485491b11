# SPDX-License-Identifier: Apache-2.0
"""Mixed precision: autocast, where steps end with a GradScaler, and gradients without the scale."""
import copy
import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Optional

import gradmon
import jobs
import pytest
import ranks
import torch
import twice
from gradmon._optimizer_steps import ScalerUpdates, left_out_by_scaler
from torch.utils.checkpoint import checkpoint


KEYS = {"wg_distribution": True, "param_distribution": True}
SCALE = 1024.0


class SmallScaler:
    """A scaler as programs write it: like torch's, it skips an update if a gradient is not finite."""

    def __init__(self, init_scale: float = SCALE) -> None:
        self._scale = init_scale
        self._finite: Optional[bool] = None  # of the gradients, once they are unscaled

    def get_scale(self) -> float:
        return self._scale

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        return loss * self._scale

    def unscale_(self, optimizer: Any) -> None:
        gradients = [p.grad for g in optimizer.param_groups for p in g["params"] if p.grad is not None]
        for gradient in gradients:
            gradient.div_(self._scale)
        self._finite = all(bool(gradient.isfinite().all()) for gradient in gradients)

    def step(self, optimizer: Any) -> None:
        if self._finite is None:
            self.unscale_(optimizer)
        if self._finite:
            optimizer.step()

    def update(self) -> None:
        self._scale *= 1.0 if self._finite else 0.5
        self._finite = None


def torchs_own(init_scale: float) -> Any:
    return torch.amp.GradScaler("cpu", init_scale=init_scale)


def watched(tmp_path: Path, model: Any, optimizer: Any, scaler: Any = None) -> gradmon.Monitor:
    monitor = jobs.monitor(tmp_path, **KEYS)
    return monitor.watch(model, optimizer, scaler=scaler)


@pytest.fixture(params=[SmallScaler, torchs_own], ids=["small", "torch"])
def make_scaler(request: Any) -> Callable[[float], Any]:
    return request.param


def gradient_of(model: Any, step: int = 0) -> torch.Tensor:
    """The gradient of fc1.weight in plain torch."""
    plain: Any = jobs.make_net()
    plain.load_state_dict(model.state_dict())
    plain(jobs.batch(step)).pow(2).mean().backward()
    gradient: torch.Tensor = plain.fc1.weight.grad
    return gradient


def train(model: Any, optimizer: Any, scaler: Any, steps: int, overflow_at: int) -> "list[torch.Tensor]":
    """Returns the gradient of fc1.weight in each step, without the scale."""
    gradients = []
    for step in range(steps):
        gradients.append(gradient_of(model, step))
        optimizer.zero_grad()
        loss = model(jobs.batch(step)).pow(2).mean()
        if step == overflow_at:
            loss = loss * 3e38
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return gradients


def test_every_iteration_counts_and_gradients_are_written_without_the_scale(
    tmp_path: Path, make_scaler: Callable[[float], Any]
) -> None:
    model, optimizer = jobs.make()
    scaler = make_scaler(SCALE)
    own = {name: vars(scaler).get(name) for name in ("step", "update")}
    with watched(tmp_path, model, optimizer, scaler):
        gradients = train(model, optimizer, scaler, 5, overflow_at=2)
    assert {name: vars(scaler).get(name) for name in own} == own and "step" not in vars(optimizer)
    out = tmp_path / "out"
    for kind in ("grad_unreduced", "grad_reduced"):
        found = jobs.rows(out, kind)
        assert jobs.steps_of(found)["fc1.weight"] == [0, 1, 2, 3, 4]
        for step in (0, 1, 3, 4):
            jobs.check(found["fc1.weight", step, 0], gradients[step])
        assert found["fc1.weight", 2, 0]["nans"] > 0 or found["fc1.weight", 2, 0]["max"] == float("inf")
    assert jobs.steps_of(jobs.rows(out, "param_updated"))["fc1.weight"] == [0, 1, 3, 4]
    assert jobs.steps_of(jobs.rows(out, "param_origin"))["fc1.weight"] == [0, 1, 2, 3, 4]


def test_a_scaler_without_a_scale_is_logged_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    class Mute(SmallScaler):
        def get_scale(self) -> float:
            raise RuntimeError("not now")

    model, optimizer = jobs.make()
    scaler = Mute(1.0)
    with watched(tmp_path, model, optimizer, scaler):
        train(model, optimizer, scaler, 3, overflow_at=-1)
    assert jobs.steps_of(jobs.rows(tmp_path / "out", "grad_reduced"))["fc1.weight"] == [0, 1, 2]
    assert capfd.readouterr().err.count("not now") == 1


SKIPPING = """
from test_scaler import SmallScaler
model, optimizer = jobs.make()
scaler = SmallScaler(1.0)
monitor = gradmon.Monitor(options["config"], output_dir=options["out"], dynamic=True)
monitor.watch(model, optimizer, scaler=scaler if options["told"] else None)
said, end = "", time.monotonic() + 60
for step in range(100_000):
    optimizer.zero_grad()
    loss = model(jobs.batch(step)).pow(2).mean()
    if step == 3 and rank == options["overflows"]:
        loss = loss * 3e38 * 3e38
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if not options["told"]:
        monitor.step()
    if rank == 0:
        said = next((w for w in monitor.status().warnings if "GradScaler" in w), "")
    enough = torch.tensor(float(bool(said) or time.monotonic() > end or step == options["steps"]))
    dist.all_reduce(enough)
    if enough.item() > 0:
        break
monitor.stop()
print(said)
dist.barrier()
"""


@pytest.mark.parametrize("told", [True, False], ids=["scaler", "explicit_step"])
@pytest.mark.parametrize("overflows, steps", [(1, -1), (-1, 300)], ids=["one_rank_skips", "no_rank_skips"])
def test_status_warns_where_ranks_leave_out_different_updates(
    tmp_path: Path, told: bool, overflows: int, steps: int
) -> None:
    config = jobs.write_config(tmp_path, dynamic_on=False)
    options = {"told": told, "overflows": overflows, "steps": steps}
    options.update(config=str(config), out=str(tmp_path / "out"))
    said = ranks.run(tmp_path, ranks.GLOO + SKIPPING, **options)[0]
    if overflows == 1:
        assert "GradScaler skipped 0 updates on rank 0 and 1 on rank 1" in said
    else:
        assert said.strip() == ""


class FusedSGD(torch.optim.SGD):
    """Divides gradients by the scale itself, as fused optimizers do."""

    def step(self, closure: Any = None) -> Any:
        scale, self.grad_scale = self.grad_scale, None  # else torch 2.x's SGD would count itself as fused
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad.div_(scale)
        return super().step(closure)


def test_a_scale_that_the_optimizer_divides_out_is_divided_out(tmp_path: Path) -> None:
    model = jobs.make_net()
    optimizer = FusedSGD(model.parameters(), lr=0.1)
    with watched(tmp_path, model, optimizer):
        (model(jobs.batch(0)).pow(2).mean() * SCALE).backward()
        optimizer.grad_scale = torch.tensor(SCALE)
        optimizer.step()
    found = jobs.rows(tmp_path / "out", "grad_reduced")
    jobs.check(found["fc1.weight", 0, 0], gradient_of(jobs.make_net()))


def test_zeros_are_those_of_the_gradient_without_the_scale(tmp_path: Path) -> None:
    weight = torch.nn.Parameter(torch.ones(4))
    model = torch.nn.Module()
    model.weight = weight
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = SmallScaler(SCALE)
    with jobs.monitor(tmp_path, wg_distribution=True, eps=1e-3).watch(model, optimizer, scaler=scaler):
        # Below eps without the scale, above eps with it.
        scaler.scale((weight * torch.tensor([1e-4, 1e-4, 1.0, 1.0])).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    for kind in ("grad_unreduced", "grad_reduced"):
        assert jobs.rows(tmp_path / "out", kind)["weight", 0, 0]["zeros"] == 0.5


def test_main_grad_is_read_instead_of_grad(tmp_path: Path) -> None:
    model, optimizer = jobs.make()
    with jobs.monitor(tmp_path, wg_distribution=True, mg_direction=True).watch(model, optimizer):
        model(jobs.batch(0)).pow(2).mean().backward()
        for parameter in model.fc1.parameters():  # as Megatron does: always in float32
            parameter.main_grad = parameter.grad.double() * 3
            parameter.grad = None
        kept = model.fc1.weight.main_grad.clone()
        optimizer.step()
    found = jobs.rows(tmp_path / "out", "grad_reduced")
    jobs.check(found["fc1.weight", 0, 0], kept)
    assert ("fc2.weight", 0, 0) in found


class GivenScaler(torch.optim.SGD):
    """Its step() is given the scaler."""

    def step(self, closure: Any = None, *, grad_scaler: Any = None) -> Any:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad.div_(grad_scaler.get_scale())
        return super().step(closure)


def test_an_optimizer_that_is_handed_the_scaler_has_its_scale_divided_by(tmp_path: Path) -> None:
    model = jobs.make_net()
    optimizer = GivenScaler(model.parameters(), lr=0.1)
    scaler = SmallScaler(SCALE)
    with watched(tmp_path, model, optimizer):
        assert "grad_scaler" in inspect.signature(optimizer.step).parameters  # as GradScaler calls it
        scaler.scale(model(jobs.batch(0)).pow(2).mean()).backward()
        optimizer.step(grad_scaler=scaler)
    found = jobs.rows(tmp_path / "out", "grad_reduced")
    jobs.check(found["fc1.weight", 0, 0], gradient_of(jobs.make_net()))


def test_a_disabled_scaler_is_ignored(tmp_path: Path) -> None:
    model, optimizer = jobs.make()
    scaler = SmallScaler(SCALE)
    scaler.is_enabled = lambda: False  # type: ignore[attr-defined]
    with watched(tmp_path, model, optimizer, scaler):
        jobs.train(model, optimizer, 3)
    assert jobs.steps_of(jobs.rows(tmp_path / "out", "grad_reduced"))["fc1.weight"] == [0, 1, 2]


def test_a_second_watch_brings_no_second_boundary(tmp_path: Path) -> None:
    model, optimizer = jobs.make()
    scaler = SmallScaler(SCALE)
    monitor = jobs.monitor(tmp_path, **KEYS)
    monitor.watch(model, optimizer)
    monitor.watch(torch.nn.Linear(2, 2), optimizer, scaler=scaler)
    train(model, optimizer, scaler, 3, overflow_at=-1)
    monitor.stop()
    assert jobs.steps_of(jobs.rows(tmp_path / "out", "grad_reduced"))["fc1.weight"] == [0, 1, 2]


def test_two_scalers_of_two_models(tmp_path: Path, make_scaler: Callable[[float], Any]) -> None:
    """As in a GAN with mixed precision. The second model's loss overflows once, so that the scales part."""
    models = [jobs.make_net(), jobs.make_net()]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    scalers = [make_scaler(SCALE), make_scaler(SCALE * 4)]
    expected = []
    with jobs.monitor(tmp_path, **KEYS) as monitor:
        for number in (0, 1):
            monitor.watch(models[number], optimizers[number], scaler=scalers[number])
        for step in range(4):
            for number in (0, 1):
                overflow_at = 0 if number == 1 and step == 1 else -1
                expected += train(models[number], optimizers[number], scalers[number], 1, overflow_at)
    assert scalers[1].get_scale() == SCALE * 2
    out = tmp_path / "out"
    for kind in ("grad_unreduced", "grad_reduced"):
        found = twice.read(out, kind)
        assert jobs.steps_of(found)["fc1.weight"] == jobs.steps_of(found)["1:fc1.weight"] == [0, 1, 2, 3]
        for step in range(4):
            jobs.check(found["fc1.weight", step, 0], expected[2 * step])
            if step != 1:
                jobs.check(found["1:fc1.weight", step, 0], expected[2 * step + 1])
    updated = jobs.steps_of(twice.read(out, "param_updated"))
    assert (updated["fc1.weight"], updated["1:fc1.weight"]) == ([0, 1, 2, 3], [0, 2, 3])


def test_a_copy_of_a_watched_scaler_is_one_of_its_own(tmp_path: Path) -> None:
    model, optimizer = jobs.make()
    scaler = SmallScaler(SCALE)
    with watched(tmp_path, model, optimizer, scaler):
        copied = copy.deepcopy(scaler)
        train(model, optimizer, copied, 2, overflow_at=0)
        assert (copied.get_scale(), scaler.get_scale()) == (SCALE / 2, SCALE)


def test_an_update_after_the_boundary_changes_the_scale_of_the_step(tmp_path: Path) -> None:
    model = jobs.make_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    scaler = SmallScaler(SCALE)
    with watched(tmp_path, model, optimizer, scaler) as monitor:
        for step in range(3):
            optimizer.zero_grad()
            loss = model(jobs.batch(step)).pow(2).mean()
            scaler.scale(loss * 3e38 if step == 0 else loss).backward()
            scaler.step(optimizer)
            monitor.step()
            scaler.update()
    found = jobs.rows(tmp_path / "out", "grad_unreduced")
    for step in (1, 2):
        jobs.check(found["fc1.weight", step, 0], gradient_of(model, step))


# --- autocast, and scalers that leave an update out ---


class Net(torch.nn.Module):
    def __init__(self, reentrant: Optional[bool] = None) -> None:
        super().__init__()
        self.fc1 = torch.nn.Linear(4, 6)
        self.act = torch.nn.Tanh()
        self.fc2 = torch.nn.Linear(6, 2)
        self.reentrant = reentrant

    def middle(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.fc1(x))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.reentrant is None:
            return self.fc2(self.middle(x))
        return self.fc2(checkpoint(self.middle, x.requires_grad_(), use_reentrant=self.reentrant))


def loss_of(model: torch.nn.Module, step: int) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = model(jobs.batch(step))
    return output.float().pow(2).mean()


@pytest.mark.parametrize("reentrant", [None, False, True])
def test_values_have_the_types_that_they_have_in_autocast(tmp_path: Path, reentrant: Optional[bool]) -> None:
    def training(noted: twice.Noted, monitor: Any) -> None:
        model = Net(reentrant)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        monitor.watch(model, optimizer)
        for step in range(3):
            optimizer.zero_grad()
            loss_of(model, step).backward()
            noted.gradients(model, step)
            noted.weights(model, step, "param_origin")
            optimizer.step()
        noted.stop(monitor, model, optimizer)

    twice.compare(tmp_path, training)
    torch.manual_seed(7)
    model = Net()
    expected = twice.plain_activations(model, lambda: loss_of(model, 0))
    assert expected[0]["fc1.output"].dtype == expected[1]["fc1.output"].dtype == torch.bfloat16
    assert expected[0]["fc1.input"].dtype == torch.float32
    for kind, tensors in zip(("actv", "actv_grad"), expected):
        found = twice.read(tmp_path / "out", kind)
        for name, tensor in tensors.items():
            if "input" not in name:
                twice.check_bits(found[name, 0, 0], tensor, name)


@pytest.mark.parametrize(
    "make_scaler, clips, fused",
    [
        (SmallScaler, True, False),
        (torchs_own, True, False),
        (torchs_own, False, False),
        (torchs_own, True, True),
        (torchs_own, False, True),
    ],
)
def test_a_scaler_that_leaves_an_update_out(
    tmp_path: Path, make_scaler: Callable[[float], Any], clips: bool, fused: bool
) -> None:
    """grad_unreduced has the scaled gradient that backward left, grad_reduced the one that the optimizer
    uses. `clips`: the program unscales. Otherwise the scaler does or, if `fused`, the optimizer."""
    bad = 2  # the step whose gradients are not finite

    def training(noted: twice.Noted, monitor: Any) -> None:
        model = Net()
        optimizer, scaler = torch.optim.AdamW(model.parameters(), lr=0.01, fused=fused), make_scaler(SCALE)
        monitor.watch(model, optimizer)
        factor = SCALE
        for step in range(5):
            optimizer.zero_grad()
            scaler.scale(loss_of(model, step) * (float("inf") if step == bad else 1.0)).backward()
            if step != bad:
                noted.gradients(model, step, "grad_unreduced")
                for name, parameter in model.named_parameters():
                    noted.note("grad_reduced", name, step, parameter.grad / factor)
                noted.weights(model, step, "param_origin")
            if clips:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9)
            scaler.step(optimizer)
            scaler.update()
            if step == bad:
                factor /= 2
            else:
                noted.weights(model, step, "param_updated")
            monitor.step()
        noted.stop(monitor, model, optimizer)

    plain = twice.both(tmp_path, training)
    for name, tensors in plain.tensors.items():
        found = twice.read(tmp_path / "out", name)
        of_bad = sum(step == bad for _, step, _ in found)
        assert of_bad == (0 if name == "param_updated" else 4), name
        twice.check_rows({key: row for key, row in found.items() if key[1] != bad}, tensors, name)


def test_only_a_single_plain_number_says_that_an_update_was_left_out() -> None:
    """Other optimizers may have an attribute of that name, and the training step must not raise."""
    for found, left_out in (
        (torch.tensor(1.0), True),
        (torch.zeros(1), False),
        (torch.ones(2), False),
        (torch.nn.Parameter(torch.ones(1)), False),
        (True, False),
    ):
        assert left_out_by_scaler(SimpleNamespace(found_inf=found)) is left_out
    assert left_out_by_scaler(SimpleNamespace()) is False


def test_while_a_graph_is_captured_the_scale_is_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read of the scale would wait for the device, which ends the capture."""
    asked = iter([8.0, 16.0])
    scaler = SimpleNamespace(get_scale=lambda: next(asked), step=lambda _: None, update=lambda: None)
    updates = ScalerUpdates(scaler, lambda _: None, lambda _: None, lambda _: 0)
    assert updates.scale() == 8
    monkeypatch.setattr("gradmon._optimizer_steps.is_captured", lambda _: True)
    assert updates.scale() == 8
    monkeypatch.undo()
    assert updates.scale() == 16


def test_updates_left_out_where_the_optimizer_ends_the_steps(tmp_path: Path) -> None:
    """After a skipped update the step lasts until the next update."""

    def training(noted: twice.Noted, monitor: Any) -> None:
        model = Net()
        optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), SmallScaler()
        monitor.watch(model, optimizer)
        for iteration in range(5):
            optimizer.zero_grad()
            scaler.scale(loss_of(model, iteration) * (float("inf") if iteration == 2 else 1.0)).backward()
            step = iteration - (iteration > 2)  # iterations 2 and 3 are one step; its rows are of 3
            noted.gradients(model, step, "grad_unreduced")
            scaler.unscale_(optimizer)
            noted.gradients(model, step, "grad_reduced")
            scaler.step(optimizer)
            scaler.update()
        noted.stop(monitor, model, optimizer)

    twice.compare(tmp_path, training)
