# SPDX-License-Identifier: Apache-2.0
"""gradmonctl import: makes a config of a MindSpore Transformers YAML file's monitoring keys."""
import argparse
import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Optional, Sequence

import yaml

from gradmon_read import command_line
from gradmon_read.command_line import CommandError
from gradmon_read.listing import Table, printable

_MOST_BYTES = 1 << 20
_MOST_SHOWN = 60  # bytes of a value in the table
_MOST_ELEMENTS = 4096
_SECTIONS = ("monitor_config", "tensorboard", "callbacks")


def perform(arguments: argparse.Namespace) -> int:
    file: str = arguments.FILE
    try:
        data = Path(file).read_bytes()
    except PermissionError:
        sys.stderr.write(_gradmonctl("validate", file).stderr)  # which names the owner and the remedy
        return command_line.FAILED
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}") from None
    if len(data) > _MOST_BYTES:
        raise CommandError(f"{file}: more than 1 MiB")
    try:
        importer = _Importer(_entries(data))
        keys = importer.translate()
    except _Refused as refused:
        for problem in refused.errors:
            print(printable(f"{file}:{problem}"), file=sys.stderr)
        return command_line.INVALID_CONFIG
    rows = [[str(key.place.line), key.place.key, _shortened(key.value), key.becomes] for key in keys]
    table = Table(["line", "key", "value", "becomes"], [False, True, True, True])
    print("\n".join(table.lines(rows)), file=sys.stderr)
    config = importer.config()
    problems, is_valid = validate(config, arguments.output or f"the config made of {file}")
    sys.stderr.write(problems)
    if not is_valid:
        return command_line.INVALID_CONFIG
    if arguments.output:
        _make(arguments.output, config)
    else:
        sys.stdout.write(config)
    return command_line.DONE


def _shortened(value: str) -> str:
    data = value.encode("utf-8", "surrogateescape")
    if len(data) <= _MOST_SHOWN:
        return value
    return data[:_MOST_SHOWN].decode("utf-8", "surrogateescape") + "..."


def _make(path: str, config: str) -> None:
    """Keeps an existing file, and leaves no part of a new one."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640)
        try:
            with open(descriptor, "w", encoding="utf-8") as file:
                file.write(config)
        except OSError:
            os.unlink(path)
            raise
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from None


def validate(config: str, name: str) -> "tuple[str, bool]":
    """The errors and warnings of a config, which gradmonctl finds, and whether it is valid."""
    checked = _gradmonctl("validate", "/dev/stdin", input=config)
    return checked.stderr.replace("/dev/stdin", name), checked.returncode == 0


def _gradmonctl(*words: str, input: str = "") -> "subprocess.CompletedProcess[str]":
    program = os.environ.get("GRADMONCTL") or shutil.which("gradmonctl")
    if program is None:
        raise CommandError("gradmonctl, which checks the config, is not on the PATH")
    return subprocess.run(
        [program, *words], input=input, capture_output=True, encoding="utf-8", errors="surrogateescape"
    )


class _Place(NamedTuple):
    key: str  # "monitor_config.target", "callbacks[0].type"; "" for the document
    line: int = 1
    column: int = 1


class _Entry(NamedTuple):
    """A key and its value: None, a bool, a number, a string, or a list of these. A mapping, and a mapping or
    list within a list, is an empty dict."""

    place: _Place
    value: Any


class _Translated(NamedTuple):
    place: _Place
    value: str  # as JSON
    becomes: str


class _Refused(Exception):
    def __init__(self, errors: "Sequence[str]") -> None:
        super().__init__()
        self.errors = errors


def _error(place: _Place, text: str) -> str:
    return f"{place.line}:{place.column}: " + (f"{place.key}: " if place.key else "") + text


def _refuse(key: str, mark: Any, text: str) -> NoReturn:
    raise _Refused([_error(_place(key, mark), text)])


def _place(key: str, mark: Any) -> _Place:
    return _Place(key, mark.line + 1, mark.column + 1) if mark is not None else _Place(key)


def _entries(data: bytes) -> "list[_Entry]":
    """The keys of the sections, in the order of the file."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8").split("\n")
        raise _Refused([_error(_Place("", len(before), len(before[-1]) + 1), "not valid UTF-8")]) from None
    try:
        return _Reader().read(list(yaml.compose_all(text, yaml.SafeLoader)))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        _refuse("", mark, f"not YAML: {getattr(error, 'problem', None) or error}")
    except RecursionError:
        _refuse("", None, "nested too deeply")


