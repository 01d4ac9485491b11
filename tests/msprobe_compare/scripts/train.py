# SPDX-License-Identifier: Apache-2.0
"""The compared trainings: train.py SCRIPT CONFIG --record FILE. Each is repeatable, and uses only msprobe."""
import argparse
import hashlib
import json
import os
import sys
import time
from typing import Any, Callable, Iterable, Optional

import torch
import torch.distributed as dist
from msprobe.pytorch import TrainerMon
from torch import nn

Tensor = torch.Tensor
DYNAMIC_LIMIT = 120.0  # seconds for a collection that is switched on by the config file


class Run:
    """The arguments of this process, and its end."""

    def __init__(self) -> None:
        """Seeds torch; one thread, so that sums have one order."""
        parser = argparse.ArgumentParser()
        parser.add_argument("script", choices=SCRIPTS)
        parser.add_argument("config", help="monitor_config.json")
        parser.add_argument("--record", default="", help="file for the digest and the metrics of the api")
        parser.add_argument("--steps", type=int, default=4)
        parser.add_argument("--option", default="", help="variation of the script")
        parser.parse_args(namespace=self)
        torch.manual_seed(7)
        torch.set_num_threads(1)

    script: str
    config: str
    record: str
    steps: int
    option: str

    def monitor(self) -> TrainerMon:
        return TrainerMon(self.config, params_have_main_grad=False)

    def train(self, model: nn.Module, optimizer: Any, loss: "Callable[[int], Tensor]") -> None:
        """The usual loop; loss: of a step."""
        self.monitor().set_monitor(model, optimizer=optimizer, grad_acc_steps=1)
        for step in range(self.steps):
            optimizer.zero_grad()
            loss(step).backward()
            optimizer.step()
        self.end(model)

    def end(self, *models: nn.Module, **more: Any) -> None:
        """Writes a record of the finished training: with or without a monitor it must be the same."""
        digest = hashlib.sha256()
        for model in models:
            for name, value in model.state_dict().items():
                digest.update(name.encode() + value.detach().contiguous().numpy().tobytes())
        random = hashlib.sha256(torch.get_rng_state().numpy().tobytes()).hexdigest()
        with open(f"{self.record}-rank{os.environ.get('RANK', '0')}", "w") as file:
            json.dump({"parameters": digest.hexdigest(), "random": random, **more}, file, sort_keys=True)

    def collection_ended(self) -> bool:
        """True if the monitor has written `dynamic_on: false` back; a half-written file is not an answer."""
        try:
            with open(self.config) as file:
                return not json.load(file)["dynamic_on"]
        except (OSError, ValueError, KeyError):
            return False


def adam(model: nn.Module) -> torch.optim.Adam:
    return torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-2)


def classes_loss(logits: Tensor, wanted: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, -2), wanted.flatten())


def next_loss(model: nn.Module, text: Tensor) -> Tensor:
    """The loss of the prediction of each next character."""
    return classes_loss(model(text[:, :-1]), text[:, 1:])


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(9, 12), nn.Tanh(), nn.Linear(12, 2))


def accumulation(run: Run) -> None:
    """Three micro batches in each step."""
    micro_batches = 3
    model = perceptron()
    optimizer = adam(model)
    run.monitor().set_monitor(model, optimizer=optimizer, grad_acc_steps=micro_batches)
    for _ in range(run.steps):
        optimizer.zero_grad()
        for _ in range(micro_batches):
            x, y = torch.randn(4, 9), torch.randn(4, 2)
            (nn.functional.mse_loss(model(x), y) / micro_batches).backward()
        optimizer.step()
    run.end(model)


