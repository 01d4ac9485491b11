# SPDX-License-Identifier: Apache-2.0
"""The oracle's loops and optimizers, with small models."""
from typing import Any

import torch
from jobs import Parts
from oracle_loops import LOOPS, STEPS, Run, adam, data, mlp, one_model
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel


def by(run: Run, kind: Any, **options: Any) -> None:
    model = mlp()
    one_model(run, model, optimizer=kind(model.parameters(), **options))


def frozen_in_mid_run(run: Run) -> None:
    model = mlp()
    one_model(
        run,
        model,
        begin=lambda step: model[0].requires_grad_(step != 1),
        updated=lambda _: model[0].requires_grad_(True),
    )


def another_path_each_iteration(run: Run) -> None:
    model = Parts(lambda m, x, one: m.a(x) if one else m.b(x), a=nn.Linear(4, 2), b=nn.Linear(4, 2))
    one_model(run, model, lambda step: (data(3, 4, step=step), step % 2 == 0))


def several_groups(run: Run) -> None:
    model = mlp()
    first = {"params": model[0].parameters(), "lr": 0.1}
    second = {"params": model[2].parameters(), "weight_decay": 0.1}
    one_model(run, model, optimizer=torch.optim.AdamW([first, second], lr=0.01))


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


def clipping(run: Run) -> None:
    model = mlp()
    clip = nn.utils.clip_grad_norm_
    large = {"loss": lambda out: out.pow(2).sum() * 50, "to_none": False}
    one_model(run, model, **large, reduced=lambda _: clip(model.parameters(), 0.1))


def zero_grad_after_the_step(run: Run) -> None:
    model = mlp()
    one_model(run, model, updated=lambda _: model.zero_grad())


def scheduler(run: Run) -> None:
    model = mlp()
    optimizer = adam(model)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    one_model(run, model, optimizer=optimizer, updated=lambda _: schedule.step())


def evaluation_between(run: Run) -> None:
    model = mlp()

    def evaluate(_: int) -> None:
        model.eval()
        with torch.no_grad():
            model(data(3, 4, step=9))
        model.train()

    one_model(run, model, reduced=evaluate)


def late_layer(run: Run) -> None:
    model = Parts(lambda m, x: m.extra(m.fc(x)) if hasattr(m, "extra") else m.fc(x), fc=nn.Linear(4, 4))
    optimizer = adam(model)

    def begin(step: int) -> None:
        if step == 1:
            model.add_module("extra", nn.Linear(4, 2))
            optimizer.add_param_group({"params": model.extra.parameters()})

    one_model(run, model, optimizer=optimizer, begin=begin)


def gan(run: Run, generator_first: bool, explicit: bool) -> None:
    generator, discriminator = mlp(4, 4), mlp(4, 1)
    of_generator, of_discriminator = adam(generator), torch.optim.AdamW(discriminator.parameters(), lr=0.01)
    pairs = [(generator, of_generator), (discriminator, of_discriminator)]
    for pair in pairs if generator_first else reversed(pairs):
        run.watch(*pair)
    for step in range(STEPS):
        discriminator.requires_grad_(True)
        of_discriminator.zero_grad()
        fake = generator(data(3, 4, step=step, micro=1))
        run.backward(functional.softplus(-discriminator(data(3, 4, step=step))).mean())
        run.backward(functional.softplus(discriminator(fake.detach())).mean())
        of_discriminator.step()
        discriminator.requires_grad_(False)
        of_generator.zero_grad()
        run.backward(functional.softplus(-discriminator(fake)).mean())
        of_generator.step()
        run.end(explicit)


def two_optimizers_of_one_model(run: Run) -> None:
    model = mlp()
    slow, fast = adam(model[0]), torch.optim.SGD(model[2].parameters(), lr=0.1, momentum=0.9)
    run.watch(model, slow)
    one_model(run, model, optimizer=fast, begin=lambda _: slow.zero_grad(), updated=lambda _: slow.step())


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


def one_optimizer_of_two_models(run: Run) -> None:
    encoder, decoder = mlp(4, 3), mlp(3, 4)
    optimizer = torch.optim.AdamW([*encoder.parameters(), *decoder.parameters()], lr=0.01)
    run.watch(encoder, optimizer)
    one_model(run, decoder, lambda step: encoder(data(3, 4, step=step)), optimizer)


def given_main_gradients(model: torch.nn.Module, by_hooks: bool = True) -> "list[Any]":
    """As in Megatron's DDP: a hook at each accumulator adds the gradient to main_grad, unless a kernel
    has added it, and clears `grad`. The caller must keep the result alive."""
    accumulators = []
    for parameter in model.parameters():
        parameter.main_grad = torch.zeros(parameter.shape, dtype=torch.float64)
        if not by_hooks:
            continue

        def add(*_: Any, parameter: Any = parameter) -> None:
            if not getattr(parameter, "grad_added_to_main_grad", False):
                parameter.main_grad += parameter.grad
            parameter.grad = None

        accumulators.append(parameter.view_as(parameter).grad_fn.next_functions[0][0])
        accumulators[-1].register_hook(add)
    return accumulators


