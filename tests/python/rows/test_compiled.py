# SPDX-License-Identifier: Apache-2.0
"""Models compiled by torch: training is unchanged, and rows that need no module hooks are there."""
from pathlib import Path
from typing import Any

import jobs
import pytest
import torch
import twice

pytestmark = pytest.mark.skipif(not hasattr(torch, "compile"), reason="this torch compiles nothing")


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = torch.nn.Linear(4, 6), torch.nn.Linear(6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(self.fc1(x).relu())


def train(noted: twice.Noted, monitor: Any, within_autograd: bool) -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch.manual_seed(3)
    model = Net()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    monitor.watch(compiled, optimizer)
    for step in range(4):
        optimizer.zero_grad()
        with torch._dynamo.config.patch(compiled_autograd=within_autograd):
            loss = compiled(jobs.batch(step)).pow(2).mean()
            if within_autograd:
                with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
                    loss.backward()
            else:
                loss.backward()
        noted.gradients(model, step, "grad_reduced")
        optimizer.step()
    assert (torch._dynamo.utils.counters["compiled_autograd"]["captures"] > 0) == within_autograd
    monitor.stop()
    noted.end(model, optimizer)


@pytest.mark.parametrize("within_autograd", [False, True])
@pytest.mark.parametrize("first_collected", [0, 1])  # compiled in a collected step, or before one
def test_training_is_the_same(tmp_path: Path, within_autograd: bool, first_collected: int) -> None:
    twice.compare(
        tmp_path,
        lambda noted, monitor: train(noted, monitor, within_autograd),
        since=first_collected,
        start_step=first_collected,
    )
    forward = {name for name, _, _ in twice.read(tmp_path / "out", "actv")}
    assert forward == {".input", ".output"}
