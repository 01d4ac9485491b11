# SPDX-License-Identifier: Apache-2.0
"""The directories of an output directory that belong to one start of a job."""
import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple, Optional

from gradmon_read.command_line import CommandError, open_regular
from gradmon_read.csv_tables import kind_files_in
from gradmon_read.listing import Problems

MOST_JSON_DEPTH = 100

MOST_RUN_FILE_BYTES = 64 << 20
_LONGEST_START = 600  # s between the first directories of two ranks of one start
_LEAP_YEAR = 366 * 86400  # s
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_DAYS_BEFORE = [0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335]
_TIME = re.compile(r"([A-Z][a-z]{2})(\d\d)_(\d\d)-(\d\d)-(\d\d)", re.ASCII)
_RANK_DIRECTORY = re.compile(rf"({_TIME.pattern})-rank(\d+)-(.+)", re.ASCII | re.DOTALL)
_RUN_FILE = re.compile(r"run-(.+)\.json", re.DOTALL)


class RankDirectory(NamedTuple):
    rank: int
    path: Path


class Run(NamedTuple):
    """One start of a job."""

    id: str  # 8 hex digits; of msprobe: those of the lowest rank
    started: str  # as in run-{id}.json, else as in the name of a directory: "Nov24_12-04-37"
    ranks: "list[RankDirectory]"  # ascending


class RankDirectoryName(NamedTuple):
    """ "Nov24_12-04-37-rank3-1a2b3c4d" """

    in_year: int  # the time, by seconds_in_year()
    rank: int
    id: str  # of gradmon: one for all ranks of a run; of msprobe: another for each rank
    time: str


def seconds_in_year(text: str) -> Optional[int]:
    """From the begin of a leap year to a time such as "Dec03_21-34-40"; None for any other text."""
    match = _TIME.fullmatch(text)
    if match is None or match[1] not in _MONTHS:
        return None
    day, hour, minute, second = (int(match[i]) for i in range(2, 6))
    if not 1 <= day <= 31 or hour > 23 or minute > 59 or second > 60:
        return None
    days = _DAYS_BEFORE[_MONTHS.index(match[1])] + day - 1
    return 86400 * days + 3600 * hour + 60 * minute + second


def parse_rank_directory(name: str) -> Optional[RankDirectoryName]:
    match = _RANK_DIRECTORY.fullmatch(name)
    in_year = seconds_in_year(match[1]) if match else None
    if match is None or in_year is None or int(match[7]) >= 2**31:
        return None
    return RankDirectoryName(in_year, int(match[7]), match[8], match[1])


def id_of_run_file(name: str) -> str:
    """ "1a2b3c4d" of "run-1a2b3c4d.json"; "" for another name."""
    match = _RUN_FILE.fullmatch(name)
    return match[1] if match else ""


def directory_name(directory: Path) -> str:
    """ "b" of "a/b/"; that of the working directory of "."."""
    return os.path.basename(os.path.abspath(directory))


def read_json(path: Path, most_bytes: int) -> Any:
    """The JSON value in a regular file. Raises ValueError with the cause; "" if it is no JSON."""
    try:
        with open_regular(path, most_bytes) as opened:
            text = opened.read()
    except OSError as error:
        raise ValueError(error.strerror) from None
    try:
        value = json.loads(text.decode("utf-8-sig"), parse_constant=_refuse)
        if re.search(rb"\\u[dD][89a-fA-F]", text):
            json_text(value).encode()  # half a character is no JSON
        too_deep = _is_deeper(value, MOST_JSON_DEPTH)
    except RecursionError:
        too_deep = True
    except ValueError:
        raise ValueError("") from None
    if too_deep:
        raise ValueError(f"expected brackets nested at most {MOST_JSON_DEPTH} deep")
    return value


def json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _refuse(name: str) -> None:
    raise ValueError(name)


def _is_deeper(value: Any, most: int) -> bool:
    level = [value]
    for _ in range(most + 1):
        level = [each for each in level if isinstance(each, (dict, list))]
        if not level:
            return False
        level = [inner for each in level for inner in (each.values() if isinstance(each, dict) else each)]
    return True


