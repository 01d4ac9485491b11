# SPDX-License-Identifier: Apache-2.0
"""The CSV files to convert, and the rows of one kind and rank in them. Needs pyarrow."""
import argparse
import os
import re
import time
from functools import partial
from pathlib import Path
from typing import Any, Callable, Iterator, NamedTuple, Optional

import numpy

from gradmon_read.command_line import CommandError, UsageError, default_output_dir
from gradmon_read.conversion import Meter, run_conversion
from gradmon_read.csv_tables import KindFile, kind_files_in, text_of
from gradmon_read.kind_rows import Batch, KindReader, Names, grown
from gradmon_read.listing import Problems
from gradmon_read.runs import directory_name, find_run, parse_rank_directory, runs_in, seconds_in_year
from gradmon_read.vocabulary import ROW_KINDS


class RankInput(NamedTuple):
    rank: int
    starts: "list[Path]"  # its directories, from the first start on


def chosen_directories(
    path: Path, first: Optional[int], last: Optional[int], problems: Problems
) -> "list[RankInput]":
    """Ascending by rank. `path`: as find_run() takes it. `first`, `last`: the earliest and the latest time in
    a directory's name, as seconds_in_year(); None: no limit. Raises CommandError with the found and the
    expected input."""
    runs = runs_in(path, problems) if path.is_dir() else []
    runs = runs or [find_run(path, "", problems)]  # a rank's own directory, or a run-ID.json
    directories = [directory for run in runs for directory in run.ranks]
    ranks: "dict[int, list[Path]]" = {}
    for rank, directory in directories:
        name = parse_rank_directory(directory_name(directory))
        no_limit = first is None and last is None
        after = name is not None and (first is None or name.in_year >= first)
        if no_limit or name and after and (last is None or name.in_year <= last):
            ranks.setdefault(rank, []).append(directory)
    if not ranks:
        raise CommandError(
            f"{path}: none of {len(directories)} directories of ranks is in the time range; expected "
            f"one as {directory_name(directories[0].path)}"
        )
    return [RankInput(rank, ranks[rank]) for rank in sorted(ranks)]


FilesIn = Callable[[Path, Problems], "dict[str, list[KindFile]]"]


class Task(NamedTuple):
    """The rows that are converted together: those of one rank and kind."""

    rank: RankInput
    kind: str
    files_in: FilesIn

    def rows(self, meter: Meter, problems: Problems) -> "RankRows":
        # Problems of the directories are known.
        files = chosen_files(self.rank, Problems(), self.files_in)[self.kind]
        return RankRows(self.kind, files, meter, problems)


def chosen_files(rank: RankInput, problems: Problems, files_in: FilesIn) -> "dict[str, list[KindFile]]":
    """The files of each kind; by first step, revision, last step, start."""
    files: "dict[str, list[KindFile]]" = {}
    for start, directory in enumerate(rank.starts):
        for kind, of_kind in files_in(directory, problems).items():
            files.setdefault(kind, []).extend(file._replace(start=start) for file in of_kind)
    for of_kind in files.values():
        of_kind.sort(key=lambda file: (*file[:3], file.start))
    return {kind: files[kind] for kind in ROW_KINDS if kind in files}


def tasks_of(
    ranks: "list[RankInput]", kinds: "list[str]", problems: Problems, files_in: FilesIn = kind_files_in
) -> "tuple[list[Task], int]":
    """Rank by rank, kinds in their order; and the bytes of all files. `files_in`: of a directory, by
    default the CSV files."""
    tasks = []
    size = 0
    for rank in ranks:
        for kind, files in chosen_files(rank, problems, files_in).items():
            if not kinds or kind in kinds:
                tasks.append(Task(rank, kind, files_in))
                size += sum(file.path.stat().st_size for file in files if file.path.is_file())
    return tasks, size


class Target(NamedTuple):
    vpp_stage: int
    name: bytes
    micro_step: int  # -1: the file has no micro steps


