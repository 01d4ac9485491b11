#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A small transformer under DistributedDataParallel, watched by gradmon.

One process a rank, started by `gradmonctl run -n 4 -- tests/demo/train_ddp.py` or any
other launcher that sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
"""
import argparse
import os
import signal
import time
from pathlib import Path

os.environ.setdefault("USE_LIBUV", "0")  # Debian 13's torch is built without it

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

import gradmon  # noqa: E402

CONTEXT = 32
STEPS_PER_LINE = 10


class CharTransformer(torch.nn.Module):
    def __init__(self, layers: int, width: int, characters: int) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(characters, width)
        self.position = torch.nn.Embedding(CONTEXT, width)
        self.layers = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
            for _ in range(layers)
        )
        self.final = torch.nn.Linear(width, characters)
        self.register_buffer("mask", torch.full((CONTEXT, CONTEXT), float("-inf")).triu(1))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        x = self.embedding(text) + self.position(torch.arange(text.shape[1]))
        for layer in self.layers:
            x = layer(x, self.mask)
        return self.final(x)


class Text:
    """Random excerpts of a text, different on each rank."""

    def __init__(self, path: Path, rank: int) -> None:
        text = path.read_text(errors="replace")
        known = {c: i for i, c in enumerate(sorted(set(text)))}
        self.characters = len(known)
        self._text = torch.tensor([known[c] for c in text])
        self._random = torch.Generator().manual_seed(1000 + rank)

    def batch(self, size: int) -> "tuple[torch.Tensor, torch.Tensor]":
        begins = torch.randint(len(self._text) - CONTEXT - 1, (size,), generator=self._random)
        rows = torch.stack([self._text[begin : begin + CONTEXT + 1] for begin in begins.tolist()])
        return rows[:, :-1], rows[:, 1:]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", default="monitor_config.json")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--step-ms", type=int, default=0, help="minimum duration of a step")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--text", type=Path, default=Path(__file__))
    return parser.parse_args()


def main() -> None:
    options = parse()
    torch.set_num_threads(options.threads)
    dist.init_process_group("gloo")
    told_to_end = torch.zeros(1)  # SIGTERM ends a process that still waits for the others at once
    signal.signal(signal.SIGTERM, lambda *_: told_to_end.fill_(1))
    text = Text(options.text, dist.get_rank())
    torch.manual_seed(1)
    model = CharTransformer(options.layers, options.width, text.characters)
    ddp = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=1e-3)
    loss_of = torch.nn.CrossEntropyLoss()
    with gradmon.Monitor(options.config).watch(model, optimizer) as monitor:
        for step in range(options.steps):
            end = time.monotonic() + options.step_ms / 1000
            given, wanted = text.batch(options.batch)
            optimizer.zero_grad()
            loss = loss_of(ddp(given).flatten(0, 1), wanted.flatten())
            loss.backward()
            monitor.scalar("loss", loss.item())
            monitor.samples(options.batch * dist.get_world_size())
            optimizer.step()
            ends = told_to_end.clone()  # all ranks must end at the same step, or the others would wait
            dist.all_reduce(ends, op=dist.ReduceOp.MAX)
            if dist.get_rank() == 0 and step % STEPS_PER_LINE == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            if ends.item() or monitor.may_end:
                break
            time.sleep(max(0.0, end - time.monotonic()))
    dist.barrier()


if __name__ == "__main__":
    main()
