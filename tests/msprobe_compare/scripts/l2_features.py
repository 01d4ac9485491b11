# SPDX-License-Identifier: Apache-2.0
"""Attention of one batch and head, and a router of experts; no random number is drawn while it trains."""
import torch
from msprobe.pytorch import TrainerMon
from torch import nn

import training

WIDTH, EXPERTS, CHARACTERS, CONTEXT = 12, 4, 19, 7


class Attention(nn.Module):
    """Queries, keys and values of shape [sequence, batch, head, width]; causal."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = (x.permute(1, 2, 0, 3) for x in (q, k, v))
        mask = torch.full((q.shape[2], q.shape[2]), float("-inf")).triu(1)
        weights = torch.softmax(q @ k.transpose(2, 3) / q.shape[-1] ** 0.5 + mask, dim=-1)
        return (weights @ v).permute(2, 0, 1, 3)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(CHARACTERS, WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.core = Attention()
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(EXPERTS))
        self.head = nn.Linear(WIDTH, CHARACTERS)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.embedding(text)).unsqueeze(2).chunk(3, dim=-1)
        x = self.core(q, k, v).squeeze(2)
        shares = torch.softmax(self.router(x), dim=-1)
        return self.head(sum(shares[..., i : i + 1] * expert(x) for i, expert in enumerate(self.experts)))


def main() -> None:
    options = training.begin()
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    monitor = TrainerMon(options.config, params_have_main_grad=False)
    monitor.set_monitor(model, optimizer=optimizer, grad_acc_steps=1)
    for text in torch.randint(CHARACTERS, (options.steps, CONTEXT + 1, 1)):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(text[:-1]).flatten(0, 1), text[1:].flatten()).backward()
        optimizer.step()
    training.end(options, model)


if __name__ == "__main__":
    main()
