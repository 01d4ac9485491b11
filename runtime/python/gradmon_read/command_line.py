# SPDX-License-Identifier: Apache-2.0
"""Arguments, help and output of the commands, as gradmonctl has them."""
import argparse
import difflib
import importlib
import io
import os
import re
import stat
import sys
from itertools import takewhile
from pathlib import Path
from typing import Any, BinaryIO, Callable, NamedTuple, NoReturn, Sequence

from gradmon_read.listing import printable

DONE, FAILED, USAGE, INVALID_CONFIG, PARTIAL = 0, 1, 2, 6, 7


class Value(NamedTuple):
    """The parsing of an argument's value."""

    default: Any = None
    type: Callable[[str], Any] = str
    choices: Sequence[str] = ()
    required: bool = False
    many: bool = False  # takes all words up to the next option


class Argument(NamedTuple):
    names: "list[str]"  # "--output-dirpath", "--output-dir"; without dashes it is positional
    placeholder: str  # stands for the value; an option without is a flag
    help: str  # "": the help does not mention it
    value: Value

    @property
    def is_option(self) -> bool:
        return self.names[0].startswith("-")


class Command(NamedTuple):
    """A command, or a member of a group."""

    usage: str  # begins with the name: "import FILE"
    summary: str
    arguments: "dict[str, Argument]"  # by attribute of the namespace: "output_dirpath", "FILE"
    details: str  # below the options
    module: str  # of this package; perform(arguments) carries the command out, and returns the exit code
    needs: Sequence[str]  # packages

    @property
    def name(self) -> str:
        """ "import", "analyse first"."""
        words = takewhile(lambda word: word.isalnum() and word.islower(), self.usage.split(" "))
        return " ".join(words)


def command_of(module: str, needs: "Sequence[str]", text: str, values: "dict[str, Value]") -> Command:
    """`text`: usage and summary, a line each; then the arguments, a line each: names, placeholder and, behind
    two blanks, the help, which may go on in indented lines; then details. Empty lines are between them."""
    head, listed, details = f"{text}\n\n".split("\n\n", 2)
    arguments = {}
    for line in re.split(r"\n(?! )", listed):
        names, _, help = re.sub(r"\n +", "\n", line).partition("  ")
        words = names.replace(",", "").split()
        has_placeholder = words[0].startswith("-") and not words[-1].startswith("-")
        placeholder = words.pop() if has_placeholder else ""
        key = words[0].lstrip("-").replace("-", "_")
        arguments[key] = Argument(words, placeholder, help, values.get(key, Value()))
    usage, summary = head.split("\n")
    return Command(usage, summary, arguments, details.rstrip("\n"), module, needs)


class Group(NamedTuple):
    """Commands of one name: "analyse first"."""

    name: str
    summary: str
    members: "Sequence[Command]"
    details: str


class CommandError(Exception):
    """One sentence for the user. The command ends with `code`."""

    def __init__(self, text: str, code: int = FAILED) -> None:
        super().__init__(text)
        self.code = code


class MissingPackage(CommandError, ImportError):
    """Says how to install it."""


class UsageError(Exception):
    """A wrong combination of arguments."""


def default_output_dir() -> Path:
    """A job's output directory if the user names none."""
    return Path(os.environ.get("MONITOR_OUTPUT_DIR") or "monitor_output")


