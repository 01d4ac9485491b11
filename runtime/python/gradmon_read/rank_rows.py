# SPDX-License-Identifier: Apache-2.0
"""The CSV files to convert, and the rows of one kind and rank in them. Needs pyarrow."""
import heapq
from collections import deque
from itertools import groupby
from pathlib import Path
from typing import Any, Iterator, NamedTuple, Optional, Sequence

import numpy
import pyarrow

from gradmon_read.command_line import CommandError
from gradmon_read.conversion import Meter
from gradmon_read.csv_tables import CsvFile, KindFile, Problems, kind_files_in, numbers_of, text_of, validity
from gradmon_read.runs import directory_name, find_run, parse_rank_directory, runs_in
from gradmon_read.small_files import Together, groups, read_together
from gradmon_read.vocabulary import FIELDS, ROW_KINDS

MOST_TARGETS = 1_000_000  # of names, and of names and micro steps
_MOST_NAME_BYTES = 128 << 20


class InputChoice(NamedTuple):
    """The user's choice."""

    path: Path  # as find_run() takes it
    first: Optional[int]  # the earliest time in a directory's name, as seconds_in_year(); None: no limit
    last: Optional[int]  # the latest

    def has(self, in_year: int) -> bool:
        after = self.first is None or in_year >= self.first
        return after and (self.last is None or in_year <= self.last)


class RankInput(NamedTuple):
    rank: int
    starts: "list[Path]"  # its directories, from the first start on


def chosen_directories(choice: InputChoice, problems: Problems) -> "list[RankInput]":
    """Ascending by rank. Raises CommandError with the found and the expected input."""
    runs = runs_in(choice.path, problems) if choice.path.is_dir() else []
    runs = runs or [find_run(choice.path, "", problems)]  # a rank's own directory, or a run-ID.json
    directories = [directory for run in runs for directory in run.ranks]
    ranks: "dict[int, list[Path]]" = {}
    for rank, path in directories:
        name = parse_rank_directory(directory_name(path))
        no_limit = choice.first is None and choice.last is None
        if no_limit or name and choice.has(name.in_year):
            ranks.setdefault(rank, []).append(path)
    if not ranks:
        raise CommandError(
            f"{choice.path}: none of {len(directories)} directories of ranks is in the time range; expected "
            f"one as {directory_name(directories[0].path)}"
        )
    return [RankInput(rank, ranks[rank]) for rank in sorted(ranks)]


class InputFile(NamedTuple):
    file: KindFile
    start: int  # index into RankInput.starts


class Task(NamedTuple):
    """The rows that are converted together: those of one rank and kind."""

    rank: RankInput
    kind: str

    def files(self, problems: Problems) -> "list[InputFile]":
        return chosen_files(self.rank, problems)[self.kind]


def chosen_files(rank: RankInput, problems: Problems) -> "dict[str, list[InputFile]]":
    """The files of each kind; by first step, revision, last step, start."""
    files: "dict[str, list[InputFile]]" = {}
    for start, directory in enumerate(rank.starts):
        for kind, of_kind in kind_files_in(directory, problems).items():
            files.setdefault(kind, []).extend(InputFile(file, start) for file in of_kind)
    return {
        kind: sorted(files[kind], key=lambda one: (*one.file[:3], one.start))
        for kind in ROW_KINDS
        if kind in files
    }


def tasks_of(ranks: "list[RankInput]", kinds: "list[str]", problems: Problems) -> "tuple[list[Task], int]":
    """Rank by rank, kinds in their order; and the number of bytes of all files."""
    tasks = []
    size = 0
    for rank in ranks:
        for kind, files in chosen_files(rank, problems).items():
            if kinds and kind not in kinds:
                continue
            tasks.append(Task(rank, kind))
            paths = [one.file.path for one in files]
            size += sum(path.stat().st_size for path in paths if path.is_file())
    return tasks, size


class Target(NamedTuple):
    vpp_stage: int
    name: bytes


