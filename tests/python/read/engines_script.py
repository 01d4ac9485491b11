# SPDX-License-Identifier: Apache-2.0
"""Reads a Parquet dataset with engines that people use, each by its own means; prints what it read as JSON.

argv: the dataset, then the engines: duckdb, polars, pandas, ray; analyse:duckdb, analyse:ray."""
import json
import os
import sys
from typing import Any, Callable, Iterable

COLUMNS = ["kind", "rank", "name", "step", "micro_step", "norm", "max"]


def cell(value: Any) -> Any:
    """Exact, and the same for every engine: numbers as hexadecimal text, a null as None."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, str):
        return value
    number = float(value)
    return "nan" if number != number else number.hex()


def of_duckdb(place: str) -> "Iterable[Any]":
    import duckdb

    columns = ", ".join(COLUMNS)
    source = f"read_parquet('{place}/*/*/*.parquet', hive_partitioning = true)"
    return duckdb.sql(f"SELECT {columns} FROM {source}").fetchall()


def of_polars(place: str) -> "Iterable[Any]":
    import polars

    return polars.scan_parquet(place, hive_partitioning=True, glob=True).select(COLUMNS).collect().rows()


def of_pandas(place: str) -> "Iterable[Any]":
    import pandas

    # Not NumPy's types: they cannot tell a null from a NaN.
    frame = pandas.read_parquet(place, columns=COLUMNS, dtype_backend="pyarrow")
    columns = [frame[name].array.__arrow_array__().to_pylist() for name in COLUMNS]
    return zip(*columns)


def begin_ray() -> None:
    """A local cluster of two workers."""
    import ray

    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False


def of_ray(place: str) -> "Iterable[Any]":
    import ray

    begin_ray()
    data = ray.data.read_parquet(
        place, columns=COLUMNS, partitioning=ray.data.datasource.Partitioning("hive")
    )
    rows = []
    for batch in data.iter_batches(batch_format="pyarrow"):
        rows += [tuple(row[name] for name in COLUMNS) for row in batch.to_pylist()]
    ray.shutdown()
    return rows


# The same as `gradmonctl analyse top` and `first` find; FORMAT.md has them for Spark, too.
TOP = """SELECT name, step, greatest(norm / before, before / norm) AS factor FROM (
  SELECT name, step, norm, lag(norm) OVER (PARTITION BY kind, rank, name ORDER BY step) AS before
  FROM read_parquet('{}/*/*/*.parquet', hive_partitioning = true) WHERE isfinite(norm))
  ORDER BY factor DESC NULLS LAST LIMIT 1"""
FIRST = """SELECT name, step FROM read_parquet('{}/*/*/*.parquet', hive_partitioning = true)
  WHERE NOT isfinite(norm) ORDER BY step, name LIMIT 1"""


def analysis_of_duckdb(place: str) -> "Iterable[Any]":
    import duckdb

    return [*duckdb.sql(TOP.format(place)).fetchall(), *duckdb.sql(FIRST.format(place)).fetchall()]


def analysis_of_ray(place: str) -> "Iterable[Any]":
    import numpy
    import ray

    begin_ray()

    def largest(rows: Any) -> Any:
        rows = rows.sort_values("step")
        norms = rows["norm"].to_numpy()
        factors = numpy.maximum(norms[1:] / norms[:-1], norms[:-1] / norms[1:])
        i = int(factors.argmax()) + 1
        return rows.iloc[[i]].assign(factor=factors[i - 1])[["name", "step", "factor"]]

    data = ray.data.read_parquet(place, partitioning=ray.data.datasource.Partitioning("hive"))
    finite = data.map_batches(lambda rows: rows[numpy.isfinite(rows["norm"])], batch_format="pandas")
    changes = finite.groupby(["kind", "rank", "name"]).map_groups(largest, batch_format="pandas")
    top = changes.sort("factor", descending=True).take(1)[0]
    broken = data.map_batches(lambda rows: rows[~numpy.isfinite(rows["norm"])], batch_format="pandas")
    first = broken.sort(["step", "name"]).take(1)[0]
    ray.shutdown()
    return [(top["name"], top["step"], top["factor"]), (first["name"], first["step"])]


ANALYSES = {"duckdb": analysis_of_duckdb, "ray": analysis_of_ray}
ENGINES: "dict[str, Callable[[str], Iterable[Any]]]" = {
    "duckdb": of_duckdb,
    "polars": of_polars,
    "pandas": of_pandas,
    "ray": of_ray,
}


def main() -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    found: "dict[str, Any]" = {}
    for engine in sys.argv[2:]:
        if engine.startswith("analyse:"):
            found[engine] = [list(row) for row in ANALYSES[engine[8:]](sys.argv[1])]
            continue
        rows = ENGINES[engine](sys.argv[1])
        found[engine] = sorted([*map(str, row[:2]), *map(cell, row[2:])] for row in rows)
    print(json.dumps(found, default=float))


if __name__ == "__main__":
    main()
