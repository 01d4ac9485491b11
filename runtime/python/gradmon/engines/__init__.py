# SPDX-License-Identifier: Apache-2.0
"""What gradmon.colossalai, gradmon.deepspeed and gradmon.megatron share. Imports no framework."""
