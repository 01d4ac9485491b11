# SPDX-License-Identifier: Apache-2.0
import pytest
from reading import GRADMONCTL, Commands


@pytest.fixture
def run(capsys: "pytest.CaptureFixture[str]", monkeypatch: pytest.MonkeyPatch) -> Commands:
    monkeypatch.setenv("GRADMONCTL", GRADMONCTL)
    return Commands(capsys)
