# SPDX-License-Identifier: Apache-2.0
"""gradmon.observe() within what torch transforms or traces apart: the program goes on as without it."""
from pathlib import Path
from typing import Any, Callable

import gradmon
import jobs
import pytest
import torch
import torch.utils.checkpoint

pytestmark = pytest.mark.skipif(not hasattr(torch, "cond"), reason="this torch has no torch.cond")
Forward = Callable[[torch.Tensor], torch.Tensor]


def part(x: torch.Tensor) -> torch.Tensor:
    return gradmon.observe(x * 2, "part")


def mapped(x: torch.Tensor) -> torch.Tensor:
    return torch.vmap(lambda row: part(row).sum())(x)


def differentiated(x: torch.Tensor) -> torch.Tensor:
    return torch.func.grad(lambda y: part(y).pow(2).sum())(x)


def checkpointed(x: torch.Tensor) -> torch.Tensor:
    return torch.utils.checkpoint.checkpoint(part, x, use_reentrant=False)  # type: ignore[no-any-return]


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return part(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 2


def by_hand(x: torch.Tensor) -> torch.Tensor:
    return Doubled.apply(x)  # type: ignore[no-any-return]


def branched(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, part, lambda y: part(y) * 3, (x,))


def attended(x: torch.Tensor) -> torch.Tensor:
    from torch.nn.attention.flex_attention import flex_attention

    def score(score: torch.Tensor, b: int, h: int, q: int, k: int) -> torch.Tensor:
        return part(score)

    q = x.detach().view(1, 1, *x.shape)  # on a CPU it has no backward
    return x + flex_attention(q, q, q, score_mod=score)


class Net(torch.nn.Module):
    def __init__(self, inner: Forward) -> None:
        super().__init__()
        self.fc, self.inner = torch.nn.Linear(4, 16), inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return gradmon.observe(self.inner(self.fc(x)), "whole").pow(2).mean()


def losses(config: Path, inner: Forward, compiled: bool) -> "list[float]":
    torch.manual_seed(3)
    torch._dynamo.reset()
    model = Net(inner)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = torch.compile(model, backend="aot_eager", fullgraph=True) if compiled else model
    found = []
    with gradmon.Monitor(config, output_dir=config.parent / "out", dynamic=False).watch(run, optimizer):
        for step in range(2):
            optimizer.zero_grad()
            loss = run(torch.full((16, 4), step + 1.0))
            loss.backward()
            optimizer.step()
            found.append(loss.item())
    return found


# Of eager code and of a graph.
HAS_ROWS = {
    mapped: (False, False),
    differentiated: (False, True),
    checkpointed: (True, True),
    by_hand: (True, True),
    branched: (False, False),
    attended: (False, False),
}
if hasattr(getattr(torch, "compiler", None), "nested_compile_region"):
    HAS_ROWS[torch.compiler.nested_compile_region(part)] = (True, False)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("forward", HAS_ROWS)
def test_the_program_goes_on(
    tmp_path: Path, forward: Forward, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = jobs.write_config(tmp_path, xy_distribution=True, all_xy=True)
    found = losses(config, forward, compiled)
    names = {name for name, _, _ in jobs.rows(tmp_path / "out", "actv")}
    assert "whole.output" in names and ("part.output" in names) == HAS_ROWS[forward][compiled]
    monkeypatch.setattr(gradmon, "observe", lambda x, name: x)
    assert found == losses(config, forward, compiled)
