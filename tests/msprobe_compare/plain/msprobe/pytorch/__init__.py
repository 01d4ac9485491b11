# SPDX-License-Identifier: Apache-2.0
"""Takes msprobe's place in the run without a monitor: the scripts stay unchanged."""
from typing import Any


class TrainerMon:
    """A TrainerMon that does nothing."""

    def __init__(self, config_file_path: str, *_: Any, **__: Any) -> None:
        self.config_file_path = config_file_path

    def set_monitor(self, *_: Any, **__: Any) -> None:
        pass

    def generate_xy_metrics(self) -> "tuple[dict[str, Any], dict[str, Any]]":
        return {}, {}
