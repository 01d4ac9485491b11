# SPDX-License-Identifier: Apache-2.0
"""The releases of msprobe that are compared: how each shortens names, and where it puts files."""
import re
from dataclasses import dataclass, field
from typing import Optional

_PLACE = re.compile(r"\.(input|output)(_\w+)?(@\d+)?$")


@dataclass(frozen=True)
class Release:
    """A release line of msprobe."""

    name: str
    shortening: "tuple[str, ...]"  # patterns of squash_param_name in module_metric.py; the first match counts
    squash_name: bool  # the default of the key
    structure: str  # where print_struct writes
    columns: "dict[str, str]" = field(default_factory=dict)  # gradmon's name, where it differs

    def short_name(self, name: str, squash_name: "Optional[bool]" = None) -> str:
        """The name that this release gives to our row."""
        name = re.sub(r"\.router$", ".moe_router", name)
        name = re.sub(r"^(\d+:)?(model|root)(?=\.(in|out)put|$)", r"\1", name)  # of the whole model
        if not (self.squash_name if squash_name is None else squash_name):
            return name
        stage, colon, name = name.rpartition(":")
        place = _PLACE.search(name)
        module, rest = (name[: place.start()], place[0]) if place else (name, "")
        for pattern in self.shortening:
            found = re.findall(pattern, module)
            if found:
                return stage + colon + str(found[0]) + rest
        return stage + colon + name


RELEASES = {
    release.name: release
    for release in (
        Release(
            "8.1",
            (r"layers?\.(.*)", r"embeddings?\.(.*)", "final.*", "output.*", "norm.*"),
            squash_name=True,
            structure="module_struct.json",
        ),
        Release(
            "26.2",
            (
                r"^.*\.(layers?\..*)",
                r"^.*\.(embeddings?\..*)",
                r"^.*\.(final.*)",
                r"^.*\.(output.*)",
                r"^.*\.(norm.*)",
            ),
            squash_name=False,
            structure="module_struct/rank0/module_struct.json",
            columns={"router_weight_similarity": "cosine", "per_token_expert_entropy": "entropy"},
        ),
    )
}
