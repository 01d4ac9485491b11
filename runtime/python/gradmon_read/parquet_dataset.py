# SPDX-License-Identifier: Apache-2.0
"""gradmonctl convert parquet: a Parquet dataset of the rows of all ranks (FORMAT.md, "Parquet"). Needs duckdb
and pyarrow."""
import json
from pathlib import Path
from typing import Any, Iterable, Iterator

import duckdb
import pyarrow
from pyarrow import compute

from gradmon_read.command_line import CommandError
from gradmon_read.conversion import Interrupted, Meter
from gradmon_read.csv_tables import Problems
from gradmon_read.rank_database import FILE, RankFile
from gradmon_read.rank_rows import RankInput, RankRows, Rows, Task
from gradmon_read.row_parts import Scan
from gradmon_read.rows import database_part, plain_table
from gradmon_read.runs import id_of_run_file, read_json
from gradmon_read.vocabulary import COLUMN_ORDER, ROW_KINDS

# Beside the dataset, not in it: Polars refuses another file in there, even under a name that begins with "_".
ABOUT = "job.json"
ROWS = "rows"
_MOST_BYTES_OF_JSON = 64 << 20
_KEY = ["name", "vpp_stage", "step", "micro_step"]
_ROWS_OF_A_GROUP = 32_768  # a query for one name reads one group of each file
SCHEMA = pyarrow.schema(
    [
        *(("name", "string"), ("vpp_stage", "int32"), ("step", "int64"), ("micro_step", "int32")),
        *(("shape", "string"), ("dtype", "string")),
        *((op, "float64") for op in COLUMN_ORDER),
    ]
)


def write_dataset(tasks: "list[Task]", path: Path, meter: Meter, problems: Problems) -> None:
    """Makes the directory: rows/kind=KIND/rank=RANK/rows.parquet, and what is known of the job. Each file
    has all columns; rows are sorted by name and step. Raises CommandError, Interrupted."""
    path.mkdir(0o750)
    ranks = {task.rank.rank: task.rank for task in tasks}
    _write_about(list(ranks.values()), path / ABOUT, problems)
    with _engine(path) as engine:
        for task in tasks:
            rows = RankRows(task.files(problems), meter, problems)
            _write_file(engine, _tables(rows), _file(path, task.kind, task.rank.rank), meter)


def write_databases(ranks: "list[RankInput]", path: Path, meter: Meter, problems: Problems) -> None:
    """The same of ranks that have databases. If several starts have collected a step, the rows of the last
    one are taken."""
    path.mkdir(0o750)
    _write_about(ranks, path / ABOUT, problems)
    with _engine(path) as engine:
        for rank in ranks:
            files = [
                RankFile(start / FILE, rank.rank, "") for start in rank.starts if (start / FILE).is_file()
            ]
            for kind in ROW_KINDS:
                tables = _database_tables(files, kind, meter)
                _write_file(engine, tables, _file(path, kind, rank.rank), meter)


def _engine(path: Path) -> Any:
    """A DuckDB that sorts with bounded memory; it puts the rest beside the output."""
    settings = {"memory_limit": "512MB", "temp_directory": str(path.with_name("sorting"))}
    engine = duckdb.connect(config=settings)
    engine.execute("SET enable_progress_bar = false")
    return engine


def _file(path: Path, kind: str, rank: int) -> Path:
    return path / ROWS / f"kind={kind}" / f"rank={rank}" / "rows.parquet"


def _tables(rows: "Iterable[Rows]") -> "Iterator[pyarrow.Table]":
    for of_file in rows:
        yield plain_table(pyarrow.Table.from_batches([of_file.batch]))


def _database_tables(files: "list[RankFile]", kind: str, meter: Meter) -> "Iterator[pyarrow.Table]":
    scan = Scan(compute.field("kind") == kind)
    for start, file in enumerate(files):
        for _, table in database_part(file).tables(scan):
            meter.add(rows=table.num_rows)
            yield table.append_column("start", pyarrow.nulls(table.num_rows, "int64").fill_null(start))


def _write_file(engine: Any, tables: "Iterator[pyarrow.Table]", file: Path, meter: Meter) -> None:
    """No file without rows."""
    first = next(tables, None)
    if first is None:
        return
    file.parent.mkdir(0o750, parents=True)
    has_starts = "start" in first.column_names
    schema = SCHEMA.append(pyarrow.field("start", "int64")) if has_starts else SCHEMA
    batches = _batches(first, tables, schema)
    source = pyarrow.RecordBatchReader.from_batches(schema, batches)
    newest = " QUALIFY start = max(start) OVER (PARTITION BY step)" if has_starts else ""
    columns = ", ".join(f'"{name}"' for name in SCHEMA.names)
    try:
        engine.register("source", source)
        engine.execute(
            f"COPY (SELECT {columns} FROM source{newest} ORDER BY {', '.join(_KEY)} NULLS FIRST) TO "
            f"{_quoted(file)} (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {_ROWS_OF_A_GROUP})"
        )
    except duckdb.Error as error:
        if meter.signal:
            raise Interrupted from None
        raise CommandError(f"cannot write {file}: {str(error).splitlines()[0]}") from None
    finally:
        engine.unregister("source")


def _batches(
    first: pyarrow.Table, others: "Iterator[pyarrow.Table]", schema: pyarrow.Schema
) -> "Iterator[pyarrow.RecordBatch]":
    for tables in ([first], others):
        for table in tables:
            missing = [field for field in schema if field.name not in table.column_names]
            for field in missing:
                table = table.append_column(field, pyarrow.nulls(table.num_rows, field.type))
            yield from table.select(schema.names).cast(schema).to_batches()


def _quoted(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"


def _write_about(ranks: "list[RankInput]", file: Path, problems: Problems) -> None:
    """The runs with their configs by revision, hosts and versions, and the scopes of the ranks' rows."""
    directories = [start for rank in ranks for start in rank.starts]
    found: "dict[str, Any]" = {}
    for output in dict.fromkeys(directory.absolute().parent for directory in directories):
        for run_file in sorted(output.glob("run-*.json")):
            run = id_of_run_file(run_file.name)
            if any(directory.name.endswith(f"-{run}") for directory in directories):
                _read_into(found, run, run_file, problems)
    scopes: "dict[str, Any]" = {}
    for rank in ranks:
        for start in rank.starts:
            if (start / "scopes.json").is_file():
                _read_into(scopes, str(rank.rank), start / "scopes.json", problems)
    about = {"format": 1, "runs": found, "scopes": {rank: one.get("targets") for rank, one in scopes.items()}}
    file.write_text(json.dumps(about, ensure_ascii=False) + "\n")


def _read_into(found: "dict[str, Any]", key: str, file: Path, problems: Problems) -> None:
    try:
        content = read_json(file, _MOST_BYTES_OF_JSON)
    except (OSError, ValueError) as error:
        problems.add(file, 0, str(error))
        return
    if isinstance(content, dict):
        found[key] = content
