# SPDX-License-Identifier: Apache-2.0
"""gradmon for Hugging Face transformers."""
from gradmon.hf.callback import Callback

__all__ = ["Callback"]
