# SPDX-License-Identifier: Apache-2.0
"""What is read from engines that update tensors of their own: pieces, wrappers, ends of steps. The engines
themselves are in frameworks/."""
import gc
import json
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gradmon
import jobs
import pytest
import torch
import twice
from gradmon import _gradmon, colossalai as of_colossalai, deepspeed as of_deepspeed
from gradmon._framework_monitor import CollectingHooks, Description, Engine, EngineMonitor, Piece
from gradmon._framework_monitor import labels_of, listing_with
from gradmon._wrappers import refusal, replicating
from gradmon.deepspeed import _stepping
from gradmon.doctor import Name, _missing
from gradmon.megatron import global_names


STEPS = 3
SECOND = 5  # elements of fc1.weight that the carrier does not have: as if another rank had them


class FlatEngine:
    """Moves each gradient, once accumulated, into a flat tensor, which AdamW updates."""

    def __init__(self, noted: twice.Noted) -> None:
        self.model = jobs.make_net()
        self.noted = noted
        self.number = 0
        self.used = [(n, p) for n, p in self.model.named_parameters() if not n.startswith("spare")]
        self.pieces: "list[Piece]" = []
        self.carrier = torch.cat([p.detach().flatten() for _, p in self.used])[SECOND:].clone()
        self.reduced = torch.zeros_like(self.carrier)
        start = -SECOND
        for _, parameter in self.used:
            first = max(0, -start)
            numel = parameter.numel() - first
            place = start + first
            self.pieces.append(Piece(parameter, self.carrier, place, numel, first, tuple(parameter.shape)))
            start += parameter.numel()
        for name, parameter in self.used:
            parameter.register_post_accumulate_grad_hook(self.taking(name))
        self.optimizer = torch.optim.AdamW([self.carrier], lr=0.01)

    def taking(self, name: str) -> Any:
        piece = next(one for one, (known, _) in zip(self.pieces, self.used) if known == name)

        def take(parameter: torch.Tensor) -> None:
            assert parameter.grad is not None
            self.noted.note("grad_unreduced", name, self.number, parameter.grad)
            cut = parameter.grad.flatten()[piece.first :]
            self.reduced.narrow(0, piece.start, piece.numel).copy_(cut / 2)
            parameter.grad = None

        return take

    def described(self, model: torch.nn.Module) -> Description:
        named = [(name, one, tuple(one.shape)) for name, one in model.named_parameters()]
        return labels_of(named, self.pieces), None

    def note(self, kind: str, flat: torch.Tensor) -> None:
        for (name, _), piece in zip(self.used, self.pieces):
            self.noted.note(kind, name, self.number, flat.narrow(0, piece.start, piece.numel))

    def step(self) -> None:
        self.model(jobs.batch(self.number)).pow(2).mean().backward()
        self.carrier.grad = self.reduced.clone()
        self.note("grad_reduced", self.carrier.grad)
        self.note("param_origin", self.carrier)
        state = self.optimizer.state.get(self.carrier, {})
        for key in ("exp_avg", "exp_avg_sq"):
            if key in state:
                self.note(key, state[key])
        self.optimizer.step()
        self.note("param_updated", self.carrier)
        for piece in self.pieces:
            flat = piece.parameter.detach().view(-1)[piece.first :]
            flat.copy_(self.carrier.narrow(0, piece.start, piece.numel))


def watched(engine: FlatEngine, config: Path, out: Path) -> EngineMonitor:
    monitor = EngineMonitor(config, "flat-engine", output_dir=out, dynamic=False)

    def gradients() -> Any:
        def deliver(parameter: Any) -> None:
            monitor.deliver(parameter, parameter.grad)

        return [_gradmon.FirstHook(one, deliver) for one in engine.model.parameters()]

    def updates() -> Any:
        return [monitor.around(engine.optimizer, engine.pieces)]

    attachments = {"grad_unreduced": gradients, "grad_reduced": updates}
    described = Engine([engine.model], engine.optimizer, "delivered", attachments, engine.described)
    monitor.watch_engine(described, grad_acc_steps=1, start_iteration=0)
    return monitor


def test_rows_are_of_the_pieces_and_of_the_gradient_before_it_is_taken(tmp_path: Path) -> None:
    noted = twice.Noted()
    engine = FlatEngine(noted)
    config = jobs.write_config(tmp_path, **{**twice.EVERYTHING, "collect_times": 2})
    monitor = watched(engine, config, tmp_path / "out")
    for engine.number in range(STEPS):
        engine.step()
        monitor.end_step()
        hooks = [len(p._post_accumulate_grad_hooks or ()) for _, p in engine.used]
        assert hooks == [2 if engine.number == 0 else 1] * len(
            hooks
        )  # until the last collected step has ended
    monitor.stop()
    assert not engine.optimizer._optimizer_step_pre_hooks
    for kind, tensors in noted.tensors.items():
        collected = {key: tensor for key, tensor in tensors.items() if key[1] < 2}
        twice.check_rows(twice.read(tmp_path / "out", kind), collected, kind)


