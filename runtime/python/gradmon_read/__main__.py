# SPDX-License-Identifier: Apache-2.0
"""python3 -m gradmon_read COMMAND: the commands that `gradmonctl` starts here. The module of a command is
imported when it is called: engines take time to load."""
import importlib
import sys
from typing import Sequence

from gradmon_read.command_line import Command, run

# The module that has `command()` for each command.
_COMMANDS = {
    "import": "gradmon_read.mindformers",
    "query": "gradmon_read.query",
}


def main(words: Sequence[str]) -> int:
    """Runs the command that the words name. Returns the exit code."""
    if not words or words[0] not in _COMMANDS:
        sys.exit(f"gradmon_read: expected a command: {', '.join(_COMMANDS)}")
    command: Command = importlib.import_module(_COMMANDS[words[0]]).command()
    return run(command, words[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
