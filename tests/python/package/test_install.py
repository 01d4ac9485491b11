# SPDX-License-Identifier: Apache-2.0
"""The package is installed from the sources as README says, and by cmake --install; tools/ choose a torch."""
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import jobs
import pytest
import torch


ROOT = Path(__file__).resolve().parents[3]
BUILD = Path(os.environ["GRADMON_BUILD_DIR"])

SCRIPT = """
import sys
sys.path.append(sys.argv[3])  # jobs alone
import gradmon, jobs, torch
print(gradmon.__file__)
model, optimizer = jobs.make()
with gradmon.Monitor(sys.argv[1], output_dir=sys.argv[2], dynamic=False).watch(model, optimizer):
    jobs.train(model, optimizer, 2)
"""


def collects(python: Path, tmp_path: Path, **environment: str) -> Path:
    """Collects rows with the installed package; returns the directory that it was imported from."""
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    config = jobs.write_config(tmp_path, wg_distribution=True)
    command = [
        str(python),
        "-c",
        SCRIPT,
        str(config),
        str(tmp_path / "out"),
        str(ROOT / "tests" / "python" / "support"),
    ]
    result = subprocess.run(command, capture_output=True, text=True, env={**env, **environment}, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert jobs.steps_of(jobs.rows(tmp_path / "out", "grad_reduced"))["fc1.weight"] == [0, 1]
    return Path(result.stdout.strip())


def stands_in(python: Path, tmp_path: Path, **environment: str) -> None:
    (tmp_path / "script.py").write_text(
        "from msprobe.pytorch import TrainerMon; print(TrainerMon.__module__)"
    )
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [str(python), "-m", "gradmon.as_msprobe", "script.py"]
    result = subprocess.run(command, capture_output=True, text=True, env={**env, **environment}, cwd=tmp_path)
    assert result.stdout == "gradmon.trainer_mon\n", result.stderr


def test_the_extension_has_the_systems_standard_library(tmp_path: Path) -> None:
    """torch's wheels export parts of an older libstdc++, that of their own compiler."""
    subprocess.run(
        [sys.executable, "-c", "import torch, gradmon"],
        env={**os.environ, "LD_DEBUG": "bindings", "LD_DEBUG_OUTPUT": f"{tmp_path}/b", "LD_BIND_NOW": "1"},
        check=True,
    )
    binding = re.compile(r"binding file \S*/_gradmon\S* \[0\] to (\S+) .* symbol `(_ZN?K?S\S*)'")
    providers = {}
    for path in tmp_path.iterdir():
        with path.open(errors="replace") as file:
            providers.update(
                {match[2]: Path(match[1]).name for line in file if (match := binding.search(line))}
            )
    assert len(providers) > 50
    assert set(providers.values()) == {"libstdc++.so.6"}, providers


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of the sources."""
    scratch = tmp_path_factory.mktemp("archive")
    tree = scratch / "tree"  # setuptools leaves files there
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns("build", ".git", "__pycache__"))
    code = f"import build_gradmon; build_gradmon.build_sdist({str(scratch)!r})"
    env = {**os.environ, "PYTHONPATH": str(tree / "runtime" / "python")}
    subprocess.run([sys.executable, "-c", code], cwd=tree, env=env, check=True, capture_output=True)
    (made,) = scratch.glob("gradmon-*.tar.gz")
    return made


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of a new virtual environment that sees the torch of this one."""
    directory = tmp_path_factory.mktemp("env")
    subprocess.run([sys.executable, "-m", "venv", "--system-site-packages", str(directory)], check=True)
    # Where this Python is itself one of a virtual environment, "system" is not that environment.
    (site,) = (directory / "lib").glob("python3*/site-packages")
    torch_first = f"import sys; sys.path.insert(0, {str(Path(torch.__file__).parents[1])!r})\n"
    (site / "torch.pth").write_text(torch_first)
    return directory / "bin" / "python3"


def install(python: Path, archive: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Installs the archive as README says."""
    options = ["--no-build-isolation", "--no-deps"]
    assert f"pip install {' '.join(options)} ." in (ROOT / "README.md").read_text()
    command = [str(python), "-m", "pip", "install", "--quiet", *options, str(archive)]
    env = {**os.environ, **environment}
    env.pop("PYTHONPATH", None)
    return subprocess.run(command, capture_output=True, text=True, env=env)


@pytest.mark.full
def test_the_archive_of_sources_is_installed_by_pip(archive: Path, environment: Path, tmp_path: Path) -> None:
    result = install(environment, archive)  # what is compiled comes from GRADMON_BUILD_DIR
    assert result.returncode == 0, result.stderr
    assert environment.parents[1] in collects(environment, tmp_path).parents
    stands_in(environment, tmp_path)
    shown = subprocess.run(
        [str(environment), "-m", "pip", "show", "gradmon"], capture_output=True, text=True
    ).stdout
    assert f"+torch{'.'.join(torch.__version__.split('.')[:2])}" in shown
    version = subprocess.run(
        [str(environment.with_name("gradmonctl")), "--version"], capture_output=True, text=True
    )
    assert version.stdout.startswith("gradmonctl "), version.stderr


def test_the_archive_of_the_sources_can_be_configured(archive: Path, tmp_path: Path) -> None:
    shutil.unpack_archive(archive, tmp_path)
    (tree,) = tmp_path.iterdir()
    command = ["cmake", "--preset", "release", "-B", str(tmp_path / "build"), "-DGRADMON_TESTS=OFF"]
    result = subprocess.run(
        [*command, f"-DPython_EXECUTABLE={sys.executable}"], cwd=tree, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.skipif(sys.prefix == sys.base_prefix, reason="for a wheel of torch")
def test_no_library_of_another_torch_is_linked(tmp_path: Path) -> None:
    """Debian's libtorch-dev beside a wheel of torch: cmake finds its libraries first."""
    for name in ("torch", "torch_cpu", "torch_python", "c10"):
        (tmp_path / f"lib{name}.so").touch()
    command = ["cmake", "--preset", "release", "-B", str(tmp_path / "build"), "-DGRADMON_TESTS=OFF"]
    environment = {**os.environ, "CMAKE_LIBRARY_PATH": str(tmp_path)}
    subprocess.run(
        [*command, f"-DPython_EXECUTABLE={sys.executable}"],
        cwd=ROOT,
        env=environment,
        check=True,
        capture_output=True,
    )
    rules = (tmp_path / "build" / "build.ninja").read_text()
    package = Path(torch.__file__).parent
    found = set(re.findall(r"\S+/lib(?:torch\w*|c10)\.so", rules))
    assert found == {f"{package}/lib/lib{name}.so" for name in ("torch", "torch_cpu", "torch_python", "c10")}


def test_a_build_without_torch_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "runtime" / "python"))
    import build_gradmon

    assert build_gradmon.missing() == ""
    monkeypatch.setattr(importlib.metadata, "distributions", lambda **_: iter(()))
    wanted = f"{sys.executable} has no torch: install it, and call pip with --no-build-isolation"
    assert build_gradmon.missing() == wanted


