# SPDX-License-Identifier: Apache-2.0
"""gradmonctl convert: turns what a job has written into another form (CONVERT.md). The modules that convert
are imported when they are needed: they need pyarrow."""
import argparse
import os
import re
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Optional

from gradmon_read.command_line import Argument, Command, CommandError, Group, UsageError, integer, require
from gradmon_read.vocabulary import ROW_KINDS

_RUN = Argument(
    "RUN",
    "the job's output directory, one rank's directory in it, or a\n"
    "run-ID.json (default: MONITOR_OUTPUT_DIR, else ./monitor_output);\n"
    "also, as in msprobe: --monitor-path RUN",
)
_RUN_ALONE = Argument(
    "RUN",
    "the job's output directory, one rank's directory in it, or a\n"
    "run-ID.json (default: MONITOR_OUTPUT_DIR, else ./monitor_output)",
)
_OPTIONS = [
    Argument("--monitor-path,--monitor_path", "", "RUN"),
    Argument(
        "--time-start,--time_start",
        "the earliest time in the name of a directory, such as\nDec03_21-34-40 (default: None, no limit)",
        "TIME",
    ),
    Argument("--time-end,--time_end", "the latest time (default: None, no limit)", "TIME"),
    Argument(
        "--process-num,--process_num",
        "so many threads read and convert at a time (default: 1)",
        "N",
        default=1,
        type=integer(1, 128),
    ),
    Argument(
        "--data-type-list,--data_type_list,--data-type,--data_type",
        "prefixes of files, such as actv grad_reduced (default: all)",
        "NAME...",
        default=(),
        many=True,
    ),
    Argument(
        "--output-dirpath,--output_dirpath,--output-dir,--output_dir",
        "where the output goes (default: a new directory, see below)",
        "DIR",
    ),
]


def command() -> Group:
    return Group(
        "convert",
        "Turn what a job has written into another form",
        [_csv2tb_command(), _csv2db_command(), _merge_command(), _parquet_command(), _trend_command()],
        "The commands read the output of gradmon and of msprobe, of a job that has ended or still runs.\n"
        "Rows that cannot be read are reported with file and line, and left out. The output appears\n"
        "when it is complete; if the command is interrupted, nothing appears.",
    )


def _csv2tb_command() -> Command:
    return Command(
        usage="convert csv2tb [RUN] [--output-dirpath DIR] [OPTIONS]",
        summary="Make event files of TensorBoard from CSV files",
        arguments=[
            _RUN,
            *_OPTIONS,
            Argument(
                "--tags",
                "the names of curves: gradmon (default) or msprobe",
                "FORM",
                default="gradmon",
                choices=("gradmon", "msprobe"),
            ),
        ],
        perform=_csv2tb,
        details="Makes DIR/rank{R}/{prefix}/events..., with one curve {prefix}_{op}/{name}[:micro{m}] for\n"
        "each column of numbers. Of an earlier conversion in DIR those that are made again are\n"
        "replaced, once all new ones are complete; all else in DIR stays. Without --output-dirpath\n"
        "DIR is {time}_csv2tensorboard_by_step beside the job's output directory. With --tags msprobe\n"
        "curves are vp{vpp}:{name}[:micro{m}]/{op}, and DIR is by default in the output directory.\n"
        "\n"
        "examples:\n"
        "  gradmonctl convert csv2tb monitor_output\n"
        "  tensorboard --logdir *_csv2tensorboard_by_step\n"
        "  gradmonctl convert csv2tb monitor_output --time-start Dec03_21-34-40 \\\n"
        "      --data-type-list actv grad_reduced --process-num 8 --output-dirpath curves",
    )


def _csv2db_command() -> Command:
    return Command(
        usage="convert csv2db [RUN] [--output-dirpath DIR] [OPTIONS]",
        summary="Make an SQLite database from CSV files",
        arguments=[
            _RUN,
            *_OPTIONS,
            Argument(
                "--step-partition,--step_partition",
                "steps of one table (default: 500)",
                "N",
                default=500,
                type=integer(10, 10_000_000),
            ),
        ],
        perform=_csv2db,
        details="Makes DIR/monitor_metrics.db, with the tables of msprobe's csv2db and the views of gradmon. "
        "A\n"
        "file of an earlier conversion is replaced once the new one is complete. Without\n"
        "--output-dirpath DIR is {time}_csv2db in the job's output directory. gradmonctl query reads it.\n"
        "\n"
        "examples:\n"
        "  gradmonctl convert csv2db monitor_output\n"
        "  gradmonctl convert csv2db monitor_output --data-type-list actv,other \\\n"
        "      --step-partition 1000 --output-dirpath job\n"
        "  gradmonctl query --metric actv --op norm job",
    )


