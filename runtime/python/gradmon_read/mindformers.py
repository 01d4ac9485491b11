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
from typing import Any, Iterator, NamedTuple, NoReturn, Optional

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
        rows = importer.translate()
    except _Refused as refused:
        for problem in refused.args:
            print(printable(f"{file}:{problem}"), file=sys.stderr)
        return command_line.INVALID_CONFIG
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


class _Entry(NamedTuple):
    """A key and its value: None, a bool, a number, a string, or a list of these. A mapping, and a mapping or
    list within a list, is an empty dict."""

    key: str  # "monitor_config.target", "callbacks[0].type"
    mark: Any  # its place
    value: Any


class _Refused(Exception):
    """Has the errors in a file, as _error() makes them."""


def _error(key: str, mark: Any, text: str) -> str:
    """ "LINE:COLUMN: KEY: TEXT"; `key`: "" for the document. `mark`: None for its begin."""
    place = f"{mark.line + 1}:{mark.column + 1}" if mark else "1:1"
    return f"{place}: {key}: {text}" if key else f"{place}: {text}"


def _refuse(key: str, node: Any, text: str) -> NoReturn:
    raise _Refused(_error(key, node and node.start_mark, text))


def _entries(data: bytes) -> "list[_Entry]":
    """The keys of the sections, in the order of the file."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8").split("\n")
        raise _Refused(f"{len(before)}:{len(before[-1]) + 1}: not valid UTF-8") from None
    try:
        documents = list(yaml.compose_all(text, yaml.SafeLoader))
        return list(_entries_of(documents))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise _Refused(_error("", mark, f"not YAML: {getattr(error, 'problem', None) or error}")) from None
    except RecursionError:
        _refuse("", None, "nested too deeply")


def _entries_of(documents: "list[Any]") -> "Iterator[_Entry]":
    counted = 0
    for within, section in _sections(documents):
        for key, node, value in _items(within, section):
            elements = value.value if value.id == "sequence" else []
            for each in (*elements, node):
                counted += 1
                if counted > _MOST_ELEMENTS:
                    _refuse(key, each, f"more than {_MOST_ELEMENTS} keys and elements")
            is_list = value.id == "sequence"
            yield _Entry(key, node.start_mark, list(map(_scalar, elements)) if is_list else _scalar(value))


def _sections(documents: "list[Any]") -> "Iterator[tuple[str, Any]]":
    """The mappings whose keys are translated, each with the begin of its keys' names."""
    if len(documents) > 1:
        _refuse("", documents[1], "more than one YAML document")
    document = documents[0] if documents else None
    if document is None or document.id != "mapping":
        _refuse("", document, "expected a mapping of keys to values")
    for key, _, section in _items("", document):
        if key in _SECTIONS and section.id == "mapping":
            yield f"{key}.", section
        elif key in _SECTIONS and section.id == "sequence":
            for i, element in enumerate(section.value):
                if element.id != "mapping":
                    _refuse(f"{key}[{i}]", element, "expected a mapping")
                yield f"{key}[{i}].", element
        elif key in _SECTIONS and _scalar(section) is not None:
            _refuse(key, section, "expected a mapping, or a list of mappings")


def _items(within: str, mapping: Any) -> "Iterator[tuple[str, Any, Any]]":
    """Name, key and value."""
    seen: "set[str]" = set()
    for node, value in mapping.value:
        if node.id != "scalar":
            _refuse(within, node, "expected a key that is text")
        key = within + node.value
        if node.value == "<<" and node.style is None:
            _refuse(key, node, "merge keys are not supported; write the merged keys out")
        if key in seen:
            _refuse(key, node, "duplicate key")
        seen.add(key)
        yield key, node, value


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
# The meanings of keys without a value.
_DEFAULTS = {
    **dict.fromkeys(("invert", "print_struct"), "false by default"),
    "target": "every parameter is watched",
    "step_interval": "every step by default",
    "throughput_baseline": "not asked for",
}
_OFF = "nothing: not asked for"
_UNKNOWN = "nothing: not known here"
_CONFIG_KEYS = ("step_interval", "target_regex", "invert", "print_struct", "throughput_baseline", "format")


def _json(value: Any) -> str:
    """Compact; JSON has no infinity."""
    if isinstance(value, float) and not math.isfinite(value):
        return "null"
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class _Importer:
    def __init__(self, entries: "list[_Entry]") -> None:
        self._entries = entries
        self._values = {entry.key: entry.value for entry in entries}
        self._has_tensorboard = any(key.startswith(_TENSORBOARD) for key in self._values)
        self._monitor_on = self._values.get(f"{_MONITOR}monitor_on") is True
        self._config: "dict[str, Any]" = {}
        self._scalars: "dict[str, Any]" = {}

    def translate(self) -> "list[list[str]]":
        """Line, name, value and translation of each key. Raises _Refused with all errors."""
        keys, errors = [], []
        for key, mark, value in self._entries:
            try:
                keys.append([str(mark.line + 1), key, _shortened(_json(value)), self._becomes(key, value)])
            except _Unexpected as unexpected:
                errors.append(_error(key, mark, f"found {_json(value)}, expected {unexpected}"))
        if errors:
            raise _Refused(*errors)
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
        return self._set(key, value) if key in _DEFAULTS else _UNKNOWN

    def _format(self, scalars: "list[str]", value: Any) -> str:
        asked = [value] if isinstance(value, str) else [] if value is None else value
        good = isinstance(asked, list) and all(one in ("log", "tensorboard") for one in asked)
        _expect(good, "'log', 'tensorboard', a list of these, or null")
        log, records = "log" in asked, "tensorboard" in asked
        if not asked:
            return _OFF
        return self._add(scalars, log or not self._has_tensorboard, records and self._has_tensorboard)

    def _set(self, key: str, value: Any) -> str:
        """A key that has the same name in a config, or nearly so."""
        if value is None:
            return f"nothing: {_DEFAULTS[key]}"
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        scalars = ""
        if key == "target":
            key, value = "target_regex", [value] if isinstance(value, str) else value
            problems, is_valid = validate(_json({key: value}), "")
            _expect(is_valid, problems.split("\n")[0].rpartition(", expected ")[2])
        elif key == "step_interval":
            _expect(is_number and isinstance(value, int) and value >= 1, "an integer >= 1")
        elif key == "throughput_baseline":
            _expect(is_number and 0 < value < math.inf, "a number > 0")
            scalars = ", " + self._add(["throughput_linearity"], True, self._has_tensorboard)
        else:
            _expect(isinstance(value, bool), "true or false")
        self._config[key] = value
        return f"{key}: {_json(value)}{scalars}"

    def _tensorboard(self, key: str, value: Any) -> str:
        if key in _SWITCHES:
            _expect(value is None or isinstance(value, bool), "true or false")
            return self._add(_SWITCHES[key], False, True) if value else _OFF
        if key == "tensorboard_dir":
            if value is None:
                return _OFF
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
            if self._monitor_on and self._values.get(f"{_MONITOR}step_interval") is not None:
                return "nothing: monitor_config.step_interval applies to all"
            return self._set("step_interval", value)
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


class _Unexpected(Exception):
    """A value that is not as the text says."""


def _expect(good: bool, expected: str) -> None:
    if not good:
        raise _Unexpected(expected)