class Containers(nn.Module):
    """Modules with tuples, keywords, None and dictionaries, one called twice, and one used now and then."""

    WIDTH = 8

    class Pair(nn.Module):
        """Tuple in, tuple out."""

        def __init__(self, width: int) -> None:
            super().__init__()
            self.left, self.right = nn.Linear(width, width), nn.Linear(width, width)

        def forward(self, x: Tensor, y: Tensor) -> "tuple[Tensor, Tensor]":
            return self.left(x), self.right(y)

    class Gate(nn.Module):
        """A place that is None, a number, and a keyword."""

        def __init__(self, width: int) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(width))

        def forward(self, x: Tensor, mask: Optional[Tensor], scale: float, *, other: Tensor) -> Tensor:
            return x * self.weight * scale + torch.sigmoid(other)

    class Named(nn.Module):
        """A dictionary out."""

        def __init__(self, width: int) -> None:
            super().__init__()
            self.fc = nn.Linear(width, width)

        def forward(self, x: Tensor) -> "dict[str, Tensor]":
            y = self.fc(x)
            return {"sum": y + x, "product": y * x}

    def __init__(self) -> None:
        super().__init__()
        self.pair, self.gate = self.Pair(self.WIDTH), self.Gate(self.WIDTH)
        self.named = self.Named(self.WIDTH)
        self.twice, self.rare = nn.Linear(self.WIDTH, self.WIDTH), nn.Linear(self.WIDTH, self.WIDTH)

    def forward(self, x: Tensor, *, with_rare: bool) -> Tensor:
        left, right = self.pair(x, x * 2)
        gated = self.gate(left, None, 0.5, other=right)
        parts: "dict[str, Any]" = self.named(self.twice(torch.tanh(self.twice(gated))))
        out = parts["sum"] + parts["product"]
        return out + self.rare(out) if with_rare else out


def containers(run: Run) -> None:
    model = Containers()

    def loss(step: int) -> Tensor:
        return model(torch.randn(5, model.WIDTH), with_rare=step % 2 == 0).square().mean()

    run.train(model, adam(model), loss)


def convolution(run: Run) -> None:
    """A convolutional classifier with batch norm, an in-place activation, and SGD with momentum."""
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
    optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    if run.option == "adam":
        optimizer = adam(model)
    run.monitor().set_monitor(model, optimizer=optimizer, grad_acc_steps=1)
    for _ in range(run.steps):
        images, labels = torch.randn(4, 3, 8, 8), torch.randint(5, (4,))
        optimizer.zero_grad()
        classes_loss(model(images), labels).backward()
        optimizer.step()
        model.eval()  # an evaluation between the steps
        with torch.no_grad():
            model(images)
        model.train()
    run.end(model)


def ddp(run: Run) -> None:
    """DistributedDataParallel on Gloo, each rank with its own data, and a collective call of the program."""
    dist.init_process_group("gloo")
    monitor = run.monitor()
    as_view = run.option == "bucket_view"
    model = nn.parallel.DistributedDataParallel(perceptron(), gradient_as_bucket_view=as_view)
    optimizer = adam(model)
    group = dist.group.WORLD if run.option == "dp_group" else None
    monitor.set_monitor(model, optimizer=optimizer, grad_acc_steps=1, dp_group=group)
    torch.manual_seed(100 + dist.get_rank())
    for _ in range(run.steps):
        x, y = torch.randn(4, 9), torch.randn(4, 2)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        mean_loss = loss.detach().clone()
        dist.all_reduce(mean_loss)
        dist.all_reduce(x)
        optimizer.step()
    dist.barrier()
    run.end(model)
    dist.destroy_process_group()


class Routed(nn.Module):
    """Attention of one batch and head, and a router of experts."""

    WIDTH, EXPERTS, CHARACTERS, CONTEXT = 12, 4, 19, 7

    class Attention(nn.Module):
        """Queries, keys and values of shape [sequence, batch, head, width]; causal."""

        def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            q, k, v = (x.permute(1, 2, 0, 3) for x in (q, k, v))
            mask = torch.full((q.shape[2], q.shape[2]), float("-inf")).triu(1)
            weights = torch.softmax(q @ k.transpose(2, 3) / q.shape[-1] ** 0.5 + mask, dim=-1)
            return (weights @ v).permute(2, 0, 1, 3)

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(self.CHARACTERS, self.WIDTH)
        self.qkv = nn.Linear(self.WIDTH, 3 * self.WIDTH)
        self.core = self.Attention()
        self.router = nn.Linear(self.WIDTH, self.EXPERTS, bias=False)
        self.experts = nn.ModuleList(nn.Linear(self.WIDTH, self.WIDTH) for _ in range(self.EXPERTS))
        self.head = nn.Linear(self.WIDTH, self.CHARACTERS)

    def forward(self, text: Tensor) -> Tensor:
        q, k, v = self.qkv(self.embedding(text)).unsqueeze(2).chunk(3, dim=-1)
        x = self.core(q, k, v).squeeze(2)
        shares = torch.softmax(self.router(x), dim=-1)
        return self.head(sum(shares[..., i : i + 1] * expert(x) for i, expert in enumerate(self.experts)))


