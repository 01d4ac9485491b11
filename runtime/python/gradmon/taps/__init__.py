# SPDX-License-Identifier: Apache-2.0
"""Values that a program passes itself, beside those that hooks find."""
