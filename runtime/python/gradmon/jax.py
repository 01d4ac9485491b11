# SPDX-License-Identifier: Apache-2.0
"""gradmon for JAX."""
from typing import Any, Iterator, Optional

import jax

from gradmon import _gradmon
from gradmon.monitor import Monitor


def tap(monitor: Monitor, kind: str, tree: Any, micro_step: Optional[int] = None) -> None:
    """Passes every array of a pytree to the monitor: gradients, parameters or moments of a training step.

    Call it between steps, with the results of the compiled step.

    Parameters
    ----------
    monitor : Monitor
        The monitor; `monitor.watch()` without a model has begun to watch, and `monitor.step()` ends a step.
    kind : str
        As for Monitor.tap().
    tree : pytree of jax.Array
        For example the gradients, the parameters, or `opt_state[0].mu` of optax's Adam.
    micro_step : int, optional
        As for Monitor.tap().

    Notes
    -----
    The name of a row is the path in the tree, with dots: ``{"decoder": {"w": …}}`` gives "decoder.w". An
    array that one process holds has one row. If an array lies on several processes, each part that this
    process holds has a row, with its box in the name: "w[0:4, 8:16]".

    In a step that is not collected it only looks at one flag. In a collected step it waits for the arrays.
    Within `jax.jit` there are no values: it passes nothing, and a warning says so. Raises nothing.

    Examples
    --------
    >>> monitor = gradmon.Monitor("monitor_config.json").watch()
    >>> for batch in loader:
    ...     loss, gradients = value_and_grad(parameters, batch)
    ...     gradmon.jax.tap(monitor, "grad_reduced", gradients)
    ...     parameters = update(parameters, gradients)
    ...     monitor.step()
    """
    if not monitor.collecting:
        return
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        if isinstance(leaf, jax.core.Tracer):
            return _gradmon.warn_once("gradmon.jax.tap() within a function that JAX traces does nothing")
        name = ".".join(map(_key_of, path))
        for box, part in _parts_of(leaf):
            monitor.tap(kind, name + box, part, micro_step)


def _key_of(entry: Any) -> str:
    for attribute in ("key", "name", "idx"):  # of a dict, a dataclass, a sequence
        if hasattr(entry, attribute):
            return str(getattr(entry, attribute))
    return str(entry)


def _parts_of(leaf: Any) -> "Iterator[tuple[str, Any]]":
    """The part of an array that this process holds: all of it, or each part with its box."""
    if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable:
        yield "", leaf
    elif leaf.is_fully_replicated:
        yield "", leaf.addressable_shards[0].data
    else:
        seen = set()
        for shard in leaf.addressable_shards:
            box = _box_of(shard.index, leaf.shape)
            if box not in seen:
                seen.add(box)
                yield box, shard.data


def _box_of(index: Any, shape: Any) -> str:
    ranges = [part.indices(size)[:2] for part, size in zip(index, shape)]
    return "[" + ", ".join(f"{begin}:{end}" for begin, end in ranges) + "]"