class Described:
    """Calls what an adapter knows its engine by."""

    def __init__(self, described: Any) -> None:
        self._described = described

    def __call__(self, model: torch.nn.Module) -> Description:
        return self._described(model)


def test_what_knows_the_engine_goes_when_the_monitor_has_stopped(tmp_path: Path) -> None:
    engine: Any = FlatEngine(twice.Noted())
    engine.described = Described(engine.described)
    gone = weakref.ref(engine.described)
    monitor = watched(engine, jobs.write_config(tmp_path, **twice.EVERYTHING), tmp_path / "out")
    del engine.described
    assert gone() is not None
    monitor.stop()
    gc.collect()
    assert gone() is None and monitor._hooks is not None and monitor._hooks._attachments == {}


def test_an_unreadable_loss_scale_ends_no_training(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    engine = FlatEngine(twice.Noted())
    monitor = watched(engine, jobs.write_config(tmp_path, **twice.EVERYTHING), tmp_path / "out")

    def renamed() -> float:
        raise AttributeError("no loss_scale")

    monitor._engine = monitor._engine._replace(scale=renamed)
    for engine.number in range(2):
        engine.step()
        monitor.end_step()
    monitor.stop()
    assert "gradients have the loss scale: AttributeError: no loss_scale" in capfd.readouterr().err
    assert twice.read(tmp_path / "out", "grad_reduced")


class CountingCore:
    """A Core that counts the updates that are left out."""

    def __init__(self, core: Any) -> None:
        self._core, self.skips = core, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)

    def skipped(self) -> None:
        self.skips += 1


@pytest.mark.parametrize("has_pieces", [True, False])
def test_an_update_is_left_out_only_where_this_rank_has_updates(tmp_path: Path, has_pieces: bool) -> None:
    engine = FlatEngine(twice.Noted())
    if not has_pieces:  # as in a pipeline's stage whose parameters are all frozen
        engine.pieces.clear()
    monitor = watched(engine, jobs.write_config(tmp_path, **twice.EVERYTHING), tmp_path / "out")
    assert monitor._steps is not None
    counting: Any = CountingCore(monitor._steps.core)
    monitor._steps.core = counting
    monitor.end_step()
    monitor.stop()
    assert counting.skips == (1 if has_pieces else 0)


def test_scopes_say_which_run_a_row_is_of(tmp_path: Path) -> None:
    engine = FlatEngine(twice.Noted())
    monitor = watched(engine, jobs.write_config(tmp_path, **twice.EVERYTHING), tmp_path / "out")
    for engine.number in range(2):
        engine.step()
        monitor.end_step()
    monitor.stop()
    (file,) = (tmp_path / "out").glob("*/scopes.json")
    targets = json.loads(file.read_text())["targets"]
    whole = {"scope": "whole", "shape": [6, 4]}
    piece = {"scope": "piece", "shape": [6, 4], "begin": 5, "count": 19}
    kinds = ("grad_reduced", "exp_avg", "exp_avg_sq", "param_origin", "param_updated", "other")
    of_weight = {kind: piece for kind in kinds}
    assert targets["0:fc1.weight"] == {"grad_unreduced": whole, **of_weight}
    assert "0:spare.weight" not in targets


def test_without_what_it_relies_on_an_engine_says_no_scopes(tmp_path: Path) -> None:
    engine = FlatEngine(twice.Noted())
    del engine.pieces[0]
    engine.pieces.append("no piece")  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        engine.described(engine.model)
    listing = listing_with(engine.described)(engine.model)
    assert listing == (None, None)


def test_our_hook_is_the_first_and_leaves_the_others_as_they_were() -> None:
    called: "list[str]" = []
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.register_post_accumulate_grad_hook(lambda _: called.append("one"))
    first = _gradmon.FirstHook(parameter, lambda _: called.append("ours"))
    parameter.register_post_accumulate_grad_hook(lambda _: called.append("later"))
    parameter.sum().backward()
    assert called == ["ours", "one", "later"]
    first.remove()
    called.clear()
    parameter.sum().backward()
    assert called == ["one", "later"]


def test_a_renamed_attribute_switches_off_its_kinds_only(tmp_path: Path) -> None:
    class Attached:
        removed = 0

        def remove(self) -> None:
            self.removed += 1

    one, other = Attached(), Attached()

    def fails() -> Any:
        yield other
        raise AttributeError("renamed")

    hooks = CollectingHooks({"grad_unreduced": lambda: [one], "exp_avg": fails})
    hooks.set(True)
    assert hooks.reasons == ["no rows in exp_avg: AttributeError: renamed"]
    assert (one.removed, other.removed) == (0, 1)
    hooks.set(False)
    hooks.set(True)
    assert len(hooks.reasons) == 1 and one.removed == 1


