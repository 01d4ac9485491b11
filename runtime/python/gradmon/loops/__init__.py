# SPDX-License-Identifier: Apache-2.0
"""Parts shared by the adapters of frameworks, such as gradmon.hf. Imports no framework."""
