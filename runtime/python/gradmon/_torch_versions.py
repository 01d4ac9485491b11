# SPDX-License-Identifier: Apache-2.0
"""Compares the imported torch with the one that the extension was built against."""
import torch


def _release(version: str) -> str:
    """ "1.13" of "1.13.0a0", "2.6" of "2.6.0+debian"."""
    return ".".join(version.split("+")[0].split(".")[:2])


def check_torch(built_against: str) -> None:
    """Raises ImportError if the extension was built against another torch than the imported one."""
    if _release(built_against) != _release(torch.__version__):
        raise ImportError(f"it was built against torch {built_against}; build it with this one")
