# SPDX-License-Identifier: Apache-2.0
"""gradmon for torchtitan."""
from gradmon.torchtitan.watching import watch

__all__ = ["watch"]
