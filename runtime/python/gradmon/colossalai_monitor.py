# SPDX-License-Identifier: Apache-2.0
"""ColossalAIMonitor, for scripts that were written for it."""
import atexit
import csv
import fcntl
import io
import json
import os
import shutil
import tempfile
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Optional

import torch

from gradmon import _gradmon
from gradmon._communication import with_process_group
from gradmon.monitor import PathLike

_COLUMNS = ["norm", "mean", "max", "min"]


class ColossalAIMonitor:
    """Writes gradients of each step, before and after reduction, into two CSV files.

    Parameters
    ----------
    config_path : str or path-like
        A JSON file with these keys, all optional: `max`, `min`, `mean` (whether that column is
        filled; true), `front` (whether gradients before reduction are collected; true),
        `parallel_mode` ("dp", the only one), `output_dir` (the working directory).

    Raises
    ------
    ValueError
        If the config cannot be followed; the message names file and key.

    Notes
    -----
    ``grad_stats_local.csv`` (before) and ``grad_stats_global.csv`` (after) have the columns
    ``step, rank, param_name, norm, mean, max, min``. All ranks that share output_dir append to
    the same two files. A column that is not filled has empty cells.

    Examples
    --------
    >>> monitor = ColossalAIMonitor("monitor_config.json")
    >>> monitor.monitor(model)
    >>> optimizer.step()
    >>> monitor.step_end(model)
    """

    def __init__(self, config_path: PathLike) -> None:
        keys = _read(Path(config_path))
        self._columns = [name for name in _COLUMNS if keys.get(name, True)]
        self._front = bool(keys.get("front", True))
        self._output_dir = Path(keys.get("output_dir", "."))
        self._core: Optional[_gradmon.Core] = None
        self._finalizer: Optional[Callable[[], Any]] = None
        self._rank = 0
        self._step = 0

    def monitor(self, model: torch.nn.Module) -> None:
        """Begins to watch; call it before the first step.

        Parameters
        ----------
        model : torch.nn.Module

        Notes
        -----
        A second call watches its model instead of the first one.
        """
        self.stop()
        scratch = tempfile.mkdtemp(prefix="gradmon-")
        # Once more at exit: for a second after stop() the hub may make the directory of the job's entry anew.
        atexit.register(shutil.rmtree, scratch, ignore_errors=True)
        config = Path(scratch) / "config.json"
        keys = {"wg_distribution": True, "ops": _COLUMNS, "format": "api", "squash_name": False}
        config.write_text(json.dumps(keys))
        options = with_process_group({"rank": None, "world_size": None})
        self._core = _gradmon.Core(
            str(config), output_dir=scratch, dynamic=False, start_iteration=self._step, **options
        )
        self._rank = self._core.rank
        self._core.watch(model)
        self._finalizer = weakref.finalize(self, _stop, self._core, scratch)

    def step_end(self, model: torch.nn.Module) -> None:
        """Ends the step and writes its rows; call it after optimizer.step() and before zero_grad().

        Parameters
        ----------
        model : torch.nn.Module
            The model that monitor() was given.

        Notes
        -----
        Raises nothing: rows that cannot be written are logged and lost.
        """
        if self._core is None:
            return
        # The attributes that Core reads of an optimizer; the program passes none.
        self._core.before_update(
            SimpleNamespace(param_groups=[{"params": list(model.parameters())}], state={})
        )
        self._core.step()
        found = self._core.metrics()
        metrics = [metric for metric in found if metric.step == self._step]
        if found and not metrics:
            _gradmon.warn_once("rows of ColossalAIMonitor are lost: the writer is late")
        try:
            if self._front:
                self._append("grad_stats_local.csv", [m for m in metrics if m.kind == "grad_unreduced"])
            self._append("grad_stats_global.csv", [m for m in metrics if m.kind == "grad_reduced"])
        except OSError as error:
            _gradmon.warn_once(f"rows of ColossalAIMonitor are lost: {error}")
        self._step += 1

    def stop(self) -> None:
        """Detaches all hooks. Nothing is collected afterwards."""
        self._core = None
        if self._finalizer is not None:
            self._finalizer()

    def _append(self, name: str, metrics: "list[_gradmon.Metric]") -> None:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        for metric in metrics:
            values = [metric.values[column] if column in self._columns else "" for column in _COLUMNS]
            writer.writerow([self._step, self._rank, metric.name, *values])
        self._output_dir.mkdir(parents=True, exist_ok=True)
        with (self._output_dir / name).open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if file.seek(0, os.SEEK_END) == 0:
                file.write(",".join(["step", "rank", "param_name", *_COLUMNS]) + "\n")
            file.write(text.getvalue())


def _stop(core: _gradmon.Core, scratch: str) -> None:
    core.stop()
    shutil.rmtree(scratch, ignore_errors=True)


def _read(path: Path) -> "dict[str, Any]":
    try:
        keys = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error
    if not isinstance(keys, dict):
        raise ValueError(f"{path}: expected an object")
    for key in ("front", "max", "min", "mean"):
        if not isinstance(keys.get(key, True), bool):
            raise ValueError(f"{path}: {key}: found {json.dumps(keys[key])}, expected true or false")
    if keys.get("parallel_mode", "dp") != "dp":
        raise ValueError(f'{path}: parallel_mode: found {json.dumps(keys["parallel_mode"])}, expected "dp"')
    if not isinstance(keys.get("output_dir", "."), str):
        raise ValueError(f"{path}: output_dir: found {json.dumps(keys['output_dir'])}, expected a path")
    return keys