def l2_features(run: Run) -> None:
    """No random number is drawn while it trains."""
    model = Routed()
    texts = torch.randint(model.CHARACTERS, (run.steps, model.CONTEXT + 1, 1))

    def loss(step: int) -> Tensor:
        return classes_loss(model(texts[step][:-1]), texts[step][1:])

    run.train(model, adam(model), loss)


class Tagger(nn.Module):
    """An LSTM, whose output is a tensor and a tuple of states."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(17, 8)
        self.lstm = nn.LSTM(8, 10, num_layers=2, batch_first=True)
        self.head = nn.Linear(10, 4)

    def forward(self, text: Tensor) -> Tensor:
        out, (hidden, _) = self.lstm(self.embedding(text))
        return self.head(out) + hidden[-1].mean()


def lstm(run: Run) -> None:
    model = Tagger()

    def loss(_: int) -> Tensor:
        text, tags = torch.randint(17, (3, 5)), torch.randint(4, (3, 5))
        return classes_loss(model(text), tags)

    run.train(model, adam(model), loss)


def several_optimizers(run: Run) -> None:
    """A generator and a discriminator, each with its optimizer; one of them is watched, or both."""
    generator = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 6))
    discriminator = nn.Sequential(nn.Linear(6, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
    of_generator, of_discriminator = adam(generator), adam(discriminator)
    if run.option != "same class":
        of_discriminator = torch.optim.SGD(discriminator.parameters(), lr=1e-2, momentum=0.5)
    monitor = run.monitor()
    if run.option != "discriminator":
        monitor.set_monitor(generator, optimizer=of_generator, grad_acc_steps=1)
    if run.option in ("discriminator", "both"):
        monitor.set_monitor(discriminator, optimizer=of_discriminator, grad_acc_steps=1)
    ones, zeros = torch.ones(4, 1), torch.zeros(4, 1)
    loss = nn.functional.binary_cross_entropy_with_logits
    for _ in range(run.steps):
        real, noise = torch.randn(4, 6), torch.randn(4, 4)
        of_discriminator.zero_grad()
        made = generator(noise)
        (loss(discriminator(real), ones) + loss(discriminator(made.detach()), zeros)).backward()
        of_discriminator.step()
        of_generator.zero_grad()
        loss(discriminator(made), ones).backward()
        of_generator.step()
    run.end(generator, discriminator)


class Tied(nn.Module):
    """A language model whose output layer shares the weight of its embedding; some parameters are frozen."""

    WIDTH, CHARACTERS = 12, 19

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(self.CHARACTERS, self.WIDTH)
        self.hidden, self.frozen = nn.Linear(self.WIDTH, self.WIDTH), nn.Linear(self.WIDTH, self.WIDTH)
        self.output_layer = nn.Linear(self.WIDTH, self.CHARACTERS, bias=False)
        self.output_layer.weight = self.embedding.weight
        self.frozen.requires_grad_(False)

    def forward(self, text: Tensor) -> Tensor:
        return self.output_layer(torch.tanh(self.frozen(self.hidden(self.embedding(text)))))


def tied_weights(run: Run) -> None:
    model = Tied()
    run.train(model, adam(model), lambda _: next_loss(model, torch.randint(model.CHARACTERS, (4, 6))))


class Transformer(nn.Module):
    WIDTH, CHARACTERS, CONTEXT = 16, 23, 8

    class Layer(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.norm1, self.qkv = nn.LayerNorm(width), nn.Linear(width, 3 * width)
            self.proj, self.norm2 = nn.Linear(width, width), nn.LayerNorm(width)
            self.fc1, self.fc2 = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.qkv(self.norm1(x)).chunk(3, dim=-1)
            weights = torch.softmax(q @ k.transpose(1, 2) / x.shape[-1] ** 0.5, dim=-1)
            x = x + self.proj(weights @ v)
            return x + self.fc2(torch.relu(self.fc1(self.norm2(x))))

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(self.CHARACTERS, self.WIDTH)
        self.layers = nn.ModuleList([self.Layer(self.WIDTH), self.Layer(self.WIDTH)])
        self.dropout, self.final_norm = nn.Dropout(0.1), nn.LayerNorm(self.WIDTH)
        self.head = nn.Linear(self.WIDTH, self.CHARACTERS)

    def forward(self, text: Tensor) -> Tensor:
        x = self.embedding(text)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.final_norm(self.dropout(x)))


def transformer(run: Run) -> None:
    """With AdamW and clipped gradients. still: each step is alike, whenever the collection begins."""
    model = Transformer()
    still = run.option == "still"
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0 if still else 1e-2)
    monitor = run.monitor()
    scheduler = None
    if run.option == "scheduler before":
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2)
    monitor.set_monitor(model, optimizer=optimizer, grad_acc_steps=1)
    if run.option == "scheduler after":
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2)
    text = torch.randint(model.CHARACTERS, (3, model.CONTEXT + 1))
    if still:
        model.dropout.p = 0.0
    until = time.monotonic() + DYNAMIC_LIMIT
    step = 0
    while step < run.steps or (still and not run.collection_ended()):
        if not still:
            text = torch.randint(model.CHARACTERS, (3, model.CONTEXT + 1))
        optimizer.zero_grad()
        next_loss(model, text).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
        step += 1
        if time.monotonic() > until:
            sys.exit("train.py: the collection did not end")
    more = {"metrics": numbers(monitor.generate_xy_metrics())} if run.option == "api" else {}
    run.end(model, **more)


def idle_processor_time() -> float:
    """The process's processor time, once its threads have finished their work."""
    until = time.monotonic() + 2.0
    while True:
        before = time.process_time()
        time.sleep(0.02)
        after = time.process_time()
        if after - before < 0.001 or time.monotonic() > until:
            return after


