# SPDX-License-Identifier: Apache-2.0
"""Three micro batches in each step."""
import torch
from msprobe.pytorch import TrainerMon
from torch import nn

import training

MICRO_BATCHES = 3


def main() -> None:
    options = training.begin()
    model = nn.Sequential(nn.Linear(9, 12), nn.Tanh(), nn.Linear(12, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    monitor = TrainerMon(options.config, params_have_main_grad=False)
    monitor.set_monitor(model, optimizer=optimizer, grad_acc_steps=MICRO_BATCHES)
    for _ in range(options.steps):
        optimizer.zero_grad()
        for _ in range(MICRO_BATCHES):
            x, y = torch.randn(4, 9), torch.randn(4, 2)
            (nn.functional.mse_loss(model(x), y) / MICRO_BATCHES).backward()
        optimizer.step()
    training.end(options, model)


if __name__ == "__main__":
    main()
