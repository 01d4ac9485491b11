# SPDX-License-Identifier: Apache-2.0
"""gradmon.mindspore.TrainerMon with the real MindSpore: rows are MindSpore's own values."""
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Optional

import gradmon
import jobs
import mindspore
import numpy as np
import pytest
import torch
import twice
from mindspore import nn

KINDS = {
    **{key: True for key in ("wg_distribution", "param_distribution", "mv_distribution")},
    "all_xy": True,
}
KINDS["xy_distribution"] = True
NAMES = ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]


class Net(nn.Cell):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.act, self.fc2 = nn.Dense(4, 6), nn.ReLU(), nn.Dense(6, 2)

    def construct(self, x: Any) -> Any:
        return self.fc2(self.act(self.fc1(x)))


def make_net() -> Net:
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    net = Net()
    for number, parameter in enumerate(net.trainable_params()):
        values = np.sin(np.arange(parameter.size, dtype="float32") + number).reshape(parameter.shape)
        parameter.set_data(mindspore.Tensor(values))
    net.set_train()
    return net


def plain(value: Any) -> torch.Tensor:
    return torch.tensor(value.asnumpy().tolist(), dtype=torch.float32).reshape(value.shape)


def adam(parameters: Any) -> Any:
    return nn.Adam(parameters, learning_rate=0.01)


def train(
    noted: twice.Noted,
    watch: "Optional[Callable[[Any, Any], Any]]",
    make_optimizer: Callable[[Any], Any] = adam,
    micro_batches: int = 1,
    steps: int = 4,
) -> None:
    net = make_net()
    optimizer = make_optimizer(net.trainable_params())
    monitor = None if watch is None else watch(net, optimizer)
    forward = mindspore.value_and_grad(
        lambda x: net(x).pow(2).mean(), None, net.trainable_params(), has_aux=False
    )
    for step in range(steps):
        total: "list[Any]" = []
        for micro in range(micro_batches):
            _, gradients = forward(mindspore.Tensor(jobs.batch(step, micro).numpy()))
            for name, gradient in zip(NAMES, gradients):
                noted.note("grad_unreduced", name, step, plain(gradient), micro)
            total = [one + other for one, other in zip(total, gradients)] if total else list(gradients)
        for name, parameter, gradient in zip(NAMES, net.trainable_params(), total):
            noted.note("grad_reduced", name, step, plain(gradient))
            noted.note("param_origin", name, step, plain(parameter))
        for state in optimizer.get_parameters():
            for prefix, kind in (("moment1.", "exp_avg"), ("moment2.", "exp_avg_sq")):
                if state.name.startswith(prefix):
                    noted.note(kind, state.name[len(prefix) :], step, plain(state))
        optimizer(tuple(total))
        for name, parameter in zip(NAMES, net.trainable_params()):
            noted.note("param_updated", name, step, plain(parameter))
    if monitor is not None:
        monitor.stop()
    noted.ends += [plain(parameter) for parameter in net.trainable_params()]


@pytest.fixture
def output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MONITOR_OUTPUT_DIR", str(tmp_path / "out"))
    return tmp_path / "out"


def watching(config: Path, micro_batches: int = 1, start: int = 0) -> Callable[[Any, Any], Any]:
    def watch(model: Any, optimizer: Any) -> Any:
        monitor = gradmon.mindspore.TrainerMon(
            config_file_path=config, process_group=None, params_have_main_grad=True
        )
        monitor.set_monitor(
            model,
            grad_acc_steps=micro_batches,
            optimizer=optimizer,
            dp_group=None,
            tp_group=None,
            start_iteration=start,
        )
        return monitor

    return watch


def test_rows_are_mindspores_values_and_training_is_the_same(tmp_path: Path, output: Path) -> None:
    config = jobs.write_config(tmp_path, **{**KINDS, "ndigits": 100, "step_interval": 2})
    bare, watched = twice.Noted(), twice.Noted()
    train(bare, None)
    train(watched, watching(config))
    twice.check_same_training(bare, watched)
    assert set(bare.tensors) >= {"grad_reduced", "exp_avg", "exp_avg_sq", "param_origin", "param_updated"}
    for kind, tensors in bare.tensors.items():
        collected = {key: tensor for key, tensor in tensors.items() if key[1] % 2 == 0}
        assert collected
        twice.check_rows(twice.read(output, kind), collected, kind)


