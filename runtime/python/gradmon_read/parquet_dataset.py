# SPDX-License-Identifier: Apache-2.0
"""gradmonctl convert parquet: a Parquet dataset of the rows of all ranks (FORMAT.md, "Parquet"). Needs duckdb
and pyarrow."""
import argparse
import json
from pathlib import Path
from typing import Any

import duckdb
import numpy
import pyarrow

from gradmon_read.command_line import CommandError
from gradmon_read.conversion import NOTHING, Interrupted, Meter, RankInput, RankRows, Task, converted
from gradmon_read.conversion import request_of
from gradmon_read.kind_rows import Batch, database_kinds
from gradmon_read.listing import Problems
from gradmon_read.rank_database import sql_text
from gradmon_read.rows import strings
from gradmon_read.runs import id_of_run_file, read_json
from gradmon_read.vocabulary import COLUMN_ORDER

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
            file = path / ROWS / f"kind={task.kind}" / f"rank={task.rank.rank}" / "rows.parquet"
            _write_file(engine, task.rows(meter, problems), file, meter)


def _engine(path: Path) -> Any:
    """A DuckDB that sorts with bounded memory; it puts the rest beside the output."""
    settings = {"memory_limit": "512MB", "temp_directory": str(path.with_name("sorting"))}
    engine = duckdb.connect(config=settings)
    engine.execute("SET enable_progress_bar = false")
    return engine


def _write_file(engine: Any, rows: RankRows, file: Path, meter: Meter) -> None:
    """No file without rows."""
    batches = iter(rows)
    first = next(batches, None)
    if first is None:
        return
    file.parent.mkdir(0o750, parents=True)
    made = (record for few in ([first], batches) for batch in few for record in _records(batch, rows))
    columns = ", ".join(f'"{name}"' for name in SCHEMA.names)
    try:
        engine.register("source", pyarrow.RecordBatchReader.from_batches(SCHEMA, made))
        engine.execute(
            f"COPY (SELECT {columns} FROM source ORDER BY {', '.join(_KEY)} NULLS FIRST) TO "
            f"{sql_text(str(file))} (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {_ROWS_OF_A_GROUP})"
        )
    except duckdb.Error as error:
        if meter.signal:
            raise Interrupted from None
        raise CommandError(f"cannot write {file}: {str(error).splitlines()[0]}") from None
    finally:
        engine.unregister("source")


def _records(batch: Batch, rows: RankRows) -> "list[pyarrow.RecordBatch]":
    nulls = pyarrow.nulls(batch.rows)
    numbers, index = numpy.unique(batch.name, return_inverse=True)
    targets = [rows.target(number) for number in numbers.tolist()]
    micro_steps = numpy.array([target.micro_step for target in targets])[index]
    found: "dict[str, Any]" = {
        "name": strings(pyarrow.array([target.name for target in targets], "binary")).take(
            pyarrow.array(index)
        ),
        "vpp_stage": pyarrow.array(batch.stage),
        "step": pyarrow.array(batch.step),
        "micro_step": pyarrow.array(micro_steps, mask=micro_steps < 0),
    }
    for name, of_rows, all_texts in (
        ("shape", batch.shape, batch.shapes),
        ("dtype", batch.dtype, batch.dtypes),
    ):
        if all_texts != [b""]:  # the file has no such column
            found[name] = strings(pyarrow.array(all_texts, "binary")).take(pyarrow.array(of_rows))
    for op, column in batch.values.items():
        found[op] = pyarrow.array(column, mask=batch.absent.get(op))
    table = pyarrow.table({name: found.get(name, nulls) for name in SCHEMA.names})
    batches: "list[pyarrow.RecordBatch]" = table.cast(SCHEMA).to_batches()
    return batches


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


def perform(arguments: argparse.Namespace) -> int:
    return converted(request_of(arguments), Path(arguments.o), NOTHING, write_dataset, database_kinds)
