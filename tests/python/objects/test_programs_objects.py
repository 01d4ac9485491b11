# SPDX-License-Identifier: Apache-2.0
"""What a program's models, optimizers and values may be like: gradmon raises nothing of it into training."""
import copy
import pickle
import types
import warnings
from pathlib import Path
from typing import Any, Callable

import gradmon
import gradmon.megatron
import jobs
import pytest
import torch


def watching(tmp_path: Path, model: torch.nn.Module, optimizer: Any, **keys: Any) -> gradmon.Monitor:
    monitor = jobs.monitor(tmp_path, jobs.ALONE, **{**jobs.EVERYTHING, **keys})
    return monitor.watch(model, optimizer)


def sgd(model: torch.nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def train(tmp_path: Path, model: torch.nn.Module, steps: int, **keys: Any) -> None:
    optimizer = sgd(model)
    with watching(tmp_path, model, optimizer, **keys):
        jobs.train(model, optimizer, steps)


def rows(tmp_path: Path, kind: str = "grad_reduced") -> "set[tuple[str, int]]":
    return {(name, step) for name, step, _ in jobs.rows(tmp_path / "out", kind)}


# --- values ---


class Raising:
    """A value that cannot be had yet."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __float__(self) -> float:
        raise self.error

    def __index__(self) -> int:
        raise self.error


@pytest.mark.parametrize("error", [ZeroDivisionError("no batch"), AttributeError("lazy"), KeyError("x")])
def test_a_value_that_raises_is_logged(
    tmp_path: Path, error: Exception, capfd: pytest.CaptureFixture[str]
) -> None:
    model = jobs.make_net()
    with watching(tmp_path, model, sgd(model), scalars={"loss": "records"}) as monitor:
        monitor.scalar("loss", Raising(error))  # type: ignore[arg-type]
        monitor.samples(Raising(error))  # type: ignore[arg-type]
        monitor.expert_load("moe", [Raising(error)])  # type: ignore[list-item]
        monitor.stop(Raising(error))  # type: ignore[arg-type]
    said = capfd.readouterr().err
    for what in ("scalar 'loss'", "samples", "expert_load 'moe'", "stop(timeout="):
        assert what in said


def test_a_call_that_does_not_fit_is_logged_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Whatever numbers the tensors hold, which pybind11 prints."""
    model = jobs.make_net()
    with watching(tmp_path, model, sgd(model)) as monitor:
        for number in range(3):
            values = torch.full((2,), float(number))
            monitor.tap("grad_reduced", "w", values, micro_step="x")  # type: ignore[arg-type]
    assert capfd.readouterr().err.count("incompatible function arguments") == 1


class Preempted(Exception):
    pass


def test_what_a_handler_of_a_signal_raises_meanwhile_gets_through(tmp_path: Path) -> None:
    model = jobs.make_net()
    with watching(tmp_path, model, sgd(model)) as monitor:
        for error in (Preempted(), TimeoutError()):
            with pytest.raises(type(error)):
                monitor.scalar("loss", Raising(error))  # type: ignore[arg-type]


def test_a_loss_with_its_graph_makes_no_warning(tmp_path: Path) -> None:
    model = jobs.make_net()
    with watching(tmp_path, model, sgd(model), scalars={"loss": "records"}) as monitor:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            monitor.scalar("loss", model(jobs.batch(0)).sum())


# --- models ---


class WithConfig(torch.nn.Module):
    """As some of Hugging Face's: what is no attribute is looked up in the config."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.config = {"hidden": 3}

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return self.config[name]

    def forward(self, x: torch.Tensor) -> Any:
        return self.inner(x)


@pytest.mark.parametrize("when", ["before", "later"])
def test_a_module_whose_attributes_raise_a_key_error(tmp_path: Path, when: str) -> None:
    model = jobs.make_net()
    if when == "before":
        model.fc1 = WithConfig(model.fc1)
    optimizer = sgd(model)
    with watching(tmp_path, model, optimizer):
        jobs.train(model, optimizer, 1)
        if when == "later":
            model.fc1 = WithConfig(model.fc1)
        jobs.train(model, optimizer, 2)
    assert rows(tmp_path) >= {("fc1.inner.weight", 2), ("fc2.weight", 2)}


def test_a_model_that_lists_its_parameters_anew(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = jobs.make_net()
    optimizer = sgd(model)
    with watching(tmp_path, model, optimizer):
        jobs.train(model, optimizer, 1)
        model.named_parameters = lambda *_, **__: [("a", "b", "c")]
        model.fc3 = torch.nn.Linear(1, 1)  # so that the parts are looked at
        jobs.train(model, optimizer, 1)
        del model.named_parameters
    assert "changes of the model are not seen: ValueError" in capfd.readouterr().err


def test_a_parameter_that_is_no_tensor(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = jobs.make_net()
    optimizer = sgd(model)
    with watching(tmp_path, model, optimizer):
        jobs.train(model, optimizer, 1)
        model.fc1._parameters["factor"] = 1.0
        jobs.train(model, optimizer, 2)
    assert rows(tmp_path) >= {("fc1.weight", 0), ("fc1.weight", 2)}
    assert "not seen" not in capfd.readouterr().err


@pytest.mark.parametrize("training", ["train", torch.tensor([True, False]), {}])
def test_training_that_is_no_bool(tmp_path: Path, training: Any) -> None:
    model = jobs.make_net()
    model.fc1.training = training
    train(tmp_path, model, 1)
    assert ("fc2.output", 0) in rows(tmp_path, "actv")


class GivesNoHandle(torch.nn.Linear):
    def register_forward_pre_hook(self, *given: Any, **keywords: Any) -> Any:
        super().register_forward_pre_hook(*given, **keywords)


def test_a_module_that_gives_no_handle_of_a_hook(tmp_path: Path) -> None:
    model = jobs.make_net()
    model.fc1 = GivesNoHandle(model.fc1.in_features, model.fc1.out_features)
    train(tmp_path, model, 4, step_interval=2)
    assert ("fc2.output", 2) in rows(tmp_path, "actv")


class TakesNoSecondHook(torch.nn.Linear):
    def register_forward_hook(self, *given: Any, **keywords: Any) -> Any:
        raise RuntimeError("no more hooks")


def test_a_module_that_takes_no_second_hook_is_left_without_any(tmp_path: Path) -> None:
    model = jobs.make_net()
    model.fc1 = TakesNoSecondHook(model.fc1.in_features, model.fc1.out_features)
    train(tmp_path, model, 4, step_interval=2)
    assert jobs.hooks_of(model) == 0


class HoldsMonitor(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(4, 4)
        self.monitor: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q = self.fc(x).view(-1, 1, 2, 2)
        self.monitor.attention("a", q, q)
        self.monitor.expert_load("moe", [1, 2])
        self.monitor.scalar("loss", q.sum())
        self.monitor.tap("actv", "h", q)
        self.monitor.samples(1)
        return q.flatten(1)


def train_it(model: torch.nn.Module, optimizer: Any, steps: int) -> None:
    for _ in range(steps):
        model(torch.ones(3, 4)).sum().backward()
        optimizer.step()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_of_a_model_that_holds_the_monitor_watches_nothing(
    tmp_path: Path, copied: Callable[[Any], Any], capfd: pytest.CaptureFixture[str]
) -> None:
    model = HoldsMonitor()
    optimizer = sgd(model)
    model.monitor = watching(tmp_path, model, optimizer)
    with model.monitor:
        train_it(model, optimizer, 1)
        other = copied(model)
        train_it(other, sgd(other), 3)
        assert other.monitor.status() is None
        train_it(model, optimizer, 1)
    assert {step for _, step in rows(tmp_path)} == {0, 1}
    assert "Exception ignored" not in capfd.readouterr().err


# --- compiled code ---


@pytest.mark.parametrize("whole", [True, False])
def test_values_within_compiled_code_do_not_end_it_as_collection_begins(tmp_path: Path, whole: bool) -> None:
    """In one graph they have no rows."""
    torch._dynamo.reset()
    model = HoldsMonitor()
    optimizer = sgd(model)
    model.monitor = watching(tmp_path, model, optimizer, start_step=2, scalars={"expert_load": "records"})
    with model.monitor:
        train_it(torch.compile(model, backend="eager", fullgraph=whole), optimizer, 4)
    found = {name for name, _ in rows(tmp_path, "scalar")}
    assert ({"expert_load/moe/0", "expert_load/moe/1"} <= found) == (not whole)


def test_a_copy_made_in_a_collected_step_is_compiled_in_one_graph(tmp_path: Path) -> None:
    torch._dynamo.reset()
    model = jobs.make_net()
    optimizer = sgd(model)
    with watching(tmp_path, model, optimizer):
        jobs.train(model, optimizer, 1)
        average = copy.deepcopy(model)
        torch.compile(average, backend="eager", fullgraph=True)(jobs.batch(0))


def test_observe_leaves_out_a_sharded_tensor_within_compiled_code(group: Any) -> None:
    from torch.distributed.tensor import Replicate, distribute_tensor, init_device_mesh

    torch._dynamo.reset()
    sharded = distribute_tensor(torch.ones(4, 4), init_device_mesh("cpu", (1,)), [Replicate()])
    observed = torch.compile(lambda x: gradmon.observe(x.sin(), "i"), backend="eager", fullgraph=True)
    assert observed(sharded).shape == (4, 4)


# --- optimizers ---


class TakesModel(torch.optim.SGD):
    def step(self, model: Any) -> None:  # type: ignore[override]
        assert isinstance(model, torch.nn.Module)
        super().step()


def test_a_step_that_is_given_a_model(tmp_path: Path) -> None:
    model = jobs.make_net()
    optimizer = TakesModel(model.parameters(), lr=0.1)
    with watching(tmp_path, model, optimizer):
        for step in range(2):
            model(jobs.batch(step)).sum().backward()
            optimizer.step(model)
    assert rows(tmp_path) >= {("fc1.weight", 0), ("fc1.weight", 1)}


class Closure:
    def __init__(self, model: torch.nn.Module, optimizer: Any) -> None:
        self.model, self.optimizer, self.calls = model, optimizer, 0

    def __call__(self) -> torch.Tensor:
        self.calls += 1
        self.optimizer.zero_grad()
        loss = self.model(jobs.batch(0)).pow(2).sum()
        loss.backward()
        return loss

    def __getattr__(self, name: str) -> Any:
        return {"of_the_program": 1}[name]


class AsksItsClosure(torch.optim.SGD):
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        before = closure.calls
        closure()
        assert closure.calls == before + 1
        super().step()


@pytest.mark.parametrize("scheduled", [False, True])
def test_a_closure_that_is_an_object_keeps_its_attributes(tmp_path: Path, scheduled: bool) -> None:
    model, plain = jobs.make_net(), jobs.make_net()
    gradients = []
    for each in (plain, model):
        optimizer = AsksItsClosure(each.parameters(), lr=0.1)
        if scheduled:  # it replaces step() by a function of its own
            torch.optim.lr_scheduler.StepLR(optimizer, 10)
        closure = Closure(each, optimizer)
        if each is plain:
            for _ in range(2):
                optimizer.step(closure)
                gradients.append(each.fc1.weight.grad.norm().item())
        else:
            with watching(tmp_path, each, optimizer):
                for _ in range(2):
                    optimizer.step(closure)
        assert closure.calls == 2
    found = jobs.rows(tmp_path / "out", "grad_reduced")
    assert [found["fc1.weight", step, 0]["norm"] for step in range(2)] == pytest.approx(gradients)


class Delegates:
    """A wrapper that looks up what it has not in a mapping."""

    def __init__(self, optimizer: Any) -> None:
        self._known = {"param_groups": optimizer.param_groups, "optim": optimizer, "state": optimizer.state}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return vars(self)["_known"][name]

    def step(self) -> None:
        self._known["optim"].step()


def test_an_optimizer_whose_attributes_raise_a_key_error(tmp_path: Path) -> None:
    model = jobs.make_net()
    optimizer = Delegates(sgd(model))
    with watching(tmp_path, model, optimizer):
        for step in range(2):
            model(jobs.batch(step)).sum().backward()
            optimizer.step()
    assert rows(tmp_path) >= {("fc1.weight", 0), ("fc1.weight", 1)}


class Equal(torch.optim.SGD):
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equal)


def test_fabrics_callback_takes_optimizers_that_cannot_be_hashed(tmp_path: Path) -> None:
    from gradmon.lightning import FabricCallback

    model = jobs.make_net()
    config = jobs.write_config(tmp_path, **jobs.EVERYTHING)
    callback = FabricCallback(config, output_dir=tmp_path / "out", dynamic=False, rank=0, world_size=1)
    fabric: Any = types.SimpleNamespace(strategy=None)
    callback.on_after_setup(fabric, model)
    optimizer = Equal(model.parameters(), lr=0.1)
    for step in range(2):
        model(jobs.batch(step)).sum().backward()
        optimizer.step()
        callback.on_after_optimizer_step(fabric.strategy, optimizer)
    callback.stop()
    assert rows(tmp_path) >= {("fc1.weight", 0), ("fc1.weight", 1)}


class BucketGroup:
    grad_reduce_handle = None

    def __init__(self, parameters: "list[Any]") -> None:
        self.buckets = [types.SimpleNamespace(params_list=parameters, params=set(parameters))]
        self.reduced = 0

    def start_grad_sync(self) -> None:
        self.reduced += 1


class OfMegatron(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.module = jobs.make_net()
        self.bucket_groups = [BucketGroup(list(self.module.parameters()))]
        self.expert_parallel_bucket_groups: "list[Any]" = []

    def forward(self, x: torch.Tensor) -> Any:
        return self.module(x)


class OptimizerOfMegatron:
    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer

    def step(self) -> Any:
        self.optimizer.step()
        return True, 0.0, 0


def test_gradients_that_megatron_has_renamed_do_not_end_its_reduction(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    chunk = OfMegatron()
    optimizer = OptimizerOfMegatron(torch.optim.Adam(chunk.parameters()))
    config = jobs.write_config(tmp_path, **jobs.EVERYTHING)
    monitor = gradmon.megatron.watch(
        chunk, optimizer, config, output_dir=tmp_path / "out", dynamic=False, rank=0, world_size=1
    )
    chunk(jobs.batch(0)).sum().backward()
    chunk.bucket_groups[0].start_grad_sync()
    monitor.stop()
    assert chunk.bucket_groups[0].reduced == 1
    assert "gradients without rows in grad_unreduced: AttributeError" in capfd.readouterr().err
