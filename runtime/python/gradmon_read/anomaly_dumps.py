# SPDX-License-Identifier: Apache-2.0
"""gradmonctl analyse anomalies: the dumps of alerts, anomaly_detected/rank{R}/anomaly.json, of gradmon or of
msprobe."""
import argparse
import json
import os
import re
from itertools import accumulate
from pathlib import Path
from typing import Any, Iterator, NamedTuple, NoReturn

from gradmon_read import command_line, run_report
from gradmon_read.command_line import CommandError, UsageError, default_output_dir, open_regular, report
from gradmon_read.listing import printable

_MOST_BYTES = 512 << 20
_MOST_DEPTH = 100  # of brackets: parsers recurse
_MESSAGES = 10
_MOST_UNSORTED = 100_000  # anomalies in memory besides those that are kept
_NUMBERS = ("rank", "step", "micro_step", "pp_stage", "vpp_stage", "call_id")
_TEXTS = ("tag_name", "message")
_FORWARD = 0
_PHASES = {
    "actv": _FORWARD,
    **dict.fromkeys(("actv_grad", "pre_grad", "post_grad", "acc_grad"), 1),
    **dict.fromkeys(("exp_avg", "exp_avg_sq"), 2),
}
_JSON_PARTS = re.compile(r'"(?:[^"\\]|\\.)*"?|[\[\]{}]', re.DOTALL)
_SPACE = re.compile(r"[ \t\r\n]*")
_EXPECTED = "; expected the directory anomaly_detected of a job, with rank0/anomaly.json"


class Anomaly(NamedTuple):
    """An alert in a dump."""

    key: str  # in the dump: "0:fc1.input:0/rank0/actv_step_2_call_3_norm"; of msprobe without the op
    fields: "dict[str, Any]"  # in the order of anomaly_analyse.json
    order: "tuple[int, ...]"  # of the calls, as in msprobe's anomaly_processor


class AnomalyDumps(NamedTuple):
    first: "list[Anomaly]"  # by order
    anomalies: int  # of the steps, in all dumps
    dumps: int  # files read
    left_out: "list[str]"  # "FILE: KEY: reason"; at most _MESSAGES, and a count


def analyse_json(anomalies: "list[Anomaly]") -> str:
    """anomaly_analyse.json with msprobe's bytes: an object by key in the order of the list."""
    return json.dumps({each.key: each.fields for each in anomalies}, indent=1)


def read_anomaly(key: str, entry: Any) -> Anomaly:
    """One entry of a dump. Missing fields are 0 or empty, as in msprobe. Raises ValueError, which names the
    field and what is expected."""
    if not isinstance(entry, dict):
        raise ValueError('expected an object, such as {"rank": 0, "step": 1, ...}')
    fields: "dict[str, Any]" = {}
    for name in _NUMBERS:
        number = entry.get(name, 0)
        if type(number) is not int or not -(2**63) <= number < 2**63:
            raise ValueError(f"expected a whole number for {name}")
        fields[name] = number
    for name in _TEXTS:
        text = entry.get(name)
        if text is not None and not isinstance(text, str):
            raise ValueError(f"expected a text for {name}")
        fields[name] = text or ""
    # Keys sorted, as a reader of msprobe's has them.
    fields["group_mates"] = json.loads(json.dumps(entry.get("group_mates"), sort_keys=True))
    return Anomaly(key, fields, _order(fields))


def _order(fields: "dict[str, Any]") -> "tuple[int, ...]":
    """Step, micro step, phase of the last part of the tag (unknown, forward, backward, optimizer), model
    chunk and pipeline stage (rising in forward, else falling), call id."""
    phase = _PHASES.get(fields["tag_name"].rpartition("/")[2], -1)
    sign = 1 if phase == _FORWARD else -1
    stages = sign * fields["vpp_stage"], sign * fields["pp_stage"]
    return fields["step"], fields["micro_step"], phase, *stages, fields["call_id"]


def read_anomaly_dumps(directory: Path, count: int, steps: "list[int]") -> AnomalyDumps:
    """The first anomalies.

    Parameters
    ----------
    directory : Path
        `anomaly.json` is read in each of its directories (rank0, rank1, ...), ranks ascending.
    count : int
        Keeps so many. Holds one dump, `count` anomalies and 100,000 more in memory.
    steps : list of int
        Only of these; []: of all.

    Raises
    ------
    CommandError
        If `directory` cannot be read or has no dump.
    """
    try:
        names = os.listdir(directory)
    except OSError as error:
        raise CommandError(f"{directory}: {error.strerror}{_EXPECTED}") from None
    names = [name for name in names if os.path.exists(directory / name / "anomaly.json")]
    if not names:
        raise CommandError(
            f'{directory}: no dump of alerts in it{_EXPECTED}, which alerts write with "dump": true in the '
            f'config\'s "alert"; without it, gradmonctl alerts {directory} lists them'
        )
    reader = _DumpReader(count, steps)
    for name in sorted(names, key=lambda name: (len(os.fsencode(name)), name)):  # "rank2" before "rank10"
        reader.read(directory / name / "anomaly.json")
    return reader.end()


