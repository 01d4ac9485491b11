# SPDX-License-Identifier: Apache-2.0
"""The oracle's models, each trained in the simplest loop."""
from typing import Any

import torch
from oracle_loops import Parts, Run, adam, data, loop, mlp, one_model, tokens
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    """A transformer block with a normalization before each part."""

    def __init__(self, width: int = 8, heads: int = 2) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.heads = heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm1(x)).chunk(3, -1)
        weights = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1)
        x = x + self.out(weights @ v)
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Language(nn.Module):
    def __init__(self, tied: bool = False, sparse: bool = False, blocks: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 8, sparse=sparse)
        self.blocks = nn.ModuleList([Block() for _ in range(blocks)])
        self.head = nn.Linear(8, 7, bias=False)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


@loop
def plain(run: Run) -> None:
    one_model(run, mlp())


@loop
def without_bias(run: Run) -> None:
    one_model(run, nn.Linear(4, 2, bias=False))


@loop
def in_place(run: Run) -> None:
    one_model(run, mlp(inplace=True))


@loop
def residual(run: Run) -> None:
    block = Parts(lambda m, x: x + m.fc(m.norm(x)), norm=nn.LayerNorm(4), fc=nn.Linear(4, 4))
    one_model(run, nn.Sequential(nn.Linear(4, 4), block, nn.Linear(4, 2)))


@loop
def pre_norm_transformer(run: Run) -> None:
    one_model(run, Language(), tokens)


@loop
def post_norm_layer(run: Run) -> None:
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
    # The last layer, because the squares of a normalized output sum to a constant: all gradients would be 0.
    model = nn.Sequential(nn.Linear(4, 4), layer, nn.Linear(4, 2))
    # The keys' bias has a gradient of rounding errors, which differ between two runs of plain torch. With the
    # usual eps Adam would make steps of lr of them.
    one_model(run, model, lambda step: data(2, 3, 4, step=step), adam(model, eps=1e-3))


@loop
def tied_weights(run: Run) -> None:
    one_model(run, Language(tied=True), tokens)


@loop
def shared_module(run: Run) -> None:
    one_model(run, Parts(lambda m, x: m.fc(torch.tanh(m.fc(x))), fc=nn.Linear(4, 4)))


@loop
def module_under_two_names(run: Run) -> None:
    fc = nn.Linear(4, 4)
    one_model(run, Parts(lambda m, x: m.other(torch.tanh(m.one(x))), one=fc, other=fc))


@loop
def input_used_twice(run: Run) -> None:
    gate = Parts(lambda m, x: m.a(x) * torch.sigmoid(m.b(x)), a=nn.Linear(4, 4), b=nn.Linear(4, 4))
    one_model(run, nn.Sequential(nn.Linear(4, 4), gate, nn.Linear(4, 2)))


@loop
def tuple_output(run: Run) -> None:
    split = Parts(lambda m, x: (m.fc(x), m.fc(x).sin()), fc=nn.Linear(4, 4))
    one_model(
        run,
        Parts(
            lambda m, x: m.head(sum(m.split(m.fc(x)))), fc=nn.Linear(4, 4), split=split, head=nn.Linear(4, 2)
        ),
    )


@loop
def dict_output(run: Run) -> None:
    split = Parts(lambda m, x: {"a": m.fc(x), "b": x * 2}, fc=nn.Linear(4, 4))

    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        found = m.split(m.fc(x))
        return m.head(found["a"] + found["b"])

    one_model(run, Parts(forward, fc=nn.Linear(4, 4), split=split, head=nn.Linear(4, 2)))


@loop
def several_inputs(run: Run) -> None:
    mix = Parts(lambda m, x, y: m.fc(x) * y, fc=nn.Linear(4, 4))
    one_model(
        run,
        Parts(lambda m, x: m.mix(m.a(x), m.b(x)), a=nn.Linear(4, 4), b=nn.Linear(4, 4), mix=mix),
    )


@loop
def input_that_needs_no_gradient(run: Run) -> None:
    mix = Parts(lambda m, x, y: m.fc(x) * y, fc=nn.Linear(4, 4))
    one_model(run, Parts(lambda m, x: m.mix(m.a(x), x), a=nn.Linear(4, 4), mix=mix))


@loop
def unused_output(run: Run) -> None:
    split = Parts(lambda m, x: (m.a(x), m.b(x)), a=nn.Linear(4, 4), b=nn.Linear(4, 4))
    one_model(run, Parts(lambda m, x: m.split(m.fc(x))[0], fc=nn.Linear(4, 4), split=split))


@loop
def detached_branch(run: Run) -> None:
    one_model(run, Parts(lambda m, x: m.a(x) + m.b(m.a(x).detach()), a=nn.Linear(4, 4), b=nn.Linear(4, 4)))


@loop
def convolution(run: Run) -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1),
        nn.BatchNorm2d(3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(12, 2),
    )
    one_model(run, model, lambda step: data(2, 1, 4, 4, step=step))


@loop
def lstm(run: Run) -> None:
    model = Parts(
        lambda m, x: m.head(m.lstm(x)[0]), lstm=nn.LSTM(4, 5, batch_first=True), head=nn.Linear(5, 2)
    )
    one_model(run, model, lambda step: data(2, 3, 4, step=step))


@loop
def gru_by_hand(run: Run) -> None:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        h = torch.zeros(2, 5)
        for t in range(x.shape[1]):
            h = m.cell(x[:, t], h)
        return m.head(h)

    one_model(
        run,
        Parts(forward, cell=nn.GRUCell(4, 5), head=nn.Linear(5, 2)),
        lambda step: data(2, 3, 4, step=step),
    )


@loop
def sparse_embedding(run: Run) -> None:
    model = nn.Sequential(nn.Embedding(7, 4, sparse=True), nn.Flatten(), nn.Linear(12, 2))
    one_model(run, model, tokens, torch.optim.SGD(model.parameters(), lr=0.1))


class Waves(nn.Module):
    """A layer with a complex weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3, dtype=torch.cfloat))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.to(torch.cfloat) @ self.weight


@loop
def complex_weights(run: Run) -> None:
    one_model(
        run,
        Parts(
            lambda m, x: m.head(m.waves(m.fc(x)).abs()),
            fc=nn.Linear(4, 4),
            waves=Waves(),
            head=nn.Linear(3, 2),
        ),
    )


@loop
def embedding_bag(run: Run) -> None:
    one_model(run, nn.Sequential(nn.EmbeddingBag(7, 4), nn.Linear(4, 2)), tokens)


@loop
def frozen_layer(run: Run) -> None:
    model = mlp()
    for parameter in model[0].parameters():
        parameter.requires_grad_(False)
    one_model(run, model)


@loop
def unused_parameters(run: Run) -> None:
    model = Parts(lambda m, x: m.used(x), used=nn.Linear(4, 2), spare=nn.Linear(2, 2))
    one_model(run, model)


def checkpointed(run: Run, reentrant: bool) -> None:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        return m.last(checkpoint(m.inner, m.first(x), use_reentrant=reentrant))

    inner = nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 4))
    one_model(run, Parts(forward, first=nn.Linear(4, 4), inner=inner, last=nn.Linear(4, 2)))


@loop
def reentrant_checkpointing(run: Run) -> None:
    checkpointed(run, True)


@loop
def checkpointing_by_saved_tensors(run: Run) -> None:
    checkpointed(run, False)
