# SPDX-License-Identifier: Apache-2.0
"""Stands in for msprobe.core."""
from msprobe import refusing

__getattr__ = refusing(__name__)
