# SPDX-License-Identifier: Apache-2.0
"""gradmonctl convert csv2tb and csv2db: what they make of a job, of wrong options and of broken files."""
import os
import time
from pathlib import Path
from typing import Any

import pytest
from scale import FULL
import zstandard
from gradmon_read import csv2tb, csv_tables
from gradmon_read.conversion import Meter, RankRows, progress_text
from gradmon_read.csv_tables import CsvFile, KindFile, Problems
from gradmon_read.metrics_database import Tensors, layer_of
from gradmon_read.rank_database import FILE
from gradmon_read.vocabulary import ROW_KINDS
from reading import (
    MSPROBE,
    RANK0,
    RANK3,
    Commands,
    broken_texts,
    golden_difference,
    points_in,
    query_rows,
    sample_job,
    write_files,
)

COMMANDS = ["csv2tb", "csv2db"]
LEFT_OUT = "1 rows are left out, of steps that a later start of the job has collected again\n"
REPLACED = "1 files or directories of an earlier conversion are replaced\n"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return sample_job(tmp_path / "job")


def curves_in(output: Path) -> str:
    """ "rank0/actv vp0:fc1.input:micro0/norm 0 6.5", of all directories of event files."""
    lines = {
        f"{directory.relative_to(output)} {point.tag} {point.step} {point.value:g}\n"
        for directory in output.glob("rank*/*")
        for point in points_in(directory)
    }
    return "".join(sorted(lines))


def content_of(database: Path) -> str:
    text = ""
    for sql in (
        "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name",
        "SELECT * FROM monitoring_targets ORDER BY target_id",
        "SELECT * FROM monitoring_metrics ORDER BY metric_id",
        "SELECT * FROM metric_stats ORDER BY 1, 2",
        "SELECT * FROM global_stats ORDER BY 1",
        "SELECT * FROM target_tensors ORDER BY metric_id, target_id, rank",
        "SELECT * FROM v_metrics ORDER BY rank, metric, step, target, micro_step, op",
    ):
        text += f"-- {sql}\n" + "".join(f"{row}\n" for row in query_rows(database, sql))
    return text


def names_in(directory: Path) -> "list[str]":
    return sorted(os.listdir(directory))


@pytest.mark.parametrize("tags", ["gradmon", "msprobe"])
@pytest.mark.parametrize("processes", ["1", "8"])
def test_csv2tb_makes_the_golden_curves(
    run: Commands, job: Path, tmp_path: Path, tags: str, processes: str
) -> None:
    output = tmp_path / "place" / "curves"
    options = ["--monitor-path", job, "--output-dirpath", output, "--process-num", processes, "--tags", tags]
    answer = run("convert", "csv2tb", *options)
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == f"11 rows of ranks 0, 3 in {output}\n{LEFT_OUT}"
    name = "csv2tb_msprobe.txt" if tags == "msprobe" else "csv2tb.txt"
    assert golden_difference(name, curves_in(output)) == ""
    assert names_in(output.parent) == ["curves"]


@pytest.mark.parametrize("processes", ["1", "8"])
def test_csv2db_makes_the_golden_tables(run: Commands, job: Path, tmp_path: Path, processes: str) -> None:
    output = tmp_path / "db"
    options = ["--output_dirpath", output, "--process_num", processes, "--step_partition", "10"]
    answer = run("convert", "csv2db", "--monitor_path", job, *options)
    assert (answer.code, answer.err) == (0, "")
    assert golden_difference("csv2db.txt", content_of(output / FILE)) == ""
    assert query_rows(output / FILE, "PRAGMA integrity_check") == ["ok"]
    assert names_in(output) == [FILE]


def test_files_and_directories_have_the_modes_of_private_output(run: Commands, job: Path) -> None:
    before = os.umask(0)
    try:
        assert run("convert", "csv2tb", job, "--output-dir", job / "tb").code == 0
        assert run("convert", "csv2db", job, "--output-dir", job / "db").code == 0
    finally:
        os.umask(before)
    paths = [job / "db" / FILE, *(job / "tb").rglob("events*")]
    assert {path.stat().st_mode & 0o777 for path in paths} == {0o640}
    assert {path.parent.stat().st_mode & 0o777 for path in paths} == {0o750}


