# SPDX-License-Identifier: Apache-2.0
"""gradmonctl query: SQL over the rows of all ranks, on DuckDB."""
import argparse
import csv
import decimal
import json
import math
import sys
from itertools import islice
from pathlib import Path
from typing import Any, Iterator

import duckdb

from gradmon_read import command_line
from gradmon_read.command_line import CommandError, UsageError, default_output_dir, require
from gradmon_read.listing import Table
from gradmon_read.rank_database import LAST_STEP, StoredFile, sql_name, sql_text, stored_files
from gradmon_read.vocabulary import ALERT_COLUMNS, FIELDS, SQL_FOLDS

MOST_TABLE_ROWS = 100_000

_TABLES = (
    "rows (run, rank, step, micro_step, kind, name, op, value, vpp_stage), steps (run, rank, step, kind, "
    "values), alerts, ranks (run, rank, path); v_metrics (rank, step, metric, target, vpp_stage, micro_step, "
    "op, value), v_nonfinite, v_layer_step, v_files (rank, run_id, path)"
)
_FILTERS = ("metric", "target", "op", "steps", "rank")


def perform(arguments: argparse.Namespace) -> int:
    filtered = any(getattr(arguments, name) is not None for name in _FILTERS)
    if not filtered and arguments.SQL is None:
        raise UsageError('expected "SQL" or --metric, --target, --op, --steps or --rank')
    places = list(arguments.RUN)
    if filtered and arguments.SQL is not None:
        places.insert(0, arguments.SQL)
    paths = [Path(place) for place in places or [default_output_dir()]]
    statement = _filter(arguments) if filtered else arguments.SQL
    database = duckdb.connect()
    stored = [stored_files(path) for path in paths]
    if all(stored):  # DuckDB itself reads Parquet files, on all cores; to import pyarrow takes 0.3 s
        files = [file for of_path in stored for file in of_path]
        _add_marks(database, files)
        _print(*_run(database, statement, files), arguments)
        return command_line.DONE
    return _query_rows(database, statement, paths, arguments)


def _query_rows(database: Any, statement: str, paths: "list[Path]", arguments: argparse.Namespace) -> int:
    """On rows that Python reads."""
    require("pyarrow", "gradmonctl query")
    from gradmon_read.rows import PartsDataset
    from gradmon_read.rows import find_sources
    from gradmon_read.csv_tables import keep_freed_memory

    keep_freed_memory()
    sources = find_sources(paths, arguments.run)
    for text in sources.notes:
        command_line.report(text)
    values = PartsDataset(sources.parts)
    database.register("rows", values)
    database.register("ranks", sources.ranks())
    database.register("alerts", sources.alerts())
    try:
        _print(*_run(database, statement, []), arguments)
    finally:
        for error in [*values.errors.values(), *sources.problems.messages()]:
            command_line.report(error)
    if not values.errors and not sources.problems.count:
        return command_line.DONE
    return command_line.PARTIAL if len(values.errors) < len(sources.parts) else command_line.FAILED


def _filter(arguments: argparse.Namespace) -> str:
    first, last = arguments.steps or (0, LAST_STEP)
    conditions = [f"step BETWEEN {first} AND {last}"]
    if arguments.metric:
        conditions.append(f"metric = {sql_text(arguments.metric)}")
    if arguments.target:  # "[" begins a class of characters in SQL's GLOB
        conditions.append(f"target GLOB {sql_text(arguments.target.replace('[', '[[]'))}")
    if arguments.op:
        conditions.append(f"op = {sql_text(arguments.op)}")
    if arguments.rank is not None:
        conditions.append(f"rank = {arguments.rank}")
    return f"SELECT * FROM v_metrics WHERE {' AND '.join(conditions)}"


_Rows = Iterator[tuple[Any, ...]]


def _run(database: Any, statement: str, files: "list[StoredFile]") -> "tuple[list[str], _Rows]":
    """Runs the one statement that reads. Returns titles and rows."""
    database.execute(_VIEWS)
    try:
        statements = database.extract_statements(statement)
        if not statements:
            raise CommandError(f"found no SQL statement; the tables are {_TABLES}")
        if len(statements) > 1:
            raise CommandError("expected one SQL statement; found more")
        if statements[0].type not in (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN):
            raise CommandError("expected an SQL statement that reads, such as SELECT")
        if files:
            _add_stored_rows(database, files, _wanted_ops(database, statement))
        # The query must not reach other files.
        database.execute("SET enable_external_access = false")
        database.execute("SET enable_progress_bar = false")  # after two seconds it would be among the rows
        database.execute("SET lock_configuration = true")
        found = database.execute(statements[0])
    except duckdb.Error as error:
        raise CommandError(f"{_first_line(error)}; the tables are {_TABLES}") from None
    return [column[0] for column in found.description], _fetched(found)


def _fetched(found: Any) -> _Rows:
    try:
        while rows := found.fetchmany(2000):
            yield from rows
    except duckdb.Error as error:
        raise CommandError(_first_line(error)) from None


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0].rstrip("!.")


_COLUMNS = "run, rank, step, micro_step, kind, name, op, value, vpp_stage"
# The least and the greatest row: DuckDB knows nothing else of the rows of a table of marks.
_MARKS = (
    "(SELECT * FROM (VALUES ('', 0, 0, NULL, '', '', '-inf'::DOUBLE, 0), "
    "('~', 9223372036854775807, 9223372036854775807, 2147483647, '~', '~', 'nan'::DOUBLE, 2147483647)) AS "
    "row(run, rank, step, micro_step, kind, name, value, vpp_stage))"
)


