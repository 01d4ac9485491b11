# SPDX-License-Identifier: Apache-2.0
"""One of two ranks that tries what torch does in DistributedDataParallel, collectives and a sharded
optimizer. Prints what it found as JSON. Run by test_torch_facts.py; plain torch."""
import contextlib
import json
import os
import warnings
from typing import Any, Callable

import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

VIEWS: "dict[str, Any]" = {"gradient_as_bucket_view": True}
# By name: the options of hooks_read().
HOOKS: "dict[str, dict[str, Any]]" = {
    "copies, hooks first": {},
    "copies, hooks last": {"first": False},
    "views, hooks first": {"ddp": VIEWS},
    "views, hooks last": {"ddp": VIEWS, "first": False},
    "accumulated, hooks first": {"ddp": VIEWS, "micro": 3},
    "accumulated, hooks last": {"ddp": VIEWS, "micro": 3, "first": False},
    "static graph, hooks first": {"ddp": {**VIEWS, "static_graph": True}},
    "static graph, hooks last": {"ddp": {**VIEWS, "static_graph": True}, "first": False},
    "static graph, accumulated": {"ddp": {"static_graph": True}, "micro": 2},
}


def hooks_read(ddp: "dict[str, Any]" = {}, micro: int = 1, first: bool = True) -> "dict[str, str]":
    """True if the last hooks in the second step read this rank's own gradient, or one that DDP has already
    changed: a post-hook of the accumulator, and a post-accumulate hook of the tensor."""
    model = torch.nn.Linear(2, 2, bias=False)
    weight = model.weight
    seen: "dict[str, list[torch.Tensor]]" = {"node": [], "tensor": []}
    held: "list[Any]" = []

    def attach() -> None:
        held.append(weight.view_as(weight).grad_fn.next_functions[0][0])
        held[0].register_hook(lambda *_: seen["node"].append(weight.grad.clone()))
        weight.register_post_accumulate_grad_hook(lambda _: seen["tensor"].append(weight.grad.clone()))

    if first:
        attach()
    parallel = DistributedDataParallel(model, **ddp)
    if not first:
        attach()
    for step in range(2):
        weight.grad, own = None, torch.zeros(2, 2)
        for part in range(micro):
            x = torch.tensor([[1.0 + dist.get_rank() + part + step, 2.0]])
            own += x.expand(2, 2)
            with parallel.no_sync() if part + 1 < micro else contextlib.nullcontext():
                parallel(x).sum().backward()
    assert not torch.equal(own, weight.grad)  # the ranks differ, so the mean is another gradient

    def read(tensors: "list[torch.Tensor]") -> str:
        return "nothing" if not tensors else "own" if torch.equal(tensors[-1], own) else "changed"

    return {which: read(tensors) for which, tensors in seen.items()}


def all_hooks_read() -> "dict[str, Any]":
    found: "dict[str, Any]" = {}
    for name, options in HOOKS.items():
        try:
            found[name] = hooks_read(**options)
        except RuntimeError as error:
            found[name] = str(error)
    with torch._dynamo.config.patch(optimize_ddp="python_reducer"):
        found["reducer in Python, hooks first"] = hooks_read()
        found["reducer in Python, hooks last"] = hooks_read(first=False)
    return found


def outcome(call: Callable[[], Any], output: torch.Tensor, expected: "list[Any]") -> str:
    try:
        work = call()
    except RuntimeError:
        return "refused"
    try:
        work.get_future()
        said = "future"
    except RuntimeError:
        said = "no future"
    work.wait()
    assert output.tolist() == expected, output
    return said + (", completed" if work.is_completed() else ", never completed")


def collectives() -> "dict[str, str]":
    """Of each collective: whether its work has a future, and whether it is_completed() after wait()."""
    rank = dist.get_rank()
    mine = torch.tensor([1.0, 2.0]) + 10 * rank
    reduced, both, part, whole, other = mine.clone(), *(torch.zeros(n) for n in (4, 1, 2, 2))
    calls: "dict[str, tuple[Callable[[], Any], torch.Tensor, list[Any]]]" = {
        "all_reduce": (lambda: dist.all_reduce(reduced, async_op=True), reduced, [12, 14]),
        "all_gather_into_tensor": (
            lambda: dist.all_gather_into_tensor(both, mine, async_op=True),
            both,
            [1, 2, 11, 12],
        ),
        "reduce_scatter_tensor": (
            lambda: dist.reduce_scatter_tensor(part, mine, async_op=True),
            part,
            [[12], [14]][rank],
        ),
        "reduce_scatter": (lambda: dist.reduce_scatter(whole, [mine, mine], async_op=True), whole, [12, 14]),
        "point to point": (
            lambda: dist.isend(mine, 1) if rank == 0 else dist.irecv(other, 0),
            other,
            [[0, 0], [1, 2]][rank],
        ),
    }
    return {name: outcome(*call) for name, call in calls.items()}


def sharded_optimizer() -> "dict[str, Any]":
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=0.1)
    said: "list[str]" = []
    for kind, one in (("outer", optimizer), ("inner", optimizer.optim)):
        one.register_step_pre_hook(lambda *_, kind=kind: said.append(kind))
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    state = optimizer.optim.state
    held = [name for name, parameter in model.named_parameters() if "exp_avg" in state.get(parameter, {})]
    return {"outer": len(optimizer.state), "held": held, "said": said}


def main() -> None:
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo")
    found = {"hooks": all_hooks_read(), "collectives": collectives(), "sharded": sharded_optimizer()}
    dist.barrier()
    print(json.dumps(found), flush=True)
    # destroy_process_group() may hang with torch 2.6. A thread of Gloo that asks for the GIL while Python
    # ends is unwound by force, which terminates the process.
    os._exit(0)