def _merge_command() -> Command:
    return Command(
        usage="convert merge [RUN...] -o FILE",
        summary="Make one SQLite database of the output of a whole job",
        arguments=[
            Argument(
                "RUN",
                "the job's output directories (all their runs, the oldest first),\n"
                "directories of one rank, or run-ID.json (one run each)\n"
                "(default: MONITOR_OUTPUT_DIR, else ./monitor_output)",
                many=True,
            ),
            Argument(
                "-o,--output", "the database that is made; it must not be there yet", "FILE", required=True
            ),
        ],
        perform=_merge,
        details="Takes the databases and CSV files of all ranks. Beside the rows FILE has the job's ranks, "
        "hosts,\n"
        "configs by revision, versions and gaps (tables job_*; job_about says what each one is). Of a\n"
        "step that several runs have collected, the rows of the last RUN are taken. gradmonctl query\n"
        "reads FILE.\n"
        "\n"
        "examples:\n"
        "  gradmonctl convert merge monitor_output -o job.db\n"
        "  gradmonctl convert merge first/run-1a2b3c4d.json second/run-5e6f7a8b.json -o job.db\n"
        "  gradmonctl query --metric grad_reduced --op norm job.db",
    )


def _parquet_command() -> Command:
    return Command(
        usage="convert parquet [RUN] -o DIR",
        summary="Make a Parquet dataset of the output of a whole job",
        arguments=[
            _RUN_ALONE,
            Argument(
                "-o,--output", "the directory that is made; it must not be there yet", "DIR", required=True
            ),
        ],
        perform=_parquet,
        details="Makes DIR/rows/kind={prefix}/rank={R}/rows.parquet, sorted by name and step. DuckDB,\n"
        "Polars, pandas, Spark, Ray Data and Trino read DIR/rows as it lies. DIR/job.json has the\n"
        "configs by revision, hosts, versions and scopes. Takes the CSV files of the ranks, or their\n"
        "databases. Of a step that several starts have collected, the rows of the last one are taken.\n"
        "\n"
        "examples:\n"
        "  gradmonctl convert parquet monitor_output -o job\n"
        "  gradmonctl query --metric grad_reduced --op norm job",
    )


def _trend_command() -> Command:
    return Command(
        usage="convert trend [RUN] -o FILE",
        summary="Make a database for TrendVis, the TensorBoard plug-in of msprobe",
        arguments=[
            _RUN_ALONE,
            Argument(
                "-o,--output",
                "the file that is made, FILE.trend.db; it must not be there yet",
                "FILE",
                required=True,
            ),
        ],
        perform=_trend,
        details="Takes the CSV files of the ranks. The plug-in shows the first *.trend.db of its directory:\n"
        "heat maps over steps, ranks and modules, and curves.\n"
        "\n"
        "examples:\n"
        "  gradmonctl convert trend monitor_output -o curves/job.trend.db\n"
        "  tensorboard --logdir curves",
    )


class _Request(NamedTuple):
    """The checked options of csv2tb and csv2db."""

    path: Path
    first: Optional[int]
    last: Optional[int]
    kinds: "list[str]"
    output: Optional[Path]  # None: a new directory

    def new_directory(self, name: str, is_beside: bool) -> Path:
        """`{time}_{name}` in the input, or beside the job's output directory."""
        from gradmon_read.runs import parse_rank_directory

        directory = self.path if self.path.is_dir() else self.path.parent
        if is_beside:
            directory = Path(os.path.abspath(directory))
            if parse_rank_directory(directory.name):
                directory = directory.parent
            directory = directory.parent
            directory = Path() if directory == Path.cwd() else directory
        now = time.localtime()
        month = "JanFebMarAprMayJunJulAugSepOctNovDec"[3 * now.tm_mon - 3 :][:3]
        return directory / f"{month}{time.strftime('%d_%H-%M-%S', now)}_{name}"


def _request(arguments: argparse.Namespace, caller: str) -> _Request:
    """Raises UsageError with the found and the expected value."""
    require("pyarrow", f"gradmonctl convert {caller}")
    from gradmon_read.runs import default_output_dir, seconds_in_year

    times = []
    for option in ("time_start", "time_end"):
        text = getattr(arguments, option) or "None"
        times.append(None if text == "None" else seconds_in_year(text))
        if text != "None" and times[-1] is None:
            raise UsageError(
                f'--{option.replace("_", "-")}: found "{text}"; expected a time as in the names of '
                "directories, such as Dec03_21-34-40, or None"
            )
    first, last = times
    if first is not None and last is not None and first > last:
        raise UsageError(
            f"--time-start {arguments.time_start} is later than --time-end {arguments.time_end}; expected a "
            "time before it"
        )
    # "actv,grad_reduced", or as Python prints a list.
    names = [name for text in arguments.data_type_list for name in re.split(r"[\[\](), '\"]+", text)]
    names = [name for name in names if name and name != "None"]
    for name in names:
        if name not in ROW_KINDS:
            raise UsageError(f'--data-type-list: found "{name}"; expected {", ".join(ROW_KINDS)}')
    path = arguments.RUN or arguments.monitor_path
    output = arguments.output_dirpath
    return _Request(
        path=Path(path) if path else default_output_dir(),
        first=first,
        last=last,
        kinds=names,
        output=Path(output) if output and output != "None" else None,
    )


