# SPDX-License-Identifier: Apache-2.0
"""Parameters that are spread over ranks: FSDP1, FSDP2, DTensor.

Everything is found by the names of classes and attributes: nothing of a framework is imported that the
program has not imported, and nothing communicates.
"""
