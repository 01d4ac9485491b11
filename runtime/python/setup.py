# SPDX-License-Identifier: Apache-2.0
"""Builds the wheel. CMake builds the extension, in build/release or in GRADMON_BUILD_DIR."""
import os
import re
import shutil
import subprocess
from pathlib import Path

import torch
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parents[2]


def version() -> str:
    """Version of gradmon, with the torch that the wheel needs: "0.2.0+torch1.13"."""
    text = (build_directory() / "CMakeCache.txt").read_text()
    own = re.search(r"^CMAKE_PROJECT_VERSION:STATIC=(.*)$", text, re.MULTILINE)
    assert own, "no version in CMakeCache.txt"
    return f"{own[1]}+torch{'.'.join(torch.__version__.split('.')[:2])}"


def build_directory() -> Path:
    """The build directory. Configures it if that has not been done."""
    directory = Path(os.environ.get("GRADMON_BUILD_DIR", ROOT / "build" / "release"))
    if not (directory / "build.ninja").exists():
        subprocess.run(["cmake", "--preset", "release", "-B", str(directory)], cwd=ROOT, check=True)
    return directory


class BuildByCMake(build_ext):
    def build_extension(self, ext: Extension) -> None:
        directory = build_directory()
        subprocess.run(["cmake", "--build", str(directory), "--target", "gradmon_python"], check=True)
        made = directory / "python" / "gradmon"
        (extension,) = made.glob("_gradmon*.so")
        wanted = Path(self.get_ext_fullpath(ext.name))
        wanted.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(extension, wanted)
        shutil.copy(made / "_built_against.py", wanted.parent)
        shutil.copy(directory / "bin" / "gradmon-hub", wanted.parent)


setup(
    name="gradmon",
    version=version(),
    description="Looks into a running PyTorch training job without stopping it",
    license="Apache-2.0",
    python_requires=">=3.9",
    packages=["gradmon"],
    package_data={"gradmon": ["py.typed", "*.pyi", "stand_in/**/*.py"]},
    ext_modules=[Extension("gradmon._gradmon", [])],
    cmdclass={"build_ext": BuildByCMake},
)
