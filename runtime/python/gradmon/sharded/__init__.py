# SPDX-License-Identifier: Apache-2.0
"""Parameters that are spread over ranks: FSDP1, FSDP2, DTensor.

Everything is found by the names of classes and attributes: no framework is imported unless the program has
imported it, and nothing communicates.
"""
