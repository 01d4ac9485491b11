# SPDX-License-Identifier: Apache-2.0
"""Models and loops for the oracle: each a function that trains a few iterations with `run`."""
from typing import Any, Callable, Optional

import torch
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

STEPS = 3
Loop = Callable[["Run"], None]
LOOPS: "dict[str, Loop]" = {}


class Run:
    """One training: with a recorder, with gradmon, or with neither."""

    def __init__(self, watcher: Any, ends_iterations: bool) -> None:
        self.watcher = watcher
        self.models: "list[nn.Module]" = []
        self._ends_iterations = ends_iterations  # else the watcher has to find them

    def watch(self, model: nn.Module, optimizer: Any, **keywords: Any) -> None:
        self.models.append(model)
        self.watcher.watch(model, optimizer, **keywords)

    def backward(self, loss: torch.Tensor) -> None:
        self.watcher.in_backward = True
        loss.backward()
        self.watcher.in_backward = False

    def end(self, explicit: bool = False) -> None:
        if explicit and hasattr(self.watcher, "step"):
            self.watcher.step()
        elif self._ends_iterations:
            self.watcher.end_iteration()


def loop(function: Loop) -> Loop:
    LOOPS[function.__name__] = function
    return function


def data(*sizes: int, step: int = 0, micro: int = 0) -> torch.Tensor:
    count = int(torch.tensor(sizes).prod())
    return torch.sin(torch.arange(float(count)) * 0.7 + step + 0.3 * micro).reshape(sizes)


def tokens(step: int, size: int = 7, rows: int = 2, length: int = 3) -> torch.Tensor:
    return (torch.arange(rows * length).reshape(rows, length) * 5 + step) % size


def adam(model: nn.Module, **options: Any) -> Any:
    return torch.optim.Adam(model.parameters(), lr=0.01, **options)


def one_model(
    run: Run,
    model: nn.Module,
    inputs: Callable[[int], Any] = lambda step: data(3, 4, step=step),
    optimizer: Any = None,
    loss: Callable[[Any], torch.Tensor] = lambda out: out.pow(2).mean(),
) -> None:
    """The plainest loop: one forward, one backward, one step."""
    optimizer = adam(model) if optimizer is None else optimizer
    run.watch(model, optimizer)
    for step in range(STEPS):
        optimizer.zero_grad()
        given = inputs(step)
        run.backward(loss(model(*given) if isinstance(given, tuple) else model(given)))
        optimizer.step()
        run.end()


def mlp(inputs: int = 4, outputs: int = 2, inplace: bool = False) -> nn.Module:
    act = nn.ReLU(inplace=True) if inplace else nn.Tanh()
    return nn.Sequential(nn.Linear(inputs, 6), act, nn.Linear(6, outputs))


class Parts(nn.Module):
    """Any forward over some modules."""

    def __init__(self, forward: Callable[..., Any], **modules: nn.Module) -> None:
        super().__init__()
        for name, module in modules.items():
            self.add_module(name, module)
        self._forward = forward

    def forward(self, *inputs: Any) -> Any:
        return self._forward(self, *inputs)


class Block(nn.Module):
    """Of a transformer, normalized before each part."""

    def __init__(self, width: int = 8, heads: int = 2) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.heads = heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm1(x)).chunk(3, -1)
        weights = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1)
        x = x + self.out(weights @ v)
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Language(nn.Module):
    def __init__(self, tied: bool = False, sparse: bool = False, blocks: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 8, sparse=sparse)
        self.blocks = nn.ModuleList([Block() for _ in range(blocks)])
        self.head = nn.Linear(8, 7, bias=False)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


@loop
def plain(run: Run) -> None:
    one_model(run, mlp())


@loop
def without_bias(run: Run) -> None:
    one_model(run, nn.Linear(4, 2, bias=False))


@loop
def in_place(run: Run) -> None:
    one_model(run, mlp(inplace=True))


@loop
def residual(run: Run) -> None:
    block = Parts(lambda m, x: x + m.fc(m.norm(x)), norm=nn.LayerNorm(4), fc=nn.Linear(4, 4))
    one_model(run, nn.Sequential(nn.Linear(4, 4), block, nn.Linear(4, 2)))


@loop
def pre_norm_transformer(run: Run) -> None:
    one_model(run, Language(), tokens)


@loop
def post_norm_layer(run: Run) -> None:
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
    one_model(run, nn.Sequential(nn.Linear(4, 4), layer), lambda step: data(2, 3, 4, step=step))


@loop
def tied_weights(run: Run) -> None:
    one_model(run, Language(tied=True), tokens)


