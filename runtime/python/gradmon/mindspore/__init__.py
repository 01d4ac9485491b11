# SPDX-License-Identifier: Apache-2.0
"""gradmon for MindSpore."""
from gradmon.mindspore.trainer_mon import TrainerMon

__all__ = ["TrainerMon"]
