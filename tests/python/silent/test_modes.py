# SPDX-License-Identifier: Apache-2.0
"""The doctor names each mode of a framework, as FRAMEWORKS.md does."""
import os
import re
from pathlib import Path

import pytest
from gradmon.engines import relied_on

PAGE = Path(__file__).parents[3] / "runtime/python/FRAMEWORKS.md"
HEADING = "| framework | mode | rows | message |\n| --- | --- | --- | --- |\n"


def test_the_page_has_the_modes_that_the_doctor_names() -> None:
    """GRADMON_WRITE_GOLDEN=1 writes them."""
    lines = [
        f"| {framework} | {mode.name} | {mode.rows} | {mode.sentence} |\n"
        for framework, modes in relied_on.MODES.items()
        for mode in modes
    ]
    page = PAGE.read_text()
    begin = page.index(HEADING) + len(HEADING)
    end = re.compile(r"^(?!\|)|\Z", re.MULTILINE).search(page, begin)
    assert end is not None
    if "GRADMON_WRITE_GOLDEN" in os.environ:
        PAGE.write_text(page[:begin] + "".join(lines) + page[end.start() :])
        return
    assert page[begin : end.start()] == "".join(lines)


def test_the_doctor_names_each_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    modes = [relied_on.Mode("stage 1", "all kinds"), relied_on.Mode("graphs", "none", "nothing is watched")]
    monkeypatch.setitem(relied_on.FRAMEWORKS, "gradmon's", ("no-such-package", []))
    monkeypatch.setitem(relied_on.MODES, "gradmon's", modes)
    said: "list[str]" = []
    assert not relied_on.examine("gradmon's", said.append)
    assert said == [
        "stage 1: rows of all kinds",
        "graphs: rows of none (nothing is watched)",
        "no-such-package: not installed",
    ]


def test_each_framework_has_its_modes_once() -> None:
    assert relied_on.MODES.keys() == relied_on.FRAMEWORKS.keys()
    for modes in relied_on.MODES.values():
        names = [mode.name for mode in modes]
        assert len(set(names)) == len(names)
        assert all(mode.sentence or mode.rows == "all kinds" for mode in modes)