@loop
def shared_module(run: Run) -> None:
    one_model(run, Parts(lambda m, x: m.fc(torch.tanh(m.fc(x))), fc=nn.Linear(4, 4)))


@loop
def module_under_two_names(run: Run) -> None:
    fc = nn.Linear(4, 4)
    one_model(run, Parts(lambda m, x: m.other(torch.tanh(m.one(x))), one=fc, other=fc))


@loop
def input_used_twice(run: Run) -> None:
    gate = Parts(lambda m, x: m.a(x) * torch.sigmoid(m.b(x)), a=nn.Linear(4, 4), b=nn.Linear(4, 4))
    one_model(run, nn.Sequential(nn.Linear(4, 4), gate, nn.Linear(4, 2)))


@loop
def tuple_output(run: Run) -> None:
    split = Parts(lambda m, x: (m.fc(x), m.fc(x).sin()), fc=nn.Linear(4, 4))
    one_model(
        run,
        Parts(
            lambda m, x: m.head(sum(m.split(m.fc(x)))), fc=nn.Linear(4, 4), split=split, head=nn.Linear(4, 2)
        ),
    )


@loop
def dict_output(run: Run) -> None:
    split = Parts(lambda m, x: {"a": m.fc(x), "b": x * 2}, fc=nn.Linear(4, 4))

    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        found = m.split(m.fc(x))
        return m.head(found["a"] + found["b"])

    one_model(run, Parts(forward, fc=nn.Linear(4, 4), split=split, head=nn.Linear(4, 2)))


@loop
def several_inputs(run: Run) -> None:
    mix = Parts(lambda m, x, y: m.fc(x) * y, fc=nn.Linear(4, 4))
    one_model(
        run,
        Parts(lambda m, x: m.mix(m.a(x), m.b(x)), a=nn.Linear(4, 4), b=nn.Linear(4, 4), mix=mix),
    )


@loop
def input_that_needs_no_gradient(run: Run) -> None:
    mix = Parts(lambda m, x, y: m.fc(x) * y, fc=nn.Linear(4, 4))
    one_model(run, Parts(lambda m, x: m.mix(m.a(x), x), a=nn.Linear(4, 4), mix=mix))


@loop
def unused_output(run: Run) -> None:
    split = Parts(lambda m, x: (m.a(x), m.b(x)), a=nn.Linear(4, 4), b=nn.Linear(4, 4))
    one_model(run, Parts(lambda m, x: m.split(m.fc(x))[0], fc=nn.Linear(4, 4), split=split))


@loop
def detached_branch(run: Run) -> None:
    one_model(run, Parts(lambda m, x: m.a(x) + m.b(m.a(x).detach()), a=nn.Linear(4, 4), b=nn.Linear(4, 4)))


@loop
def convolution(run: Run) -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1),
        nn.BatchNorm2d(3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(12, 2),
    )
    one_model(run, model, lambda step: data(2, 1, 4, 4, step=step))


@loop
def lstm(run: Run) -> None:
    model = Parts(
        lambda m, x: m.head(m.lstm(x)[0]), lstm=nn.LSTM(4, 5, batch_first=True), head=nn.Linear(5, 2)
    )
    one_model(run, model, lambda step: data(2, 3, 4, step=step))


@loop
def gru_by_hand(run: Run) -> None:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        h = torch.zeros(2, 5)
        for t in range(x.shape[1]):
            h = m.cell(x[:, t], h)
        return m.head(h)

    one_model(
        run,
        Parts(forward, cell=nn.GRUCell(4, 5), head=nn.Linear(5, 2)),
        lambda step: data(2, 3, 4, step=step),
    )


@loop
def sparse_embedding(run: Run) -> None:
    model = nn.Sequential(nn.Embedding(7, 4, sparse=True), nn.Flatten(), nn.Linear(12, 2))
    one_model(run, model, tokens, torch.optim.SGD(model.parameters(), lr=0.1))


