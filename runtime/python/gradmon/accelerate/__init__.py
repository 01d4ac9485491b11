# SPDX-License-Identifier: Apache-2.0
"""gradmon for Hugging Face Accelerate."""
from gradmon.accelerate.watching import watch

__all__ = ["watch"]