def _add_marks(database: Any, files: "list[StoredFile]") -> None:
    """Tables without the rows, for the views and _wanted_ops()."""
    for op in FIELDS:
        database.execute(f"CREATE TABLE mark_{op} AS {_MARKS}")
    marks = (f"SELECT *, '{op}' AS op FROM mark_{op}" for op in FIELDS)
    database.execute(f"CREATE VIEW rows AS SELECT {_COLUMNS} FROM ({' UNION ALL '.join(marks)})")
    ranks = dict.fromkeys((file.rank, str(file.path.parents[2])) for file in files)
    numbers, paths = map(list, zip(*ranks))
    select = "SELECT '' AS run, unnest(?::BIGINT[]) AS rank, unnest(?::VARCHAR[]) AS path"
    database.execute(f"CREATE TABLE ranks AS {select}", [numbers, paths])
    columns = ", ".join(f"{sql_name(name)} {type}" for name, type in ALERT_COLUMNS.items())
    database.execute(f"CREATE TABLE alerts ({columns})")


def _wanted_ops(database: Any, statement: str) -> "list[str]":
    """The statistics whose rows a statement can want: DuckDB leaves out the tables of the others."""
    try:
        plan = str(database.execute(f"EXPLAIN (FORMAT json) {statement}").fetchall())
    except duckdb.Error:
        return FIELDS
    return [op for op in FIELDS if f".mark_{op}\\" in plan] or FIELDS


def _add_stored_rows(database: Any, files: "list[StoredFile]", wanted: "list[str]") -> None:
    names = ", ".join(sql_text(str(file.path)) for file in files)
    source = f"read_parquet([{names}], hive_partitioning = true)"
    describe = f"DESCRIBE SELECT * FROM read_parquet({sql_text(str(files[0].path))})"  # all have its columns
    columns = [row[0] for row in database.execute(describe).fetchall() if row[0] in FIELDS]
    ops = ", ".join(sql_name(op) for op in columns if op in wanted) or sql_name(columns[0])
    database.execute(
        f"CREATE OR REPLACE VIEW rows AS SELECT '' AS run, {_COLUMNS[5:]} "
        f"FROM (UNPIVOT (SELECT * FROM {source}) ON {ops} INTO NAME op VALUE value)"
    )
    directories = ", ".join(dict.fromkeys(sql_text(str(file.path.parents[2])) for file in files))
    database.execute(f"SET allowed_directories = [{directories}]")


_VIEWS = rf"""
CREATE VIEW steps AS SELECT run, rank, step, kind, count(*) AS "values" FROM rows
  GROUP BY run, rank, step, kind ORDER BY ALL;
CREATE VIEW v_files AS SELECT rank, run AS run_id, path FROM ranks;
CREATE VIEW v_metrics AS SELECT rank, step, kind AS metric, name AS target, vpp_stage,
  coalesce(micro_step, 0) AS micro_step, op, value FROM rows;
CREATE VIEW v_nonfinite AS SELECT * FROM v_metrics WHERE NOT isfinite(value) OR (op = 'nans' AND value > 0);
CREATE VIEW v_layer_step AS SELECT rank, step, metric, vpp_stage, micro_step, layer, op,
  count(*) AS targets, count(*) FILTER (isnan(value)) AS nan_targets,
  min(value) FILTER (NOT isnan(value)) AS least, max(value) FILTER (NOT isnan(value)) AS greatest,
  CASE WHEN bool_or(isnan(value)) THEN NULL ELSE CASE op {SQL_FOLDS} END END AS value
  FROM (SELECT *, regexp_extract(target, '^([^.]*(?:\.[^.]*)*?\.[0-9]+)(?:\.|$)', 1) AS layer FROM v_metrics)
  WHERE layer <> '' GROUP BY rank, step, metric, vpp_stage, micro_step, layer, op ORDER BY ALL
"""


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return repr(value) if isinstance(value, float) else str(value)


def _print(titles: "list[str]", rows: _Rows, arguments: argparse.Namespace) -> None:
    if arguments.format == "table":
        _print_table(titles, rows, arguments.all)
    elif arguments.format == "csv":
        lines = csv.writer(sys.stdout, lineterminator="\n")
        lines.writerow(titles)
        lines.writerows(rows)  # which writes cells as _cell() does
    else:
        _print_json(titles, rows)


def _json(value: Any) -> str:
    number = isinstance(value, (int, decimal.Decimal)) or (isinstance(value, float) and math.isfinite(value))
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return _cell(value) if number else json.dumps(_cell(value), ensure_ascii=False)


def _print_json(titles: "list[str]", rows: _Rows) -> None:
    keys = [_json(title) for title in titles]
    before = "[\n"
    try:
        for row in rows:
            cells = ", ".join(f"{key}: {_json(value)}" for key, value in zip(keys, row))
            sys.stdout.write(f"{before} {{{cells}}}")
            before = ",\n"
    finally:
        sys.stdout.write("[]\n" if before == "[\n" else "\n]\n")


def _print_table(titles: "list[str]", found: _Rows, all: bool) -> None:
    """After an error the rows before it are printed."""
    rows: "list[tuple[Any, ...]]" = []
    try:
        rows.extend(islice(found, MOST_TABLE_ROWS + 1))
    finally:
        stopped = len(rows) > MOST_TABLE_ROWS
        del rows[MOST_TABLE_ROWS:]
        is_left = [isinstance(value, str) or value != value for value in (rows[0] if rows else titles)]
        table, cells = Table(titles, is_left), [list(map(_cell, row)) for row in rows]
        sys.stdout.write("\n".join(table.lines(cells)) + "\n" if all else table.shown(cells, "row"))
    if stopped:
        raise CommandError(
            f"stopped after {len(rows)} rows; use --format csv or json for more, or a narrower query"
        )
