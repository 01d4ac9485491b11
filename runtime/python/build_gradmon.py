# SPDX-License-Identifier: Apache-2.0
"""Builds the wheel and the source archive: setuptools, with CMake for everything that is compiled.

CMake builds in build/release, or in GRADMON_BUILD_DIR; the wheel holds what `cmake --install` installs.
The wheel fits the torch of the environment, so pip has to be called with --no-build-isolation. Several build
directories in GRADMON_BUILD_DIR, with colons between them, make a wheel that fits the torch of each.
"""
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F401,F403
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # before setuptools 70
    try:
        from wheel.bdist_wheel import bdist_wheel
    except ImportError:
        sys.exit(f"gradmon cannot be built: {sys.executable} has no package wheel: pip install wheel")

ROOT = Path(__file__).resolve().parents[2]
# The files that a build from the source archive needs.
FILES = ["CMakeLists.txt", "CMakePresets.json", "LICENSE", "README.md", "pyproject.toml"]
FOLDERS = ["control", "hooks", "runtime", "tools", "writers"]


def version() -> str:
    """Version of the source archive or of a wheel for several torches ("0.2.0"), or of a wheel for one
    ("0.2.0+torch2.13")."""
    cmake = (ROOT / "CMakeLists.txt").read_text()
    (own,) = re.findall(r"^project\(gradmon VERSION (\S+)", cmake, re.MULTILINE)
    if "sdist" in sys.argv or len(build_directories()) > 1:
        return str(own)
    return f"{own}+torch{'.'.join(torch_version().split('.')[:2])}"


def torch_version() -> str:
    """Raises StopIteration if this environment has no torch."""
    # version("torch") returns gradmon's where pip's own finder ignores the name (pyproject_hooks 1.2).
    found = importlib.metadata.distributions(name="torch")
    return next(each.version for each in found if each.metadata["Name"] == "torch")


def missing() -> str:
    """A sentence that names the missing parts for building the wheel; "" if none is missing."""
    try:
        torch_version()
    except StopIteration:
        return f"{sys.executable} has no torch: install it, and call pip with --no-build-isolation"
    if shutil.which("dpkg-query"):
        command = ["bash", "-c", "source tools/setup.sh && missing_packages build"]
        packages = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.split()
        if packages:
            return f"these packages are missing: apt-get install {' '.join(packages)}"
    programs = [program for program in ("cmake", "ninja", "c++") if not shutil.which(program)]
    return f"these programs are missing: {', '.join(programs)}" if programs else ""


def require_everything() -> None:
    sentence = missing()
    if sentence:
        sys.exit(f"gradmon cannot be built: {sentence}")


# The hooks of PEP 517 that differ from those of setuptools.
def get_requires_for_build_wheel(config_settings: Any = None) -> "list[str]":
    return []


def get_requires_for_build_sdist(config_settings: Any = None) -> "list[str]":
    return []


def prepare_metadata_for_build_wheel(directory: str, config_settings: Any = None) -> str:
    require_everything()
    return str(build_meta.prepare_metadata_for_build_wheel(directory, config_settings))


def build_wheel(directory: str, config_settings: Any = None, metadata_directory: Any = None) -> str:
    require_everything()
    return str(build_meta.build_wheel(directory, config_settings, metadata_directory))


def build_directories() -> "list[Path]":
    named = os.environ.get("GRADMON_BUILD_DIR", str(ROOT / "build" / "release"))
    return [Path(each) for each in named.split(os.pathsep)]


def build_and_install(directory: Path, prefix: str) -> Path:
    """Builds in the directory; configures it if that has not been done. Returns the installed package."""
    if not (directory / "build.ninja").exists():
        command = ["cmake", "--preset", "release", "-B", str(directory)]
        command += ["-DGRADMON_TESTS=OFF", f"-DPython_EXECUTABLE={sys.executable}"]
        subprocess.run(command, cwd=ROOT, check=True)
    targets = ["--target", "gradmon_python", "gradmonctl", "gradmon-hub"]
    subprocess.run(["cmake", "--build", str(directory), *targets], check=True)
    built = str(directory / "runtime" / "python")
    subprocess.run(["cmake", "--install", built, "--prefix", prefix], check=True)
    (package,) = Path(prefix).glob("**/dist-packages/gradmon")
    compiled = [*package.glob("_gradmon.*.so"), package / "gradmonctl", package / "gradmon-hub"]
    subprocess.run(["strip", *map(str, compiled)], check=True)
    return package


class BuildByCMake(build_py):
    def run(self) -> None:
        super().run()
        for directory in build_directories():
            with tempfile.TemporaryDirectory() as prefix:
                package = build_and_install(directory, prefix)
                of_torch = [*package.glob("_gradmon.*.so"), package / "_built_against.py"]
                (release,) = re.findall(r'TORCH = "(\d+\.\d+)', of_torch[-1].read_text())
                (package / f"torch{release}").mkdir()
                for file in of_torch:
                    file.rename(package / f"torch{release}" / file.name)
                shutil.copytree(package, Path(self.build_lib) / "gradmon", dirs_exist_ok=True)


class PlatformWheel(bdist_wheel):
    def finalize_options(self) -> None:
        self.distribution.has_ext_modules = lambda: True  # setuptools does not know of CMake's
        super().finalize_options()


class SourceArchive(sdist):
    def make_release_tree(self, base_dir: str, files: "list[str]") -> None:
        paths = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file())
        sources = {str(path.relative_to(ROOT)) for path in paths if "__pycache__" not in path.parts}
        super().make_release_tree(base_dir, sorted({*files, *FILES, *sources}))
