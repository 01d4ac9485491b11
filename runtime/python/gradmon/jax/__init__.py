# SPDX-License-Identifier: Apache-2.0
"""gradmon for JAX."""
from gradmon.jax.trees import tap

__all__ = ["tap"]
