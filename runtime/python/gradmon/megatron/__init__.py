# SPDX-License-Identifier: Apache-2.0
"""gradmon for Megatron core."""
from gradmon.megatron.watching import scopes, watch

__all__ = ["scopes", "watch"]
