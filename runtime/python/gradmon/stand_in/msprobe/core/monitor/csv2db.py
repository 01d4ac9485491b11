# SPDX-License-Identifier: Apache-2.0
"""Stands in for msprobe.core.monitor.csv2db."""
from gradmon import CSV2DBConfig, csv2db
from msprobe import refusing

__all__ = ["CSV2DBConfig", "csv2db"]

__getattr__ = refusing(__name__)
