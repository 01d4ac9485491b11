# SPDX-License-Identifier: Apache-2.0
TORCH: str  # "1.13.0"; CMake writes it beside the extension