def test_csv2db_has_the_scopes_of_scopes_json_also_of_200000_targets(run: Commands, job: Path) -> None:
    targets = "".join(f'"0:layers.{i}.x": {{"grad_reduced": {{"scope": "whole"}}}}, ' for i in range(200_000))
    scope = '{"z": 1e-5, "scope": "replica", "é": [1.0]}'
    write_files(
        job,
        {
            f"{RANK0}/scopes.json": f'{{"format": 1, "targets": {{{targets}"0:last": {{}}}}}}',
            f"{RANK3}/scopes.json": '{"format": 1, "targets": {"0:layers.0.fc.weight": {"grad_reduced": '
            f"{scope}}}}}}}",
        },
    )
    begun = time.monotonic()
    assert run("convert", "csv2db", "--monitor-path", job, "--output-dirpath", job / "db").code == 0
    assert time.monotonic() - begun < 60  # a hundred times what it takes
    sql = (
        "SELECT target_name, rank, scope, detail FROM target_scope JOIN monitoring_targets USING (target_id)"
    )
    detail = '{"scope":"replica","z":1e-05,"é":[1.0]}'
    assert query_rows(job / "db" / FILE, sql) == [f"layers.0.fc.weight|3|replica|{detail}"]


@pytest.mark.parametrize(
    "first, last, expected",
    [
        ("Nov24_12-04-37", "Nov24_12-04-37", "7 rows of ranks 0, 3"),
        ("Dec03_21-34-40", "None", "1 rows of rank 0"),
        ("None", "Dec03_21-34-39", "7 rows of ranks 0, 3"),
        ("Dec03_21-34-41", "None", "gradmonctl: {job}: none of 3 directories of ranks is in the time range; "
         f"expected one as {RANK0}\n"),
    ],
)  # fmt: skip
def test_a_time_range_is_closed(run: Commands, job: Path, first: str, last: str, expected: str) -> None:
    options = ["--time-start", first, "--time-end", last, "--data-type", "['actv', 'grad_reduced']"]
    answer = run("convert", "csv2tb", job, "--output-dir", job / "x", *options)
    assert (answer.err or answer.out.split(" in ")[0]) == expected.format(job=job)


@pytest.mark.parametrize(
    "words, error",
    [
        (["--data-type-list", "actv", "grad"],
         f'--data-type-list: found "grad"; expected {", ".join(ROW_KINDS)}'),
        (["--time-start", "Dec3"], '--time-start: found "Dec3"; expected a time as in the names of '
         "directories, such as Dec03_21-34-40, or None"),
        (["--time-start", "Dec03_21-34-40", "--time-end", "Dec03_21-34-39"], "--time-start Dec03_21-34-40 is "
         "later than --time-end Dec03_21-34-39; expected a time before it"),
        (["--process-num", "0"], "--process-num"),
        (["--process-num", "129"], "--process-num"),
        (["--step-partition", "9"], "--step-partition"),
        (["--tags", "x"], "--tags"),
    ],
)  # fmt: skip
def test_wrong_options_are_named_with_what_was_expected(
    run: Commands, words: "list[str]", error: str
) -> None:
    answer = run("convert", "csv2tb" if "--tags" in words else "csv2db", *words)
    assert answer.code == 2
    assert error in answer.err.split("\n")[0]
    assert answer.err.split("\n")[1].startswith('try "gradmonctl convert csv2')


def test_without_a_directory_curves_go_beside_the_output_and_msprobes_and_databases_into_it(
    run: Commands, tmp_path: Path, job: Path
) -> None:
    for place in (f"{job}", f"{job}/", f"{job}/{RANK0}"):
        assert run("convert", "csv2tb", "--monitor-path", place).code == 0
        (made,) = [name for name in names_in(tmp_path) if name != "job"]
        assert made[14:] == "_csv2tensorboard_by_step"
        (tmp_path / made).rename(tmp_path / "job" / f"not-a-rank-{time.monotonic()}")
    assert run("convert", "csv2tb", "--tags", "msprobe", "--monitor-path", job).code == 0
    assert run("convert", "csv2db", f"{job}/").code == 0
    (curves,) = job.glob("???[0-9]*_csv2tensorboard_by_step/rank0")
    (database,) = job.glob(f"???[0-9]*_csv2db/{FILE}")
    # The converter does not read its own output.
    assert run("convert", "csv2db", job, "--output-dir", job / "again").out.startswith("11 rows ")