class Rows(NamedTuple):
    """Steps ascend."""

    batch: pyarrow.RecordBatch  # as CsvFile.tables() has them; of several files if these have no common steps
    target: Any  # index into RankRows.targets, by row
    key: Any  # of the target and the micro step, by row: a small number
    file: Any  # index into `files`, by row
    files: "Sequence[KindFile]"
    written: Any  # the time of the last write to each file, in seconds since 1970

    def chosen(self, rows: Any) -> "Rows":
        """`rows`: a boolean for each."""
        return self._replace(
            batch=self.batch.filter(pyarrow.array(rows)),
            target=self.target[rows],
            key=self.key[rows],
            file=self.file[rows],
        )

    def part(self, first: int, last: int) -> "Rows":
        return self._replace(
            batch=self.batch.slice(first, last - first),
            target=self.target[first:last],
            key=self.key[first:last],
            file=self.file[first:last],
        )

    def column(self, name: str, default: int) -> Any:
        if name in self.batch.schema.names:
            return numbers_of(self.batch[name])
        return numpy.full(self.batch.num_rows, default)

    def texts(self, name: str) -> "tuple[list[bytes], Any]":
        """The different texts of a column, and the index of the text, by row."""
        if name not in self.batch.schema.names:
            return [b""], numpy.zeros(self.batch.num_rows, numpy.int32)
        column = self.batch[name]
        return column.dictionary.to_pylist(), numbers_of(column.indices)

    def fields(self) -> "dict[str, pyarrow.Array]":
        """The columns of values, in the order of FIELDS."""
        names = self.batch.schema.names
        return {field: self.batch[field] for field in FIELDS if field in names}


class _Group(NamedTuple):
    files: "list[KindFile]"
    is_small: bool
    start: int  # of all files


def _groups(files: "list[InputFile]") -> "Iterator[_Group]":
    for start, of_start in groupby(files, key=lambda one: one.start):
        for group in groups([one.file for one in of_start]):
            if group.is_small:
                yield _Group(group.files, True, start)
            else:
                yield from (_Group([file], False, start) for file in group.files)


class _Open:
    """Files that have rows; `at` is the next one."""

    def __init__(self, group: _Group, found: "Optional[Together]", problems: Problems) -> None:
        self.start = group.start
        self.at = 0
        self.bytes_read = 0
        self._files = group.files
        self._batches = self._of_file(problems) if found is None else self._of_group(found)

    def _of_file(self, problems: Problems) -> "Iterator[tuple[Any, Any, Any]]":
        """Batches, and the index and the times of files."""
        file = CsvFile(self._files[0].path, problems)
        for table in file.tables():
            self.bytes_read = file.bytes_read
            for batch in table.to_batches():
                yield batch, numpy.zeros(batch.num_rows, numpy.int32), numpy.array([file.written])
        self.bytes_read = file.bytes_read

    def _of_group(self, found: Together) -> "Iterator[tuple[Any, Any, Any]]":
        at = 0
        self.bytes_read = found.bytes_read
        for batch in found.table.to_batches():
            yield batch, found.file[at : at + batch.num_rows], found.written
            at += batch.num_rows

    def load(self, rows: "RankRows") -> bool:
        """Reads the next block with rows. Returns False at the end."""
        for batch, file, written in self._batches:
            if batch.num_rows:
                self.rows = rows.named(batch)._replace(file=file, files=self._files, written=written)
                self.steps = numbers_of(batch["step"])
                self._descents = numpy.flatnonzero(self.steps[1:] < self.steps[:-1]) + 1
                self.at = 0
                return True
        return False

    @property
    def step(self) -> int:
        return int(self.steps[self.at])

    def end_of_run(self, limit: float) -> int:
        """The end of the rows that come next: of steps below the limit, at least one step."""
        descents = self._descents[numpy.searchsorted(self._descents, self.at, "right") :]
        steps = self.steps[self.at : descents[0] if len(descents) else None]
        if steps[-1] < limit:
            return self.at + len(steps)
        below = numpy.searchsorted(steps, limit, "left") or numpy.searchsorted(steps, steps[0], "right")
        return self.at + int(below)


def _are_within(found: Together, files: "list[KindFile]") -> bool:
    """True if the rows of each file are of the steps in its name."""
    step = numbers_of(found.table["step"].combine_chunks())
    first, last = (numpy.array(steps, numpy.int64) for steps in zip(*((one[0], one[2]) for one in files)))
    return bool(((step >= first[found.file]) & (step <= last[found.file])).all())


