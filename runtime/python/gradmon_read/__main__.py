# SPDX-License-Identifier: Apache-2.0
"""python3 -m gradmon_read COMMAND: the commands that `gradmonctl` starts here. The module of a command is
imported when it is called: engines take time to load."""
import importlib
import sys
from typing import Sequence

from gradmon_read.command_line import Command, Group, hide_pandas, run, run_group

# The module that has `command()` for each command.
_COMMANDS = {
    "analyse": "gradmon_read.analyse",
    "convert": "gradmon_read.convert",
    "import": "gradmon_read.mindformers",
    "query": "gradmon_read.query",
}


def main(words: Sequence[str]) -> int:
    """Runs the command that the words name. Returns the exit code."""
    if not words or words[0] not in _COMMANDS:
        sys.exit(f"gradmon_read: expected a command: {', '.join(_COMMANDS)}")
    command: "Command | Group" = importlib.import_module(_COMMANDS[words[0]]).command()
    if isinstance(command, Group):
        return run_group(command, words[1:])
    return run(command, words[1:])


def program() -> int:
    """Runs the command of a process that does nothing else."""
    hide_pandas()
    return main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(program())
