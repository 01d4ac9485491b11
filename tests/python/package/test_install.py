# SPDX-License-Identifier: Apache-2.0
"""The package is installed as README says, and by cmake --install."""
import os
import shutil
import subprocess
import sys
from pathlib import Path

import jobs
import torch

ROOT = Path(__file__).resolve().parents[3]
BUILD = Path(os.environ["GRADMON_BUILD_DIR"])

SCRIPT = """
import sys
sys.path.append(sys.argv[3])  # jobs alone
import gradmon, jobs, torch
print(gradmon.__file__)
model = jobs.make_net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
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


def test_the_wheel_in_a_virtual_environment(tmp_path: Path) -> None:
    tree = tmp_path / "tree"  # pip leaves build files there
    shutil.copytree(ROOT / "runtime" / "python", tree / "runtime" / "python")
    (tree / "build").mkdir()
    (tree / "build" / "release").symlink_to(BUILD)
    subprocess.run(
        [sys.executable, "-m", "venv", "--system-site-packages", str(tmp_path / "env")], check=True
    )
    python = tmp_path / "env" / "bin" / "python3"
    readme = (ROOT / "README.md").read_text()
    options = ["--no-build-isolation", "--no-deps"]
    assert f"pip install {' '.join(options)} runtime/python" in readme
    command = [str(python), "-m", "pip", "install", "--quiet", *options, "runtime/python"]
    env = {key: value for key, value in os.environ.items() if key != "GRADMON_BUILD_DIR"}
    result = subprocess.run(command, capture_output=True, text=True, cwd=tree, env=env)
    assert result.returncode == 0, result.stderr
    assert tmp_path / "env" in collects(python, tmp_path).parents
    stands_in(python, tmp_path)
    shown = subprocess.run(
        [str(python), "-m", "pip", "show", "gradmon"], capture_output=True, text=True
    ).stdout
    assert f"+torch{'.'.join(torch.__version__.split('.')[:2])}" in shown


def test_cmake_install(tmp_path: Path) -> None:
    prefix = tmp_path / "prefix"
    command = ["cmake", "--install", str(BUILD / "runtime" / "python"), "--prefix", str(prefix)]
    subprocess.run(command, check=True, capture_output=True)
    readme = (ROOT / "README.md").read_text()
    assert "`cmake --install build/release/runtime/python --prefix DIR`" in readme
    packages = prefix / "lib" / "python3" / "dist-packages"
    found = collects(Path(sys.executable), tmp_path, PYTHONPATH=str(packages))
    assert found == packages / "gradmon" / "__init__.py"
    stands_in(Path(sys.executable), tmp_path, PYTHONPATH=str(packages))
