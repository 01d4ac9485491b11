# SPDX-License-Identifier: Apache-2.0
"""Runs a script once for several sets of options: to start ranks costs more than what they train."""
import json
from pathlib import Path
from typing import Any, NamedTuple

import jobs
import ranks
import twice


class Seen(NamedTuple):
    """What one set of options gave: its directory, with the output in `out`, and what each rank reported."""

    path: Path
    ranks: "list[dict[str, Any]]"


def run(
    path: Path, script: str, world: int, variants: "dict[str, dict[str, Any]]", **keys: Any
) -> "dict[str, Seen]":
    """The script finds the sets of options as a list in `json.loads(sys.argv[1])["variants"]`, each with its
    `config` (everything is collected; and `keys`) and `out`, and reports once for each, in order. An option
    `keys` adds to the config of one."""
    sets = []
    for name, options in variants.items():
        directory = path / name.replace(" ", "_")
        directory.mkdir(parents=True)
        config = jobs.write_config(directory, **{**twice.EVERYTHING, **keys, **options.get("keys", {})})
        sets.append({**options, "config": str(config), "out": str(directory / "out")})
    told = [out.splitlines() for out in ranks.run(path, script, world, variants=sets)]
    reports = [[json.loads(line) for line in lines[-len(sets) :]] for lines in told]
    return {
        name: Seen(Path(options["config"]).parent, [of_rank[i] for of_rank in reports])
        for i, (name, options) in enumerate(zip(variants, sets))
    }


def check_same(seen: Seen) -> None:
    """Each rank trained as without gradmon, with as many collectives, and nothing is left on its objects."""
    for found in seen.ranks:
        assert found["equal"] and found["left"] == []
        assert found["collectives"][0] == found["collectives"][1] > 0


def scopes(path: Path, rank: int) -> "dict[str, Any]":
    """What the rows of the rank are of, by target and kind."""
    (file,) = (path / "out").glob(f"*-rank{rank}-*/scopes.json")
    targets: "dict[str, Any]" = json.loads(file.read_text())["targets"]
    return targets