class Waves(nn.Module):
    """Its weight is complex."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3, dtype=torch.cfloat))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.to(torch.cfloat) @ self.weight


@loop
def complex_weights(run: Run) -> None:
    one_model(
        run,
        Parts(
            lambda m, x: m.head(m.waves(m.fc(x)).abs()),
            fc=nn.Linear(4, 4),
            waves=Waves(),
            head=nn.Linear(3, 2),
        ),
    )


@loop
def embedding_bag(run: Run) -> None:
    one_model(run, nn.Sequential(nn.EmbeddingBag(7, 4), nn.Linear(4, 2)), tokens)


@loop
def frozen_layer(run: Run) -> None:
    model = mlp()
    for parameter in model[0].parameters():
        parameter.requires_grad_(False)
    one_model(run, model)


@loop
def frozen_in_mid_run(run: Run) -> None:
    model = mlp()
    optimizer = adam(model)
    run.watch(model, optimizer)
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        for parameter in model[0].parameters():
            parameter.requires_grad_(step != 1)
        run.backward(model(data(3, 4, step=step)).pow(2).mean())
        optimizer.step()
        for parameter in model[0].parameters():
            parameter.requires_grad_(True)
        run.end()


@loop
def unused_parameters(run: Run) -> None:
    model = Parts(lambda m, x: m.used(x), used=nn.Linear(4, 2), spare=nn.Linear(2, 2))
    one_model(run, model)


@loop
def another_path_each_iteration(run: Run) -> None:
    model = Parts(lambda m, x, one: m.a(x) if one else m.b(x), a=nn.Linear(4, 2), b=nn.Linear(4, 2))
    optimizer = adam(model)
    run.watch(model, optimizer)
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        run.backward(model(data(3, 4, step=step), step % 2 == 0).pow(2).mean())
        optimizer.step()
        run.end()


@loop
def momentum(run: Run) -> None:
    model = mlp()
    one_model(run, model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))


@loop
def rmsprop(run: Run) -> None:
    model = mlp()
    one_model(run, model, optimizer=torch.optim.RMSprop(model.parameters(), lr=0.01))


@loop
def several_groups(run: Run) -> None:
    model = mlp()
    groups = [
        {"params": model[0].parameters(), "lr": 0.1},
        {"params": model[2].parameters(), "weight_decay": 0.1},
    ]
    one_model(run, model, optimizer=torch.optim.AdamW(groups, lr=0.01))


@loop
def closure(run: Run) -> None:
    model = mlp()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
    run.watch(model, optimizer)
    for step in range(STEPS):

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(data(3, 4, step=step)).pow(2).mean()
            run.backward(loss)
            return loss

        optimizer.step(closure)
        run.end()


@loop
def accumulation(run: Run) -> None:
    model = mlp()
    optimizer = adam(model)
    run.watch(model, optimizer, grad_acc_steps=3)
    for step in range(STEPS):
        optimizer.zero_grad()
        for micro in range(3):
            run.backward(model(data(3, 4, step=step, micro=micro)).pow(2).mean() / 3)
        optimizer.step()
        run.end()


@loop
def clipping(run: Run) -> None:
    model = mlp()
    optimizer = adam(model)
    run.watch(model, optimizer)
    for step in range(STEPS):
        optimizer.zero_grad()
        run.backward(model(data(3, 4, step=step)).pow(2).sum() * 50)
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        run.end()


@loop
def zero_grad_after_the_step(run: Run) -> None:
    model = mlp()
    optimizer = adam(model)
    run.watch(model, optimizer)
    for step in range(STEPS):
        run.backward(model(data(3, 4, step=step)).pow(2).mean())
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        run.end()


@loop
def scheduler(run: Run) -> None:
    model = mlp()
    optimizer = adam(model)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    run.watch(model, optimizer)
    for step in range(STEPS):
        optimizer.zero_grad()
        run.backward(model(data(3, 4, step=step)).pow(2).mean())
        optimizer.step()
        schedule.step()
        run.end()


@loop
def evaluation_between(run: Run) -> None:
    model = mlp()
    optimizer = adam(model)
    run.watch(model, optimizer)
    for step in range(STEPS):
        optimizer.zero_grad()
        run.backward(model(data(3, 4, step=step)).pow(2).mean())
        model.eval()
        with torch.no_grad():
            model(data(3, 4, step=9))
        model.train()
        optimizer.step()
        run.end()


def checkpointed(run: Run, reentrant: bool) -> None:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        return m.last(checkpoint(m.inner, m.first(x), use_reentrant=reentrant))

    inner = nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 4))
    one_model(run, Parts(forward, first=nn.Linear(4, 4), inner=inner, last=nn.Linear(4, 2)))


@loop
def reentrant_checkpointing(run: Run) -> None:
    checkpointed(run, True)


@loop
def checkpointing_by_saved_tensors(run: Run) -> None:
    checkpointed(run, False)


@loop
def late_layer(run: Run) -> None:
    model = Parts(lambda m, x: m.extra(m.fc(x)) if hasattr(m, "extra") else m.fc(x), fc=nn.Linear(4, 4))
    optimizer = adam(model)
    run.watch(model, optimizer)
    for step in range(STEPS):
        if step == 1:
            model.add_module("extra", nn.Linear(4, 2))
            optimizer.add_param_group({"params": model.extra.parameters()})
        optimizer.zero_grad()
        run.backward(model(data(3, 4, step=step)).pow(2).mean())
        optimizer.step()
        run.end()


def gan(run: Run, generator_first: bool, explicit: bool) -> None:
    generator, discriminator = mlp(4, 4), mlp(4, 1)
    of_generator, of_discriminator = adam(generator), torch.optim.AdamW(discriminator.parameters(), lr=0.01)
    pairs = [(generator, of_generator), (discriminator, of_discriminator)]
    for pair in pairs if generator_first else reversed(pairs):
        run.watch(*pair)
    for step in range(STEPS):
        for parameter in discriminator.parameters():
            parameter.requires_grad_(True)
        of_discriminator.zero_grad()
        fake = generator(data(3, 4, step=step, micro=1))
        run.backward(functional.softplus(-discriminator(data(3, 4, step=step))).mean())
        run.backward(functional.softplus(discriminator(fake.detach())).mean())
        of_discriminator.step()
        for parameter in discriminator.parameters():
            parameter.requires_grad_(False)
        of_generator.zero_grad()
        run.backward(functional.softplus(-discriminator(fake)).mean())
        of_generator.step()
        run.end(explicit)


@loop
def gan_generator_watched_first(run: Run) -> None:
    gan(run, True, False)


@loop
def gan_discriminator_watched_first(run: Run) -> None:
    gan(run, False, False)


@loop
def gan_whose_iterations_the_program_ends(run: Run) -> None:
    gan(run, True, True)


@loop
def two_optimizers_of_one_model(run: Run) -> None:
    model = mlp()
    slow, fast = adam(model[0]), torch.optim.SGD(model[2].parameters(), lr=0.1, momentum=0.9)
    run.watch(model, slow)
    run.watch(model, fast)
    for step in range(STEPS):
        slow.zero_grad()
        fast.zero_grad()
        run.backward(model(data(3, 4, step=step)).pow(2).mean())
        fast.step()
        slow.step()
        run.end()


@loop
def optimizer_made_anew(run: Run) -> None:
    model = mlp()
    optimizer = adam(model)
    run.watch(model, optimizer)
    for step in range(STEPS):
        if step == 1:
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
            run.watch(model, optimizer)
        optimizer.zero_grad()
        run.backward(model(data(3, 4, step=step)).pow(2).mean())
        optimizer.step()
        run.end()


@loop
def one_optimizer_of_two_models(run: Run) -> None:
    encoder, decoder = mlp(4, 3), mlp(3, 4)
    optimizer = torch.optim.AdamW([*encoder.parameters(), *decoder.parameters()], lr=0.01)
    run.watch(encoder, optimizer)
    run.watch(decoder, optimizer)
    for step in range(STEPS):
        optimizer.zero_grad()
        run.backward(decoder(encoder(data(3, 4, step=step))).pow(2).mean())
        optimizer.step()
        run.end()


@loop
def main_gradients(run: Run) -> None:
    """As Megatron keeps them: accumulated beside the parameter, which has none itself."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run.watch(model, optimizer)
    for parameter in model.parameters():
        parameter.main_grad = torch.zeros_like(parameter)
    for step in range(STEPS):
        for parameter in model.parameters():
            parameter.main_grad.zero_()
        for micro in range(2):
            run.backward(model(data(3, 4, step=step, micro=micro)).pow(2).mean())
            for parameter in model.parameters():
                parameter.main_grad += parameter.grad
                parameter.grad = None
        for parameter in model.parameters():
            parameter.grad = parameter.main_grad.clone()
        optimizer.step()
        for parameter in model.parameters():
            parameter.grad = None
        run.end()


def ddp(run: Run, hook: Optional[str] = None, skip_sync: bool = False, **options: Any) -> None:
    """Of one rank, so that what is reduced is what was there."""
    model = DistributedDataParallel(mlp(), **options)
    if hook is not None:
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

        model.register_comm_hook(None, getattr(default_hooks, hook))
    optimizer = adam(model)
    run.watch(model, optimizer)
    for step in range(STEPS):
        optimizer.zero_grad()
        if skip_sync:
            with model.no_sync():
                run.backward(model(data(3, 4, step=step)).pow(2).mean())
        run.backward(model(data(3, 4, step=step, micro=1)).pow(2).mean())
        optimizer.step()
        run.end()


@loop
def ddp_plain(run: Run) -> None:
    ddp(run)


@loop
def ddp_bucket_views(run: Run) -> None:
    ddp(run, gradient_as_bucket_view=True)


@loop
def ddp_finds_unused(run: Run) -> None:
    ddp(run, find_unused_parameters=True)


@loop
def ddp_static_graph(run: Run) -> None:
    ddp(run, static_graph=True)


@loop
def ddp_without_sync(run: Run) -> None:
    ddp(run, skip_sync=True)
