# SPDX-License-Identifier: Apache-2.0
"""A transformer of which blocks of steps are timed: one block for each line on stdin.

Prints the seconds of a step when the block has ended, and a step's processor time when the process has
become idle: that includes what a monitor's writer does after the step, which must not run into the block
of another process.
"""
import argparse
import sys
import time

import torch
from msprobe.pytorch import TrainerMon
from torch import nn

WIDTH, LAYERS, CHARACTERS, CONTEXT, BATCH = 512, 6, 96, 128, 16


IDLE = 0.001, 0.02  # seconds of processor time that an idle process takes at most in this many seconds
IDLE_LIMIT = 2.0  # seconds


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


def idle_processor_time() -> float:
    """The process's processor time, once its threads have finished their work."""
    until = time.monotonic() + IDLE_LIMIT
    while True:
        before = time.process_time()
        time.sleep(IDLE[1])
        after = time.process_time()
        if after - before < IDLE[0] or time.monotonic() > until:
            return after


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
        seconds = time.perf_counter() - begin
        processor = idle_processor_time() - begin_processor
        print("seconds", seconds / options.steps, processor / options.steps, flush=True)


if __name__ == "__main__":
    main()
