# SPDX-License-Identifier: Apache-2.0
"""Values that a program hands in itself, beside those that hooks find."""