class RankRows:
    """The rows of one kind and rank, from the files of all its starts, with ascending steps if they ascend in
    each file. If several starts of the job have collected a step, the rows of the last start are taken; the
    others are counted. A second row of a target in a step is a problem, and skipped. Skips rows without a
    value, and rows of more than `most` names and micro steps, which are a problem."""

    def __init__(
        self, files: "list[InputFile]", meter: Meter, problems: Problems, most: int = MOST_TARGETS
    ) -> None:
        self.targets: "list[Target]" = []
        self._groups = deque(_groups(files))
        self._meter = meter
        self._problems = problems
        self._most = most
        self._name_bytes = 0
        self._ids: "dict[int, dict[bytes, int]]" = {}  # of targets, by stage and name
        self._last_names: "dict[tuple[int, bool], tuple[Any, Any, Any]]" = {}  # _ids_of() a block
        self._plain_keys = numpy.full(1024, -1)  # of targets without micro steps, by id
        self._keys: "dict[int, int]" = {}  # by target and micro step
        self._pairs: "list[int]" = []  # the same, by key
        self._last_steps = numpy.full(1024, -1)  # by key
        self._step = -1  # of the last row
        self._greatest_step = -1
        self._start_of_step = 0  # the start whose rows of that step are taken

    def __iter__(self) -> "Iterator[Rows]":
        """Raises Interrupted."""
        waiting: "list[tuple[int, int, int, _Open]]" = []  # by step; the last start first
        opened = 0

        def wait(number: int, one: _Open) -> None:
            heapq.heappush(waiting, (one.step, -one.start, number, one))

        while True:
            while self._groups and (not waiting or waiting[0][0] >= self._groups[0].files[0].first_step):
                new = self._next()
                if self._loaded(new):
                    wait(opened, new)
                opened += 1
            if not waiting:
                return
            _, _, number, current = heapq.heappop(waiting)
            limit = self._groups[0].files[0].first_step if self._groups else float("inf")
            first, current.at = current.at, current.end_of_run(min([limit, *(one[0] for one in waiting[:1])]))
            rows = self._wanted(current.rows.part(first, current.at), current.start)
            if rows.batch.num_rows:
                self._meter.add(rows=rows.batch.num_rows)
                yield rows
            if current.at < len(current.steps) or self._loaded(current):
                wait(number, current)

    def _next(self) -> _Open:
        """Opens the next files."""
        group = self._groups.popleft()
        found = read_together(group.files) if group.is_small else None
        if found is not None and not _are_within(found, group.files):
            found = None
        if found is None:
            self._groups.extendleft(_Group([file], False, group.start) for file in reversed(group.files))
            group = self._groups.popleft()
        return _Open(group, found, self._problems)

    def _loaded(self, one: _Open) -> bool:
        before = one.bytes_read
        loaded = one.load(self)
        self._meter.add(bytes=one.bytes_read - before)
        return loaded

    def named(self, batch: pyarrow.RecordBatch) -> Rows:
        """With the targets of its rows; -1: one more than is held in memory."""
        names = batch["name"]
        codes = numbers_of(names.indices)
        stages = numbers_of(batch["vpp_stage"]) if "vpp_stage" in batch.schema.names else codes[:1] * 0
        micro_steps = numbers_of(batch["micro_step"]) if "micro_step" in batch.schema.names else None
        if (stages == stages[0]).all():
            ids, plain_keys = self._ids_of(int(stages[0]), names.dictionary, micro_steps is None)
            target, key = ids[codes], plain_keys[codes]
        else:
            target, key = numpy.empty((2, len(codes)), numpy.int64)
            for stage in numpy.unique(stages).tolist():
                chosen = stages == stage
                ids, plain_keys = self._ids_of(stage, names.dictionary, micro_steps is None)
                target[chosen], key[chosen] = ids[codes[chosen]], plain_keys[codes[chosen]]
        if micro_steps is not None:
            pairs, inverse = numpy.unique(target << 32 | micro_steps + numpy.int64(1), return_inverse=True)
            key = numpy.array([self._key(pair) for pair in pairs.tolist()])[inverse]
        return Rows(batch, target, key, target, [], target)

    def _ids_of(self, stage: int, names: pyarrow.Array, is_without_micro_steps: bool) -> "tuple[Any, Any]":
        """The targets and, without micro steps, the keys of the names."""
        last = self._last_names.get((stage, is_without_micro_steps))
        if last and last[0].equals(names):
            return last[1], last[2]
        ids, keys = self._looked_up(stage, names.to_pylist(), is_without_micro_steps)
        self._last_names[(stage, is_without_micro_steps)] = (names, ids, keys)
        return ids, keys

    def _looked_up(self, stage: int, texts: "list[bytes]", is_without_micro_steps: bool) -> "tuple[Any, Any]":
        known = self._ids.setdefault(stage, {})
        ids = [known.get(name, -1) for name in texts]
        if -1 in ids:
            ids = [self._id(stage, name) for name in texts]
        ids = numpy.array(ids)
        if not is_without_micro_steps:
            return ids, ids
        while len(self._plain_keys) <= len(self.targets):
            self._plain_keys = numpy.append(self._plain_keys, numpy.full(len(self._plain_keys), -1))
        for id in ids[self._plain_keys[ids] < 0].tolist():
            self._plain_keys[id] = self._key(id << 32)  # -1, the last, stays -1
        return ids, self._plain_keys[ids]

    def _id(self, stage: int, name: bytes) -> int:
        known = self._ids[stage]
        if name not in known and len(self.targets) < self._most and self._name_bytes < _MOST_NAME_BYTES:
            known[name] = len(self.targets)
            self._name_bytes += len(name)
            self.targets.append(Target(stage, name))
        return known.get(name, -1)

    def meaning_of(self, key: int) -> "tuple[Target, int]":
        """The target and the micro step; -1: the file has no micro steps."""
        pair = self._pairs[key]
        return self.targets[pair >> 32], (pair & 2**32 - 1) - 1

    def _key(self, pair: int) -> int:
        key = self._keys.get(pair, -1)
        if 0 <= pair and key < 0 and len(self._keys) < self._most:
            key = self._keys[pair] = len(self._keys)
            self._pairs.append(pair)
        return key

    def _wanted(self, rows: Rows, start: int) -> Rows:
        steps = rows.column("step", 0)
        if steps[0] == self._step and start != self._start_of_step:
            repeated = int(numpy.searchsorted(steps, self._step, "right"))
            self._meter.add(repeated=repeated)
            rows, steps = rows.part(repeated, len(steps)), steps[repeated:]
        if len(steps) == 0:
            return rows
        if steps[-1] != self._step:
            self._start_of_step = start
        self._step = int(steps[-1])
        columns = rows.fields().values()
        if all(column.null_count for column in columns):
            valid = [validity(column) for column in columns]
            measured = numpy.logical_or.reduce(valid) if valid else numpy.zeros(len(steps), bool)
            rows, steps = rows.chosen(measured), steps[measured]
        return self._unique(rows, steps)

    def _unique(self, rows: Rows, steps: Any) -> Rows:
        """Without second rows of a target in a step."""
        if len(steps) == 0:
            return rows
        key = rows.key
        most = int(key.max())
        is_later = steps[0] > self._greatest_step
        self._greatest_step = max(self._greatest_step, int(steps[-1]))
        while len(self._last_steps) <= most:
            self._last_steps = numpy.append(self._last_steps, numpy.full(len(self._last_steps), -1))
        if steps[-1] - steps[0] < 2**40 and key.min() >= 0:
            places = (steps - steps[0]) * (most + 1) + key
            if (places[1:] <= places[:-1]).any():
                places = numpy.sort(places)
            once = (places[1:] != places[:-1]).all()
            if once and (is_later or (self._last_steps[key] != steps).all()):
                self._last_steps[key] = steps
                return rows
        good = numpy.ones(len(steps), bool)
        for i, (one, step) in enumerate(zip(key.tolist(), steps.tolist())):
            if one < 0:
                good[i] = self._reported(rows, i, f"more than {self._most} names and micro steps")
            elif self._last_steps[one] == step:
                name = text_of(rows.batch["name"][i].as_py()[:100])
                text = f'found a second row of "{name}" in step {step}; expected one'
                good[i] = self._reported(rows, i, text)
            else:
                self._last_steps[one] = step
        return rows.chosen(good)

    def _reported(self, rows: Rows, row: int, text: str) -> bool:
        self._problems.add(
            rows.files[rows.file[row]].path, rows.batch["line"][row].as_py(), f"{text}; the row is left out"
        )
        return False
