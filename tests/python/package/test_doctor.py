# SPDX-License-Identifier: Apache-2.0
"""python3 -m gradmon.doctor, and the modes of frameworks that it names, as FRAMEWORKS.md does."""
import os
import re
import subprocess
import sys
from pathlib import Path

import gradmon
import pytest
import torch
from gradmon import doctor


def run(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    env = {**{name: value for name, value in os.environ.items() if name != "GRADMON_LOG"}, **environment}
    env["PATH"] = f"{os.environ['GRADMON_BIN']}:{env['PATH']}"
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=env)


def test_it_says_in_few_lines_that_all_works(tmp_path: Path) -> None:
    result = run("-m", "gradmon.doctor", XDG_RUNTIME_DIR=str(tmp_path))  # with no job of another test
    assert result.returncode == 0, result.stdout + result.stderr
    assert "gradmon: " not in result.stderr  # the log of the small trainings
    lines = result.stdout.splitlines()
    assert len(lines) <= 45
    assert [line for line in lines if line.startswith("ok    hub ") and line.endswith(" starts and answers")]
    assert lines[1].startswith(f"torch {torch.__version__} (")
    assert [line for line in lines if line.endswith(": works")] == [
        f"{kind}: works" for kind in doctor._KINDS
    ]


def test_a_kind_without_rows_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    weights_alone = ({"param_distribution": True}, ["param_origin", "grad_reduced"])
    monkeypatch.setattr(doctor, "_KINDS", {"gradients": weights_alone, "weights": doctor._KINDS["weights"]})
    said: "list[str]" = []
    assert not doctor.examine(said.append)
    assert "gradients: no grad_reduced (no reason is known)" in said and "weights: works" in said


def test_a_refusal_of_the_machine_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("unable to resolve\nits own name")

    monkeypatch.setattr(torch.distributed, "init_process_group", refuse)
    said: "list[str]" = []
    assert not doctor.examine(said.append)
    assert "communication: unable to resolve its own name" in said and "gradients: works" in said


def test_the_findings_about_the_host_are_those_of_gradmonctl(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "gradmonctl"
    program.write_text('#!/bin/sh\necho "fail  keys  $1"\nexit 1\n')
    program.chmod(0o700)
    monkeypatch.setattr(doctor, "find_gradmonctl", lambda: str(program))
    said: "list[str]" = []
    assert not doctor.examine_host(said.append)
    assert said == ["fail  keys  doctor"]


def test_a_missing_gradmonctl_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradmon.converting.Path", lambda _: Path("/nowhere/converting.py"))
    monkeypatch.setenv("PATH", "/nowhere")
    said: "list[str]" = []
    assert not doctor.examine_host(said.append)
    assert said == ["host: the program gradmonctl is neither /nowhere/gradmonctl nor on PATH"]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package without the compiled extension."""
    copied = tmp_path / "gradmon"
    copied.mkdir()
    for source in Path(gradmon.__file__).parent.glob("*.py"):
        (copied / source.name).write_text(source.read_text())
    return copied


def test_another_torch_is_refused_by_name_before_the_extension_is_loaded(package: Path) -> None:
    (package / "_built_against.py").write_text('VERSION = "0.9.0"\nTORCH = "9.9.1"\n')
    result = run("-m", "gradmon.doctor", PYTHONPATH=str(package.parent))
    assert result.returncode != 0
    beside = f"cannot be loaded beside torch {torch.__version__} ({torch.__file__})"
    release = ".".join(torch.__version__.split(".")[:2])
    wheel = f"install a wheel of gradmon 0.9.0 for torch {release}, or build gradmon with this torch"
    assert f"{beside}: it was built against torch 9.9.1; {wheel}" in result.stderr


def test_beside_a_torch_that_no_extension_of_the_wheel_fits_one_sentence_names_the_remedies(
    package: Path,
) -> None:
    for release in ("1.99", "9.10", "9.9"):
        (package / f"torch{release}").mkdir()
        (package / f"torch{release}" / "_built_against.py").write_text('VERSION = "0.9.0"\nTORCH = "9.9"\n')
    (package / "_built_against.py").unlink()
    result = run("-m", "gradmon.doctor", PYTHONPATH=str(package.parent))
    assert result.returncode != 0
    release = ".".join(torch.__version__.split(".")[:2])
    wanted = (
        f"for torch 1.99, 9.9, 9.10; install a wheel of gradmon for torch {release}, or one of these torches"
    )
    assert wanted in result.stderr.splitlines()[-1]


def test_a_torch_before_2_6_is_refused_with_one_sentence(package: Path) -> None:
    other = package.parent / "torch"
    other.mkdir()
    (other / "__init__.py").write_text('__version__ = "1.13.0a0"\n')
    result = run("-m", "gradmon.doctor", PYTHONPATH=str(package.parent))
    assert result.returncode != 0
    needed = f"gradmon needs torch 2.6 or later; found 1.13.0a0 ({other / '__init__.py'})"
    assert result.stderr.splitlines()[-1] == f"ImportError: {needed}"


def test_an_extension_that_cannot_be_loaded_is_reported(package: Path) -> None:
    (package / "_gradmon.so").write_text("no library")
    result = run("-m", "gradmon.doctor", PYTHONPATH=str(package.parent))
    assert result.returncode != 0
    assert f"cannot be loaded beside torch {torch.__version__}" in result.stderr


PAGE = Path(__file__).parents[3] / "runtime/python/FRAMEWORKS.md"
HEADING = "| framework | mode | rows | message |\n| --- | --- | --- | --- |\n"


def test_the_page_has_the_modes_that_the_doctor_names() -> None:
    """GRADMON_WRITE_GOLDEN=1 writes them."""
    lines = [
        f"| {framework} | {mode.name} | {mode.rows} | {mode.sentence} |\n"
        for framework, known in doctor.FRAMEWORKS.items()
        for mode in known.modes
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
    modes = [doctor.Mode("stage 1"), doctor.Mode("graphs", "none", "nothing is watched")]
    monkeypatch.setitem(doctor.FRAMEWORKS, "gradmon's", doctor.Framework("no-such-package", "", modes))
    said: "list[str]" = []
    assert not doctor.examine_framework("gradmon's", said.append)
    assert said == [
        "stage 1: rows of all kinds",
        "graphs: rows of none (nothing is watched)",
        "no-such-package: not installed",
    ]


def test_each_framework_has_its_modes_and_names_once() -> None:
    for known in doctor.FRAMEWORKS.values():
        for names in ([mode.name for mode in known.modes], list(doctor.names_in(known.names))):
            assert names and len(set(names)) == len(names)
        assert all(mode.sentence or mode.rows == "all kinds" for mode in known.modes)
    first = next(doctor.names_in(doctor.FRAMEWORKS["deepspeed"].names))
    assert first == ("deepspeed.runtime.engine.DeepSpeedEngine", "global_steps", "the end of a step")
