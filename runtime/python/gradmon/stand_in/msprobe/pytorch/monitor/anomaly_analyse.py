# SPDX-License-Identifier: Apache-2.0
"""Stands in for msprobe.pytorch.monitor.anomaly_analyse, as msprobe 1.2.2 names its anomaly_processor."""
from msprobe import refusing
from msprobe.core.monitor.anomaly_processor import main

__getattr__ = refusing(__name__)

if __name__ == "__main__":
    main()
