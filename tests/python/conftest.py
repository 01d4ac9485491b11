# SPDX-License-Identifier: Apache-2.0
"""Leaves tests of the full tier out of the quick one. Lists the skipped tests; the session fails if a file
skips more or fewer than the table below says."""
import gc
import os
from typing import Any, Iterator

import pytest
from scale import FULL

# Number of skipped tests in each file, by torch's release. Other files skip none.
SKIPPED: "dict[str, dict[str, int]]" = {
    "2.6": {
        "test_append.py": 1,
        "test_defaults.py": 1,
        "test_histograms.py": 1,
        "test_install.py": 1,
        "test_observe.py": 1,
        "test_pipelines.py": 6,
        "test_tensorboard.py": 1,
        "test_waits.py": 1,
        "test_wheel.py": 1,
    },
    "2.13": {},
}

# Where models and batches are made: the same tests hold on a GPU (hooks/GPU.md).
if "GRADMON_TEST_DEVICE" in os.environ:
    import torch

    torch.set_default_device(os.environ["GRADMON_TEST_DEVICE"])

_skipped: "list[Any]" = []  # reports of the skipped tests
_unexpected: "list[str]" = []


@pytest.fixture
def group() -> "Iterator[Any]":
    """A process group of this process alone."""
    import torch.distributed as dist  # as below

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.distributed_c10d._get_default_group()
    dist.destroy_process_group()


def release() -> str:
    import torch  # Not above: files that need no torch would wait seconds for it.

    return ".".join(torch.__version__.split(".")[:2])


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail"):
        _skipped.append(report)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.skipped:
        _skipped.append(report)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "full: a test of the full tier (GRADMON_TEST_SCALE=full)")


def pytest_collection_modifyitems(config: pytest.Config, items: "list[pytest.Item]") -> None:
    if FULL:
        return
    left_out = [item for item in items if item.get_closest_marker("full")]
    items[:] = [item for item in items if not item.get_closest_marker("full")]
    config.hook.pytest_deselected(items=left_out)


def pytest_collection_finish() -> None:
    """The tests' own collections of garbage, and the last one, leave out all that was imported."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish(session: pytest.Session) -> None:
    chosen = session.config.option
    if chosen.keyword or any("::" in name for name in session.config.args):
        return
    counts = {os.path.basename(item.path): 0 for item in session.items}
    for report in _skipped:
        file = os.path.basename(report.fspath)
        counts[file] = counts.get(file, 0) + 1
    if not _skipped and not any(file in known for known in SKIPPED.values() for file in counts):
        return
    if release() not in SKIPPED:
        return
    for file, count in sorted(counts.items()):
        known = SKIPPED[release()].get(file, 0)
        if count != known:
            _unexpected.append(f"{file}: {count} skipped with torch {release()}, expected {known}")
    if _unexpected:
        _unexpected.append(f"the expected numbers are in {__file__}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    elif session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and _skipped:  # a file that skips itself
        session.exitstatus = pytest.ExitCode.OK


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for report in _skipped:
        why = report.longrepr[2].removeprefix("Skipped: ")
        terminalreporter.write_line(f"skipped: torch {release()}: {report.nodeid}: {why}")
    for line in _unexpected:
        terminalreporter.write_line(line)
