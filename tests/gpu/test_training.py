# SPDX-License-Identifier: Apache-2.0
"""Training on the device under the whole monitor: where gradmon can be imported."""
import warnings
from pathlib import Path
from typing import Any, Callable, Iterator, List

import pytest
import torch
from watching import batch, gradmon, make_model, near, rows_of, sgd, watched

ANY_STREAM = "AccumulateGrad node's stream does not match"


@pytest.fixture(autouse=True)
def warned(request: Any) -> "Iterator[Callable[[], int]]":
    """torch warns, once, where a node of autograd is of another stream than its input, and waits for it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield lambda: sum(ANY_STREAM in str(one.message) for one in caught)
    if request.function is not test_graphed_callables:
        assert not [one for one in caught if ANY_STREAM in str(one.message)]


class Warm:
    """Some eager steps on a stream of their own, as torch's manual asks for before a capture."""

    def __init__(self, make_optimizer: "Callable[[Any], Any]", directory: "Path | None", **keys: Any) -> None:
        self.model = make_model()
        self.optimizer = make_optimizer(self.model.parameters())
        self.monitor = None if directory is None else watched(directory, self.model, self.optimizer, **keys)
        self.x = batch(0)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for step in range(3):
                self.x.copy_(batch(step))
                self.optimizer.zero_grad(set_to_none=True)
                self.backward()
                self.optimizer.step()
        torch.cuda.current_stream().wait_stream(stream)
        self.optimizer.zero_grad(set_to_none=True)

    def backward(self) -> None:
        self.model(self.x).pow(2).mean().backward()

    def stop(self) -> "list[torch.Tensor]":
        if self.monitor is not None:
            self.monitor.stop()
        return [parameter.detach().clone() for parameter in self.model.parameters()]


def adam(parameters: Any) -> Any:
    return torch.optim.Adam(parameters, lr=0.01, capturable=True)


def train_with_captured_backward(warm: Warm) -> "List[torch.Tensor]":
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        warm.backward()
    gradients = []
    for step in range(3, 6):
        warm.x.copy_(batch(step))
        graph.replay()
        gradients.append(warm.model[0].weight.grad.clone())
        warm.optimizer.step()
    return gradients


@pytest.mark.parametrize("keys", [{}, {"wg_distribution": True}], ids=["everything", "gradients"])
def test_a_backward_may_be_captured_in_a_collected_step(tmp_path: Path, keys: "dict[str, bool]") -> None:
    bare = Warm(sgd, None)
    train_with_captured_backward(bare)
    warm = Warm(sgd, tmp_path, **keys)
    gradients = train_with_captured_backward(warm)
    assert all(torch.equal(*pair) for pair in zip(bare.stop(), warm.stop()))
    reduced = rows_of(tmp_path, "grad_reduced")
    for step, gradient in zip(range(3, 6), gradients):
        assert near(reduced["0.weight", step], gradient)


def train_with_captured_steps(warm: Warm) -> None:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        warm.backward()
        warm.optimizer.step()
    for step in range(3, 6):
        warm.x.copy_(batch(step))
        graph.replay()


@pytest.mark.parametrize("make_optimizer", [sgd, adam])
def test_whole_steps_may_be_captured(tmp_path: Path, make_optimizer: "Callable[[Any], Any]") -> None:
    bare = Warm(make_optimizer, None)
    train_with_captured_steps(bare)
    warm = Warm(make_optimizer, tmp_path)
    train_with_captured_steps(warm)
    assert all(torch.equal(*pair) for pair in zip(bare.stop(), warm.stop()))
    assert ("0.weight", 2) in rows_of(tmp_path, "grad_reduced")


@pytest.mark.parametrize(
    "keys",
    [
        {"wg_distribution": True, "mg_direction": True},
        {"ur_distribution": True, "mv_distribution": True, "format": "tensorboard"},
        {"recording_l2_features": True, "l2_targets": {"linear_hook": []}, "xy_distribution": True},
        {"wg_distribution": True, "scalars": {"grad-norm": "records", "weight_norm": "records"}},
    ],
    ids=["mg_direction", "ur_distribution", "l2_features", "scalars"],
)
def test_what_waits_for_the_device_is_left_out_of_a_captured_step(
    tmp_path: Path, keys: "dict[str, Any]"
) -> None:
    bare = Warm(adam, None)
    train_with_captured_steps(bare)
    warm = Warm(adam, tmp_path, **keys)
    train_with_captured_steps(warm)
    assert all(torch.equal(*pair) for pair in zip(bare.stop(), warm.stop()))