class _DumpReader:
    def __init__(self, count: int, steps: "list[int]") -> None:
        self._count = count
        self._steps = set(steps)
        self._kept: "list[Anomaly]" = []
        self._anomalies = self._dumps = self._left_out = 0
        self._messages: "list[str]" = []

    def read(self, file: Path) -> None:
        try:
            with open_regular(file, _MOST_BYTES) as opened:
                content = opened.read()
        except OSError as error:
            self._leave_out(file, error.strerror or str(error))
            return
        text = _valid_text(content)
        depths = accumulate(
            {"[": 1, "{": 1, "]": -1, "}": -1}.get(part[0], 0) for part in _JSON_PARTS.finditer(text)
        )
        if max(depths, default=0) > _MOST_DEPTH:
            self._leave_out(file, "expected brackets nested at most 100 deep")
            return
        self._dumps += 1
        try:
            for key, entry in _members(text):
                self._add(file, key, entry)
            if len(text.encode()) < len(content):
                raise ValueError
        except _NoObject:
            self._leave_out(file, "expected a JSON object with an object for each alert")
        except ValueError:
            why = "no whole JSON object; its first alerts are used. Is the job still writing it?"
            self._leave_out(file, why)

    def _add(self, file: Path, key: str, entry: Any) -> None:
        try:
            anomaly = read_anomaly(key, entry)
        except ValueError as error:
            self._leave_out(file, f"{key}: {error}")
            return
        if self._steps and anomaly.fields["step"] not in self._steps:
            return
        self._anomalies += 1
        self._kept.append(anomaly)
        if len(self._kept) > self._count + _MOST_UNSORTED:
            self._sort()

    def _sort(self) -> None:
        self._kept.sort(key=lambda anomaly: anomaly.order)
        del self._kept[self._count :]

    def _leave_out(self, file: Path, why: str) -> None:
        self._left_out += 1
        if self._left_out <= _MESSAGES:
            self._messages.append(f"{file}: {why}; left out")

    def end(self) -> AnomalyDumps:
        self._sort()
        if self._left_out > _MESSAGES:
            self._messages.append(f"and {self._left_out - _MESSAGES} more alerts or files are left out")
        return AnomalyDumps(self._kept, self._anomalies, self._dumps, self._messages)


class _NoObject(ValueError):
    """The text does not begin as a JSON object."""


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _valid_text(content: bytes) -> str:
    """Up to the first byte that is not UTF-8."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        return content[: error.start].decode()


def _members(text: str) -> "Iterator[tuple[str, Any]]":
    """Key and value of each member of a JSON object as soon as it is read: a dump may be large, and torn.
    Raises ValueError where the text is no JSON."""
    decoder = json.JSONDecoder(parse_constant=_refuse)

    def after_space(at: int) -> int:
        return _SPACE.match(text, at).end()  # type: ignore[union-attr]

    at = after_space(text.startswith("\ufeff"))
    if text[at : at + 1] != "{":
        raise _NoObject
    at = after_space(at + 1)
    is_first = True
    while text[at : at + 1] != "}":
        if not is_first:
            if text[at : at + 1] != ",":
                raise ValueError
            at = after_space(at + 1)
        is_first = False
        if text[at : at + 1] != '"':
            raise ValueError
        key, at = decoder.raw_decode(text, at)
        at = after_space(at)
        if text[at : at + 1] != ":":
            raise ValueError
        value, at = decoder.raw_decode(text, after_space(at + 1))
        yield _without_surrogates(key), _without_surrogates(value)
        at = after_space(at)
    if after_space(at + 1) != len(text):
        raise ValueError


def _without_surrogates(value: Any) -> Any:
    """Half a pair, which JSON can escape, cannot be printed."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_without_surrogates(each) for each in value]
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(each) for key, each in value.items()}
    return value


def perform(arguments: argparse.Namespace) -> int:
    steps = _steps(arguments.s)
    if arguments.RUN and arguments.d:
        raise UsageError("RUN: given twice")
    place = Path(arguments.RUN or arguments.d or default_output_dir())
    if (place / "anomaly_detected").is_dir():
        place /= "anomaly_detected"
    dumps = read_anomaly_dumps(place, arguments.k, steps)
    for message in dumps.left_out:
        report(message)
    file = Path(arguments.o or place) / "anomaly_analyse.json"
    text = analyse_json(dumps.first)
    run_report.replace_file(file, text.encode())
    if arguments.json:
        run_report.print_json(
            {
                "file": str(file),
                "dumps": dumps.dumps,
                "anomalies": dumps.anomalies,
                "first": json.loads(text),
                "left_out": dumps.left_out,
            }
        )
        return command_line.DONE
    lines = [f"the first {len(dumps.first)} of {dumps.anomalies} anomalies, in {printable(str(file))}:"]
    lines += [f"{i}: {printable(each.fields['message'])}" for i, each in enumerate(dumps.first)]
    run_report.print_text("\n".join(lines) + "\n")
    return command_line.DONE


def _steps(text: str) -> "list[int]":
    """ "[1, 2]", "1,2" or "" """
    found = re.fullmatch(r"(\[)?((?:-?[0-9]+,)*(?:-?[0-9]+,?)?)(?(1)\])", text.replace(" ", ""))
    if found is None:
        raise UsageError(f'--step-list "{text}": expected a list of steps, such as [1,2]')
    return [int(step) for step in found[2].split(",") if step]
