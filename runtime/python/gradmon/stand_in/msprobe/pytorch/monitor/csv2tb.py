# SPDX-License-Identifier: Apache-2.0
"""Stands in for msprobe.pytorch.monitor.csv2tb."""
from gradmon import csv2tensorboard_by_step
from msprobe import refusing

__all__ = ["csv2tensorboard_by_step"]

__getattr__ = refusing(__name__)