class Layer(torch.nn.Module):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.layer_number = number
        self.local_experts = torch.nn.ModuleList([torch.nn.Linear(1, 1, bias=False) for _ in range(2)])


def test_global_names_count_the_layers_and_experts_of_all_ranks() -> None:
    model = torch.nn.Module()
    model.layers = torch.nn.ModuleList([Layer(3), Layer(4)])
    names = global_names(model, expert_rank=1)
    assert names["layers.0.local_experts.1.weight"] == "layers.2.local_experts.3.weight"
    assert names["layers.1.local_experts.0.weight"] == "layers.3.local_experts.2.weight"


@pytest.mark.parametrize(
    "attribute, there",
    [("layer_number", True), ("local_experts", True), ("forward", True), ("numbers", False)],
)
def test_doctor_finds_attributes_of_classes_and_of_their_instances(attribute: str, there: bool) -> None:
    why = _missing(Name(f"{__name__}.Layer", attribute, "grad_reduced"))
    assert why == ("" if there else "missing: no grad_reduced")


class DistributedDataParallel(torch.nn.Module):
    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module


class _FabricModule(torch.nn.Module):
    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self._forward_module = module


class DeepSpeedEngine(torch.nn.Module):
    pass


def test_replicas_are_found_behind_a_compiled_wrapper() -> None:
    ddp = DistributedDataParallel(torch.nn.Linear(2, 2))
    compiled: Any = type("OptimizedModule", (torch.nn.Module,), {})()
    compiled._orig_mod = ddp
    assert replicating(_FabricModule(compiled)) is ddp
    assert replicating(compiled) is ddp


def test_an_engine_that_makes_the_steps_is_refused_in_a_loop() -> None:
    engine = DeepSpeedEngine()
    assert refusal(engine) == refusal(_FabricModule(engine)) == "DeepSpeed makes the steps"
    assert refusal(torch.nn.Linear(2, 2)) is None


def scaler_of(scale: float) -> Any:
    return SimpleNamespace(get_scale=lambda: scale)


@pytest.mark.parametrize(
    ("engine", "scale"),
    [
        (SimpleNamespace(optimizer=SimpleNamespace(loss_scale=1024.0)), 1024.0),
        (SimpleNamespace(optimizer=SimpleNamespace()), 1.0),
        # With torch_autocast in float16; below, with ZeRO stage 0.
        (
            SimpleNamespace(
                optimizer=SimpleNamespace(loss_scale=1.0, torch_autocast_gradscaler=scaler_of(8))
            ),
            8.0,
        ),
        (SimpleNamespace(optimizer=SimpleNamespace(), torch_autocast_z0_gradscaler=scaler_of(16)), 16.0),
    ],
)
def test_the_loss_scale_of_deepspeed_is_that_of_the_scaler_that_is_used(engine: Any, scale: float) -> None:
    assert of_deepspeed._loss_scale(engine) == scale


def test_the_loss_scale_of_colossalai_is_that_of_the_scaler_that_is_used() -> None:
    own = SimpleNamespace(grad_scaler=SimpleNamespace(scale=32.0))
    assert of_colossalai._loss_scale(SimpleNamespace(mixed_precision_mixin=own)) == 32.0
    assert of_colossalai._loss_scale(SimpleNamespace(scaler=scaler_of(64))) == 64.0
    assert of_colossalai._loss_scale(SimpleNamespace()) == 1.0


def test_what_tensor_parallelism_splits_is_local_under_colossalai() -> None:
    model = torch.nn.Linear(2, 2)
    model.weight.dist_layout = "columns"  # type: ignore[assignment]
    optimizer = SimpleNamespace(optim=torch.optim.SGD(model.parameters(), lr=0.1))
    labels = gradmon.colossalai.scopes(model, optimizer)
    for kind in ("grad_unreduced", "grad_reduced", "exp_avg"):
        assert labels[kind]["weight"] == {"scope": "local"}
        assert labels[kind]["bias"]["scope"] in ("whole", "replica")


def test_a_checkpoint_that_is_loaded_after_watch_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    engine = SimpleNamespace(global_steps=0)
    ended = []
    monitor: Any = SimpleNamespace(end_step=lambda: ended.append(engine.global_steps))
    step = _stepping(monitor, engine)

    def update() -> None:
        engine.global_steps += 1

    step(update)
    step(lambda: None)  # gradients are only accumulated
    assert ended == [1]
    assert "global_steps" not in capfd.readouterr().err
    engine.global_steps = 1000
    step(update)
    step(update)
    assert ended == [1, 1001, 1002]
    assert capfd.readouterr().err.count("engine.global_steps went from 1 to 1000") == 1