class RankRows:
    """The rows of one kind and rank, from the files of all its starts, with ascending steps if they ascend in
    each file. If several starts of the job have collected a step, the rows of the last start are taken; the
    others are counted. A second row of a target in a step is a problem, and skipped. Skips rows without a
    value, and rows of more than `most` names and micro steps, which are a problem.

    `name` of its batches is a number of a name and micro step, which target() knows."""

    def __init__(
        self, kind: str, files: "list[KindFile]", meter: Meter, problems: Problems, most: int = Names.MOST
    ) -> None:
        self._kind, self._files, self._meter, self._problems, self._most = kind, files, meter, problems, most
        self._names = Names(most, f"more than {most} names and micro steps")
        self._pairs: "dict[int, int]" = {}  # numbers of names and micro steps
        self._all_pairs: "list[int]" = []
        self._last_steps = numpy.full(1024, -1)  # by number
        self._greatest_step = -1

    def target(self, number: int) -> Target:
        """Even numbers are of names without micro steps."""
        pair = self._all_pairs[number >> 1] if number & 1 else number >> 1 << 32
        return Target(*self._names.all[pair >> 32], (pair & 2**32 - 1) - 1)

    def __iter__(self) -> "Iterator[Batch]":
        """Raises Interrupted."""
        reader = KindReader(self._problems, self._names, self._meter)
        for batch in reader.batches(self._kind, self._files):
            batch = self._of_last_start(batch)
            if len(batch.absent) == len(batch.values):
                measured = numpy.zeros(batch.rows, bool)
                for field in batch.values:
                    measured |= batch.has(field)
                batch = batch if measured.all() else batch.take(measured)
            if batch.rows:
                batch = self._once(self._numbered(batch))
            if batch.rows:
                self._meter.add(rows=batch.rows)
                yield batch

    def _of_last_start(self, batch: Batch) -> Batch:
        """A step of several starts is within one batch."""
        starts = numpy.array([file.start for file in batch.files])
        if (starts == starts[0]).all():
            return batch
        start = starts[batch.file]
        steps, step = numpy.unique(batch.step, return_inverse=True)
        last = numpy.zeros(len(steps), starts.dtype)
        numpy.maximum.at(last, step, start)
        taken = start == last[step]
        self._meter.add(repeated=int(batch.rows - taken.sum()))
        return batch.take(taken)

    def _numbered(self, batch: Batch) -> Batch:
        number = batch.name * 2
        has_micro_step = batch.micro_step >= 0
        if has_micro_step.any():
            all_pairs = batch.name << 32 | batch.micro_step + numpy.int64(1)
            pairs, pair = numpy.unique(all_pairs[has_micro_step], return_inverse=True)
            number[has_micro_step] = numpy.array([self._number(one) for one in pairs.tolist()])[pair]
        return batch._replace(name=number)

    def _number(self, pair: int) -> int:
        if pair not in self._pairs:
            if len(self._all_pairs) >= self._most:
                return -1
            self._pairs[pair] = 2 * len(self._all_pairs) + 1
            self._all_pairs.append(pair)
        return self._pairs[pair]

    def _once(self, batch: Batch) -> Batch:
        """Without second rows of a target in a step."""
        number, steps = batch.name, batch.step
        most = int(number.max())
        least_step, greatest_step = int(steps.min()), int(steps.max())
        is_later = least_step > self._greatest_step
        self._greatest_step = max(self._greatest_step, greatest_step)
        self._last_steps = grown(self._last_steps, most + 1)
        if greatest_step - least_step < 2**40 and number.min() >= 0 and (steps[1:] >= steps[:-1]).all():
            places = (steps - least_step) * (most + 1) + number
            if (places[1:] <= places[:-1]).any():
                places = numpy.sort(places)
            once = (places[1:] != places[:-1]).all()
            if once and (is_later or (self._last_steps[number] != steps).all()):
                self._last_steps[number] = steps
                return batch
        good = numpy.ones(batch.rows, bool)
        for i, (one, step) in enumerate(zip(number.tolist(), steps.tolist())):
            text = ""
            if one < 0:
                text = self._names.too_many
            elif self._last_steps[one] == step:
                name = text_of(self.target(one).name[:100])
                text = f'found a second row of "{name}" in step {step}; expected one'
            else:
                self._last_steps[one] = step
            if text:
                good[i] = False
                path, line = batch.files[batch.file[i]].path, int(batch.line[i])
                self._problems.add(path, line, f"{text}; the row is left out")
        return batch.take(good)


class Request(NamedTuple):
    """The checked options of csv2tb and csv2db."""

    path: Path
    first: Optional[int]
    last: Optional[int]
    kinds: "list[str]"
    output: Optional[Path]  # None: a new directory

    def new_directory(self, name: str, is_beside: bool) -> Path:
        """`{time}_{name}` in the input, or beside the job's output directory."""
        directory = self.path if self.path.is_dir() else self.path.parent
        if is_beside:
            directory = Path(os.path.abspath(directory))
            if parse_rank_directory(directory.name):
                directory = directory.parent
            directory = directory.parent
            directory = Path() if directory == Path.cwd() else directory
        return directory / f"{time.strftime('%b%d_%H-%M-%S')}_{name}"


def request_of(arguments: argparse.Namespace) -> Request:
    """`arguments`: of csv2tb, or some of these. Raises UsageError with the found and the expected value."""
    options: "dict[str, Any]" = vars(arguments)
    times = []
    for option in ("time_start", "time_end"):
        text = options.get(option) or "None"
        times.append(None if text == "None" else seconds_in_year(text))
        if text != "None" and times[-1] is None:
            raise UsageError(
                f'--{option.replace("_", "-")}: found "{text}"; expected a time as in the names of '
                "directories, such as Dec03_21-34-40, or None"
            )
    first, last = times
    if first is not None and last is not None and first > last:
        raise UsageError(
            f"--time-start {options['time_start']} is later than --time-end {options['time_end']}; "
            "expected a time before it"
        )
    # "actv,grad_reduced", or as Python prints a list.
    names = [name for text in options.get("data_type_list", ()) for name in re.split(r"[\[\](), '\"]+", text)]
    names = [name for name in names if name and name != "None"]
    for name in names:
        if name not in ROW_KINDS:
            raise UsageError(f'--data-type-list: found "{name}"; expected {", ".join(ROW_KINDS)}')
    path, output = options["RUN"] or options.get("monitor_path"), options.get("output_dirpath")
    output = Path(output) if output and output != "None" else None
    return Request(Path(path) if path else default_output_dir(), first, last, names, output)


def converted(
    request: Request, target: Path, earlier: str, write: Any, other: Optional[FilesIn] = None
) -> int:
    """`write`: of the tasks into a path, with a meter and problems. `other`: finds files if there are no CSV
    files."""
    problems = Problems()
    ranks = chosen_directories(request.path, request.first, request.last, problems)
    tasks, size = tasks_of(ranks, request.kinds, problems)
    if not tasks and other:
        tasks, size = tasks_of(ranks, request.kinds, problems, other)[0], 0
    numbers, write = [rank.rank for rank in ranks], partial(write, tasks)
    return run_conversion(str(request.path), numbers, size, target, earlier, write, problems)