def train_on_main_gradients(run: Run, model: torch.nn.Module, by_hooks: bool = True) -> None:
    """by_hooks: False: the program accumulates into main_grad itself, without a hook."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    accumulators = given_main_gradients(model, by_hooks)
    run.watch(model, optimizer)
    for step in range(STEPS):
        for parameter in model.parameters():
            parameter.main_grad.zero_()
        for micro in range(2):
            run.backward(model(data(3, 4, step=step, micro=micro)).pow(2).mean())
            for parameter in model.parameters() if not by_hooks else ():
                parameter.main_grad += parameter.grad
                parameter.grad = None
        for parameter in model.parameters():
            parameter.grad = parameter.main_grad.float()
        optimizer.step()
        for parameter in model.parameters():
            parameter.grad = None
        run.end()
    del accumulators


class Fused(torch.autograd.Function):
    """A matrix product. A kernel adds the weight's gradient to main_grad; the returned one is garbage."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, weight: torch.nn.Parameter) -> torch.Tensor:
        context.save_for_backward(x)
        context.weight = weight
        return x @ weight.detach().t()

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> Any:
        (x,), weight = context.saved_tensors, context.weight
        weight.main_grad += gradient.t() @ x
        weight.grad_added_to_main_grad = True
        return gradient @ weight.detach(), torch.full_like(weight, float("nan"))


class FusedLinear(torch.nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Fused.apply(x, self.weight) + self.bias


class MasterWeights:
    """An optimizer over copies in float32, with a list of pairs (parameter, copy), as in Megatron's
    Float16OptimizerWithFloat16Params and apex' FP16_Optimizer."""

    def __init__(self, model: torch.nn.Module, names: "tuple[str, str]") -> None:
        parameters = list(model.parameters())
        masters = [parameter.detach().clone().float().requires_grad_() for parameter in parameters]
        self.optimizer = torch.optim.Adam(masters, lr=0.05)
        setattr(self, names[0], [parameters])
        setattr(self, names[1], [masters])
        self.pairs = list(zip(parameters, masters))

    @property
    def param_groups(self) -> Any:
        return self.optimizer.param_groups

    @property
    def state(self) -> Any:
        return self.optimizer.state

    def step(self) -> None:
        for parameter, master in self.pairs:
            master.grad = parameter.grad.float()
        self.optimizer.step()
        with torch.no_grad():
            for parameter, master in self.pairs:
                parameter.copy_(master)


def train_with_master_weights(run: Run, names: "tuple[str, str]") -> None:
    model = mlp().bfloat16()
    optimizer = MasterWeights(model, names)
    run.watch(model, optimizer)
    for step in range(STEPS):
        model.zero_grad()
        run.backward(model(data(3, 4, step=step).bfloat16()).pow(2).mean())
        optimizer.step()
        run.end()


def ddp(run: Run, skip_sync: bool = False, **options: Any) -> None:
    """DDP over one rank: reduction changes no gradient."""
    model = DistributedDataParallel(mlp(), **options)

    def not_reduced(step: int) -> None:
        with model.no_sync():
            run.backward(model(data(3, 4, step=step)).pow(2).mean())

    begin = {"begin": not_reduced} if skip_sync else {}
    one_model(run, model, lambda step: data(3, 4, step=step, micro=1), **begin)


LOOPS.update(
    frozen_in_mid_run=frozen_in_mid_run,
    another_path_each_iteration=another_path_each_iteration,
    momentum=lambda run: by(run, torch.optim.SGD, lr=0.1, momentum=0.9),
    rmsprop=lambda run: by(run, torch.optim.RMSprop, lr=0.01),
    several_groups=several_groups,
    closure=closure,
    accumulation=lambda run: one_model(run, mlp(), micro=3),
    clipping=clipping,
    zero_grad_after_the_step=zero_grad_after_the_step,
    scheduler=scheduler,
    evaluation_between=evaluation_between,
    late_layer=late_layer,
    gan_generator_watched_first=lambda run: gan(run, True, False),
    gan_discriminator_watched_first=lambda run: gan(run, False, False),
    gan_whose_iterations_the_program_ends=lambda run: gan(run, True, True),
    two_optimizers_of_one_model=two_optimizers_of_one_model,
    optimizer_made_anew=optimizer_made_anew,
    one_optimizer_of_two_models=one_optimizer_of_two_models,
    main_gradients_by_hooks=lambda run: train_on_main_gradients(run, mlp()),
    main_gradients_by_a_kernel=lambda run: train_on_main_gradients(
        run, nn.Sequential(FusedLinear(4, 5), nn.Tanh(), FusedLinear(5, 2))
    ),
    main_gradients=lambda run: train_on_main_gradients(run, mlp(), by_hooks=False),
    master_weights_of_megatron=lambda run: train_with_master_weights(
        run, ("float16_groups", "fp32_from_float16_groups")
    ),
    master_weights_of_apex=lambda run: train_with_master_weights(
        run, ("fp16_groups", "fp32_from_fp16_groups")
    ),
    ddp_plain=ddp,
    ddp_bucket_views=lambda run: ddp(run, gradient_as_bucket_view=True),
    ddp_finds_unused=lambda run: ddp(run, find_unused_parameters=True),
    ddp_static_graph=lambda run: ddp(run, static_graph=True),
    ddp_without_sync=lambda run: ddp(run, skip_sync=True),
)
