# SPDX-License-Identifier: Apache-2.0
"""What gradmon.accelerate, gradmon.hf and gradmon.lightning share. Imports no framework."""
