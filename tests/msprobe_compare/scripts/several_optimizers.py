# SPDX-License-Identifier: Apache-2.0
"""A generator and a discriminator, each with its optimizer; one of them is watched, or both."""
import torch
from msprobe.pytorch import TrainerMon
from torch import nn

import training


def main() -> None:
    options = training.begin()
    generator = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 6))
    discriminator = nn.Sequential(nn.Linear(6, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
    of_generator = torch.optim.Adam(generator.parameters(), lr=1e-2)
    of_discriminator: torch.optim.Optimizer
    if options.option == "same class":
        of_discriminator = torch.optim.Adam(discriminator.parameters(), lr=1e-2)
    else:
        of_discriminator = torch.optim.SGD(discriminator.parameters(), lr=1e-2, momentum=0.5)
    monitor = TrainerMon(options.config, params_have_main_grad=False)
    if options.option != "discriminator":
        monitor.set_monitor(generator, optimizer=of_generator, grad_acc_steps=1)
    if options.option in ("discriminator", "both"):
        monitor.set_monitor(discriminator, optimizer=of_discriminator, grad_acc_steps=1)
    ones, zeros = torch.ones(4, 1), torch.zeros(4, 1)
    loss = nn.functional.binary_cross_entropy_with_logits
    for _ in range(options.steps):
        real, noise = torch.randn(4, 6), torch.randn(4, 4)
        of_discriminator.zero_grad()
        made = generator(noise)
        (loss(discriminator(real), ones) + loss(discriminator(made.detach()), zeros)).backward()
        of_discriminator.step()
        of_generator.zero_grad()
        loss(discriminator(made), ones).backward()
        of_generator.step()
    training.end(options, generator, discriminator)


if __name__ == "__main__":
    main()
