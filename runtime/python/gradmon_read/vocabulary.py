# SPDX-License-Identifier: Apache-2.0
"""The names of kinds and statistics, as control/vocabulary.h has them."""

# How a statistic of several tensors follows from theirs.
FOLDS = {
    "min": "least",
    "max": "greatest",
    "mean": "mean_by_elements",
    "norm": "root_of_squares",
    "nans": "sum",
    "zeros": "mean_by_elements",
    "absmax": "greatest",
}

# The statistics in a database, in the order of the bits of nan_mask.
STATS = [
    *("norm", "min", "max", "zeros", "nans", "mean"),
    *("entropy", "softmax_max", "sr", "kernel_norm", "cosine", "mg_direction", "samples", "value"),
    "absmax",
]
# The same in the order of columns: msprobe's six, the other ops, the others.
COLUMN_ORDER = [*STATS[:6], *STATS[14:], *STATS[6:14]]
