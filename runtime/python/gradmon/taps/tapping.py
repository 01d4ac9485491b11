# SPDX-License-Identifier: Apache-2.0
"""Monitor.tap()."""
from typing import Any, Mapping, Optional, Union

from gradmon import _gradmon
from gradmon._attributes import OBJECT_ERRORS
from gradmon._steps import TrainingSteps
from gradmon.compiled.tracing import in_whole_graph
from gradmon.sharded.scopes import checked


class Tapping:
    """The part of a Monitor that takes values from the program.

    Examples
    --------
    >>> monitor = gradmon.Monitor("monitor_config.json").watch()
    >>> monitor.tap("grad_reduced", "dense.weight", gradient)
    >>> monitor.step()
    """

    _steps: Optional[TrainingSteps]

    @property
    def collecting(self) -> bool:
        """Returns True if this step is collected, or recorded because of the config key `keep_last`.

        Returns
        -------
        bool
            False before watch(), while off and, without `keep_last`, between the steps of `step_interval`.
        """
        return self._has_flag(_gradmon.COLLECTS)

    @property
    def watches_forwards(self) -> bool:
        """Returns True if this step's activations are collected.

        Returns
        -------
        bool
            False before watch(), while off, and between the steps of `step_interval`.
        """
        return self._has_flag(_gradmon.WATCHES_FORWARDS)

    def _has_flag(self, flag: int) -> bool:
        return self._steps is not None and bool(self._steps.step_flags & flag)

    def tap(
        self,
        kind: str,
        name: str,
        array: Any,
        micro_step: Optional[int] = None,
        scope: Union[str, Mapping[str, Any], None] = None,
    ) -> None:
        """Passes a value of this step to the monitor, for a row.

        For values that no hook of torch can find: those of JAX, MindSpore or NumPy, or of a training step
        that is one compiled function.

        Parameters
        ----------
        kind : str
            "grad_unreduced", "grad_reduced", "param_origin", "param_updated", "exp_avg", "exp_avg_sq",
            "actv" or "actv_grad".
        name : str
            The name in the row. The config's targets select it as they select a model's own names.
        array : object
            A torch tensor, or any array of numbers with a buffer (NumPy), `__dlpack__` (JAX), `asnumpy()`
            (MindSpore) or `__array__()`. It is read at once: in place if the CPU can read its memory, else
            from a copy. Strides of any sign and read-only arrays are read as they are.
        micro_step : int, optional
            The value's micro batch, from 0. Only "actv", "actv_grad" and, with the config's
            `monitor_mbs_grad`, "grad_unreduced" have micro batches. None: 0.
        scope : str or mapping, optional
            The value's scope, for scopes.json: "whole", "replica", "partial" or "local", or the keys that
            FORMAT.md lists there: ``{"scope": "shard", "shape": [8, 4], "offset": [4, 0], "size": [4, 4]}``.
            ``gradmon.load(whole=True)`` joins shards and pieces of one name. None: a DTensor's own scope;
            unknown for other values.

        Notes
        -----
        Raises nothing: an array that cannot be read (another byte order, no numbers) has no row, and the
        first reason is logged. A second value of the same kind, name and micro step replaces the first. In a
        step that is not collected it only looks at one flag. A name must not change from step to step: values
        with further names than 65,536 have no row. The config says which kinds are collected, as
        for a model.

        Examples
        --------
        >>> monitor.tap("grad_reduced", "decoder.weight", numpy_gradient)
        >>> monitor.step()
        """
        steps = self._steps
        if steps is None or in_whole_graph() or not steps.step_flags & _gradmon.COLLECTS:
            return
        try:
            text = None if scope is None else checked(scope)
            steps.core.tap(kind, name, array, 0 if micro_step is None else micro_step, text)
        except OBJECT_ERRORS as error:
            _gradmon.warn_once(f"tap({kind!r}, {name!r}): {error}")
