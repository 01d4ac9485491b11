# SPDX-License-Identifier: Apache-2.0
"""The table into which every form is read, and the choice of rows."""
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Collection, NamedTuple, Optional

if TYPE_CHECKING:
    import pandas

COLUMNS = ["rank", "step", "micro_step", "kind", "name", "op", "value", "vpp_stage"]
PLACE = "place"  # of a row among those of its form, in reading order
# Among other kinds only grad_unreduced may have micro steps: with `monitor_mbs_grad`.
KINDS_WITH_MICRO_STEPS = {"actv", "actv_grad", "attention_hook", "moe_router_logit_hook"}


class Choice(NamedTuple):
    """The requested rows; None: all. Other rows may be read, too."""

    kinds: "Optional[Collection[str]]" = None
    steps: "Optional[Collection[int]]" = None
    ranks: "Optional[Collection[int]]" = None

    def has_kind(self, kind: str) -> bool:
        return self.kinds is None or kind in self.kinds

    def meets(self, first: int, last: int) -> bool:
        """Returns True if one of the steps from `first` to `last` is requested."""
        if self.steps is None:
            return True
        if isinstance(self.steps, range):
            return bool(self.steps) and min(self.steps) <= last and max(self.steps) >= first
        return any(first <= step <= last for step in self.steps)


class RankDirectory(NamedTuple):
    """The output of one rank in one run."""

    path: Path
    rank: int


def require(package: str, caller: str) -> None:
    """Raises an ImportError that says how to install the package, if it is missing."""
    try:
        importlib.import_module(package)
    except ImportError as error:
        raise ImportError(f"{caller} needs {package}: pip install {package} ({error})") from None


def empty_table() -> "pandas.DataFrame":
    """A table without rows, with the columns and PLACE."""
    return table_of([])


def table_of(rows: "list[tuple[Any, ...]]") -> "pandas.DataFrame":
    """The table of rows (COLUMNS; micro_step may be None), with PLACE."""
    import pandas

    columns: "list[tuple[Any, ...]]" = list(zip(*rows)) if rows else [()] * len(COLUMNS)
    types = {"micro_step": "Int64", "kind": object, "name": object, "op": object, "value": "float64"}
    table = pandas.DataFrame(
        {
            name: pandas.Series(column, dtype=types.get(name, "int64"))
            for name, column in zip(COLUMNS, columns)
        }
    )
    table[PLACE] = range(len(table))
    return table
