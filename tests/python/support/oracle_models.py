# SPDX-License-Identifier: Apache-2.0
"""The oracle's models, each trained in the simplest loop."""
from typing import Any

import torch
from jobs import Parts
from oracle_loops import LOOPS, Run, adam, data, mlp, one_model, tokens
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


class Waves(nn.Module):
    """A layer with a complex weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3, dtype=torch.cfloat))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.to(torch.cfloat) @ self.weight


def fc(inputs: int = 4, outputs: int = 4) -> nn.Module:
    return nn.Linear(inputs, outputs)


def two(forward: Any) -> nn.Module:
    return Parts(forward, a=fc(), b=fc())


def post_norm_layer(run: Run) -> None:
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
    # The last layer, because the squares of a normalized output sum to a constant: all gradients would be 0.
    model = nn.Sequential(fc(), layer, fc(4, 2))
    # The keys' bias has a gradient of rounding errors, which differ between two runs of plain torch. With the
    # usual eps Adam would make steps of lr of them.
    one_model(run, model, lambda step: data(2, 3, 4, step=step), adam(model, eps=1e-3))


def module_under_two_names(run: Run) -> None:
    layer = fc()
    one_model(run, Parts(lambda m, x: m.other(torch.tanh(m.one(x))), one=layer, other=layer))


def tuple_output(run: Run) -> None:
    split = Parts(lambda m, x: (m.fc(x), m.fc(x).sin()), fc=fc())
    one_model(run, Parts(lambda m, x: m.head(sum(m.split(m.fc(x)))), fc=fc(), split=split, head=fc(4, 2)))


def dict_output(run: Run) -> None:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        found = m.split(m.fc(x))
        return m.head(found["a"] + found["b"])

    split = Parts(lambda m, x: {"a": m.fc(x), "b": x * 2}, fc=fc())
    one_model(run, Parts(forward, fc=fc(), split=split, head=fc(4, 2)))


def convolution(run: Run) -> None:
    layers = [nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    one_model(run, nn.Sequential(*layers, fc(12, 2)), lambda step: data(2, 1, 4, 4, step=step))


def lstm(run: Run) -> None:
    parts = {"lstm": nn.LSTM(4, 5, batch_first=True), "head": fc(5, 2)}
    one_model(run, Parts(lambda m, x: m.head(m.lstm(x)[0]), **parts), lambda step: data(2, 3, 4, step=step))


def gru_by_hand(run: Run) -> None:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        h = torch.zeros(2, 5)
        for t in range(x.shape[1]):
            h = m.cell(x[:, t], h)
        return m.head(h)

    model = Parts(forward, cell=nn.GRUCell(4, 5), head=fc(5, 2))
    one_model(run, model, lambda step: data(2, 3, 4, step=step))


def sparse_embedding(run: Run) -> None:
    model = nn.Sequential(nn.Embedding(7, 4, sparse=True), nn.Flatten(), fc(12, 2))
    one_model(run, model, tokens, torch.optim.SGD(model.parameters(), lr=0.1))


def complex_weights(run: Run) -> None:
    one_model(run, Parts(lambda m, x: m.head(m.waves(m.fc(x)).abs()), fc=fc(), waves=Waves(), head=fc(3, 2)))


def frozen_layer(run: Run) -> None:
    model = mlp()
    model[0].requires_grad_(False)
    one_model(run, model)


def checkpointed(run: Run, reentrant: bool) -> None:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        return m.last(checkpoint(m.inner, m.first(x), use_reentrant=reentrant))

    inner = nn.Sequential(fc(4, 6), nn.GELU(), fc(6, 4))
    one_model(run, Parts(forward, first=fc(), inner=inner, last=fc(4, 2)))


LOOPS.update(
    plain=lambda run: one_model(run, mlp()),
    without_bias=lambda run: one_model(run, nn.Linear(4, 2, bias=False)),
    in_place=lambda run: one_model(run, mlp(inplace=True)),
    residual=lambda run: one_model(
        run,
        nn.Sequential(fc(), Parts(lambda m, x: x + m.fc(m.norm(x)), norm=nn.LayerNorm(4), fc=fc()), fc(4, 2)),
    ),
    pre_norm_transformer=lambda run: one_model(run, Language(), tokens),
    post_norm_layer=post_norm_layer,
    tied_weights=lambda run: one_model(run, Language(tied=True), tokens),
    shared_module=lambda run: one_model(run, Parts(lambda m, x: m.fc(torch.tanh(m.fc(x))), fc=fc())),
    module_under_two_names=module_under_two_names,
    input_used_twice=lambda run: one_model(
        run, nn.Sequential(fc(), two(lambda m, x: m.a(x) * torch.sigmoid(m.b(x))), fc(4, 2))
    ),
    tuple_output=tuple_output,
    dict_output=dict_output,
    several_inputs=lambda run: one_model(
        run,
        Parts(
            lambda m, x: m.mix(m.a(x), m.b(x)),
            a=fc(),
            b=fc(),
            mix=Parts(lambda m, x, y: m.fc(x) * y, fc=fc()),
        ),
    ),
    input_that_needs_no_gradient=lambda run: one_model(
        run, Parts(lambda m, x: m.mix(m.a(x), x), a=fc(), mix=Parts(lambda m, x, y: m.fc(x) * y, fc=fc()))
    ),
    unused_output=lambda run: one_model(
        run, Parts(lambda m, x: m.split(m.fc(x))[0], fc=fc(), split=two(lambda m, x: (m.a(x), m.b(x))))
    ),
    detached_branch=lambda run: one_model(run, two(lambda m, x: m.a(x) + m.b(m.a(x).detach()))),
    convolution=convolution,
    lstm=lstm,
    gru_by_hand=gru_by_hand,
    sparse_embedding=sparse_embedding,
    complex_weights=complex_weights,
    embedding_bag=lambda run: one_model(run, nn.Sequential(nn.EmbeddingBag(7, 4), fc(4, 2)), tokens),
    frozen_layer=frozen_layer,
    unused_parameters=lambda run: one_model(
        run, Parts(lambda m, x: m.used(x), used=fc(4, 2), spare=nn.Linear(2, 2))
    ),
    reentrant_checkpointing=lambda run: checkpointed(run, True),
    checkpointing_by_saved_tensors=lambda run: checkpointed(run, False),
)
