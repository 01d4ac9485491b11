# SPDX-License-Identifier: Apache-2.0
"""Converts CSV files, as msprobe's csv2tb and csv2db do. Calls the program gradmonctl."""
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

__all__ = ["CSV2DBConfig", "csv2db", "csv2tensorboard_by_step"]

_USAGE = 2  # exit code of gradmonctl for arguments that are wrong


def csv2tensorboard_by_step(
    monitor_path: str,
    time_start: Optional[str] = None,
    time_end: Optional[str] = None,
    process_num: int = 1,
    data_type_list: Optional["list[str]"] = None,
    output_dirpath: Optional[str] = None,
) -> None:
    """Writes TensorBoard event files from the CSV files of a job of gradmon or msprobe.

    Parameters
    ----------
    monitor_path, time_start, time_end, process_num, data_type_list
        The selection, as in `CSV2DBConfig`.
    output_dirpath : str, optional
        The directory of the files: ``rank{R}/{prefix}/events…``. Files of an earlier conversion are replaced.
        Default: ``{time}_csv2tensorboard_by_step`` in `monitor_path`.

    Raises
    ------
    ValueError
        If an argument is wrong.
    RuntimeError
        If the conversion fails. The message is that of gradmonctl.
    FileNotFoundError
        If the program gradmonctl is neither beside this package nor on PATH.

    Notes
    -----
    Runs ``gradmonctl convert csv2tb --tags msprobe``: curves are named as msprobe names them,
    ``vp0:fc1.weight/norm``. Its progress is shown on a terminal.

    Examples
    --------
    >>> gradmon.csv2tensorboard_by_step("monitor_output", data_type_list=["actv"], process_num=4)
    """
    chosen = CSV2DBConfig(monitor_path, time_start, time_end, process_num, data_type_list, output_dirpath)
    options = {**vars(chosen), "step_partition": None, "tags": "msprobe"}
    run_gradmonctl(["convert", "csv2tb", *_arguments(options)])


@dataclass
class CSV2DBConfig:
    """The arguments of csv2db().

    Parameters
    ----------
    monitor_path : str
        The job's output directory. ``~`` is the home directory.
    time_start, time_end : str, optional
        Earliest and latest time in the names of the ranks' directories, both included:
        ``"Dec03_21-34-40"``. Default: no limit.
    process_num : int
        Number of processes that convert at a time, 1 to 128.
    data_type_list : list of str, optional
        Prefixes of the files to convert: ``["param_origin"]``. Default: all.
    output_dirpath : str, optional
        The directory of ``monitor_metrics.db``. One of an earlier conversion is replaced. Default:
        ``{time}_csv2db`` in `monitor_path`.
    step_partition : int
        Steps of one table, 10 to 10,000,000.

    Examples
    --------
    >>> gradmon.CSV2DBConfig("monitor_output", time_start="Dec03_21-34-40", data_type_list=["actv"])
    """

    monitor_path: str
    time_start: Optional[str] = None
    time_end: Optional[str] = None
    process_num: int = 1
    data_type_list: Optional["list[str]"] = None
    output_dirpath: Optional[str] = None
    step_partition: int = 500


def csv2db(config: CSV2DBConfig) -> None:
    """Writes an SQLite database from the CSV files of a job of gradmon or msprobe.

    Parameters
    ----------
    config : CSV2DBConfig
        The arguments.

    Raises
    ------
    ValueError, RuntimeError, FileNotFoundError
        As csv2tensorboard_by_step().

    Notes
    -----
    Runs ``gradmonctl convert csv2db``.

    Examples
    --------
    >>> gradmon.csv2db(gradmon.CSV2DBConfig("monitor_output", output_dirpath="job"))
    >>> gradmon.load("job", kind="actv")
    """
    run_gradmonctl(["convert", "csv2db", *_arguments(vars(config))])


def _arguments(options: "dict[str, Any]") -> "list[str]":
    """The options by name, as gradmonctl takes them; without those that are None or []."""
    arguments = []
    for name, value in options.items():
        if value is None or value == []:
            continue
        if isinstance(value, (list, tuple)):
            value = ",".join(str(one) for one in value)
        elif name.endswith("path"):
            value = os.path.expanduser(os.fspath(value))
        arguments += ["--" + name.replace("_", "-"), str(value)]
    return arguments


def find_gradmonctl() -> str:
    """The path of the program: beside this package, else on PATH. Raises FileNotFoundError."""
    own = Path(__file__).with_name("gradmonctl")
    found = str(own) if own.exists() else shutil.which("gradmonctl")
    if found is None:
        raise FileNotFoundError(f"the program gradmonctl is neither {own} nor on PATH")
    return found


def run_gradmonctl(arguments: "list[str]") -> None:
    """Runs the program; its output and, on a terminal, its messages go where this program's go.

    Raises ValueError if it finds its arguments wrong, RuntimeError if it fails otherwise, FileNotFoundError.
    """
    shown = sys.stderr is not None and sys.stderr.isatty()
    done = subprocess.run(
        [find_gradmonctl(), *arguments],
        stdin=subprocess.DEVNULL,
        stderr=None if shown else subprocess.PIPE,
        errors="replace",
    )
    said = (done.stderr or "").strip()
    if done.returncode == 0:
        if said:
            print(said, file=sys.stderr)
        return
    text = said or f"gradmonctl {' '.join(arguments[:2])} ended with exit code {done.returncode}"
    raise ValueError(text) if done.returncode == _USAGE else RuntimeError(text)
