# SPDX-License-Identifier: Apache-2.0
"""gradmonctl analyse anomalies: the dumps of alerts, anomaly_detected/rank{R}/anomaly.json, of gradmon or of
msprobe."""
import argparse
import heapq
import json
import os
import re
from itertools import accumulate
from pathlib import Path
from typing import Any, Iterator, NamedTuple, NoReturn

from gradmon_read import command_line, run_report
from gradmon_read.command_line import CommandError, UsageError, default_output_dir, open_regular, report
from gradmon_read.listing import Problems, printable

_MOST_BYTES = 512 << 20
_MOST_DEPTH = 100  # of brackets: parsers recurse
_NUMBERS = ("rank", "step", "micro_step", "pp_stage", "vpp_stage", "call_id")
_TEXTS = ("tag_name", "message")
_FORWARD = 0
_PHASES = {
    "actv": _FORWARD,
    **dict.fromkeys(("actv_grad", "pre_grad", "post_grad", "acc_grad"), 1),
    **dict.fromkeys(("exp_avg", "exp_avg_sq"), 2),
}
_JSON_PARTS = re.compile(r'"(?:[^"\\]|\\.)*"?|[\[\]{}]', re.DOTALL)
# Around the members of an object; "end" has a character if the text ends here.
_BEGIN = re.compile(r"\ufeff?[ \t\r\n]*\{[ \t\r\n]*(?P<end>\}[ \t\r\n]*\Z)?")
_COLON = re.compile(r"[ \t\r\n]*:[ \t\r\n]*")
_NEXT = re.compile(r"[ \t\r\n]*(?:,[ \t\r\n]*|(?P<end>\}[ \t\r\n]*\Z))")
_EXPECTED = "; expected the directory anomaly_detected of a job, with rank0/anomaly.json"


class Anomaly(NamedTuple):
    """An alert in a dump."""

    key: str  # in the dump: "0:fc1.input:0/rank0/actv_step_2_call_3_norm"; of msprobe without the op
    fields: "dict[str, Any]"  # in the order of anomaly_analyse.json
    order: "tuple[int, ...]"  # of the calls, as in msprobe's anomaly_processor


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


def read_anomaly_dumps(directory: Path, count: int, steps: "list[int]") -> "AnomalyDumps":
    """The first anomalies. `directory`: `anomaly.json` is read in each of its directories (rank0, ...),
    ranks ascending. `count`: keeps so many. `steps`: only of these; []: of all. Raises CommandError: the
    directory cannot be read or has no dump."""
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
    names.sort(key=lambda name: (len(os.fsencode(name)), name))  # "rank2" before "rank10"
    return AnomalyDumps([directory / name / "anomaly.json" for name in names], count, set(steps))


class AnomalyDumps:
    """The result of read_anomaly_dumps(). Holds one dump and `count` anomalies in memory."""

    def __init__(self, files: "list[Path]", count: int, steps: "set[int]") -> None:
        self.anomalies = 0  # of the steps, in all dumps
        self.dumps = 0  # files read
        self._problems, self._steps = Problems("alerts or files"), steps
        found = (anomaly for file in files for anomaly in self._read(file))
        self.first = heapq.nsmallest(count, found, key=lambda anomaly: anomaly.order)
        self.left_out = self._problems.messages()  # "FILE: KEY: reason"; some, and a count

    def _leave_out(self, file: Path, why: object) -> None:
        self._problems.add(file, 0, f"{why}; left out")

    def _read(self, file: Path) -> "Iterator[Anomaly]":
        try:
            with open_regular(file, _MOST_BYTES) as opened:
                content = opened.read()
        except OSError as error:
            return self._leave_out(file, error.strerror or error)
        text = _valid_text(content)
        steps = {"[": 1, "{": 1, "]": -1, "}": -1}
        depths = accumulate(steps.get(part[0], 0) for part in _JSON_PARTS.finditer(text))
        if max(depths, default=0) > _MOST_DEPTH:
            return self._leave_out(file, "expected brackets nested at most 100 deep")
        self.dumps += 1
        try:
            for key, entry in _members(text):
                try:
                    anomaly = read_anomaly(key, entry)
                except ValueError as error:
                    self._leave_out(file, f"{key}: {error}")
                    continue
                if not self._steps or anomaly.fields["step"] in self._steps:
                    self.anomalies += 1
                    yield anomaly
            if len(text.encode()) < len(content):
                raise ValueError
        except _NoObject:
            self._leave_out(file, "expected a JSON object with an object for each alert")
        except ValueError:
            self._leave_out(
                file, "no whole JSON object; its first alerts are used. Is the job still writing it?"
            )


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
    mark = _BEGIN.match(text)
    if mark is None:
        raise _NoObject
    while mark is not None and not mark["end"]:
        key, at = decoder.raw_decode(text, mark.end())
        colon = _COLON.match(text, at)
        if not isinstance(key, str) or colon is None:
            raise ValueError
        value, at = decoder.raw_decode(text, colon.end())
        yield _without_surrogates(key), _without_surrogates(value)
        mark = _NEXT.match(text, at)
    if mark is None:
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
