# SPDX-License-Identifier: Apache-2.0
"""A language model whose output layer shares the weight of its embedding; some parameters are frozen."""
import torch
from msprobe.pytorch import TrainerMon
from torch import nn

import training

WIDTH, CHARACTERS = 12, 19


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(CHARACTERS, WIDTH)
        self.hidden = nn.Linear(WIDTH, WIDTH)
        self.frozen = nn.Linear(WIDTH, WIDTH)
        self.output_layer = nn.Linear(WIDTH, CHARACTERS, bias=False)
        self.output_layer.weight = self.embedding.weight
        self.frozen.requires_grad_(False)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        return self.output_layer(torch.tanh(self.frozen(self.hidden(self.embedding(text)))))


def main() -> None:
    options = training.begin()
    model = Tied()
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    monitor = TrainerMon(options.config, params_have_main_grad=False)
    monitor.set_monitor(model, optimizer=optimizer, grad_acc_steps=1)
    for _ in range(options.steps):
        text = torch.randint(CHARACTERS, (4, 6))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten()).backward()
        optimizer.step()
    training.end(options, model)


if __name__ == "__main__":
    main()
