# SPDX-License-Identifier: Apache-2.0
"""A transformer of which blocks of steps are timed: one block for each line on stdin."""
import argparse
import sys
import time

import torch
from msprobe.pytorch import TrainerMon
from torch import nn

WIDTH, LAYERS, CHARACTERS, CONTEXT, BATCH = 512, 6, 96, 128, 16


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(CHARACTERS, WIDTH)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.0, batch_first=True)
            for _ in range(LAYERS)
        )
        self.final = nn.Linear(WIDTH, CHARACTERS)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        x = self.embedding(text)
        for layer in self.layers:
            x = layer(x)
        return self.final(x)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("config")
    parser.add_argument("--steps", type=int, default=1, help="steps of a block")
    options = parser.parse_args()
    torch.manual_seed(1)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    monitor = TrainerMon(options.config, params_have_main_grad=False)
    monitor.set_monitor(model, optimizer=optimizer, grad_acc_steps=1)
    text = torch.randint(CHARACTERS, (BATCH, CONTEXT + 1))

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten()).backward()
        optimizer.step()

    step()  # makes the optimizer's state
    print("ready", flush=True)
    for _ in sys.stdin:
        begin, begin_processor = time.perf_counter(), time.process_time()
        for _ in range(options.steps):
            step()
        processor = (time.process_time() - begin_processor) / options.steps
        print("seconds", (time.perf_counter() - begin) / options.steps, processor, flush=True)


if __name__ == "__main__":
    main()
