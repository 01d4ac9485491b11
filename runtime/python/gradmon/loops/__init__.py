# SPDX-License-Identifier: Apache-2.0
"""What the adapters of frameworks share, gradmon.hf and others. Imports no framework."""
