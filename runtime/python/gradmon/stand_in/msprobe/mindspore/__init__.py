# SPDX-License-Identifier: Apache-2.0
"""Stands in for msprobe.mindspore."""
from gradmon.mindspore import TrainerMon
from msprobe import refusing

__all__ = ["TrainerMon"]

__getattr__ = refusing(__name__)