def _converted(request: _Request, target: Path, earlier: str, write: Any) -> int:
    """`write`: of the tasks into a path, with a meter and problems."""
    from gradmon_read.conversion import Conversion, run_conversion
    from gradmon_read.csv_tables import Problems
    from gradmon_read.rank_rows import chosen_directories, tasks_of

    problems = Problems()
    ranks = chosen_directories(request.path, request.first, request.last, problems)
    tasks, size = tasks_of(ranks, request.kinds, problems)
    numbers = [rank.rank for rank in ranks]
    conversion = Conversion(str(request.path), numbers, size, target, earlier, partial(write, tasks))
    return run_conversion(conversion, problems)


def _csv2tb(arguments: argparse.Namespace) -> int:
    request = _request(arguments, "csv2tb")
    require("google-crc32c", "gradmonctl convert csv2tb", "google_crc32c")
    from gradmon_read.conversion import CURVES
    from gradmon_read.csv2tb import write_curves

    is_msprobe = arguments.tags == "msprobe"
    target = request.output or request.new_directory("csv2tensorboard_by_step", is_beside=not is_msprobe)
    write = partial(write_curves, form=arguments.tags, processes=arguments.process_num)
    return _converted(request, target, CURVES, write)


def _csv2db(arguments: argparse.Namespace) -> int:
    request = _request(arguments, "csv2db")
    from gradmon_read.conversion import FILE, NOTHING
    from gradmon_read.metrics_database import write_database
    from gradmon_read.rank_database import FILE as NAME

    target = request.output or request.new_directory("csv2db", is_beside=False)
    write = partial(write_database, steps=arguments.step_partition)
    if not target.is_dir():
        return _converted(request, target, NOTHING, partial(write, name=NAME))
    if (target / NAME).exists():
        _check_replaceable(target / NAME)
    return _converted(request, target / NAME, FILE, write)


def _check_replaceable(database: Path) -> None:
    """Raises CommandError: a running job has, or may have, the database."""
    from gradmon_read.runs import directory_name, parse_rank_directory

    in_use = parse_rank_directory(directory_name(database.parent)) is not None
    if in_use or any(os.path.exists(f"{database}{end}") for end in ("-wal", "-journal")):
        raise CommandError(
            f"{database} is the database of a job, or in use; expected another --output-dirpath"
        )


def _merge(arguments: argparse.Namespace) -> int:
    require("pyarrow", "gradmonctl convert merge")
    from gradmon_read.merge import merge
    from gradmon_read.runs import default_output_dir

    places = [Path(place) for place in arguments.RUN] or [default_output_dir()]
    return merge(places, Path(arguments.o))


def _parquet(arguments: argparse.Namespace) -> int:
    for package in ("duckdb", "pyarrow"):
        require(package, "gradmonctl convert parquet")
    from gradmon_read.conversion import NOTHING, Conversion, run_conversion
    from gradmon_read.csv_tables import Problems
    from gradmon_read.database_rows import kinds_in
    from gradmon_read.parquet_dataset import write_dataset
    from gradmon_read.rank_rows import chosen_directories, tasks_of
    from gradmon_read.runs import default_output_dir

    path = Path(arguments.RUN) if arguments.RUN else default_output_dir()
    problems = Problems()
    ranks = chosen_directories(path, None, None, problems)
    tasks, size = tasks_of(ranks, [], problems)
    if not tasks:
        tasks, size = tasks_of(ranks, [], problems, kinds_in)[0], 0
    write = partial(write_dataset, tasks)
    conversion = Conversion(str(path), [rank.rank for rank in ranks], size, Path(arguments.o), NOTHING, write)
    return run_conversion(conversion, problems)


def _trend(arguments: argparse.Namespace) -> int:
    require("pyarrow", "gradmonctl convert trend")
    from gradmon_read.conversion import NOTHING
    from gradmon_read.runs import default_output_dir
    from gradmon_read.trend_database import write_trend

    path = Path(arguments.RUN) if arguments.RUN else default_output_dir()
    return _converted(_Request(path, None, None, [], None), Path(arguments.o), NOTHING, write_trend)
