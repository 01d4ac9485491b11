# SPDX-License-Identifier: Apache-2.0
"""python3 -m gradmon_read COMMAND: the commands that `gradmonctl` starts here."""
import sys
from typing import Sequence

from gradmon_read.command_line import Group, hide_pandas, run, run_group
from gradmon_read.commands import COMMANDS


def main(words: Sequence[str]) -> int:
    """Runs the command that the words name. Returns the exit code."""
    if not words or words[0] not in COMMANDS:
        sys.exit(f"gradmon_read: expected a command: {', '.join(COMMANDS)}")
    command = COMMANDS[words[0]]
    return run_group(command, words[1:]) if isinstance(command, Group) else run(command, words[1:])


def program() -> int:
    """Runs the command of a process that does nothing else."""
    hide_pandas()
    return main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(program())
