# SPDX-License-Identifier: Apache-2.0
"""Compares the imported torch with the one that the extension was built against. Importing this module fails
beside a torch that is too old."""
import re
from pathlib import Path

import torch

_LEAST = "2.6"


def release(version: str) -> "tuple[int, ...]":
    """(2, 13) of "2.13.0+cpu"."""
    return tuple(int(number) for number in re.findall("[0-9]+", version)[:2])


def directories_of_extension(package: Path) -> "list[str]":
    """The package's directory with the extension for the imported torch. A wheel has one for each of its
    torches; an installation by CMake has none. Raises ImportError if all are for another torch."""
    found = {release(path.name): str(path) for path in package.glob("torch[0-9]*")}
    imported = release(torch.__version__)
    if found and imported not in found:
        fitting = ", ".join(f"{major}.{minor}" for major, minor in sorted(found))
        raise ImportError(
            f"the installed wheel is for torch {fitting}; install a wheel of gradmon for torch "
            f"{'.'.join(map(str, imported))}, or one of these torches, or build gradmon with this torch"
        )
    return [found[imported]] if found else []


def check_torch(version: str, built_against: str) -> None:
    """Raises ImportError if the extension was built against another torch than the imported one."""
    found = release(torch.__version__)
    if release(built_against) != found:
        raise ImportError(
            f"it was built against torch {built_against}; install a wheel of gradmon {version} for torch "
            f"{'.'.join(map(str, found))}, or build gradmon with this torch"
        )


if release(torch.__version__) < release(_LEAST):
    raise ImportError(f"gradmon needs torch {_LEAST} or later; found {torch.__version__} ({torch.__file__})")
