# SPDX-License-Identifier: Apache-2.0
"""Shared by the commands of `gradmonctl analyse`: the run they read, its description, and the printing of a
report on it."""
import argparse
import contextlib
import json
import math
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional, Sequence

from gradmon_read import command_line
from gradmon_read.command_line import CommandError, default_output_dir
from gradmon_read.listing import Problems, Table, fold, printable, rank_ranges, screen_size

if TYPE_CHECKING:  # they need pyarrow
    from gradmon_read.runs import Run

SCHEMA_VERSION = 2  # of the JSON: rises when a field changes or is removed


def chosen_run(arguments: argparse.Namespace, problems: "Problems") -> "Run":
    """The run that RUN and --run name; with --flight, the flight directories of the ranks that have one.
    Raises CommandError."""
    from gradmon_read.runs import find_run

    run = find_run(Path(arguments.RUN or default_output_dir()), arguments.run, problems)
    if not arguments.flight:
        return run
    ranks = [one._replace(path=one.path / "flight") for one in run.ranks if (one.path / "flight").is_dir()]
    if not ranks:
        raise CommandError(
            f"no rank of {run_text(run)} has files of a flight recorder; expected a directory flight, as an "
            'alert makes it with "keep_last" in the config'
        )
    return run._replace(ranks=ranks)


def run_text(run: "Run") -> str:
    """ "run 1a2b3c4d, started Nov24_12-04-37, ranks 0-3" """
    text = f"run {printable(run.id) or 'without an id'}"
    if run.started:
        text += f", started {printable(run.started)}"
    return f"{text}, {rank_ranges([rank for rank, _ in run.ranks])}"


def run_json(run: "Run") -> "dict[str, Any]":
    ranks = [{"rank": rank, "directory": str(path)} for rank, path in run.ranks]
    return {"id": run.id or None, "started": run.started or None, "ranks": ranks}


def problems_json(problems: "Problems") -> "dict[str, Any]":
    return {"count": problems.count, "messages": problems.messages()}


def step_or_none(step: int) -> Optional[int]:
    return None if step < 0 else step


def value_text(value: float, digits: int = 6) -> str:
    """At most so many significant digits; "nan", "inf", "-inf"."""
    return f"{value:.{digits}g}"


def value_json(value: float) -> "float | str":
    """A number; or "nan", "inf", "-inf" as a text: JSON has no such numbers."""
    return value if math.isfinite(value) else value_text(value)


def layer_text(stage: int, name: str) -> str:
    """ "weight", of the model chunk 1 "1:weight"; the root module's empty name as "(root)"."""
    return f"{stage}:{name or '(root)'}" if stage else name or "(root)"


def report_problems(problems: "Problems") -> None:
    for message in problems.messages():
        command_line.report(message)


def no_rows_error(run: "Run") -> CommandError:
    return CommandError(
        f"there are no rows in {run_text(run)}; expected CSV files such as grad_reduced_0-0.csv in "
        f"{run.ranks[0].path if run.ranks else 'it'}"
    )


def folded(text: str) -> str:
    """Wraps lines that are too wide for the screen, if there is one."""
    screen = screen_size()
    if screen is None:
        return text
    return "".join(f"{part}\n" for line in text.splitlines() for part in fold(line, screen[0]))


def print_text(text: str) -> None:
    sys.stdout.write(folded(text))


def print_json(content: "dict[str, Any]") -> None:
    """Bytes that are not UTF-8 become U+FFFD."""
    text = json.dumps({"schema_version": SCHEMA_VERSION, **content}, indent=2, ensure_ascii=False)
    sys.stdout.write(text.encode("utf-8", "surrogateescape").decode("utf-8", "replace") + "\n")


def table_text(table: Table, rows: "Sequence[Sequence[str]]") -> str:
    return "".join(f"{line}\n" for line in table.lines(rows))


def replace_file(file: Path, content: bytes) -> None:
    """By rename, so that readers see either all old bytes or all new ones. Raises CommandError; then nothing
    has changed."""
    beside = ""
    try:
        descriptor, beside = tempfile.mkstemp(prefix=f"{file.name}.", dir=file.parent)
        with open(descriptor, "wb") as opened:
            os.fchmod(descriptor, 0o640)
            opened.write(content)
            opened.flush()
            os.fsync(descriptor)
        os.replace(beside, file)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise CommandError(f"{file}: {error.strerror}") from None
