# SPDX-License-Identifier: Apache-2.0
"""gradmon.observe."""
import torch

from gradmon import _gradmon
from gradmon._attributes import OBJECT_ERRORS
from gradmon._compiled import constant, is_compiling, region_that_refuses_writes

# The operator declares a write to it, so that no compiler removes or reorders the call.
_token = torch.zeros(1, device="cpu")


@constant
def _number(name: str, gradients: bool) -> int:
    """The number of the name, fixed when a graph is traced. 0: the graph cannot hold the operator."""
    region = region_that_refuses_writes()
    if region:
        _gradmon.warn_once(f"observe({name!r}): no row within torch's {region} in a graph")
        return 0
    return _gradmon.observation_number(name, gradients)


def observe(x: torch.Tensor, name: str) -> torch.Tensor:
    """Shows a tensor within a forward to the monitor, as the output of a module of that name.

    It works in eager code and within torch.compile, where hooks see nothing: it breaks no graph
    (`fullgraph=True`), and switching collection on or off compiles nothing again.

    Parameters
    ----------
    x : torch.Tensor
        Any tensor of the forward.
    name : str
        The name in the rows of `actv`: ``{name}.output``. A further call with the same name in one micro
        step is ``{name}.output@2``.

    Returns
    -------
    torch.Tensor
        `x` itself.

    Notes
    -----
    Rows are collected with `xy_distribution`, for names that the config's targets select. Within a graph
    there are no rows of `actv_grad`, unless the backend does not change autograd ("eager"). While nothing is
    collected, it only looks at one flag. Raises nothing of its own; a value that is no tensor has no row, nor
    has a tensor of another class (a DTensor) within a graph. A name must not change from step to step: after
    65,536 names, further ones have no rows. Any thread.

    Tensors within `torch.vmap` have no rows, nor have tensors of a graph within a region that torch traces
    apart (`torch.cond`, flex_attention, `torch.compiler.nested_compile_region`), nor eager tensors that
    `torch.func` transforms. The log says so.

    With `mode="reduce-overhead"`, torch calls it outside of its CUDA graphs, so that replays have rows
    (`torch._inductor.config.graph_partition`, torch 2.11); a torch that cannot makes no graph of the forward.
    In a graph that the program captures itself it runs at capture only: there are no rows.

    Examples
    --------
    >>> @torch.compile(fullgraph=True)
    ... def block(x):
    ...     scores = gradmon.observe(x @ x.mT, "scores")
    ...     return scores.softmax(-1) @ x
    """
    if is_compiling():
        # Other classes, such as DTensor, have no rule for the operator.
        if type(x) in (torch.Tensor, torch.nn.Parameter) and isinstance(name, str):
            number = _number(name, torch.is_grad_enabled())
            if number:
                torch.ops.gradmon.tap(x, _token, number)
        return x
    try:
        _gradmon.observe(x, name)
    except OBJECT_ERRORS as error:
        _gradmon.warn_once(f"observe({name!r}): {error}")
    return x