class _Reader:
    def __init__(self) -> None:
        self._entries: "list[_Entry]" = []
        self._counted = 0

    def read(self, documents: "list[Any]") -> "list[_Entry]":
        if len(documents) > 1:
            _refuse("", documents[1].start_mark, "more than one YAML document")
        document = documents[0] if documents else None
        if document is None or document.id != "mapping":
            _refuse("", document and document.start_mark, "expected a mapping of keys to values")
        for key, node, value in self._items("", document):
            if key in _SECTIONS:
                self._add_section(key, value)
        return self._entries

    @staticmethod
    def _items(within: str, mapping: Any) -> "Any":
        seen: "set[str]" = set()
        for node, value in mapping.value:
            if node.id != "scalar":
                _refuse(within, node.start_mark, "expected a key that is text")
            key = within + node.value
            if node.value == "<<" and node.style is None:
                text = "merge keys are not supported; write the merged keys out"
                _refuse(key, node.start_mark, text)
            if key in seen:
                _refuse(key, node.start_mark, "duplicate key")
            seen.add(key)
            yield key, node, value

    def _add_section(self, key: str, section: Any) -> None:
        if section.id == "mapping":
            self._add_keys(f"{key}.", section)
        elif section.id == "sequence":
            for i, element in enumerate(section.value):
                if element.id != "mapping":
                    _refuse(f"{key}[{i}]", element.start_mark, "expected a mapping")
                self._add_keys(f"{key}[{i}].", element)
        elif _scalar(section) is not None:
            _refuse(key, section.start_mark, "expected a mapping, or a list of mappings")

    def _add_keys(self, within: str, mapping: Any) -> None:
        for key, node, value in self._items(within, mapping):
            self._entries.append(_Entry(_place(key, node.start_mark), self._value(key, value)))
            self._count(key, node)

    def _value(self, key: str, node: Any) -> Any:
        if node.id != "sequence":
            return _scalar(node)
        for element in node.value:
            self._count(key, element)
        return [_scalar(element) for element in node.value]

    def _count(self, key: str, node: Any) -> None:
        self._counted += 1
        if self._counted > _MOST_ELEMENTS:
            _refuse(key, node.start_mark, f"more than {_MOST_ELEMENTS} keys and elements")


_BOOLS = {
    word: value for word, value in zip("y yes true on n no false off".split(), [True] * 4 + [False] * 4)
}
_INTEGER = re.compile(r"[-+]?(0x[0-9a-fA-F]+|[0-9]+)")
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_SPECIAL = re.compile(r"([-+]?)\.(inf|Inf|INF|nan|NaN|NAN)")


def _scalar(node: Any) -> Any:
    """The value of a node; a mapping or a list is an empty dict. PyYAML's own rules take 1e-5 for text, and
    1:30 for a number."""
    if node.id != "scalar":
        return {}
    text: str = node.value
    if node.style is not None:
        return text
    if text in ("", "~", "null", "Null", "NULL"):
        return None
    if text.lower() in _BOOLS and text in (text.lower(), text.upper(), text.capitalize()):
        return _BOOLS[text.lower()]
    if _INTEGER.fullmatch(text):
        number = int(text, 16 if "x" in text else 10)
        return number if -(2**63) <= number < 2**63 else float(number)
    if _NUMBER.fullmatch(text):
        return float(text)
    special = _SPECIAL.fullmatch(text)
    return float(special[1] + special[2]) if special else text