def test_training_on_another_stream_waits_for_no_other(tmp_path: Path) -> None:
    """The monitor begins its steps where the program calls it: here, on the default stream."""
    model = make_model()
    optimizer = sgd(model.parameters())
    stream = torch.cuda.Stream()
    gradients = []
    with watched(tmp_path, model, optimizer):
        for step in range(4):
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                optimizer.zero_grad()
                model(batch(step)).pow(2).mean().backward()
                gradients.append(model[0].weight.grad.clone())
            torch.cuda.current_stream().wait_stream(stream)
            optimizer.step()
    for kind in ("grad_unreduced", "grad_reduced"):
        found = rows_of(tmp_path, kind)
        assert all(near(found["0.weight", step], gradients[step]) for step in range(4))


@pytest.mark.parametrize("fused", [False, True])
def test_loss_scales_and_steps_that_are_left_out(tmp_path: Path, fused: bool) -> None:
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=fused)
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
    keys = {"wg_distribution": True, "param_distribution": True}
    monitor = watched(tmp_path, model, optimizer, scaler=scaler, **keys)
    gradients = []
    for step in range(4):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(batch(step)).float().pow(2).mean()
        if step == 2:
            loss = loss * 3e38
        scaler.scale(loss).backward()
        gradients.append(model[0].weight.grad / scaler.get_scale())
        scaler.step(optimizer)
        scaler.update()
    monitor.stop()
    for kind in ("grad_unreduced", "grad_reduced"):
        found = rows_of(tmp_path, kind)
        assert {step for _, step in found} == {0, 1, 2, 3}
        assert all(near(found["0.weight", step], gradients[step]) for step in (0, 1, 3))
    assert {step for _, step in rows_of(tmp_path, "param_updated")} == {0, 1, 3}


def test_a_model_that_moves_between_steps(tmp_path: Path) -> None:
    """Also where torch swaps the parameters for others, which it refuses if something else holds them."""
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        model = make_model()
        optimizer = sgd(model.parameters())
        with watched(tmp_path, model, optimizer, wg_distribution=True):
            for step in range(4):
                if step == 2:
                    optimizer.zero_grad()
                    model.double()
                    optimizer.state.clear()
                optimizer.zero_grad()
                model(batch(step).to(model[0].weight.dtype)).pow(2).mean().backward()
                optimizer.step()
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    assert {step for _, step in rows_of(tmp_path, "grad_reduced")} == {0, 1, 2, 3}
    assert {step for _, step in rows_of(tmp_path, "grad_unreduced")} >= {0, 1, 3}


class Observing(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Linear(64, 128), torch.nn.Linear(128, 8)

    def hidden(self, x: torch.Tensor) -> torch.Tensor:
        return self.first(x).relu()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(gradmon.observe(self.hidden(x), "hidden"))


@pytest.mark.skipif(not hasattr(torch.Tag, "cudagraph_unsafe"), reason="this torch makes one graph or none")
def test_a_tensor_within_a_forward_whose_graphs_the_compiler_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The forward stays a graph, as without observe(), and its replays have rows."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    torch._dynamo.utils.counters.clear()
    torch.manual_seed(3)
    model = Observing().cuda()
    optimizer = sgd(model.parameters())
    run = torch.compile(model, mode="reduce-overhead", fullgraph=True)
    monitor = watched(tmp_path, run, optimizer, xy_distribution=True, all_xy=True)
    hidden = []
    for step in range(6):
        optimizer.zero_grad()
        hidden.append(model.hidden(batch(step)).detach())
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            run(batch(step)).pow(2).mean().backward()
        optimizer.step()
    monitor.stop()
    counters = torch._dynamo.utils.counters["inductor"]
    launches = sum(event.count for event in profile.key_averages() if "GraphLaunch" in event.key)
    assert launches == 2 and counters["cudagraph_skips"] == 0, counters  # forward and backward
    found = rows_of(tmp_path, "actv")
    for step, tensor in enumerate(hidden):
        assert near(found["hidden.output", step], tensor), step


def test_graphed_callables(tmp_path: Path, warned: "Callable[[], int]") -> None:
    """The last one, because torch warns of what its own graphs hold; without activations, because torch
    refuses to graph a module that has hooks."""
    found = []
    warnings_so_far = []
    for directory in (None, tmp_path):
        warm = Warm(sgd, directory, wg_distribution=True, param_distribution=True)
        graphed = torch.cuda.make_graphed_callables(warm.model, (batch(0),))
        for step in range(3):
            warm.optimizer.zero_grad(set_to_none=True)
            graphed(batch(step)).pow(2).mean().backward()
            warm.optimizer.step()
        found.append(warm.stop())
        warnings_so_far.append(warned())
    assert all(torch.equal(*pair) for pair in zip(*found))
    assert 0 < warnings_so_far[0] and warnings_so_far[1] <= 2 * warnings_so_far[0]
    for kind in ("grad_unreduced", "grad_reduced", "param_updated"):
        assert {3, 4, 5} <= {step for _, step in rows_of(tmp_path, kind)}, kind
