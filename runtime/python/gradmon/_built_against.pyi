# SPDX-License-Identifier: Apache-2.0
# CMake writes this module beside the extension.
VERSION: str  # "0.3.0"
TORCH: str  # "2.13.0"