_MONITOR, _TENSORBOARD, _CALLBACKS = "monitor_config.", "tensorboard.", "callbacks["
_FORMATS = {
    "local_loss_format": ["local_loss"],
    "device_local_loss_format": ["device_local_loss"],
    "local_norm_format": ["local_norm"],
    "device_local_norm_format": ["device_local_norm"],
    "optimizer_state_format": ["adam_m_norm", "adam_v_norm"],
    "weight_state_format": ["weight_norm"],
}
_SWITCHES = {
    "log_loss_scale_to_tensorboard": ["loss-scale"],
    "log_timers_to_tensorboard": ["iteration-time", "throughput", "B-samples-per-day"],
    "log_expert_load_to_tensorboard": ["expert_load"],
}
_FLOPS = "model-flops-throughput-per-device"
_LOSS_MONITOR = ["learning-rate", "batch-size", "loss", "grad-norm", _FLOPS]
# Scalars known only to the program, by the Monitor call that reports them.
_CALLS = {
    "scalar": ["loss", "local_loss", "device_local_loss", "learning-rate", "loss-scale", _FLOPS],
    "samples": ["batch-size", "throughput", "throughput_linearity", "B-samples-per-day"],
    "expert_load": ["expert_load"],
}
_CONFIG_KEYS = ("step_interval", "target_regex", "invert", "print_struct", "throughput_baseline", "format")


