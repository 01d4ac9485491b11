# SPDX-License-Identifier: Apache-2.0
"""The commands that gradmonctl starts here: their arguments and help. Each is carried out by the module that
it names, which is imported then: engines take time to load, and may be missing."""
import argparse

from gradmon_read.command_line import Command, Group, Value, command_of, integer
from gradmon_read.rank_database import LAST_STEP
from gradmon_read.vocabulary import FIELDS, KINDS

# Arguments of several commands.
_SHARED = {
    "RUN": """\
RUN  the job's output directory, one rank's directory in it, or a
     run-ID.json (default: MONITOR_OUTPUT_DIR, else ./monitor_output)""",
    "ANALYSE": """\
--run ID  the run with this id, as in the names of the directories
          (default: the newest one in RUN)
--flight  read the steps that led up to alerts, which the flight recorder
          wrote (keep_last), instead of the collected steps""",
    "CONVERT": """\
RUN  the job's output directory, one rank's directory in it, or a
     run-ID.json (default: MONITOR_OUTPUT_DIR, else ./monitor_output);
     also, as in msprobe: --monitor-path RUN
--monitor-path, --monitor_path RUN
--time-start, --time_start TIME  the earliest time in the name of a directory, such as
                                 Dec03_21-34-40 (default: None, no limit)
--time-end, --time_end TIME  the latest time (default: None, no limit)
--process-num, --process_num N  so many threads read and convert at a time (default: 1)
--data-type-list, --data_type_list, --data-type, --data_type NAME...  \
prefixes of files, such as actv grad_reduced (default: all)
--output-dirpath, --output_dirpath, --output-dir, --output_dir DIR  \
where the output goes (default: a new directory, see below)""",
}
_RUN_ID, _REQUIRED, _COUNT = Value(""), Value(required=True), Value(8, integer(1))
_CONVERT = {"process_num": Value(1, integer(1, 128)), "data_type_list": Value((), many=True)}


def _steps(text: str) -> "tuple[int, int]":
    first, colon, last = text.partition(":")
    last = last if colon else first
    numbers = all(part.isascii() and part.isdigit() for part in (first, last) if part)
    bounds = (int(first or 0), int(last or LAST_STEP)) if numbers and text else (1, 0)
    if bounds[0] > bounds[1] or bounds[1] > LAST_STEP:
        raise argparse.ArgumentTypeError(f'found "{text}", expected steps such as 100:200, 100:, :200 or 100')
    return bounds


def _command(module: str, needs: str, text: str, values: "dict[str, Value]") -> Command:
    for name, shared in _SHARED.items():
        text = text.replace(f"<{name}>", shared)
    return command_of(module, needs.split(), text, values)


_FIRST = """\
analyse first [RUN] [--run ID] [--flight] [--json]
Find the job's first value that is not finite, and what was around it

<RUN>
<ANALYSE>
--json  one JSON object

The first one by step and micro step; in these by the order of computation: what the step
begins with (weights, moments), forward, backward, reduced gradients, updated weights,
scalars; then by the order of the rows, and by rank. A tensor that holds an infinity in every
row from the first collected step on, as an attention mask does, is left out; one line names it.

examples:
  gradmonctl analyse first monitor_output
  gradmonctl analyse first --json monitor_output | jq .first.step"""
_TOP = """\
analyse top [RUN] [--run ID] [--flight] [--count N] [--json]
Show the layers that stand out: largest change, not finite, dead, exploding

<RUN>
<ANALYSE>
--count N  entries of each list (default: 8; fewer on a small screen)
--json  one JSON object

The size of a tensor is its norm, else the largest magnitude of min and max, else |mean|.
  change     by what factor the size differs from that of the collected step before, up or
             down; sizes count as at least 1e-6 of the largest one before
  dead       the last 2 or more steps have a size of 0, or at most 1e-6 of the largest one
  exploding  the median of the last 3 sizes is at least 10 times the median of the first 5

examples:
  gradmonctl analyse top monitor_output
  gradmonctl analyse top monitor_output --run 1a2b3c4d --count 20"""
_DIFF = """\
analyse diff RUN_A RUN_B [--run-a ID] [--run-b ID] [--tolerance X] [--absolute X] [--all] [--json]
Find where two runs first part, and how they part from there

RUN_A  the job's output directory, as RUN of `analyse first`
RUN_B  the one to compare with it
--run-a ID  the run with this id in RUN_A (default: the newest one)
--run-b ID  the run with this id in RUN_B (default: the newest one)
--tolerance X  relative to the larger of two values (default: 1e-5)
--absolute X  in the unit of the values (default: 1e-6)
--all  list every step and rank
--json  one JSON object

Rows are compared that have the same rank, kind, layer, step and micro step in both runs,
but for iteration-time, throughput and other scalars of the clock.
Values part if they differ by more than both tolerances; NaN equals NaN. The defaults leave
out what rounding to 6 decimals makes; --tolerance 0 --absolute 0 compares exactly.
Ends with 0 if no value parts, with 1 if one does.

examples:
  gradmonctl analyse diff runs/before runs/after
  gradmonctl analyse diff monitor_output monitor_output --run-a 1a2b3c4d --tolerance 1e-3"""
