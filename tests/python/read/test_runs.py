# SPDX-License-Identifier: Apache-2.0
"""The runs in an output directory, and the one that a user names."""
from pathlib import Path

import pytest
from gradmon_read.command_line import CommandError
from gradmon_read.csv_tables import Problems
from gradmon_read.runs import find_run, runs_in
from reading import write_files

RUN_FILE = '{"format": 1, "started": "2026-11-24T11:00:00.120+01:00"}'
JOB = ["Nov24_12-04-37-rank0-bbbbbbbb", "Nov24_12-04-37-rank1-bbbbbbbb", "Nov24_11-00-00-rank0-aaaaaaaa"]


def make(output: Path, directories: "list[str]", files: "dict[str, str]" = {}) -> Path:
    for name in directories:
        (output / name).mkdir(parents=True)
    return write_files(output, files)


@pytest.mark.parametrize(
    "directories, run_file, expected",
    [
        # Directories with the same id are one run; the newest is the last.
        ([*JOB, "Nov24_12-04-37-rank10-bbbbbbbb"], "", ["aaaaaaaa 0", "bbbbbbbb 0 1 10"]),
        # Directories of msprobe belong together until a rank comes again, or for ten minutes.
        (
            ["Nov24_12-00-00-rank0-1", "Nov24_12-00-02-rank1-2", "Nov24_12-00-01-rank2-3"]
            + ["Nov24_12-05-00-rank0-4", "Nov24_12-05-00-rank1-5"],
            "",
            ["1 0 1 2", "4 0 1"],
        ),
        (["Nov24_12-00-00-rank0-1", "Nov24_13-00-00-rank1-2"], "", ["1 0", "2 1"]),
        # A run file makes a directory a run of its own.
        (["Nov24_12-00-00-rank0-1", "Nov24_12-00-01-rank1-2"], "run-2.json", ["1 0", "2 1"]),
        # January comes after December.
        (["Jan01_00-10-00-rank0-b", "Dec31_23-50-00-rank0-a"], "", ["a 0", "b 0"]),
        (["Jan01_00-00-01-rank1-b", "Dec31_23-59-59-rank0-a"], "", ["a 0 1"]),
        # Other names are none of a rank's.
        (["Nov24_12-00-00-rank-1", "Nov32_12-00-00-rank0-1", "Nov24_25-00-00-rank0-1", "x"], "", []),
    ],
)
def test_directories_are_grouped_into_runs(
    tmp_path: Path, directories: "list[str]", run_file: str, expected: "list[str]"
) -> None:
    problems = Problems()
    runs = runs_in(make(tmp_path, directories, {run_file: RUN_FILE} if run_file else {}), problems)
    assert [" ".join([run.id, *(str(rank) for rank, _ in run.ranks)]) for run in runs] == expected
    assert problems.count == 0


def test_a_run_is_found_by_its_directory_its_id_a_ranks_directory_and_its_run_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, JOB, {"run-aaaaaaaa.json": RUN_FILE})
    problems = Problems()
    assert find_run(tmp_path, "", problems).id == "bbbbbbbb"
    for found in (
        find_run(tmp_path, "aaaaaaaa", problems),
        find_run(tmp_path / "run-aaaaaaaa.json", "", problems),
    ):
        assert (found.id, found.started) == ("aaaaaaaa", "2026-11-24T11:00:00.120+01:00")
    monkeypatch.chdir(tmp_path / JOB[1])
    for place in (tmp_path / JOB[1], Path(".")):
        assert find_run(place, "", problems) == ("bbbbbbbb", "Nov24_12-04-37", [(1, place)])
    assert problems.count == 0


def test_what_is_no_run_is_refused_with_what_was_expected(tmp_path: Path) -> None:
    for place, id, error in (
        ("missing", "", "No such file or directory; expected the output directory of a job"),
        ("", "", "no directory of a rank and no CSV file of gradmon in it"),
        ("job", "cccccccc", "no run cccccccc; there are: aaaaaaaa, bbbbbbbb"),
    ):
        if place == "job":
            make(tmp_path / place, JOB)
        with pytest.raises(CommandError, match=error):
            find_run(tmp_path / place, id, Problems())


@pytest.mark.parametrize("text", ['{"format": 2}', "[" * 200 + "]" * 200, "no JSON"])
def test_a_run_file_that_cannot_be_used_is_a_problem(tmp_path: Path, text: str) -> None:
    problems = Problems()
    make(tmp_path, JOB[:1], {"run-bbbbbbbb.json": text})
    assert find_run(tmp_path, "", problems).started == "Nov24_12-04-37"
    (message,) = problems.messages()
    assert message.startswith(f"{tmp_path}/run-bbbbbbbb.json: expected ")
    assert message.endswith("; only the names of the directories are used")