def test_activations_are_those_of_the_cells(tmp_path: Path, output: Path) -> None:
    config = jobs.write_config(tmp_path, **KINDS)
    train(twice.Noted(), watching(config), steps=1)
    net = make_net()
    x = mindspore.Tensor(jobs.batch(0).numpy())
    hidden = net.fc1(x)
    active = net.act(hidden)
    expected = {
        "model.input": x,
        "model.output": net(x),
        "fc1.input": x,
        "fc1.output": hidden,
        "act.input": hidden,
        "act.output": active,
        "fc2.input": active,
        "fc2.output": net(x),
    }
    found = {name: row for (name, _, _), row in jobs.rows(output, "actv").items()}
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        jobs.check(found[name], plain(value))
    gradients = {name: row for (name, _, _), row in jobs.rows(output, "actv_grad").items()}
    assert gradients.keys() == {
        "model.output",
        "act.input",
        "act.output",
        "fc1.output",
        "fc2.input",
        "fc2.output",
    }
    jobs.check(gradients["fc2.output"], plain(net(x)) * 2 / 6)
    assert gradients["act.output"] == gradients["fc2.input"]


def test_micro_batches_are_told_apart(tmp_path: Path, output: Path) -> None:
    config = jobs.write_config(tmp_path, **{**KINDS, "ndigits": 100, "monitor_mbs_grad": True})
    noted = twice.Noted()
    train(noted, watching(config, micro_batches=2), micro_batches=2)
    twice.check_rows(twice.read(output, "grad_unreduced"), noted.tensors["grad_unreduced"], "grad_unreduced")
    assert {micro for _, _, micro in jobs.rows(output, "actv")} == {0, 1}


def test_micro_batches_are_told_apart_without_activations(tmp_path: Path, output: Path) -> None:
    config = jobs.write_config(tmp_path, wg_distribution=True, ndigits=100, monitor_mbs_grad=True)
    noted = twice.Noted()
    train(noted, watching(config, micro_batches=2), micro_batches=2)
    twice.check_rows(twice.read(output, "grad_unreduced"), noted.tensors["grad_unreduced"], "grad_unreduced")


def test_an_evaluation_between_steps_is_no_micro_batch(tmp_path: Path, output: Path) -> None:
    config = jobs.write_config(tmp_path, **{**KINDS, "ndigits": 100, "monitor_mbs_grad": True})
    net = make_net()
    optimizer = adam(net.trainable_params())
    monitor = watching(config, micro_batches=2)(net, optimizer)
    forward = mindspore.value_and_grad(lambda x: net(x).mean(), None, net.trainable_params())
    for step in range(2):
        for micro in range(2):
            _, gradients = forward(mindspore.Tensor(jobs.batch(step, micro).numpy()))
        optimizer(gradients)
        net.set_train(False)
        net(mindspore.Tensor(jobs.batch(step).numpy()))
        net.set_train(True)
    monitor.stop()
    for kind in ("grad_unreduced", "actv", "actv_grad"):
        found = jobs.rows(output, kind)
        assert {(step, micro) for _, step, micro in found} == {
            (s, m) for s in range(2) for m in range(2)
        }, kind
        assert not [name for name, _, _ in found if "@" in name]


def test_activations_switched_on_while_gradients_are_collected(tmp_path: Path, output: Path) -> None:
    config = jobs.write_config(tmp_path, wg_distribution=True)
    net = make_net()
    optimizer = adam(net.trainable_params())
    monitor = watching(config)(net, optimizer)
    forward = mindspore.value_and_grad(lambda x: net(x).mean(), None, net.trainable_params())
    for step in range(4):
        if step == 1:
            monitor.monitor.set("xy_distribution", True)
        _, gradients = forward(mindspore.Tensor(jobs.batch(step).numpy()))
        optimizer(gradients)
    monitor.stop()
    assert {step for _, step, _ in jobs.rows(output, "grad_unreduced")} == {0, 1, 2, 3}
    assert {2, 3} <= {step for _, step, _ in jobs.rows(output, "actv")}


def test_all_orders_of_set_monitor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = make_net()
    optimizer = adam(net.trainable_params())
    config = jobs.write_config(tmp_path, wg_distribution=True)
    forward = mindspore.value_and_grad(lambda x: net(x).mean(), None, net.trainable_params())
    calls: "list[Callable[[Any], Any]]" = [
        lambda mon: mon.set_monitor(net, optimizer),
        lambda mon: mon.set_monitor(net, optimizer=optimizer),
        lambda mon: mon.set_monitor(net, optimizer, 1, None, None, 0),
        lambda mon: mon.set_monitor(net, 1, optimizer, None, None, 0),
    ]
    for attempt, call in enumerate(calls):
        monkeypatch.setenv("MONITOR_OUTPUT_DIR", str(tmp_path / str(attempt)))
        monitor = gradmon.mindspore.TrainerMon(config)
        call(monitor)
        _, gradients = forward(mindspore.Tensor(jobs.batch(0).numpy()))
        optimizer(gradients)
        monitor.summary_writer.close()
        assert {name for name, _, _ in jobs.rows(tmp_path / str(attempt), "grad_reduced")} == set(NAMES)


