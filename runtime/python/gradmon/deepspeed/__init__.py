# SPDX-License-Identifier: Apache-2.0
"""gradmon for DeepSpeed."""
from gradmon.deepspeed.watching import scopes, watch

__all__ = ["scopes", "watch"]
