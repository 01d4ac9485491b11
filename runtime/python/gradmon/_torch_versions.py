# SPDX-License-Identifier: Apache-2.0
"""Compares the imported torch with the one that the extension was built against. Importing this module fails
beside a torch that is too old."""
import re

import torch

_LEAST = "2.6"


def release(version: str) -> "tuple[int, ...]":
    """(2, 13) of "2.13.0+cpu"."""
    return tuple(int(number) for number in re.findall("[0-9]+", version)[:2])


def check_torch(version: str, built_against: str) -> None:
    """Raises ImportError if the extension was built against another torch than the imported one."""
    found = release(torch.__version__)
    if release(built_against) != found:
        raise ImportError(
            f"it was built against torch {built_against}; install the wheel "
            f"gradmon-{version}+torch{'.'.join(map(str, found))}, or build gradmon with this torch"
        )


if release(torch.__version__) < release(_LEAST):
    raise ImportError(f"gradmon needs torch {_LEAST} or later; found {torch.__version__} ({torch.__file__})")