_ANOMALIES = """\
analyse anomalies [RUN] [-o DIR] [-k N] [-s STEPS] [--json]
Sort the alerts of all ranks, and write the first ones to anomaly_analyse.json

RUN  the job's output directory, or that of the dumps in it
     (default: MONITOR_OUTPUT_DIR, else ./monitor_output);
     also, as in msprobe: -d RUN
-d, --data-path, --data_path RUN
-o, --out-path, --out_path DIR  the directory of anomaly_analyse.json
                                (default: the directory of the dumps)
-k, --topk N  how many to keep (default: 8)
-s, --step-list, --step_list, --step STEPS  these steps alone: [1,2] (default: all)
--json  one JSON object on stdout, beside the file

Takes the dumps rank{R}/anomaly.json of gradmon or of msprobe, and writes what msprobe's
anomaly_processor writes. The first anomaly is the one to look at.

examples:
  gradmonctl analyse anomalies monitor_output
  gradmonctl analyse anomalies monitor_output -k 20 -s '[100, 101]'"""
_PLOT = """\
analyse plot [RUN] -o FILE [--run ID] [--flight] [--metric KIND] [--op OP] [--target NAME] [--rank R] \
[--json]
Draw a heat map, layer or bin over step

<RUN>
<ANALYSE>
-o, --output FILE  the picture, FILE.svg or FILE.png, or an interactive page, FILE.html;
                   replaced if it exists
--metric KIND  as in the names of the files (default: grad_reduced,
               else the first kind that is there)
--op OP  the statistic (default: norm, else the first that is there)
--target NAME  these layers alone: a name, which includes what is below it,
               or a pattern with * and ?
--rank R  this rank alone (default: the largest of all ranks)
--json  one JSON object about the file, on stdout

A cell is the largest magnitude of the values in it, over ranks, micro steps and, in a long
run, neighbouring steps and layers: no spike is lost. NaN, infinities and 0 have colours of
their own. Steps without rows are left out.

The kinds update and ratio are histograms of one parameter, from TensorBoard's files: a cell is the
number of values in a bin, and --target names the parameter.

examples:
  gradmonctl analyse plot monitor_output -o heatmap.svg
  gradmonctl analyse plot monitor_output -o heatmap.html --metric actv
  gradmonctl analyse plot monitor_output -o actv.svg --metric actv --op max --target 'layers.3.*'
  gradmonctl analyse plot monitor_output -o update.svg --metric update --target fc1.weight"""
_CSV2TB = """\
convert csv2tb [RUN] [--output-dirpath DIR] [OPTIONS]
Make event files of TensorBoard from CSV files

<CONVERT>
--tags FORM  the names of curves: gradmon (default) or msprobe

Makes DIR/rank{R}/{prefix}/events..., with one curve {prefix}_{op}/{name}[:micro{m}] for
each column of numbers. Of an earlier conversion in DIR those that are made again are
replaced, once all new ones are complete; all else in DIR stays. Without --output-dirpath
DIR is {time}_csv2tensorboard_by_step beside the job's output directory. With --tags msprobe
curves are vp{vpp}:{name}[:micro{m}]/{op}, and DIR is by default in the output directory.

examples:
  gradmonctl convert csv2tb monitor_output
  tensorboard --logdir *_csv2tensorboard_by_step
  gradmonctl convert csv2tb monitor_output --time-start Dec03_21-34-40 \\
      --data-type-list actv grad_reduced --process-num 8 --output-dirpath curves"""
_CSV2DB = """\
convert csv2db [RUN] [--output-dirpath DIR] [OPTIONS]
Make an SQLite database from CSV files

<CONVERT>
--step-partition, --step_partition N  steps of one table (default: 500)

Makes DIR/monitor_metrics.db, with the tables of msprobe's csv2db and the views of gradmon. A
file of an earlier conversion is replaced once the new one is complete. Without
--output-dirpath DIR is {time}_csv2db in the job's output directory. gradmonctl query reads it.

examples:
  gradmonctl convert csv2db monitor_output
  gradmonctl convert csv2db monitor_output --data-type-list actv,other \\
      --step-partition 1000 --output-dirpath job
  gradmonctl query --metric actv --op norm job"""
_MERGE = """\
convert merge [RUN...] -o FILE
Make one SQLite database of the output of a whole job

RUN  the job's output directories (all their runs, the oldest first),
     directories of one rank, or run-ID.json (one run each)
     (default: MONITOR_OUTPUT_DIR, else ./monitor_output)
-o, --output FILE  the database that is made; it must not be there yet

Takes the databases and CSV files of all ranks. Beside the rows FILE has the job's ranks, hosts,
configs by revision, versions and gaps (tables job_*; job_about says what each one is). Of a
step that several runs have collected, the rows of the last RUN are taken. gradmonctl query
reads FILE.

examples:
  gradmonctl convert merge monitor_output -o job.db
  gradmonctl convert merge first/run-1a2b3c4d.json second/run-5e6f7a8b.json -o job.db
  gradmonctl query --metric grad_reduced --op norm job.db"""
