# SPDX-License-Identifier: Apache-2.0
"""coming-from-msprobe.md names all keys, calls and kinds that exist, and no others."""
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any, Iterator

import gradmon
import pytest

TEXT = (Path(__file__).resolve().parents[3] / "runtime" / "python" / "coming-from-msprobe.md").read_text()
CODE = re.compile(r"`([^`]+)`")


def section(title: str) -> str:
    return TEXT.split(f"\n## {title}\n")[1].split("\n## ")[0]


def rows(title: str) -> "list[tuple[str, str]]":
    """The rows of a section's table, without the header: (left, right)."""
    lines = [line for line in section(title).splitlines() if line.startswith("| ")]
    return [(left, right) for left, right in (line.strip("| ").split(" | ", 1) for line in lines[2:])]


@pytest.fixture(scope="module")
def schema() -> Any:
    command = [os.path.join(os.environ["GRADMON_BIN"], "gradmonctl"), "schema"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def keys_of(schema: Any) -> Iterator[str]:
    """The keys of the config, and of the objects in it."""
    for key, value in schema.get("properties", {}).items():
        yield key
        yield from keys_of(value)
        if isinstance(value.get("additionalProperties"), dict):
            yield from keys_of(value["additionalProperties"])


def test_every_key_of_the_config_is_on_the_page(schema: Any) -> None:
    keys = set(keys_of(schema))
    assert {"ops", "cc_codeline", "output_grad"} <= keys
    assert sorted(keys - set(CODE.findall(section("The config")))) == []


def test_the_table_of_keys_has_those_that_there_are(schema: Any) -> None:
    named = [key for left, _ in rows("The config") for key in CODE.findall(left)]
    assert len(named) > 25 and len(named) == len(set(named))
    assert [key for key in named if key not in schema["properties"]] == []


def test_not_yet_is_said_of_the_keys_that_have_no_effect(schema: Any) -> None:
    missing = {key for key, value in schema["properties"].items() if "not available" in value["description"]}
    table = {
        key for left, right in rows("The config") if right[:7] == "not yet" for key in CODE.findall(left)
    }
    own = section("The config").split("\n\ngradmon's own keys")[1]
    said = table | set(CODE.findall(own.partition("not yet:")[2]))
    assert said == missing


def test_every_call_is_on_the_page() -> None:
    public = [name for name in vars(gradmon.TrainerMon) if not name.startswith("_")]
    assert "set_monitor" in public
    code = " ".join(CODE.findall(section("The script")))
    assert [name for name in public if not re.search(rf"\b{name}\b", code)] == []


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", TEXT):
        assert (Path(__file__).resolve().parents[3] / "runtime" / "python" / target).exists(), target


def test_the_page_of_kinds_has_each_kind_and_what_it_means_in_both() -> None:
    page = (Path(__file__).resolve().parents[3] / "hooks" / "KINDS.md").read_text()
    lines = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| `")]
    assert all(len(cells) == 4 and all(cells) for cells in lines)
    names = {name for cells in lines for name in CODE.findall(cells[0])} - {"mg_direction"}
    header = (Path(__file__).resolve().parents[3] / "control" / "vocabulary.h").read_text()
    kinds = re.findall(r'"([a-z0-9_]+)"', header.split("kKindNames")[1].split("};")[0])
    assert names == set(kinds) and len(kinds) == 16
