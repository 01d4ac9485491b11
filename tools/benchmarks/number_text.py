# SPDX-License-Identifier: Apache-2.0
"""Numbers as gradmon-bench prints them."""


def text_of(value: float) -> str:
    """Four significant digits."""
    decimals = next((d for low, d in ((1000, 0), (100, 1), (10, 2), (0.1, 3)) if abs(value) >= low), 5)
    return f"{value:.{decimals}f}"
