# SPDX-License-Identifier: Apache-2.0
"""The tensors of Megatron's own optimizers, put together from all ranks: rows are compared with them."""
from collections import defaultdict
from typing import Any, Callable, Iterator

import gradmon
import torch
import torch.distributed as dist
import twice


def inner_optimizers(optimizer: Any) -> "list[Any]":
    chained = getattr(optimizer, "chained_optimizers", None)
    return [optimizer] if chained is None else [one for each in chained for one in inner_optimizers(each)]


class Own:
    """The tensors that Megatron's innermost optimizers update, under the names of the whole model."""

    def __init__(self, chunks: "list[Any]", optimizer: Any, labels: "list[dict[str, Any]]") -> None:
        self.step = 0
        self.runs: "dict[str, dict[Any, Any]]" = defaultdict(dict)  # by kind, name and step
        names = {
            id(one): labels[i]["grad_unreduced"].get(name, {}).get("global_name", name)
            for i, chunk in enumerate(chunks)
            for name, one in gradmon.megatron.inner_model(chunk).named_parameters()
        }
        self.hooks: "list[Any]" = []
        for one in inner_optimizers(optimizer):
            held = [(names[id(parameter)], parameter, *of) for parameter, *of in carriers_of(one)]
            inner = one.optimizer
            self.hooks.append(inner.register_step_pre_hook(self.before(inner, held)))
            self.hooks.append(inner.register_step_post_hook(self.after(held)))

    def before(self, inner: Any, held: "list[Any]") -> "Callable[..., None]":
        def hook(*_: Any) -> None:
            for name, parameter, carrier, first in held:
                self.note("grad_reduced", name, parameter, carrier.grad, first)
                self.note("param_origin", name, parameter, carrier, first)
                state = inner.state.get(carrier, {})
                for kind, keys in {
                    "exp_avg": ("exp_avg", "momentum_buffer"),
                    "exp_avg_sq": ("exp_avg_sq",),
                }.items():
                    for key in keys:
                        if key in state:
                            self.note(kind, name, parameter, state[key], first)

        return hook

    def after(self, held: "list[Any]") -> "Callable[..., None]":
        def hook(*_: Any) -> None:
            for name, parameter, carrier, first in held:
                self.note("param_updated", name, parameter, carrier, first)

        return hook

    def note(self, kind: str, name: str, parameter: Any, tensor: Any, first: int) -> None:
        flat = tensor.detach().float().flatten().clone()
        if flat.numel():
            self.runs[kind][name, self.step, 0] = (list(parameter.shape), first, flat)

    def whole(self) -> twice.Noted:
        """Put together from all ranks."""
        everyones: "list[Any]" = [None] * dist.get_world_size()
        dist.all_gather_object(everyones, dict(self.runs))
        found = twice.Noted()
        for of_rank in everyones:
            for kind, runs in of_rank.items():
                for key, (shape, first, flat) in runs.items():
                    tensor = found.tensors[kind].setdefault(key, torch.full(shape, torch.nan))
                    tensor.view(-1)[first : first + flat.numel()] = flat
        return found

    def remove(self) -> None:
        for hook in self.hooks:
            hook.remove()


def carriers_of(one: Any) -> "Iterator[tuple[Any, Any, int]]":
    """Of one of Megatron's optimizers: each parameter, what is updated, and its first element's place."""
    if hasattr(one, "_get_model_param_range_map"):
        lists = [
            (one.model_float16_groups, one.shard_fp32_from_float16_groups),
            (one.model_fp32_groups, one.shard_fp32_groups),
        ]
        for parameters, shards in lists:
            for group, of_group in zip(parameters, shards):
                for parameter, shard in zip(group, of_group):
                    yield parameter, shard, one._get_model_param_range_map(parameter)["param"].start
    elif hasattr(one, "fp32_from_float16_groups"):
        for group, of_group in zip(one.float16_groups, one.fp32_from_float16_groups):
            yield from ((parameter, copy, 0) for parameter, copy in zip(group, of_group))
    else:
        yield from ((p, p, 0) for group in one.optimizer.param_groups for p in group["params"])