def test_a_build_without_packages_names_them(archive: Path, environment: Path, tmp_path: Path) -> None:
    query = tmp_path / "dpkg-query"  # knows of one package
    query.write_text("#!/bin/sh\necho 'installed cmake'\n")
    query.chmod(0o755)
    result = install(environment, archive, PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert result.returncode != 0
    assert "gradmon cannot be built: these packages are missing: apt-get install " in result.stderr
    assert " libzmq3-dev " in result.stderr and " cmake " not in result.stderr


def test_cmake_install(tmp_path: Path) -> None:
    prefix = tmp_path / "prefix"
    command = ["cmake", "--install", str(BUILD / "runtime" / "python"), "--prefix", str(prefix)]
    subprocess.run(command, check=True, capture_output=True)
    page = (ROOT / "runtime" / "python" / "INSTALL.md").read_text()
    assert "`cmake --install build/release/runtime/python --prefix DIR`" in page
    packages = prefix / "lib" / "python3" / "dist-packages"
    found = collects(Path(sys.executable), tmp_path, PYTHONPATH=str(packages))
    assert found == packages / "gradmon" / "__init__.py"
    stands_in(Path(sys.executable), tmp_path, PYTHONPATH=str(packages))


# --- the commands in tools/: the choice of a torch, and environments ---


TOOLS = ROOT / "tools"


def shell(script: str, directory: Path) -> "subprocess.CompletedProcess[str]":
    """Runs a script with tools/setup.sh in the directory, which stands for the root of the tree."""
    lines = f"source {TOOLS}/setup.sh\ngradmon_root=$PWD\n{script}"
    return subprocess.run(["bash", "-c", lines], cwd=directory, capture_output=True, text=True)


def make_program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_a_relative_path_of_a_torch_holds_in_every_directory(tmp_path: Path) -> None:
    python = make_program(tmp_path / "env" / "bin" / "python3", "#!/bin/sh\necho 9.9.9\n")
    for wanted in ("env", "./env", "env/bin/python3", "../" + tmp_path.name + "/env", str(python)):
        chosen = shell(f"choose_torch {wanted} pip && cd / && echo $torch $gradmon_python", tmp_path)
        assert chosen.stdout == f"9.9.9 {python}\n", wanted


@pytest.mark.full
def test_an_environment_is_made_again_where_the_tree_was_moved_and_only_there(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "tools").mkdir(parents=True)
    (tree / "tools" / "requirements-nothing.txt").write_text("# nothing\n")
    script = "ensure_venv $PWD/venv nothing && venv/bin/pip --version"
    first = shell(script, tree)
    assert first.returncode == 0, first.stderr
    mark = Path("venv") / "mark"
    (tree / mark).touch()
    assert shell(script, tree).returncode == 0
    assert (tree / mark).exists()
    moved = tree.rename(tmp_path / "moved")
    again = shell(script, moved)
    assert again.returncode == 0, again.stderr
    assert str(moved) in again.stdout
    assert not (moved / mark).exists()


def test_an_environment_is_in_place_where_its_pip_is_run_by_its_own_python(tmp_path: Path) -> None:
    long = "#!/bin/sh\n'''exec' {} \"$0\" \"$@\"\n' '''\n"
    for lines in ("#!{}\n", long, long.replace("{}", '"{}"')):
        for name, there in (("here", 0), ("elsewhere", 1)):
            (tmp_path / "elsewhere" / "bin").mkdir(parents=True, exist_ok=True)
            make_program(tmp_path / "here" / "bin" / "pip", lines.format(tmp_path / name / "bin" / "python3"))
            assert shell("is_in_place $PWD/here", tmp_path).returncode == there, lines
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "here" / "bin" / "pip").rename(tmp_path / "elsewhere" / "bin" / "pip")
    assert shell("is_in_place $PWD/here", tmp_path).returncode == 1
    assert shell("is_in_place $PWD/link", tmp_path).returncode == 0


def test_no_wheel_is_made_for_debians_torch(tmp_path: Path) -> None:
    command = [str(TOOLS / "wheel"), "--torch", "debian", str(tmp_path / "dist")]
    refused = subprocess.run(command, capture_output=True, text=True)
    assert refused.returncode == 1
    assert refused.stdout == ""
    assert "no wheel is made for Debian's torch" in refused.stderr
    assert "pip install --no-build-isolation ." in refused.stderr
    assert not (tmp_path / "dist").exists()
