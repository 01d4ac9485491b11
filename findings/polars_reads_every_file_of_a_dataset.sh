#!/bin/bash
# One would guess: a directory of Parquet files may have a note beside them whose name begins with "_" or ".". Hive,
# Spark, pyarrow and pandas leave such names out when they read the directory.
# What happens: Polars does not. With a note in JSON, scan_parquet(directory) raises InvalidOperationError ("directory
# contained paths with different file extensions"); "_note.parquet" it tries to read. Only empty files, as Spark's
# _SUCCESS, are left out. So a note that every engine can live with lies outside of the directory.
# Seen with Polars 2.1.0, pandas 3.1.1, pyarrow 26.0.1.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check polars==2.1.0 pandas==3.1.1 pyarrow==26.0.1 2>/dev/null
"$place/venv/bin/python" - "$place" <<'END'
import os
import sys

import pandas
import polars
import pyarrow
import pyarrow.parquet


def read(name, content):
    place = os.path.join(sys.argv[1], name)
    for rank in (0, 1):
        os.makedirs(os.path.join(place, f"rank={rank}"))
        table = pyarrow.table({"value": [1.0]})
        pyarrow.parquet.write_table(table, os.path.join(place, f"rank={rank}", "rows.parquet"))
    with open(os.path.join(place, name), "wb") as note:
        note.write(content)
    try:
        by_polars = polars.scan_parquet(place).collect().height
    except polars.exceptions.PolarsError as error:
        by_polars = type(error).__name__
    return by_polars, len(pandas.read_parquet(place))


found = {name: read(name, content) for name, content in {"_note.json": b"{}", ".note.json": b"{}", "_SUCCESS": b""}.items()}
print("Polars", polars.__version__, "pandas", pandas.__version__, "pyarrow", pyarrow.__version__)
for name, (by_polars, by_pandas) in found.items():
    print(f"with {name}: Polars {by_polars}, pandas {by_pandas} rows")
assert found == {
    "_note.json": ("InvalidOperationError", 2),
    ".note.json": ("InvalidOperationError", 2),
    "_SUCCESS": (2, 2),
}, "this has changed"
END
