# SPDX-License-Identifier: Apache-2.0
"""Splits module_struct.json and stack_info.csv into parts that can be compared one by one."""
import re
from typing import Any

# Where gradmon writes the structure of the modules.
STRUCTURE = "module_struct/rank0/module_struct.json"

_FRAME = re.compile(r"File (.*?), line (\d+), in (.*?), \n (.*?) \n", re.DOTALL)


def structure_parts(modules: "dict[str, Any]") -> "dict[str, str]":
    """Each line of each module's structure, as `{module} {place} {key}`; one part if there is none."""
    parts: "dict[str, str]" = {}
    for module, places in modules.items():
        if not places:
            parts[module] = "{}"
        for place, lines in places.items():
            parts.update({f"{module} {place} {key}": str(line) for key, line in lines.items()})
    return parts


def stack_parts(stacks: "dict[str, str]") -> "dict[str, str]":
    """Of each module's stack, the frames of the script, and the number of others before and after these."""
    parts: "dict[str, str]" = {}
    for module, text in stacks.items():
        frames = [match.groups() for match in _FRAME.finditer(text)]
        own = [i for i, frame in enumerate(frames) if "/msprobe_compare/scripts/" in frame[0]]
        first, last = (own[0], own[-1]) if own else (0, -1)
        between = [" ".join(frame) for frame in frames[first : last + 1]]
        parts[f"{module} frames"] = "\n".join(between)
        before = [frame[0].rsplit("/", 1)[-1] for frame in frames[:first]]
        parts[f"{module} callees"] = " ".join(before)
        parts[f"{module} launcher"] = " ".join(frame[0].rsplit("/", 1)[-1] for frame in frames[last + 1 :])
    return parts
