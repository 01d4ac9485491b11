# SPDX-License-Identifier: Apache-2.0
"""A small transformer with AdamW and clipped gradients, watched through TrainerMon."""
import time

import torch
from msprobe.pytorch import TrainerMon
from torch import nn

import training

WIDTH, CHARACTERS, CONTEXT = 16, 23, 8
DYNAMIC_LIMIT = 120.0  # seconds for a collection that is switched on by the config file


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)
        self.norm2 = nn.LayerNorm(WIDTH)
        self.fc1 = nn.Linear(WIDTH, 2 * WIDTH)
        self.fc2 = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm1(x)).chunk(3, dim=-1)
        weights = torch.softmax(q @ k.transpose(1, 2) / WIDTH**0.5, dim=-1)
        x = x + self.proj(weights @ v)
        return x + self.fc2(torch.relu(self.fc1(self.norm2(x))))


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(CHARACTERS, WIDTH)
        self.layers = nn.ModuleList([Layer(), Layer()])
        self.dropout = nn.Dropout(0.1)
        self.final_norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, CHARACTERS)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        x = self.embedding(text)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.final_norm(self.dropout(x)))


def main() -> None:
    options = training.begin()
    model = Transformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0 if options.option == "still" else 1e-2)
    monitor = TrainerMon(options.config, params_have_main_grad=False)
    scheduler = None
    if options.option == "scheduler before":
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2)
    monitor.set_monitor(model, optimizer=optimizer, grad_acc_steps=1)
    if options.option == "scheduler after":
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2)
    text = torch.randint(CHARACTERS, (3, CONTEXT + 1))
    until = time.monotonic() + DYNAMIC_LIMIT
    step = 0
    while step < options.steps or (
        options.option == "still" and not training.collection_ended(options.config)
    ):
        if options.option == "still":  # each step is alike, whenever the collection begins
            model.dropout.p = 0.0
        else:
            text = torch.randint(CHARACTERS, (3, CONTEXT + 1))
        optimizer.zero_grad()
        logits = model(text[:, :-1])
        nn.functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
        step += 1
        if time.monotonic() > until:
            training.fail("the collection did not end")
    more = {}
    if options.option == "api":
        metrics = [*monitor.generate_xy_metrics()]
        more["metrics"] = training.numbers(metrics)
    training.end(options, model, **more)


if __name__ == "__main__":
    main()