_PARQUET = """\
convert parquet [RUN] -o DIR
Make a Parquet dataset of the output of a whole job

<RUN>
-o, --output DIR  the directory that is made; it must not be there yet

Makes DIR/rows/kind={prefix}/rank={R}/rows.parquet, sorted by name and step. DuckDB,
Polars, pandas, Spark, Ray Data and Trino read DIR/rows as it lies. DIR/job.json has the
configs by revision, hosts, versions and scopes. Takes the CSV files of the ranks, or their
databases. Of a step that several starts have collected, the rows of the last one are taken.

examples:
  gradmonctl convert parquet monitor_output -o job
  gradmonctl query --metric grad_reduced --op norm job"""
_TREND = """\
convert trend [RUN] -o FILE
Make a database for TrendVis, the TensorBoard plug-in of msprobe

<RUN>
-o, --output FILE  the file that is made, FILE.trend.db; it must not be there yet

Takes the CSV files of the ranks. The plug-in shows the first *.trend.db of its directory:
heat maps over steps, ranks and modules, and curves.

examples:
  gradmonctl convert trend monitor_output -o curves/job.trend.db
  tensorboard --logdir curves"""
_IMPORT = """\
import FILE [--output FILE]
Make a config file of a MindSpore Transformers YAML file's monitoring keys

FILE  the YAML file
--output FILE  the config file to make, which must not exist yet
               (default: stdout)"""
_QUERY = """\
query ("SQL" | --metric NAME ...) [RUN...] [--format table|csv|json]
Search the rows of all ranks

SQL  a statement on rows, steps, alerts, ranks, v_metrics, v_nonfinite,
     v_layer_step or v_files
RUN  the job's output directories, directories of one rank, databases, or
     Parquet datasets (default: MONITOR_OUTPUT_DIR, else ./monitor_output)
--metric NAME  instead of SQL: a kind of row, as grad_reduced
--target GLOB  a pattern of target names with * and ?, as 'layers.3.*'
--op NAME  a statistic, as norm
--steps RANGE  steps, as 100:200, 100:, :200 or 100
--rank RANK  one rank
--run ID  8 hex digits of a run's directories (default: the newest run)
--format FORMAT  table (default), csv or json
--all  print the whole list and whole lines even in a terminal"""

_DIFF_VALUES = {"tolerance": Value("1e-5"), "absolute": Value("1e-6"), "run_a": _RUN_ID, "run_b": _RUN_ID}
_DIFF_VALUES.update(RUN_A=_REQUIRED, RUN_B=_REQUIRED)
_PLOT_VALUES = {"run": _RUN_ID, "o": _REQUIRED, "target": Value(""), "rank": Value(type=integer(0))}
_PLOT_VALUES.update(metric=Value(choices=KINDS), op=Value(choices=FIELDS))
_QUERY_VALUES = {"RUN": Value(many=True), "steps": Value(type=_steps), "rank": Value(type=integer(0))}
_QUERY_VALUES.update(format=Value("table", choices=["table", "csv", "json"]))
_TAGS = {"tags": Value("gradmon", choices=("gradmon", "msprobe"))}
_STEPS = {"step_partition": Value(500, integer(10, 10_000_000))}
_TO = {"o": _REQUIRED}

COMMANDS: "dict[str, Command | Group]" = {
    "analyse": Group(
        "analyse",
        "Search what a job has written, without the job",
        [
            _command("first_not_finite", "pyarrow", _FIRST, {"run": _RUN_ID}),
            _command("layer_changes", "pyarrow", _TOP, {"run": _RUN_ID, "count": _COUNT}),
            _command("divergence", "pyarrow", _DIFF, _DIFF_VALUES),
            _command("anomaly_dumps", "", _ANOMALIES, {"k": _COUNT, "s": Value("")}),
            _command("heat_map", "pyarrow matplotlib google-crc32c", _PLOT, _PLOT_VALUES),
        ],
        "The commands read the CSV files of gradmon and of msprobe, of a job that has ended or\n"
        "still runs. Rows that cannot be read are reported with file and line, and left out.",
    ),
    "convert": Group(
        "convert",
        "Turn what a job has written into another form",
        [
            _command("csv2tb", "pyarrow google-crc32c", _CSV2TB, {**_CONVERT, **_TAGS}),
            _command("metrics_database", "pyarrow", _CSV2DB, {**_CONVERT, **_STEPS}),
            _command("merge", "pyarrow", _MERGE, {**_TO, "RUN": Value(many=True)}),
            _command("parquet_dataset", "duckdb pyarrow", _PARQUET, _TO),
            _command("trend_database", "pyarrow", _TREND, _TO),
        ],
        "The commands read the output of gradmon and of msprobe, of a job that has ended or still runs.\n"
        "Rows that cannot be read are reported with file and line, and left out. The output appears\n"
        "when it is complete; if the command is interrupted, nothing appears.",
    ),
    "import": _command("mindformers", "PyYAML", _IMPORT, {"FILE": _REQUIRED}),
    "query": _command("query", "duckdb", _QUERY, _QUERY_VALUES),
}
