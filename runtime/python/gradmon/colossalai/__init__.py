# SPDX-License-Identifier: Apache-2.0
"""gradmon for ColossalAI."""
from gradmon.colossalai.watching import scopes, watch

__all__ = ["scopes", "watch"]