def read_format_1(
    file: Path, most_bytes: int, problems: Problems, consequence: str = ""
) -> "Optional[dict[str, Any]]":
    """The JSON object with "format": 1 in a file; None if it has another content, which is a problem."""
    try:
        value = read_json(file, most_bytes)
        if isinstance(value, dict) and value.get("format") == 1 and value["format"] is not True:
            return value
        raise ValueError("")
    except ValueError as error:
        text = str(error) or 'expected a JSON object with "format": 1'
        problems.add(file, 0, text + consequence)
        return None


_Found = tuple[RankDirectoryName, Path]


def runs_in(output_dir: Path, problems: Problems) -> "list[Run]":
    """The runs of an output directory, the newest last. Directories with the same id form a run. Directories
    without run-{id}.json and with an unshared id, as msprobe makes them, form a run if they follow each other
    within 10 minutes and have different ranks. Names carry no year: the longest time of the year between two
    names is assumed to lie before the oldest one. Raises CommandError: the directory cannot be read."""
    found: "list[_Found]" = []
    started: "dict[str, str]" = {}
    try:
        for entry in sorted(output_dir.iterdir()):
            name, id = parse_rank_directory(entry.name), id_of_run_file(entry.name)
            if name and entry.is_dir():
                found.append((name, entry))
            more = "; only the names of the directories are used"
            value = read_format_1(entry, MOST_RUN_FILE_BYTES, problems, more) if id else None
            if value is not None:
                time = value.get("started")
                started[id] = time if isinstance(time, str) else ""
    except OSError as error:
        raise CommandError(f"{output_dir}: {error.strerror}") from None
    return _grouped(_ordered_by_time(found), started)


def _ordered_by_time(found: "list[_Found]") -> "list[_Found]":
    """The longest time without a name comes first."""
    found = sorted(found)
    times = [name.in_year for name, _ in found]
    gaps = [after - before for before, after in zip([times[-1] - _LEAP_YEAR, *times], times)] if times else []
    first = gaps.index(max(gaps)) if gaps else 0
    return found[first:] + found[:first]


def _grouped(found: "list[_Found]", started: "dict[str, str]") -> "list[Run]":
    sharing = Counter(name.id for name, _ in found)
    runs: "list[list[_Found]]" = []
    by_id: "dict[str, list[_Found]]" = {}
    alone: "list[_Found]" = []  # the run of directories with unshared ids
    for name, path in found:
        if sharing[name.id] > 1 or name.id in started:
            run = by_id.setdefault(name.id, [])
        else:
            since = (name.in_year - alone[-1][0].in_year) % _LEAP_YEAR if alone else 0  # over New Year
            if since > _LONGEST_START or name.rank in [other.rank for other, _ in alone]:
                alone = []
            run = alone
        if not run:
            runs.append(run)
        run.append((name, path))
    made = []
    for run in runs:
        first, lowest = run[0][0], min((name for name, _ in run), key=lambda name: name.rank)
        ranks = sorted((RankDirectory(name.rank, path) for name, path in run), key=lambda one: one.rank)
        made.append(Run(lowest.id, started.get(first.id) or first.time, ranks))
    return made


_EXPECTED = (
    "; expected the output directory of a job (monitor_output), with directories such as "
    "Nov24_12-04-37-rank0-1a2b3c4d, or one of these directories"
)


def find_run(path: Path, id: str, problems: Problems) -> Run:
    """The run that the user names: an output directory (its newest run, or the run `id`), the directory of
    one rank, or a file run-{id}.json. Raises CommandError, which names the expected input."""
    of_file = id_of_run_file(path.name)
    if of_file and path.is_file():
        return find_run(path.parent, of_file, problems)
    try:
        runs = runs_in(path, problems)
    except CommandError as error:
        raise CommandError(f"{error}{_EXPECTED}") from None
    if not runs:
        name = parse_rank_directory(directory_name(path))
        if name is None and not kind_files_in(path, problems):
            raise CommandError(f"{path}: no directory of a rank and no CSV file of gradmon in it{_EXPECTED}")
        if name is None:
            return Run("", "", [RankDirectory(0, path)])
        return Run(name.id, name.time, [RankDirectory(name.rank, path)])
    for run in runs:
        if not id or run.id == id:
            return run if id else runs[-1]
    raise CommandError(f"{path}: no run {id}; there are: {', '.join(run.id for run in runs)}")
