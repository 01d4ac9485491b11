# SPDX-License-Identifier: Apache-2.0
"""The names of kinds and statistics, as control/vocabulary.h has them."""
from typing import Iterable

# The prefixes of CSV files, in the order in which a step's files are written. The id of a metric in a
# database is the number of its kind in KINDS, from 1.
ROW_KINDS = [
    *("actv", "actv_grad", "grad_unreduced", "grad_reduced", "exp_avg", "exp_avg_sq", "param_origin"),
    *("param_updated", "attention_hook", "linear_hook", "other", "moe_router_weight_hook"),
    *("moe_router_logit_hook", "scalar"),
]
HISTOGRAM_KINDS = ["update", "ratio"]
KINDS = [*ROW_KINDS, *HISTOGRAM_KINDS]
KINDS_WITH_MICRO_STEPS = ["actv", "actv_grad", "attention_hook", "moe_router_logit_hook"]

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

_SQL = {"least": "min(value)", "greatest": "max(value)", "sum": "sum(value)"}
_SQL["root_of_squares"] = "sqrt(sum(value * value))"
# The cases of an SQL expression for the statistic `op` of rows.
SQL_FOLDS = " ".join(f"WHEN '{op}' THEN {_SQL[fold]}" for op, fold in FOLDS.items() if fold in _SQL)

# The marks of a tensor that was read in part: the share of its elements, and the standard errors of mean and
# norm.
SAMPLE_MARKS = ["sampled", "mean_se", "norm_se"]

# The counts of a histogram's bins, as columns.
BINS = [f"bin_{i}" for i in range(30)]

# The numeric columns of CSV files.
OPS = list(FOLDS)
FIELDS = [
    *OPS,
    *("entropy", "softmax_max", "sr", "kernel_norm", "cosine", "mg_direction", "value", "samples"),
    *SAMPLE_MARKS,
]

# The columns of the table of alerts, with their types for DuckDB and Arrow.
ALERT_COLUMNS = {
    **dict.fromkeys(("rank", "step", "micro_step", "pp_stage", "vpp_stage"), "int64"),
    **dict.fromkeys(("rule", "tag_name", "op"), "string"),
    **{"value": "double", "history_mean": "double", "message": "string", "at": "int64"},
}

# The statistics in a database, in the order of the bits of nan_mask.
STATS = [
    *("norm", "min", "max", "zeros", "nans", "mean"),
    *("entropy", "softmax_max", "sr", "kernel_norm", "cosine", "mg_direction", "samples", "value"),
    "absmax",
    *SAMPLE_MARKS,
]
# The same in the order of columns: msprobe's six, the other ops, the others, the marks of samples.
COLUMN_ORDER = [*STATS[:6], *(op for op in STATS[14:] if op in FOLDS), *STATS[6:14], *SAMPLE_MARKS]

# The statistics of kinds that have columns of their own; True: beside OPS.
_COLUMNS: "dict[str, tuple[list[str], bool]]" = {
    "attention_hook": (["entropy", "softmax_max"], False),
    "linear_hook": (["sr", "kernel_norm"], False),
    "other": (["mg_direction"], True),
    "moe_router_weight_hook": (["cosine"], False),
    "moe_router_logit_hook": (["entropy"], False),
    "scalar": (["samples", "value"], False),
    "update": ([], False),
    "ratio": ([], False),
}


def stats_of(kind: str, ops: "Iterable[str]" = (*OPS, *SAMPLE_MARKS)) -> "list[str]":
    """The statistics of a kind in rows with some OPS and SAMPLE_MARKS, in the order of columns."""
    own, has_ops = _COLUMNS.get(kind, ([], True))
    return sorted([*own, *(ops if has_ops else ())], key=COLUMN_ORDER.index)


# The element types of measured tensors, as torch prints them. A name with a stroke belongs to numbers with
# scales (FORMAT.md).
DTYPES = [
    *(b"torch.float32", b"torch.float64", b"torch.float16", b"torch.bfloat16", b"torch.int8", b"torch.uint8"),
    *(b"torch.int16", b"torch.int32", b"torch.int64", b"torch.bool", b"torch.complex64", b"torch.complex128"),
    *(b"torch.float8_e4m3fn", b"torch.float8_e4m3fnuz", b"torch.float8_e5m2", b"torch.float8_e5m2fnuz"),
    *(b"torch.float8_e8m0fnu", b"torch.uint16", b"torch.uint32", b"torch.uint64", b"torch.complex32"),
    *(b"torch.qint8", b"torch.quint8", b"torch.qint32", b"torch.quint4x2", b"torch.quint2x4"),
    *(b"float8_e4m3fn/tensor", b"float8_e4m3fn/axis", b"float8_e4m3fn/block", b"float8_e4m3fnuz/tensor"),
    *(b"float8_e4m3fnuz/axis", b"float8_e4m3fnuz/block", b"float8_e5m2/tensor", b"float8_e5m2/axis"),
    *(b"float8_e5m2/block", b"float8_e5m2fnuz/tensor", b"float8_e5m2fnuz/axis", b"float8_e5m2fnuz/block"),
    *(b"mxfp8_e4m3/32", b"mxfp8_e5m2/32", b"mxfp6_e2m3/32", b"mxfp6_e3m2/32", b"mxfp4_e2m1/32"),
    *(b"nvfp4_e2m1/16", b"int8/axis", b"int8/dynamic", b"int4/dynamic"),
]
