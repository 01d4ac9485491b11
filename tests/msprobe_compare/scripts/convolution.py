# SPDX-License-Identifier: Apache-2.0
"""A convolutional classifier with batch norm, an in-place activation, and SGD with momentum."""
import torch
from msprobe.pytorch import TrainerMon
from torch import nn

import training


def main() -> None:
    options = training.begin()
    model = nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1),
        nn.BatchNorm2d(6),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 8, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32, 5),
    )
    if options.option == "adam":
        optimizer: torch.optim.Optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    monitor = TrainerMon(options.config, params_have_main_grad=False)
    monitor.set_monitor(model, optimizer=optimizer, grad_acc_steps=1)
    for _ in range(options.steps):
        images, labels = torch.randn(4, 3, 8, 8), torch.randint(5, (4,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        model.eval()  # an evaluation between the steps
        with torch.no_grad():
            model(images)
        model.train()
    training.end(options, model)


if __name__ == "__main__":
    main()
