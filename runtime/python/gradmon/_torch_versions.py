# SPDX-License-Identifier: Apache-2.0
"""Compares the imported torch with the one that the extension was built against."""
import torch


def _release(version: str) -> str:
    """ "1.13" of "1.13.0a0", "2.13" of "2.13.0+cpu"."""
    return ".".join(version.split("+")[0].split(".")[:2])


def check_torch(version: str, built_against: str) -> None:
    """Raises ImportError if the extension was built against another torch than the imported one."""
    wanted = _release(torch.__version__)
    if _release(built_against) != wanted:
        raise ImportError(
            f"it was built against torch {built_against}; install the wheel gradmon-{version}+torch{wanted}, "
            "or build gradmon with this torch"
        )
