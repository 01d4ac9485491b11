# SPDX-License-Identifier: Apache-2.0
"""The commands that gradmonctl starts here: their arguments and help. Each is carried out by the module that
it names, which is imported then: engines take time to load, and may be missing."""
import argparse

from gradmon_read.command_line import Argument, Command, Group, integer
from gradmon_read.rank_database import LAST_STEP
from gradmon_read.vocabulary import FIELDS, KINDS

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
_CONVERT_OPTIONS = [
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


_ANALYSE_OPTIONS = [
    _RUN_ALONE,
    Argument(
        "--run",
        "the run with this id, as in the names of the directories\n(default: the newest one in RUN)",
        "ID",
        "",
    ),
    Argument(
        "--flight",
        "read the steps that led up to alerts, which the flight recorder\n"
        "wrote (keep_last), instead of the collected steps",
    ),
]
_JSON = Argument("--json", "one JSON object")


def _steps(text: str) -> "tuple[int, int]":
    first, colon, last = text.partition(":")
    last = last if colon else first
    numbers = all(part.isascii() and part.isdigit() for part in (first, last) if part)
    bounds = (int(first or 0), int(last or LAST_STEP)) if numbers and text else (1, 0)
    if bounds[0] > bounds[1] or bounds[1] > LAST_STEP:
        raise argparse.ArgumentTypeError(f'found "{text}", expected steps such as 100:200, 100:, :200 or 100')
    return bounds


_FIRST = Command(
    "analyse first [RUN] [--run ID] [--flight] [--json]",
    "Find the job's first value that is not finite, and what was around it",
    [*_ANALYSE_OPTIONS, _JSON],
    "first_not_finite",
    "The first one by step and micro step; in these by the order of computation: what the step\n"
    "begins with (weights, moments), forward, backward, reduced gradients, updated weights,\n"
    "scalars; then by the order of the rows, and by rank. A tensor that holds an infinity in every\n"
    "row from the first collected step on, as an attention mask does, is left out; one line names it.\n"
    "\n"
    "examples:\n"
    "  gradmonctl analyse first monitor_output\n"
    "  gradmonctl analyse first --json monitor_output | jq .first.step",
    needs=("pyarrow",),
)
_TOP = Command(
    "analyse top [RUN] [--run ID] [--flight] [--count N] [--json]",
    "Show the layers that stand out: largest change, not finite, dead, exploding",
    [
        *_ANALYSE_OPTIONS,
        Argument("--count", "entries of each list (default: 8; fewer on a small screen)", "N", 8, integer(1)),
        _JSON,
    ],
    "layer_changes",
    "The size of a tensor is its norm, else the largest magnitude of min and max, else |mean|.\n"
    "  change     by what factor the size differs from that of the collected step before, up or\n"
    "             down; sizes count as at least 1e-6 of the largest one before\n"
    "  dead       the last 2 or more steps have a size of 0, or at most 1e-6 of the largest one\n"
    "  exploding  the median of the last 3 sizes is at least 10 times the median of the first 5\n"
    "\n"
    "examples:\n"
    "  gradmonctl analyse top monitor_output\n"
    "  gradmonctl analyse top monitor_output --run 1a2b3c4d --count 20",
    needs=("pyarrow",),
)
_DIFF = Command(
    "analyse diff RUN_A RUN_B [--run-a ID] [--run-b ID] [--tolerance X] [--absolute X] [--all] [--json]",
    "Find where two runs first part, and how they part from there",
    [
        Argument("RUN_A", "the job's output directory, as RUN of `analyse first`", required=True),
        Argument("RUN_B", "the one to compare with it", required=True),
        Argument("--run-a", "the run with this id in RUN_A (default: the newest one)", "ID", ""),
        Argument("--run-b", "the run with this id in RUN_B (default: the newest one)", "ID", ""),
        Argument("--tolerance", "relative to the larger of two values (default: 1e-5)", "X", "1e-5"),
        Argument("--absolute", "in the unit of the values (default: 1e-6)", "X", "1e-6"),
        Argument("--all", "list every step and rank"),
        _JSON,
    ],
    "divergence",
    "Rows are compared that have the same rank, kind, layer, step and micro step in both runs,\n"
    "but for iteration-time, throughput and other scalars of the clock.\n"
    "Values part if they differ by more than both tolerances; NaN equals NaN. The defaults leave\n"
    "out what rounding to 6 decimals makes; --tolerance 0 --absolute 0 compares exactly.\n"
    "Ends with 0 if no value parts, with 1 if one does.\n"
    "\n"
    "examples:\n"
    "  gradmonctl analyse diff runs/before runs/after\n"
    "  gradmonctl analyse diff monitor_output monitor_output --run-a 1a2b3c4d --tolerance 1e-3",
    needs=("pyarrow",),
)
_ANOMALIES = Command(
    "analyse anomalies [RUN] [-o DIR] [-k N] [-s STEPS] [--json]",
    "Sort the alerts of all ranks, and write the first ones to anomaly_analyse.json",
    [
        Argument(
            "RUN",
            "the job's output directory, or that of the dumps in it\n"
            "(default: MONITOR_OUTPUT_DIR, else ./monitor_output);\n"
            "also, as in msprobe: -d RUN",
        ),
        Argument("-d,--data-path,--data_path", "", "RUN"),
        Argument(
            "-o,--out-path,--out_path",
            "the directory of anomaly_analyse.json\n(default: the directory of the dumps)",
            "DIR",
        ),
        Argument("-k,--topk", "how many to keep (default: 8)", "N", 8, integer(1)),
        Argument("-s,--step-list,--step_list,--step", "these steps alone: [1,2] (default: all)", "STEPS", ""),
        Argument("--json", "one JSON object on stdout, beside the file"),
    ],
    "anomaly_dumps",
    "Takes the dumps rank{R}/anomaly.json of gradmon or of msprobe, and writes what msprobe's\n"
    "anomaly_processor writes. The first anomaly is the one to look at.\n"
    "\n"
    "examples:\n"
    "  gradmonctl analyse anomalies monitor_output\n"
    "  gradmonctl analyse anomalies monitor_output -k 20 -s '[100, 101]'",
)
_PLOT = Command(
    "analyse plot [RUN] -o FILE [--run ID] [--flight] [--metric KIND] [--op OP] [--target NAME] "
    "[--rank R] [--json]",
    "Draw a heat map, layer or bin over step",
    [
        *_ANALYSE_OPTIONS,
        Argument(
            "-o,--output",
            "the picture, FILE.svg or FILE.png, or an interactive page, FILE.html;\n" "replaced if it exists",
            "FILE",
            required=True,
        ),
        Argument(
            "--metric",
            "as in the names of the files (default: grad_reduced,\nelse the first kind that is there)",
            "KIND",
            choices=KINDS,
        ),
        Argument("--op", "the statistic (default: norm, else the first that is there)", "OP", choices=FIELDS),
        Argument(
            "--target",
            "these layers alone: a name, which includes what is below it,\nor a pattern with * and ?",
            "NAME",
            "",
        ),
        Argument("--rank", "this rank alone (default: the largest of all ranks)", "R", type=integer(0)),
        Argument("--json", "one JSON object about the file, on stdout"),
    ],
    "heat_map",
    "A cell is the largest magnitude of the values in it, over ranks, micro steps and, in a long\n"
    "run, neighbouring steps and layers: no spike is lost. NaN, infinities and 0 have colours of\n"
    "their own. Steps without rows are left out.\n"
    "\n"
    "The kinds update and ratio are histograms of one parameter, from TensorBoard's files: a cell is "
    "the\nnumber of values in a bin, and --target names the parameter.\n"
    "\n"
    "examples:\n"
    "  gradmonctl analyse plot monitor_output -o heatmap.svg\n"
    "  gradmonctl analyse plot monitor_output -o heatmap.html --metric actv\n"
    "  gradmonctl analyse plot monitor_output -o actv.svg --metric actv --op max --target 'layers.3.*'\n"
    "  gradmonctl analyse plot monitor_output -o update.svg --metric update --target fc1.weight",
    needs=("pyarrow", "matplotlib", "google-crc32c"),
)
_CSV2TB = Command(
    usage="convert csv2tb [RUN] [--output-dirpath DIR] [OPTIONS]",
    summary="Make event files of TensorBoard from CSV files",
    arguments=[
        _RUN,
        *_CONVERT_OPTIONS,
        Argument(
            "--tags",
            "the names of curves: gradmon (default) or msprobe",
            "FORM",
            default="gradmon",
            choices=("gradmon", "msprobe"),
        ),
    ],
    module="csv2tb",
    needs=("pyarrow", "google-crc32c"),
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
_CSV2DB = Command(
    usage="convert csv2db [RUN] [--output-dirpath DIR] [OPTIONS]",
    summary="Make an SQLite database from CSV files",
    arguments=[
        _RUN,
        *_CONVERT_OPTIONS,
        Argument(
            "--step-partition,--step_partition",
            "steps of one table (default: 500)",
            "N",
            default=500,
            type=integer(10, 10_000_000),
        ),
    ],
    module="metrics_database",
    needs=("pyarrow",),
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
_MERGE = Command(
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
        Argument("-o,--output", "the database that is made; it must not be there yet", "FILE", required=True),
    ],
    module="merge",
    needs=("pyarrow",),
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
_PARQUET = Command(
    usage="convert parquet [RUN] -o DIR",
    summary="Make a Parquet dataset of the output of a whole job",
    arguments=[
        _RUN_ALONE,
        Argument("-o,--output", "the directory that is made; it must not be there yet", "DIR", required=True),
    ],
    module="parquet_dataset",
    needs=("duckdb", "pyarrow"),
    details="Makes DIR/rows/kind={prefix}/rank={R}/rows.parquet, sorted by name and step. DuckDB,\n"
    "Polars, pandas, Spark, Ray Data and Trino read DIR/rows as it lies. DIR/job.json has the\n"
    "configs by revision, hosts, versions and scopes. Takes the CSV files of the ranks, or their\n"
    "databases. Of a step that several starts have collected, the rows of the last one are taken.\n"
    "\n"
    "examples:\n"
    "  gradmonctl convert parquet monitor_output -o job\n"
    "  gradmonctl query --metric grad_reduced --op norm job",
)
_TREND = Command(
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
    module="trend_database",
    needs=("pyarrow",),
    details="Takes the CSV files of the ranks. The plug-in shows the first *.trend.db of its directory:\n"
    "heat maps over steps, ranks and modules, and curves.\n"
    "\n"
    "examples:\n"
    "  gradmonctl convert trend monitor_output -o curves/job.trend.db\n"
    "  tensorboard --logdir curves",
)

COMMANDS: "dict[str, Command | Group]" = {
    "analyse": Group(
        "analyse",
        "Search what a job has written, without the job",
        [_FIRST, _TOP, _DIFF, _ANOMALIES, _PLOT],
        "The commands read the CSV files of gradmon and of msprobe, of a job that has ended or\n"
        "still runs. Rows that cannot be read are reported with file and line, and left out.",
    ),
    "convert": Group(
        "convert",
        "Turn what a job has written into another form",
        [_CSV2TB, _CSV2DB, _MERGE, _PARQUET, _TREND],
        "The commands read the output of gradmon and of msprobe, of a job that has ended or still runs.\n"
        "Rows that cannot be read are reported with file and line, and left out. The output appears\n"
        "when it is complete; if the command is interrupted, nothing appears.",
    ),
    "import": Command(
        "import FILE [--output FILE]",
        "Make a config file of a MindSpore Transformers YAML file's monitoring keys",
        [
            Argument("FILE", "the YAML file", required=True),
            Argument(
                "--output", "the config file to make, which must not exist yet\n(default: stdout)", "FILE"
            ),
        ],
        "mindformers",
        needs=("PyYAML",),
    ),
    "query": Command(
        'query ("SQL" | --metric NAME ...) [RUN...] [--format table|csv|json]',
        "Search the rows of all ranks",
        [
            Argument(
                "SQL",
                "a statement on rows, steps, alerts, ranks, v_metrics, v_nonfinite,\nv_layer_step or v_files",
            ),
            Argument(
                "RUN",
                "the job's output directories, directories of one rank, databases, or\n"
                "Parquet datasets (default: MONITOR_OUTPUT_DIR, else ./monitor_output)",
                many=True,
            ),
            Argument("--metric", "instead of SQL: a kind of row, as grad_reduced", "NAME"),
            Argument("--target", "a pattern of target names with * and ?, as 'layers.3.*'", "GLOB"),
            Argument("--op", "a statistic, as norm", "NAME"),
            Argument("--steps", "steps, as 100:200, 100:, :200 or 100", "RANGE", type=_steps),
            Argument("--rank", "one rank", "RANK", type=integer(0)),
            Argument("--run", "8 hex digits of a run's directories (default: the newest run)", "ID"),
            Argument(
                "--format",
                "table (default), csv or json",
                "FORMAT",
                "table",
                choices=["table", "csv", "json"],
            ),
            Argument("--all", "print the whole list and whole lines even in a terminal"),
        ],
        "query",
        needs=("duckdb",),
    ),
}
