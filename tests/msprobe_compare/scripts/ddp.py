# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel on Gloo, each rank with its own data, and a collective call of the program."""
import torch
import torch.distributed as dist
from msprobe.pytorch import TrainerMon
from torch import nn

import training


def main() -> None:
    options = training.begin()
    dist.init_process_group("gloo")
    monitor = TrainerMon(options.config, params_have_main_grad=False)
    module = nn.Sequential(nn.Linear(9, 12), nn.Tanh(), nn.Linear(12, 2))
    model = nn.parallel.DistributedDataParallel(
        module, gradient_as_bucket_view=options.option == "bucket_view"
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    group = dist.group.WORLD if options.option == "dp_group" else None
    monitor.set_monitor(model, optimizer=optimizer, grad_acc_steps=1, dp_group=group)
    torch.manual_seed(100 + dist.get_rank())
    for _ in range(options.steps):
        x, y = torch.randn(4, 9), torch.randn(4, 2)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        mean_loss = loss.detach().clone()
        dist.all_reduce(mean_loss)
        dist.all_reduce(x)
        optimizer.step()
    dist.barrier()
    training.end(options, model)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