@pytest.mark.parametrize(
    "make_optimizer, kinds",
    [
        (lambda p: nn.Momentum(p, 0.1, 0.9), {"exp_avg"}),
        (lambda p: nn.SGD(p, 0.1, momentum=0.9), {"exp_avg"}),
        (lambda p: nn.AdamWeightDecay(p, 0.1), {"exp_avg", "exp_avg_sq"}),
        (lambda p: nn.Adagrad(p, learning_rate=0.1), set()),
    ],
)
def test_moments_of_other_optimizers(
    tmp_path: Path, output: Path, make_optimizer: Any, kinds: "set[str]"
) -> None:
    config = jobs.write_config(tmp_path, **KINDS)
    train(twice.Noted(), watching(config, start=5), make_optimizer, steps=2)
    for kind in ("exp_avg", "exp_avg_sq"):
        found = jobs.rows(output, kind)
        assert {name for name, _, _ in found} == (set(NAMES) if kind in kinds else set())
        assert {step for _, step, _ in found} == ({5, 6} if kind in kinds else set())


def test_off_and_after_stop_nothing_is_hooked(tmp_path: Path, output: Path) -> None:
    net = make_net()
    optimizer = adam(net.trainable_params())

    def hooks() -> int:
        cells = [cell for _, cell in net.cells_and_names()] + [optimizer]
        names = ("_forward_hook", "_forward_pre_hook", "_backward_hook")
        return sum(len(getattr(cell, name, None) or ()) for cell in cells for name in names)

    before = hooks()
    config = jobs.write_config(tmp_path, **KINDS, start_step=1, collect_times=1)
    monitor = watching(config)(net, optimizer)
    forward = mindspore.value_and_grad(lambda x: net(x).mean(), None, net.trainable_params())
    counts = []
    for step in range(3):
        counts.append(hooks())
        _, gradients = forward(mindspore.Tensor(jobs.batch(step).numpy()))
        optimizer(gradients)
    monitor.stop()
    assert counts[0] == counts[2] == before + 2 and counts[1] > counts[0] + 4
    assert hooks() == before


def test_a_second_set_monitor_takes_the_place_of_the_first(tmp_path: Path, output: Path) -> None:
    net = make_net()
    optimizer = adam(net.trainable_params())
    monitor = watching(jobs.write_config(tmp_path, **KINDS))(net, optimizer)
    monitor.set_monitor(net, 1, optimizer, start_iteration=5)
    forward = mindspore.value_and_grad(lambda x: net(x).mean(), None, net.trainable_params())
    _, gradients = forward(mindspore.Tensor(jobs.batch(0).numpy()))
    optimizer(gradients)
    monitor.stop()
    assert {step for _, step, _ in twice.read(output, "grad_reduced")} == {5}


def test_graph_mode_is_refused_by_name(
    tmp_path: Path, output: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    net = make_net()
    optimizer = adam(net.trainable_params())
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    try:
        watching(jobs.write_config(tmp_path, **KINDS))(net, optimizer).stop()
    finally:
        mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    assert "nothing is watched: MindSpore's graph mode" in capfd.readouterr().err


QUICK_START = """
import mindspore
from mindspore import nn
import numpy as np
from types import SimpleNamespace

args = SimpleNamespace(global_batch_size=1, data_parallel_size=1, micro_batch_size=1)
mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
model = nn.SequentialCell(nn.Dense(4, 2))
model.set_train()
optimizer = nn.Adam(model.trainable_params())

from msprobe.mindspore import TrainerMon
monitor = TrainerMon(
    config_file_path="./monitor_config.json",
    process_group=None,
    params_have_main_grad=True,
)
# 挂载监控对象
monitor.set_monitor(
    model,
    grad_acc_steps=args.global_batch_size//args.data_parallel_size//args.micro_batch_size,
    optimizer=optimizer,
    dp_group=None,
    tp_group=None
)
step = mindspore.value_and_grad(lambda x: model(x).mean(), None, model.trainable_params())
for _ in range(2):
    _, gradients = step(mindspore.Tensor(np.ones((3, 4), "float32")))
    optimizer(gradients)
"""


def test_the_quick_start_of_msprobe_runs_unchanged(tmp_path: Path, output: Path) -> None:
    (tmp_path / "monitor_config.json").write_text('{"wg_distribution": true, "xy_distribution": true}')
    (tmp_path / "quick_start.py").write_text(QUICK_START)
    result = subprocess.run(
        [sys.executable, "-m", "gradmon.as_msprobe", "quick_start.py"],
        cwd=tmp_path,
        env={**os.environ, "MONITOR_OUTPUT_DIR": str(output)},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    found = jobs.rows(output, "grad_reduced")
    assert {(name, step) for name, step, _ in found} == {
        (name, step) for name in ("0.weight", "0.bias") for step in range(2)
    }
    assert jobs.rows(output, "actv")
