# SPDX-License-Identifier: Apache-2.0
"""gradmon for Megatron core."""
from gradmon.megatron.watching import captured_by, scopes, watch

__all__ = ["captured_by", "scopes", "watch"]
