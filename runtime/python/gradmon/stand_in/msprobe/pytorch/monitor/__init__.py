# SPDX-License-Identifier: Apache-2.0
"""Stands in for msprobe.pytorch.monitor."""
from msprobe import refusing

__getattr__ = refusing(__name__)