def timed(run: Run) -> None:
    """Blocks of steps, one for each line on stdin. Prints the seconds of a step when the block has ended, and
    a step's processor time when the process has become idle: that includes the work of a monitor's writer
    after the step, which must not run into the block of another process."""
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    width, characters = 512, 96
    layers = [nn.TransformerEncoderLayer(width, 4, 2 * width, 0.0, batch_first=True) for _ in range(6)]
    model = nn.Sequential(nn.Embedding(characters, width), *layers, nn.Linear(width, characters))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    run.monitor().set_monitor(model, optimizer=optimizer, grad_acc_steps=1)
    text = torch.randint(characters, (16, 128 + 1))

    def step() -> None:
        optimizer.zero_grad()
        next_loss(model, text).backward()
        optimizer.step()

    step()  # makes the optimizer's state
    print("ready", flush=True)
    for _ in sys.stdin:
        begin, begin_processor = time.perf_counter(), time.process_time()
        for _ in range(run.steps):
            step()
        seconds = time.perf_counter() - begin
        processor = idle_processor_time() - begin_processor
        print("seconds", seconds / run.steps, processor / run.steps, flush=True)


def numbers(metrics: "Iterable[dict[str, dict[str, Any]]]") -> "list[dict[str, dict[str, float]]]":
    """Metrics of the api as JSON can hold them; shapes and types are left out."""
    left_out = ("shape", "dtype")
    return [
        {tag: {op: float(x) for op, x in ops.items() if op not in left_out} for tag, ops in kind.items()}
        for kind in metrics
    ]


SCRIPTS = {
    script.__name__: script
    for script in (
        accumulation,
        containers,
        convolution,
        ddp,
        l2_features,
        lstm,
        several_optimizers,
        tied_weights,
        timed,
        transformer,
    )
}

if __name__ == "__main__":
    this = Run()
    SCRIPTS[this.script](this)
