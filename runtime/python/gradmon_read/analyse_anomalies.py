# SPDX-License-Identifier: Apache-2.0
"""gradmonctl analyse anomalies."""
import argparse
import json
import re
from pathlib import Path

from gradmon_read import command_line, run_report
from gradmon_read.anomaly_dumps import analyse_json, read_anomaly_dumps
from gradmon_read.command_line import Argument, Command, UsageError, integer, report
from gradmon_read.listing import printable
from gradmon_read.query import output_directory


def command() -> Command:
    directory = "the directory of anomaly_analyse.json\n(default: the directory of the dumps)"
    return Command(
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
            Argument("-o,--out-path,--out_path", directory, "DIR"),
            Argument("-k,--topk", "how many to keep (default: 8)", "N", 8, integer(1)),
            Argument(
                "-s,--step-list,--step_list,--step", "these steps alone: [1,2] (default: all)", "STEPS", ""
            ),
            Argument("--json", "one JSON object on stdout, beside the file"),
        ],
        _perform,
        "Takes the dumps rank{R}/anomaly.json of gradmon or of msprobe, and writes what msprobe's\n"
        "anomaly_processor writes. The first anomaly is the one to look at.\n"
        "\n"
        "examples:\n"
        "  gradmonctl analyse anomalies monitor_output\n"
        "  gradmonctl analyse anomalies monitor_output -k 20 -s '[100, 101]'",
    )


def _perform(arguments: argparse.Namespace) -> int:
    steps = _steps(arguments.s)
    if arguments.RUN and arguments.d:
        raise UsageError("RUN: given twice")
    place = Path(arguments.RUN or arguments.d or output_directory())
    if (place / "anomaly_detected").is_dir():
        place /= "anomaly_detected"
    dumps = read_anomaly_dumps(place, arguments.k, steps)
    for message in dumps.left_out:
        report(message)
    file = Path(arguments.o or place) / "anomaly_analyse.json"
    text = analyse_json(dumps.first)
    run_report.replace_file(file, text.encode())
    if arguments.json:
        run_report.print_json(
            {
                "file": str(file),
                "dumps": dumps.dumps,
                "anomalies": dumps.anomalies,
                "first": json.loads(text),
                "left_out": dumps.left_out,
            }
        )
        return command_line.DONE
    lines = [f"the first {len(dumps.first)} of {dumps.anomalies} anomalies, in {printable(str(file))}:"]
    lines += [f"{i}: {printable(each.fields['message'])}" for i, each in enumerate(dumps.first)]
    run_report.print_text("\n".join(lines) + "\n")
    return command_line.DONE


def _steps(text: str) -> "list[int]":
    """ "[1, 2]", "1,2" or "" """
    found = re.fullmatch(r"(\[)?((?:-?[0-9]+,)*(?:-?[0-9]+,?)?)(?(1)\])", text.replace(" ", ""))
    if found is None:
        raise UsageError(f'--step-list "{text}": expected a list of steps, such as [1,2]')
    return [int(step) for step in found[2].split(",") if step]
