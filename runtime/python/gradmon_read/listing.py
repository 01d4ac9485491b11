# SPDX-License-Identifier: Apache-2.0
"""Text for terminals: made safe, in columns, cut to the screen; and what is to be said of skipped input."""
import os
import re
import shutil
import sys
import unicodedata
from itertools import accumulate
from typing import NamedTuple, Optional, Sequence

# Control characters, line separators, bidirectional controls, invisible spaces, bytes that are not UTF-8.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\udc80-\udcff]"
)
_MARGIN = "  "  # of a continuation line
_BETWEEN = 2  # blanks between columns
_INDENT = 4  # of the columns that do not fit beside the others
_LEAST_OF_A_TEXT = 24  # columns for the last cell of a row beside the others
_SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}


def printable(text: str) -> str:
    """Makes untrusted text safe for a terminal: unsafe characters become "\\n" or "\\xNN" for each byte."""

    def escaped(match: "re.Match[str]") -> str:
        encoded = match[0].encode("utf-8", "surrogateescape")
        return _SHORT.get(match[0]) or "".join(f"\\x{byte:02x}" for byte in encoded)

    return _UNSAFE.sub(escaped, text)


def rank_ranges(ranks: "Sequence[int]") -> str:
    """ "rank 0", "ranks 0-3, 7" of ascending ranks."""
    parts: "list[list[int]]" = []
    for rank in ranks:
        if parts and parts[-1][1] == rank - 1:
            parts[-1][1] = rank
        else:
            parts.append([rank, rank])
    texts = [str(a) if a == b else f"{a}{', ' if b == a + 1 else '-'}{b}" for a, b in parts]
    return f"rank{'' if len(ranks) == 1 else 's'} {', '.join(texts)}"


def _width_of(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def display_width(text: str) -> int:
    """The number of columns on a terminal: wide characters take two, combining characters none."""
    return len(text) if text.isascii() else sum(map(_width_of, text))


def fold(line: str, columns: int) -> "list[str]":
    """Wraps a line at blanks; splits a wider word."""
    lines: "list[str]" = []
    now = ""
    for word in re.findall(r" *[^ ]+| +$", line) or [""]:
        if now and display_width(now + word) > columns:
            lines += _split(now, columns)
            now = _MARGIN + word.lstrip(" ")
        else:
            now += word
    return lines + _split(now, columns)


def _split(line: str, columns: int) -> "list[str]":
    lines = []
    while columns > 2 and display_width(line) > columns:
        count = sum(width < columns for width in accumulate(map(_width_of, line)))
        lines.append(line[:count])
        line = line[count:]
    return [*lines, line]


def screen_size() -> "Optional[tuple[int, int]]":
    """Columns and rows of the terminal at stdout; None if it is no terminal or its size is unknown."""
    if not sys.stdout.isatty():
        return None
    columns, rows = shutil.get_terminal_size((0, 0))
    return (columns, rows) if columns and rows else None


class Table(NamedTuple):
    """Lines in columns: titles, and rows of printable cells."""

    titles: Sequence[str]
    is_left: Sequence[bool]  # aligned to the left

    def wrapped(self, rows: "Sequence[Sequence[str]]", columns: int) -> "list[list[str]]":
        """The lines of the titles and of each row, at most so wide. Columns are as wide as their widest cell,
        two blanks apart; those that do not fit go to indented lines below, and so does the end of a wide
        text."""
        cells = [list(self.titles), *([printable(cell) for cell in row] for row in rows)]
        widths = [max(map(display_width, column)) for column in zip(*cells)]
        begins, indented = [0], [False]
        for i in range(1, len(widths)):
            beside = begins[-1] + widths[i - 1] + _BETWEEN
            least = min(widths[i], _LEAST_OF_A_TEXT) if i + 1 == len(widths) else widths[i]
            indented.append(beside + least > columns)
            begins.append(min(_INDENT, columns // 2) if indented[-1] else beside)
        return [self._row(row, widths, begins, indented, columns) for row in cells]

    def _row(
        self, row: "list[str]", widths: "list[int]", begins: "list[int]", indented: "list[bool]", columns: int
    ) -> "list[str]":
        lines = [""]
        for cell, width, begin, new_line, left in zip(row, widths, begins, indented, self.is_left):
            if new_line:
                lines.append("")
            parts = fold(cell, columns - begin) if width > columns - begin else [cell]
            blanks = begin - display_width(lines[-1]) + (0 if left else width - display_width(cell))
            lines[-1] += " " * blanks + parts[0]
            lines += [" " * begin + part for part in parts[1:]]
        return [line for line in (line.rstrip(" ") for line in lines) if line] or [""]

    def lines(self, rows: "Sequence[Sequence[str]]") -> "list[str]":
        """One line for the titles and for each row."""
        return [line for lines in self.wrapped(rows, sys.maxsize) for line in lines]

    def shown(self, rows: "Sequence[Sequence[str]]", noun: str) -> str:
        """For a terminal: as many rows as fit above the prompt, and a line with the number of the others. For
        a file or a pipe: all rows."""
        screen = screen_size()
        if screen is None:
            return "".join(f"{line}\n" for line in self.lines(rows))
        titles, *entries = self.wrapped(rows, screen[0])
        room = max(screen[1], 2) - 1 - len(titles)
        if sum(map(len, entries)) > room:
            kept, lines = 0, 1
            while kept < len(entries) and lines + len(entries[kept]) <= room:
                lines += len(entries[kept])
                kept += 1
            more = len(entries) - kept
            note = f"… and {more} more {noun}{'' if more == 1 else 's'} (--all shows all)"
            entries = [*entries[:kept], [note]]
        return "".join(f"{line}\n" for entry in [titles, *entries] for line in entry)


class Problems:
    """The errors in skipped input: the first messages, and the number of all."""

    SHOWN = 10

    def __init__(self, noun: str = "rows or files") -> None:
        self._noun = noun
        self.first: "list[str]" = []
        self.count = 0

    def add(self, path: "str | os.PathLike[str]", line: int, text: str) -> None:
        """`line`: 0 for the whole file. `text`: the found and the expected value."""
        self.count += 1
        if self.count <= self.SHOWN:
            self.first.append(f"{os.fspath(path)}{f':{line}' if line else ''}: {text}")

    def extend(self, others: "Problems") -> None:
        self.first += others.first[: self.SHOWN - len(self.first)]
        self.count += others.count

    def messages(self) -> "list[str]":
        """ "FILE:LINE: TEXT" of the first; a last line counts the others."""
        more = self.count - len(self.first)
        return [*self.first, *([f"and {more} more {self._noun} are left out"] if more else [])]
