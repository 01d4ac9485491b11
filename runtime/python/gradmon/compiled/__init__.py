# SPDX-License-Identifier: Apache-2.0
"""Models of which torch.compile has compiled parts."""