def _json(value: Any) -> str:
    """Compact; JSON has no infinity."""
    if isinstance(value, float) and not math.isfinite(value):
        return "null"
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class _Importer:
    def __init__(self, entries: "list[_Entry]") -> None:
        self._entries = entries
        self._values = {entry.place.key: entry.value for entry in entries}
        self._has_tensorboard = any(key.startswith(_TENSORBOARD) for key in self._values)
        self._monitor_on = self._values.get(f"{_MONITOR}monitor_on") is True
        self._monitor_sets_interval = (
            self._monitor_on and self._values.get(f"{_MONITOR}step_interval") is not None
        )
        self._config: "dict[str, Any]" = {}
        self._scalars: "dict[str, Any]" = {}

    def translate(self) -> "list[_Translated]":
        """The translation of each key. Raises _Refused with all errors."""
        keys, errors = [], []
        for place, value in self._entries:
            try:
                keys.append(_Translated(place, _json(value), self._becomes(place.key, value)))
            except _Unexpected as unexpected:
                errors.append(_error(place, f"found {_json(value)}, expected {unexpected}"))
        if errors:
            raise _Refused(errors)
        return keys

    def config(self) -> str:
        made: "dict[str, Any]" = {"dynamic_on": self._monitor_on or bool(self._scalars)}
        made.update((key, self._config[key]) for key in _CONFIG_KEYS if key in self._config)
        if self._scalars:
            made["scalars"] = self._scalars
        return json.dumps(made, ensure_ascii=False, indent=2) + "\n"

    def _becomes(self, key: str, value: Any) -> str:
        if key.startswith(_MONITOR):
            return self._monitor(key[len(_MONITOR) :], value)
        if key.startswith(_TENSORBOARD):
            return self._tensorboard(key[len(_TENSORBOARD) :], value)
        return self._callback(key, value) if key.startswith(_CALLBACKS) else _UNKNOWN

    def _monitor(self, key: str, value: Any) -> str:
        if key == "monitor_on":
            _expect(value is None or isinstance(value, bool), "true or false")
            return (
                "dynamic_on: true"
                if self._monitor_on
                else "nothing: without monitor_on the other keys have no effect"
            )
        if not self._monitor_on:
            return "nothing: monitor_on is not true"
        if key in _FORMATS:
            return self._format(_FORMATS[key], value)
        if key == "dump_path":
            return "nothing: output goes to the directory MONITOR_OUTPUT_DIR names"
        if key in ("invert", "print_struct"):
            return self._bool(key, value)
        known = {
            "target": self._target,
            "step_interval": self._interval,
            "throughput_baseline": self._baseline,
        }
        return known[key](value) if key in known else _UNKNOWN

    def _format(self, scalars: "list[str]", value: Any) -> str:
        asked = [value] if isinstance(value, str) else [] if value is None else value
        good = isinstance(asked, list) and all(one in ("log", "tensorboard") for one in asked)
        _expect(good, "'log', 'tensorboard', a list of these, or null")
        log, records = "log" in asked, "tensorboard" in asked
        if not asked:
            return "nothing: not asked for"
        return self._add(scalars, log or not self._has_tensorboard, records and self._has_tensorboard)

    def _target(self, value: Any) -> str:
        if value is None:
            return "nothing: every parameter is watched"
        listed = [value] if isinstance(value, str) else value
        problems, is_valid = validate(_json({"target_regex": listed}), "")
        if not is_valid:
            raise _Unexpected(problems.split("\n")[0].rpartition(", expected ")[2])
        self._config["target_regex"] = listed
        return f"target_regex: {_json(listed)}"

    def _bool(self, key: str, value: Any) -> str:
        if value is None:
            return "nothing: false by default"
        _expect(isinstance(value, bool), "true or false")
        self._config[key] = value
        return f"{key}: {_json(value)}"

    def _interval(self, value: Any) -> str:
        if value is None:
            return "nothing: every step by default"
        is_integer = isinstance(value, int) and not isinstance(value, bool)
        _expect(is_integer and value >= 1, "an integer >= 1")
        self._config["step_interval"] = value
        return f"step_interval: {value}"

    def _baseline(self, value: Any) -> str:
        if value is None:
            return "nothing: not asked for"
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        _expect(is_number and 0 < value < math.inf, "a number > 0")
        self._config["throughput_baseline"] = value
        scalars = self._add(["throughput_linearity"], True, self._has_tensorboard)
        return f"throughput_baseline: {_json(value)}, {scalars}"

    def _tensorboard(self, key: str, value: Any) -> str:
        if key in _SWITCHES:
            _expect(value is None or isinstance(value, bool), "true or false")
            return self._add(_SWITCHES[key], False, True) if value else "nothing: not asked for"
        if key == "tensorboard_dir":
            if value is None:
                return "nothing: not asked for"
            self._config["format"] = ["csv", "tensorboard"]
            return 'format: ["csv","tensorboard"], in tensorboard/ of each rank\'s run directory'
        if key == "tensorboard_queue_size":
            return "nothing: output is readable after every step"
        return _UNKNOWN

    def _callback(self, key: str, value: Any) -> str:
        within, _, name = key.partition(".")
        type: Optional[Any] = self._values.get(f"{within}.type")
        if name == "type":
            if type == "MFLossMonitor":
                return self._add(_LOSS_MONITOR, True, self._has_tensorboard)
            known = {
                "TrainingStateMonitor": "nothing of its own: it does what monitor_config says",
                "TopkBiasBalanceCallback": (
                    "nothing: training balances the load itself; its metric is expert_load"
                ),
            }
            return known.get(str(type), "nothing: no monitoring")
        if type == "MFLossMonitor" and name == "per_print_times":
            if not self._monitor_sets_interval:
                return self._interval(value)
            return "nothing: monitor_config.step_interval applies to all"
        return "nothing: no monitoring"

    def _add(self, names: "list[str]", log: bool, records: bool) -> str:
        where = ["log"] * log + ["records"] * records
        for name in names:
            self._scalars[name] = where if len(where) > 1 else where[0]
        text = f"scalars: {', '.join(names)} to {' and '.join(where)}"
        for call, reported in _CALLS.items():
            needed = [name for name in names if name in reported]
            text += f"; needs monitor.{call} for {', '.join(needed)}" if needed else ""
        return text


_UNKNOWN = "nothing: not known here"


class _Unexpected(Exception):
    """A value that is not as the text says."""


def _expect(good: bool, expected: str) -> None:
    if not good:
        raise _Unexpected(expected)