@pytest.mark.parametrize("tags", ["gradmon", "msprobe"])
def test_events_have_the_time_at_which_their_file_was_last_written(
    run: Commands, job: Path, tags: str
) -> None:
    files = [f"{RANK0}/actv_0-0.csv", f"{MSPROBE}/actv_0-0.csv", f"{RANK0}/scalar_0-0.csv"]
    for seconds, file in zip((0, 10, 20), files):
        os.utime(job / file, ns=(0, (1_700_000_000 + seconds) * 10**9 + 250_000_000))
    assert run("convert", "csv2tb", job, "--output-dirpath", job / "tb", "--tags", tags).code == 0

    def times(kind: str) -> "set[tuple[int, float]]":
        return {(one.step, one.wall_time - 1_700_000_000) for one in points_in(job / "tb/rank0" / kind)}

    assert times("actv") == {(0, 0.25), (1, 10.25)}
    assert (0, 20.25) in times("scalar")


def test_csv2tb_replaces_the_curves_that_it_makes_again_and_leaves_all_else(
    run: Commands, job: Path, tmp_path: Path
) -> None:
    output = tmp_path / "tb"
    old = {
        f"{place}/events.out.tfevents.1.host.1": "old"
        for place in ("rank0/actv", "rank0/exp_avg", "rank7/actv")
    }
    write_files(output, {"notes": "mine", **old})
    first = run("convert", "csv2tb", job, "--output-dirpath", output)
    assert first.out.endswith(REPLACED)
    assert (output / "notes").read_text() == "mine"
    for place in ("rank0/exp_avg", "rank7/actv"):
        (file,) = (output / place).iterdir()
        assert file.read_text() == "old"
        file.unlink()
    assert run("convert", "csv2tb", job, "--output-dirpath", output).code == 0
    assert golden_difference("csv2tb.txt", curves_in(output)) == ""


@pytest.mark.parametrize("in_the_way", ["rank0/other/notes", "rank3/grad_reduced"])
def test_csv2tb_leaves_all_as_it_is_where_a_directory_has_other_files(
    run: Commands, job: Path, tmp_path: Path, in_the_way: str
) -> None:
    output = write_files(tmp_path / "tb", {in_the_way: "mine"})
    answer = run("convert", "csv2tb", job, "--output-dirpath", output)
    assert answer.code == 1
    assert f"{output / in_the_way} is " in answer.err
    assert [path for path in output.rglob("*") if path.is_file()] == [output / in_the_way]


def test_csv2db_replaces_the_database_of_an_earlier_conversion_and_no_other_file(
    run: Commands, job: Path, tmp_path: Path
) -> None:
    output = write_files(tmp_path / "db", {"notes": "mine"})
    assert run("convert", "csv2db", job, "--output-dirpath", output).code == 0
    write_files(job, {f"{RANK3}/exp_avg_0-0.csv": "vpp_stage,name,step,norm,shape,dtype\n0,a,0,1,[2],\n"})
    again = run("convert", "csv2db", job, "--output-dirpath", output)
    assert again.out.endswith(REPLACED)
    assert query_rows(output / FILE, "SELECT count(*) FROM v_metric_5") == ["1"]
    assert names_in(output) == [FILE, "notes"]


def test_csv2db_does_not_replace_the_database_of_a_job_or_one_in_use(
    run: Commands, job: Path, tmp_path: Path
) -> None:
    in_use = write_files(tmp_path / "db", {f"{FILE}-wal": "rows"})
    for directory in (job / RANK0, in_use):
        (directory / FILE).write_text("mine")
        answer = run("convert", "csv2db", job, "--output-dirpath", f"{directory}/")
        assert (answer.code, (directory / FILE).read_text()) == (1, "mine")
        assert answer.err == (
            f"gradmonctl: {directory / FILE} is the database of a job, or in use; expected another "
            "--output-dirpath\n"
        )


