# SPDX-License-Identifier: Apache-2.0
"""torch.distributed: its groups, and calls that are sent together."""
