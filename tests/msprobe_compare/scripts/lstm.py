# SPDX-License-Identifier: Apache-2.0
"""An LSTM, whose output is a tensor and a tuple of states."""
import torch
from msprobe.pytorch import TrainerMon
from torch import nn

import training


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(17, 8)
        self.lstm = nn.LSTM(8, 10, num_layers=2, batch_first=True)
        self.head = nn.Linear(10, 4)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        out, (hidden, _) = self.lstm(self.embedding(text))
        return self.head(out) + hidden[-1].mean()


def main() -> None:
    options = training.begin()
    model = Tagger()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    monitor = TrainerMon(options.config, params_have_main_grad=False)
    monitor.set_monitor(model, optimizer=optimizer, grad_acc_steps=1)
    for _ in range(options.steps):
        text, tags = torch.randint(17, (3, 5)), torch.randint(4, (3, 5))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(text).flatten(0, 1), tags.flatten()).backward()
        optimizer.step()
    training.end(options, model)


if __name__ == "__main__":
    main()