@pytest.mark.parametrize("command", COMMANDS)
def test_bad_rows_are_reported_with_file_and_line_and_the_good_ones_are_converted(
    run: Commands, job: Path, command: str
) -> None:
    rows = "0,a,0,1,[2],\n0,b,0,much,[2],\n0,c,0\n0,a,0,2,[2],\n0,d,1,4,[2],\n0,e,1,7"
    write_files(job, {f"{RANK3}/exp_avg_0-0.csv": f"vpp_stage,name,step,norm,shape,dtype\n{rows}"})
    answer = run("convert", command, job, "--data-type-list", "exp_avg", "--output-dirpath", job / "x")
    file = job / RANK3 / "exp_avg_0-0.csv"
    assert answer.err == "".join(
        f"gradmonctl: {file}:{text}; the row is left out\n"
        for text in (
            '3: found "much" in the column norm; expected a number',
            "4: found 3 cells; expected 6 as in the header",
            '5: found a second row of "a" in step 0; expected one',
        )
    )
    assert answer.out.startswith("2 rows of ranks 0")


@pytest.mark.parametrize("command", COMMANDS)
def test_an_input_without_rows_makes_no_output(run: Commands, tmp_path: Path, command: str) -> None:
    job = write_files(tmp_path / "job", {f"{RANK0}/actv_0-0.csv": "vpp_stage,name,step,norm\n"})
    answer = run("convert", command, job, "--output-dirpath", tmp_path / "x")
    assert (answer.code, names_in(tmp_path)) == (1, ["job"])
    assert "found no rows in " in answer.err


# One file in its two forms: of a job that runs, and saved again by a spreadsheet.
SAVED_AGAIN = "\ufeffvpp_stage,name,step,norm\r\n0,a,0,1\r\n0,b,0,2"


@pytest.mark.parametrize(
    "text, rows, problems",
    [
        (SAVED_AGAIN, ["a 0 1.0", "b 0 2.0"], []),
        (SAVED_AGAIN[1:].replace("\r", ""), ["a 0 1.0"], []),
        ("name,step,norm\na,0,1\nname,step,max\n\nb,1,2\n", ["a 0 1.0", "b 1 2.0"], []),
        ("param_name,step,input.norm,output.norm\na,1.0,2,inf\na,2,3,x\n",
         ["a.input 1 2.0", "a.output 1 inf", "a.input 2 3.0"], ['3: found "x" in the column output.norm']),
        ('name,step,norm\n"two\nlines",1,True\n"a ""b""",1,2\nc,1,5\n',
         ["two\nlines 1 1.0", 'a "b" 1 2.0', "c 1 5.0"], []),
        ("name,step,norm\na,0x1,1\nb,-1,1\nc,1,1e999\nd,9223372036854775808,1\n"
         '"e"f,1,1\ng,9223372036854775807,1\n', ["g 9223372036854775807 1.0"],
         ['2: found "0x1" in the column step', '3: found "-1"', '4: found "1e999"',
          '5: found "9223372036854775808"', "6: text after a quoted cell"]),
        ('name,step,norm\n"a,1,1\nb,1,1\n', ["b 1 1.0"], ["2: a quoted cell does not end"]),
        ("name,step,norm\n" + "n" * 2_000_000 + "\na,1," + "," * 80 + "\nb,1,1\n", ["b 1 1.0"],
         ["2: longer than 1 MiB", "3: more than 64 cells"]),
        ("name,step,norm,name\na,0,1,b\n", [], ['1: the title "name" is there twice']),
        ("a,0,1\n", [], ['1: found "a" at the beginning; expected a header']),
        ("name,step", [], ["1: no whole line"]),
        ("name,step,norm,shape\na,1,0.1,nan\nb,1,-0.0,[]\n", ["a 1 None", "b 1 -0.0"], []),
    ],
)  # fmt: skip
@pytest.mark.parametrize("reader", ["arrow", "rows", "frames"])
def test_files_are_read_as_documented(
    tmp_path: Path, monkeypatch: Any, text: str, rows: "list[str]", problems: "list[str]", reader: str
) -> None:
    if reader == "rows":
        monkeypatch.setattr("gradmon_read.csv_tables.regular_table", lambda *_: None)
    file = write_files(tmp_path, {"actv_0-0.csv": text}) / "actv_0-0.csv"
    if reader == "frames":
        file = compress(file, frames=3)
    found, messages = rows_of(file)
    values = [row.get("norm", row.get("max")) for row in found]
    assert [f"{row['name'].decode()} {row['step']} {value}" for row, value in zip(found, values)] == rows
    assert len(messages) == len(problems)
    for message, problem in zip(messages, problems):
        assert message.startswith(f"{file}:{problem}")