def open_regular(path: "str | os.PathLike[str]", most_bytes: int = 2**63) -> BinaryIO:
    """Opens a regular file of at most so many bytes for reading; never waits for a FIFO. Raises OSError,
    whose `strerror` says why."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_size <= most_bytes:
        return open(descriptor, "rb")
    os.close(descriptor)
    is_file = stat.S_ISREG(status.st_mode)
    raise OSError(0, f"larger than {most_bytes >> 20} MiB" if is_file else "not a regular file")


def integer(least: int, most: int = 2**63 - 1) -> Callable[[str], int]:
    """A type of argument: a whole number in a range."""

    def parsed(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"found {text}, expected an integer from {least} to {most}")
        return number

    return parsed


_MODULES = {"google-crc32c": "google_crc32c", "PyYAML": "yaml"}


def require(package: str, caller: str) -> Any:
    """Imports the module of a package. The error says how to install the package."""
    try:
        return importlib.import_module(_MODULES.get(package, package))
    except ImportError as error:
        install = f"{sys.executable} -m pip install 'gradmon-read[analysis]'"
        raise MissingPackage(f"{caller} needs the Python package {package}: {install} ({error})") from None


def require_alone(package: str, caller: str) -> None:
    """The same for a package that no extra of gradmon-read installs, or that is enough by itself."""
    try:
        importlib.import_module(package)
    except ImportError as error:
        raise MissingPackage(f"{caller} needs {package}: pip install {package} ({error})") from None


class _WithoutPandas:
    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


def hide_pandas() -> None:
    """For a process that carries out a command: none needs pandas, which takes 0.3 s to import, and pyarrow
    imports it if it is installed."""
    sys.meta_path.insert(0, _WithoutPandas)


def report(text: str) -> None:
    """Prints a message for people."""
    print(f"gradmonctl: {printable(text)}", file=sys.stderr)


def help_text(command: Command) -> str:
    text = f"usage: gradmonctl {command.usage}\n\n{command.summary}\n"
    options, positional = [("-h, --help", "this help")], list[tuple[str, str]]()
    for each in filter(lambda each: each.help, command.arguments.values()):
        name = f"{', '.join(each.names)} {each.placeholder}".strip()
        (options if each.is_option else positional).append((name, each.help))
    text += _table("arguments", positional) + _table("options", options)
    return text + (f"\n{command.details}\n" if command.details else "")


def group_help(group: Group) -> str:
    members = [(each.name.split(" ")[-1], each.summary) for each in group.members]
    text = f"usage: gradmonctl {group.name} COMMAND [OPTIONS]\n\n{group.summary}\n"
    text += _table("commands", members) + _table("options", [("-h, --help", "this help")])
    return f"{text}\n{group.details}\n"


def _table(title: str, rows: "list[tuple[str, str]]") -> str:
    if not rows:
        return ""
    width = max(len(name) for name, _ in rows)
    indented = [(name, help.replace("\n", "\n" + " " * (width + 4))) for name, help in rows]
    return f"\n{title}:\n" + "".join(f"  {name:{width}}  {help}\n" for name, help in indented)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def parse(command: Command, words: Sequence[str]) -> argparse.Namespace:
    """Fills in the arguments; raises UsageError."""
    parser = _Parser(add_help=False, allow_abbrev=False)
    positional = {key: each for key, each in command.arguments.items() if not each.is_option}
    for key, each in command.arguments.items():
        value = each.value
        more: "dict[str, Any]" = {"action": "store_true"}
        if each.placeholder:
            more = {"type": value.type, "default": value.default, "choices": value.choices or None}
            more["nargs"] = "+" if value.many else None
        if each.is_option:
            parser.add_argument(*each.names, dest=key, required=value.required, **more)
    if positional:
        parser.add_argument("words", nargs="*")
    found = parser.parse_intermixed_args(list(words))
    left = list(getattr(found, "words", []))
    for key, each in positional.items():
        if each.value.many:
            setattr(found, key, left)
            left = []
        else:
            setattr(found, key, left.pop(0) if left else each.value.default)
        if each.value.required and not getattr(found, key):
            raise UsageError(f"{key} is required")
    if left:
        raise UsageError(f"unexpected argument: {left[0]}")
    return found


def run_group(group: Group, words: Sequence[str]) -> int:
    """Runs the member that the first word names."""
    members = {each.name.split(" ")[-1]: each for each in group.members}
    if not words or words[0] in ("-h", "--help"):
        (sys.stdout if words else sys.stderr).write(group_help(group))
        return DONE if words else USAGE
    if words[0] not in members:
        alike = difflib.get_close_matches(words[0], members, 1)
        meant = f' (did you mean "{alike[0]}"?)' if alike else ""
        return _wrong_usage(f'unknown command "{words[0]}"{meant}', group.name)
    return run(members[words[0]], words[1:])


def _wrong_usage(text: str, name: str) -> int:
    print(f'gradmonctl: {printable(text)}\ntry "gradmonctl {name} --help"', file=sys.stderr)
    return USAGE


def run(command: Command, words: Sequence[str]) -> int:
    """Runs a command with the process's output. A closed pipe is no error, a full disk is."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="surrogateescape", newline="\n")
    try:
        code = _performed(command, words)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        _discard_output()
        return DONE
    except OSError as error:
        _discard_output()
        report(f"cannot write: {error.strerror}")
        return FAILED


def _performed(command: Command, words: Sequence[str]) -> int:
    try:
        if "-h" in words or "--help" in words:
            sys.stdout.write(help_text(command))
            return DONE
        arguments = parse(command, words)
        for package in command.needs:
            require(package, f"gradmonctl {command.name}")
        perform: "Callable[[argparse.Namespace], int]"
        perform = importlib.import_module(f"gradmon_read.{command.module}").perform
        return perform(arguments)
    except UsageError as error:
        return _wrong_usage(str(error), command.name)
    except CommandError as error:
        report(str(error))
        return error.code


def _discard_output() -> None:
    """Discards the rest of the buffer of stdout: Python flushes it again when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
