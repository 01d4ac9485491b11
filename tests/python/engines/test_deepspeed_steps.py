# SPDX-License-Identifier: Apache-2.0
"""Where the steps of a DeepSpeed engine end, with a stand-in; frameworks/test_deepspeed.py has the engine."""
from types import SimpleNamespace
from typing import Any

import pytest
from gradmon.deepspeed.watching import _stepping


def test_a_checkpoint_that_is_loaded_after_watch_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    engine = SimpleNamespace(global_steps=0)
    ended = []
    monitor: Any = SimpleNamespace(end_step=lambda: ended.append(engine.global_steps))
    step = _stepping(monitor, engine)

    def update() -> None:
        engine.global_steps += 1

    step(update)
    step(lambda: None)  # gradients are only accumulated
    assert ended == [1]
    assert "global_steps" not in capfd.readouterr().err
    engine.global_steps = 1000
    step(update)
    step(update)
    assert ended == [1, 1001, 1002]
    assert capfd.readouterr().err.count("engine.global_steps went from 1 to 1000") == 1
