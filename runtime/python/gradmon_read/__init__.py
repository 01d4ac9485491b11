# SPDX-License-Identifier: Apache-2.0
"""Reads what a job has written: queries, analysis and conversion. Needs no torch."""