def compress(file: Path, frames: int) -> Path:
    """Makes a file of zstd frames of it."""
    text = file.read_bytes()
    ends = [len(text) * i // frames for i in range(frames + 1)]
    made = file.with_name(file.name + ".zst")
    parts = [zstandard.compress(text[begin:end]) for begin, end in zip(ends, ends[1:])]
    made.write_bytes(b"".join(parts))
    file.unlink()
    return made


def test_a_torn_frame_is_the_end_of_a_file_and_a_damaged_one_is_a_problem(tmp_path: Path) -> None:
    rows = "".join(f"layers.{i}.weight,{step},{i / 7}\n" for step in range(100) for i in range(30))
    file = write_files(tmp_path, {"actv_0-99.csv": f"name,step,norm\n{rows}"}) / "actv_0-99.csv"
    whole, _ = rows_of(file)
    file = compress(file, frames=2)
    content = file.read_bytes()
    for cut in range(1, len(content), 997):
        file.write_bytes(content[:cut])
        found, messages = rows_of(file)
        assert found == whole[: len(found)] and (messages == [] or "no whole line" in messages[0])
        assert cut < len(content) * 3 / 4 or len(found) > 1000
    damaged = bytearray(content)
    damaged[-300] ^= 1
    for bytes_of_file in (bytes(damaged), content + b"and something else"):
        file.write_bytes(bytes_of_file)
        found, messages = rows_of(file)
        assert len(found) > 1000 and found == whole[: len(found)]
        (message,) = messages
        assert message.startswith(f"{file}: ") and message.endswith(
            "expected zstd frames; the rest is left out"
        )


def rows_of(path: Path) -> "tuple[list[dict[str, Any]], list[str]]":
    problems = Problems()
    rows = [row for table in CsvFile(path, problems).tables() for row in table.to_pylist()]
    return rows, problems.messages()


class Files:
    """Files of several starts, with rows of name, step, norm."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.all: "list[KindFile]" = []

    def add(self, start: int, first: int, last: int, rows: str) -> "Files":
        path = self.place / f"f{len(self.all)}"
        path.write_text(f"name,step,norm\n{rows}")
        self.all.append(KindFile(first, 0, last, path, start))
        return self

    def read(self, most: int = 1000) -> "tuple[str, Meter, Problems]":
        meter, problems = Meter(0), Problems()
        rows = RankRows("actv", self.all, meter, problems, most)
        text = [
            f"{step}:{rows.target(name).name.decode()}={norm:g}"
            for part in rows
            for step, name, norm in zip(part.step, part.name, part.values["norm"])
        ]
        return " ".join(text), meter, problems


def test_of_a_step_of_two_starts_the_rows_of_the_later_one_are_taken(tmp_path: Path) -> None:
    files = Files(tmp_path).add(0, 0, 99, "a,0,1\na,1,2\nb,1,3\na,2,4\n").add(1, 0, 99, "a,1,5\na,3,6\n")
    text, meter, problems = files.read()
    assert text == "0:a=1 1:a=5 2:a=4 3:a=6"
    assert (meter.rows, meter.repeated, problems.count) == (4, 2, 0)


def test_a_file_of_a_later_start_within_an_older_file_is_opened_in_time(tmp_path: Path) -> None:
    files = (
        Files(tmp_path).add(0, 0, 9, "a,0,1\na,5,2\na,9,3\n").add(1, 5, 5, "a,5,7\n").add(1, 9, 9, "a,9,8\n")
    )
    text, meter, _ = files.read()
    assert (text, meter.repeated) == ("0:a=1 5:a=7 9:a=8", 2)


def test_of_a_hundred_starts_the_rows_of_the_last_one_are_taken_without_descriptors(tmp_path: Path) -> None:
    files = Files(tmp_path)
    for start in range(100):
        rows = "".join(f"a,{step},{start}\n" for step in range(300))
        files.add(start, 0, 999, rows)
    files.add(100, 2, 999, "a,2,100\na,300,100\n")
    held = len(os.listdir("/proc/self/fd"))
    meter, problems = Meter(0), Problems()
    rows = iter(RankRows("actv", files.all, meter, problems))
    next(rows)
    assert len(os.listdir("/proc/self/fd")) == held
    text, meter, problems = files.read()
    assert text.startswith("0:a=99 1:a=99 2:a=100 3:a=99 ") and text.endswith(" 299:a=99 300:a=100")
    assert (meter.rows, meter.repeated, problems.count) == (301, 99 * 300 + 1, 0)


def test_of_more_names_than_are_held_in_memory_the_first_go_on(tmp_path: Path) -> None:
    files = Files(tmp_path).add(0, 0, 9, "a,0,1\nb,0,2\nc,0,3\nc,1,4\nb,1,5\na,1,6\n")
    text, _, problems = files.read(most=2)
    assert text == "0:a=1 0:b=2 1:b=5 1:a=6"
    assert problems.count == 2
    assert "more than 2 names and micro steps" in problems.messages()[0]


def test_a_missing_file_a_pipe_a_directory_and_a_replaced_file_are_problems_and_do_not_wait(
    tmp_path: Path, monkeypatch: Any
) -> None:
    rows = "".join(f"a,{step},1\n" for step in range(5000))
    files = Files(tmp_path).add(0, 0, 9, "").add(0, 0, 9, "").add(0, 0, 9, "").add(0, 0, 9999, rows)
    for number in range(3):
        os.remove(tmp_path / f"f{number}")
    os.mkfifo(tmp_path / "f1")
    (tmp_path / "f2").mkdir()
    monkeypatch.setattr(csv_tables, "BLOCK", 4096)
    parts = iter(RankRows("actv", files.all, Meter(0), problems := Problems()))
    next(parts)
    os.replace(write_files(tmp_path, {"other": "name,step\n"}) / "other", tmp_path / "f3")
    assert len(list(parts)) <= 1  # what was read before
    assert problems.messages() == [
        f"{tmp_path}/f0: cannot open: No such file or directory",
        f"{tmp_path}/f1: not a regular file",
        f"{tmp_path}/f2: not a regular file",
        f"{tmp_path}/f3: was removed or replaced while it was read; the rest is left out",
    ]


def test_each_change_of_a_shape_is_in_the_database(run: Commands, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(Tensors, "MOST_SHAPES", 3)
    shapes = ["[2]", "[3]", "[4]", "[3]", "[2]", "", "[5]", "[2]"]
    rows = "".join(
        f"{name},{i // 2},1,{shape},torch.int8\n" for i, (name, shape) in enumerate(zip("abababab", shapes))
    )
    job = write_files(tmp_path, {f"{RANK0}/exp_avg_0-9.csv": f"name,step,norm,shape,dtype\n{rows}"})
    assert run("convert", "csv2db", job, "--output-dirpath", job / "db").code == 0
    sql = (
        "SELECT target_name, step, shape, dtype FROM target_tensors JOIN monitoring_targets USING (target_id)"
    )
    # A fourth shape and later ones are empty.
    assert query_rows(job / "db" / FILE, f"{sql} ORDER BY 1, 2") == [
        *("a|0|[2]|torch.int8", "a|1|[4]|torch.int8", "a|2|[2]|torch.int8", "a|3||torch.int8"),
        *("b|0|[3]|torch.int8", "b|2||torch.int8", "b|3|[2]|torch.int8"),
    ]


def test_columns_that_come_later_are_added_to_all_tables(run: Commands, tmp_path: Path) -> None:
    files = {
        f"{RANK0}/grad_unreduced_0-9.csv": "name,step,norm\na,0,nan\na,9,inf\n",
        f"{RANK0}/grad_unreduced_10-99.csv": "name,step,micro_step,max,norm\na,10,1,,-0.0\na,11,0,4,\n",
        f"{RANK0}/scalar_0-9.csv": "name,step,value,norm\nx.3.y,0,5,7\n",
    }
    job = write_files(tmp_path, files)
    assert run("convert", "csv2db", job, "--output-dirpath", job / "db", "--step-partition", "10").code == 0
    sql = "SELECT metric, step, target, micro_step, op, value FROM v_metrics ORDER BY 1, 2, 5"
    assert query_rows(job / "db" / FILE, sql) == [
        *("grad_unreduced|0|a|0|norm|", "grad_unreduced|9|a|0|norm|inf", "grad_unreduced|10|a|1|norm|0.0"),
        *("grad_unreduced|11|a|0|max|4.0", "scalar|0|x.3.y|0|value|5.0"),
    ]
    assert query_rows(job / "db" / FILE, "SELECT * FROM target_layers") == ["x.3.y|x.3"]


@pytest.mark.parametrize(
    "name, layer",
    [("layers.3.fc", "layers.3"), ("a.b", ""), ("3.a", ""), ("a.1x.20", "a.1x.20"), ("a..7", "a..7")],
)
def test_a_layer_is_the_name_up_to_the_first_number(name: str, layer: str) -> None:
    assert layer_of(name.encode()) == layer.encode()


def test_event_files_are_of_bounded_size_and_names_may_be_long(
    run: Commands, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(csv2tb, "BYTES_OF_A_FILE", 20_000)
    monkeypatch.setattr(csv2tb, "_ROWS_AT_ONCE", 10)
    names = ["x" * 5000, "1:y", "\udcff\udcc3z"]
    rows = "".join(
        f"{stage},{name},{step},{step}.5,{'' if step % 3 else 1e300}\n"
        for step in [*range(100), 127, 128, 2**35, 2**63 - 1]
        for stage, name in enumerate(names[step % 2 :], 0)
    )
    directory = write_files(tmp_path, {f"{RANK0}/x": ""}) / RANK0
    header = b"vpp_stage,name,step,norm,max\n"
    (directory / "exp_avg_0-0.csv").write_bytes(header + rows.encode("utf-8", "surrogateescape"))
    assert run("convert", "csv2tb", tmp_path, "--output-dirpath", tmp_path / "tb").code == 0
    made = tmp_path / "tb/rank0/exp_avg"
    assert len(names_in(made)) > 3
    found = [(point.tag, point.step, point.value) for point in points_in(made)]
    assert len(found) == rows.count("\n") + rows.count("1e+300")
    assert ("exp_avg_norm/0:1:y", 1, 1.5) in found and ("exp_avg_norm/1:1:y", 128, 128.5) in found
    assert ("exp_avg_norm/2:\ufffd\ufffdz", 2**35, 2.0**35) in found
    assert ("exp_avg_max/" + "x" * 5000, 0, float("inf")) in found
    assert {step for _, step, _ in found} >= {127, 128, 2**35, 2**63 - 1}


def test_progress_shows_share_rows_rate_and_the_time_left(
    run: Commands, job: Path, capsys: Any, monkeypatch: Any
) -> None:
    assert progress_text(0, 0, 1000, 0) == "0 %, 0 rows"
    assert progress_text(500, 5, 1000, 2) == "0 %, 500 rows, 250 rows/s"
    assert progress_text(3_000_000, 250, 1000, 10) == "25 %, 3000000 rows, 300000 rows/s, 30 s left"
    assert progress_text(40, 2000, 1000, 4) == "100 %, 40 rows, 10 rows/s, 0 s left"  # a file that grew
    assert progress_text(0, 0, 0, 1) == "100 %, 0 rows, 0 rows/s, 0 s left"
    monkeypatch.setattr(Meter, "_INTERVAL", 0)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    shown = run("convert", "csv2db", job, "--output-dirpath", job / "db").err
    assert "\r\x1b[K100 %, 11 rows, " in shown and shown.endswith("\r\x1b[K")


GOOD = (
    "vpp_stage,name,step,micro_step,norm,nans,shape,dtype\n"
    '0,fc1.input,0,0,1.5,0,"[2, 2]",torch.float32\n'
    '0,"a,b",0,0,nan,1,"[2, 2]",torch.float32\n'
    "0,c,1,0,-inf,1,[7],torch.float32\n"
)
TWO_LINES = '3,"two\nlines",0,1,-inf,0,[],torch.bfloat16\n'


def test_both_readers_find_the_same_in_broken_files(tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "actv_0-0.csv"
    regular = 0
    for good in (GOOD, GOOD + TWO_LINES):
        for text in broken_texts(good.encode(), 1000 if FULL else 240):
            path.write_bytes(text)
            with monkeypatch.context() as patch:
                patch.setattr("gradmon_read.csv_tables.regular_table", lambda *_: None)
                expected = rows_of(path)
            assert repr(rows_of(path)) == repr(expected), text
            regular += len(expected[0])
    assert regular > 500


@pytest.mark.parametrize("command", COMMANDS)
def test_hundreds_of_broken_files_give_what_is_good_in_them(
    run: Commands, tmp_path: Path, command: str
) -> None:
    job = write_files(tmp_path / "job", {f"{RANK0}/actv_grad_0-0.csv": GOOD + TWO_LINES})
    for number, text in enumerate(broken_texts((GOOD + TWO_LINES).encode(), 1000 if FULL else 240)):
        name = f"{ROW_KINDS[number % len(ROW_KINDS)]}_{number % 37}-99.r{number + 1}.csv"
        (job / RANK0 / name).write_bytes(text)
    write_files(job, {"run-1a2b3c4d.json": '{"format": [[['})
    answer = run("convert", command, job, "--output-dirpath", tmp_path / "x", "--process-num", "3")
    assert answer.code == 0
    assert " more rows or files are left out" in answer.err and "\x1b" not in answer.err
    if command == "csv2tb":
        points = {kind: list(points_in(tmp_path / "x/rank0" / kind)) for kind in ROW_KINDS}
        assert sum(map(len, points.values())) > 200
        assert [
            (one.step, one.value)
            for one in points["actv_grad"]
            if one.tag == "actv_grad_nans/3:two\nlines:micro1"
        ] == [(0, 0)]
        return
    database = tmp_path / "x" / FILE
    assert query_rows(database, "PRAGMA integrity_check") == ["ok"]
    assert int(query_rows(database, "SELECT count(*) FROM v_metrics")[0]) > 200
    sql = (
        "SELECT op, value FROM v_metrics WHERE metric = 'actv_grad' AND vpp_stage = 3 AND step = 0 AND "
        "target = 'two' || char(10) || 'lines' AND micro_step = 1 ORDER BY op"
    )
    assert query_rows(database, sql) == ["nans|0.0", "norm|-inf"]


def test_of_random_bytes_in_two_starts_both_commands_convert_the_same_rows(
    run: Commands, tmp_path: Path
) -> None:
    texts = list(broken_texts(GOOD.encode(), 1000 if FULL else 200))
    for number in range(0, len(texts), 2):
        job = tmp_path / str(number)
        for directory, text in zip((RANK0, MSPROBE), texts[number:]):
            (job / directory).mkdir(parents=True)
            (job / directory / "actv_0-99.csv").write_bytes(text)
        curves, database = (
            run("convert", command, job, "--output-dirpath", job / command) for command in COMMANDS
        )
        assert (curves.code, curves.out.split(" in ")[0]) == (database.code, database.out.split(" in ")[0])
        assert curves.err == database.err.replace("csv2db", "csv2tb")
        if database.code == 0:
            assert query_rows(job / "csv2db" / FILE, "PRAGMA integrity_check") == ["ok"]
            assert query_rows(job / "csv2db" / FILE, "SELECT count(*) > 0 FROM v_metrics") == ["1"]
