# SPDX-License-Identifier: Apache-2.0
"""Parts shared by gradmon.colossalai, gradmon.deepspeed and gradmon.megatron. Imports no framework."""
