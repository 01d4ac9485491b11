# SPDX-License-Identifier: Apache-2.0
"""gradmonctl analyse: searches the rows of a job."""
from gradmon_read import analyse_anomalies, analyse_diff, analyse_first, analyse_plot, analyse_top
from gradmon_read.command_line import Group


def command() -> Group:
    members = (analyse_first, analyse_top, analyse_diff, analyse_anomalies, analyse_plot)
    return Group(
        "analyse",
        "Search what a job has written, without the job",
        [member.command() for member in members],
        "The commands read the CSV files of gradmon and of msprobe, of a job that has ended or\n"
        "still runs. Rows that cannot be read are reported with file and line, and left out.",
    )
