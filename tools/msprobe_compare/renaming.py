# SPDX-License-Identifier: Apache-2.0
"""Names that msprobe 8.1 gives to what has another name here."""
import re

_PLACE = re.compile(r"\.(input|output)(_\w+)?(@\d+)?$")
_PATTERNS = (r"layers?\.(.*)", r"embeddings?\.(.*)", "final.*", "output.*", "norm.*")


def name_in_msprobe(name: str, squash_name: bool) -> str:
    """The name of our row as msprobe 8.1 shortens it (module_metric.py, squash_param_name)."""
    if not squash_name:
        return name
    stage, colon, name = name.rpartition(":")
    place = _PLACE.search(name)
    module, rest = (name[: place.start()], place[0]) if place else (name, "")
    for pattern in _PATTERNS:
        found = re.findall(pattern, module)
        if found:
            return stage + colon + str(found[0]) + rest
    return stage + colon + name
