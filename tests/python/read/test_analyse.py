# SPDX-License-Identifier: Apache-2.0
"""gradmonctl analyse: what the commands print, for jobs with a known fault, and for any files."""
import json
import math
import random
import time
from pathlib import Path
from typing import Any

import pytest
from gradmon_read.anomaly_dumps import analyse_json, read_anomaly, read_anomaly_dumps
from job_rows import RankFiles, TestRow
from reading import Commands, broken_texts, golden_difference, without
from scale import FULL

BROKEN_FILES = 1000 if FULL else 240


def write_job(output: Path, spike: float = 512) -> None:
    """Two ranks: a spike on rank 1 in step 4, a NaN on rank 0 from step 8 on, a layer that dies in step 6."""
    for rank in range(2):
        files = RankFiles(output, rank)
        for step in range(10):
            loss = math.nan if rank == 0 and step >= 8 else round(2 - 0.1 * step, 6)
            files.write(
                step,
                [
                    TestRow("actv", "layers.0.output", 1.25 + 0.125 * rank),
                    TestRow("actv", "layers.1.output", loss),
                    TestRow("grad_reduced", "layers.0.weight", 0 if step >= 6 else 0.5),
                    TestRow("grad_reduced", "layers.1.weight", spike if rank == 1 and step == 4 else 0.5),
                ],
            )


@pytest.fixture
def job(tmp_path: Path) -> Path:
    write_job(tmp_path / "job")
    return tmp_path / "job"


def set_screen(monkeypatch: pytest.MonkeyPatch, columns: int, rows: int) -> None:
    for module in ("run_report", "layer_changes", "heat_map"):
        monkeypatch.setattr(f"gradmon_read.{module}.screen_size", lambda: (columns, rows))


@pytest.mark.parametrize(
    "words",
    ["analyse", *(f"analyse {name}" for name in ("first", "top", "diff", "anomalies", "plot")), "import"]
    + [
        "convert",
        *(f"convert {name}" for name in ("csv2tb", "csv2db", "merge", "parquet", "trend")),
        "query",
    ],
)
def test_the_help_is_as_documented(run: Commands, words: str) -> None:
    answer = run(*words.split(), "--help")
    assert (answer.code, answer.err) == (0, "")
    assert golden_difference(f"help_{words.split()[-1]}.txt", answer.out) == ""


def test_a_group_without_a_command_shows_its_help_and_suggests_a_command(run: Commands) -> None:
    answer = run("analyse")
    assert (answer.code, answer.err) == (2, run("analyse", "--help").out)
    assert run("analyse", "frist").err == (
        'gradmonctl: unknown command "frist" (did you mean "first"?)\ntry "gradmonctl analyse --help"\n'
    )
    assert 'try "gradmonctl analyse first --help"' in run("analyse", "first", "--nonsense").err


@pytest.mark.parametrize("command", ["first", "top", "diff"])
def test_text_and_json_match_their_golden_files(
    run: Commands, job: Path, tmp_path: Path, command: str
) -> None:
    words = ["analyse", command, str(job)]
    if command == "diff":
        write_job(tmp_path / "other", 256)
        words.append(str(tmp_path / "other"))
    for options, form in (([], "txt"), (["--json"], "json")):
        answer = run(*words, *options)
        assert (answer.code, answer.err) == (int(command == "diff"), "")
        shown = without(without(answer.out, job, "OUT"), tmp_path / "other", "OUT")
        assert golden_difference(f"{command}.{form}", shown) == ""


def test_with_flight_the_files_of_the_flight_recorder_are_read(run: Commands, job: Path) -> None:
    answer = run("analyse", "top", job, "--flight")
    assert answer.code == 1
    assert (
        "no rank of run 1a2b3c4d, started Nov24_12-04-37, ranks 0, 1 has files of a flight recorder; "
        "expected a directory flight"
    ) in answer.err
    flight = job / "Nov24_12-04-37-rank1-1a2b3c4d" / "flight"
    flight.mkdir()
    (flight / "grad_reduced_0-999.csv").write_text("name,step,norm\nfc.weight,7,1.0\nfc.weight,8,64.0\n")
    found = json.loads(run("analyse", "top", job, "--flight", "--json").out)
    assert found["read"]["rows"] == 2
    change = {"layer": "fc.weight", "step": 8, "factor": 64, "rank": 1}
    assert found["largest_change"][0].items() >= change.items()


def test_what_is_infinite_from_the_first_step_on_is_left_out_in_one_line(
    run: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = RankFiles(tmp_path, 0)
    for step in range(3):
        files.write(step, [TestRow("actv", f"layers.{layer}.mask", math.inf) for layer in range(4)])
    set_screen(monkeypatch, 40, 24)
    for command in ("first", "top"):
        text = run("analyse", command, tmp_path).out.replace("\n  ", " ")
        assert "all other values are finite" in text
        assert (
            "left out, infinite from the first collected step on, as attention masks are: layers.0.mask "
            "(actv), layers.1.mask (actv), layers.2.mask (actv) and 1 more\n"
        ) in text


def test_top_fits_the_screen(run: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = RankFiles(tmp_path, 0)
    for step in range(8):
        sizes = [[10.0**step, 0 if step > 4 else 1, 1][layer % 3] for layer in range(100)]
        name = "layers.{}.a_long_name_for_a_weight.of_the_layer"
        files.write(step, [TestRow("grad_reduced", name.format(i), size) for i, size in enumerate(sizes)])
    set_screen(monkeypatch, 60, 24)
    text = run("analyse", "top", tmp_path).out
    assert text.count("\n") < 24
    assert "exploding: 34 layers" in text


def test_bad_rows_are_reported_with_file_and_line_and_counted(run: Commands, job: Path) -> None:
    file = job / "Nov24_12-04-37-rank0-1a2b3c4d" / "actv_3-3.csv"
    file.write_text(file.read_text() + "0,bad,x,0,1.0,0,,\n")
    answer = run("analyse", "first", job, "--json")
    assert answer.code == 0
    assert answer.err == (
        f'gradmonctl: {file}:4: found "x" in the column step; expected a whole number; the row is left out\n'
    )
    assert json.loads(answer.out)["left_out"]["count"] == 1


def test_runs_are_found_or_the_error_says_what_is_expected(
    run: Commands, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MONITOR_OUTPUT_DIR", str(job))
    assert run("analyse", "first").code == 0
    missing = run("analyse", "first", job / "none")
    assert missing.code == 1
    assert "No such file or directory; expected the output directory of a job" in missing.err
    (job / "Nov24_12-04-38-rank0-00000000").mkdir()
    empty = run("analyse", "top", job, "--run", "00000000")
    assert empty.code == 1
    assert (
        "there are no rows in run 00000000, started Nov24_12-04-38, rank 0; expected CSV files" in empty.err
    )


def test_broken_files_break_no_command(run: Commands, tmp_path: Path) -> None:
    output = tmp_path / "out"
    files = RankFiles(output, 0)
    rows = [TestRow("actv", name, norm) for name, norm in (("fc1.input", 1.5), ('"a,b"', math.nan))]
    files.write(0, [*rows, TestRow("actv", '"two\nlines"', 2.0)])
    good = (files.directory / "actv_0-0.csv").read_bytes()
    for number, text in enumerate(broken_texts(good, BROKEN_FILES)):
        (files.directory / f"actv_{number % 37}-99.r{number}.csv").write_bytes(text)
    (output / "run-1a2b3c4d.json").write_text('{"format": [[[')
    for words in (["first"], ["top"], ["diff", output], ["plot", "-o", tmp_path / "x.svg"]):
        answer = run("analyse", words[0], output, *words[1:])
        assert answer.code == 0, answer.err
        assert " more rows or files are left out" in answer.err
        assert "\x1b" not in answer.err + answer.out


# The example of msprobe's documentation.
DOCUMENTED = """{
 "0:1.self_attention.core_attention_flash_0/rank0/input_grad_step_1_call_112": {
  "rank": 0,
  "step": 1,
  "micro_step": 0,
  "pp_stage": 0,
  "vpp_stage": 0,
  "call_id": 112,
  "tag_name": "0:1.self_attention.core_attention_flash_0/rank0/input_grad",
  "message": "Rule AnomalyTurbulence reports anomaly signal in ('0:1.self_attention.core_attention_flash_0\
/rank0/input_grad', 'min') at step 1.",
  "group_mates": [
   0,
   1
  ]
 }
}"""


def write_dump(directory: Path, text: "str | bytes", rank: int = 0) -> Path:
    (directory / f"rank{rank}").mkdir(parents=True, exist_ok=True)
    file = directory / f"rank{rank}" / "anomaly.json"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def messages_of(directory: Path, count: int = 8, steps: "list[int]" = []) -> "list[str]":
    return [each.fields["message"] for each in read_anomaly_dumps(directory, count, steps).first]


def test_anomalies_writes_the_file_of_msprobes_processor(run: Commands, tmp_path: Path) -> None:
    entries = {
        "k1": {"step": 5, "tag_name": "a/actv", "message": "five"},
        "k2": {"step": 3, "tag_name": "a/actv", "message": "three"},
    }
    write_dump(tmp_path / "anomaly_detected", json.dumps(entries))
    made = tmp_path / "anomaly_detected" / "anomaly_analyse.json"
    answer = run("analyse", "anomalies", tmp_path)
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == f"the first 2 of 2 anomalies, in {made}:\n0: three\n1: five\n"
    assert list(json.loads(made.read_text())) == ["k2", "k1"]
    assert made.stat().st_mode & 0o777 == 0o640
    (tmp_path / "to").mkdir()
    options = ["--out-path", str(tmp_path / "to"), "--topk", "1", "--step_list", "[5, 9]", "--json"]
    found = json.loads(run("analyse", "anomalies", "--data_path", str(tmp_path), *options).out)
    assert (found["dumps"], found["anomalies"], list(found["first"])) == (1, 1, ["k1"])
    assert len(json.loads((tmp_path / "to" / "anomaly_analyse.json").read_text())) == 1
    for steps in ("[5", "5]", "[x]", "[1,,2]", ",", "[[1]]"):
        assert run("analyse", "anomalies", "-d", tmp_path, "-s", steps).code == 2
    assert run("analyse", "anomalies", "-d", tmp_path, "-k", "0").code == 2
    nothing = run("analyse", "anomalies", tmp_path / "to")
    assert (nothing.code, nothing.err) == (
        1,
        f"gradmonctl: {tmp_path}/to: no dump of alerts in it; expected the directory anomaly_detected of a "
        'job, with rank0/anomaly.json, which alerts write with "dump": true in the config\'s "alert"; '
        "without it, "
        f"gradmonctl alerts {tmp_path}/to lists them\n",
    )


def test_anomalies_are_in_the_order_of_msprobes_anomaly_processor(tmp_path: Path) -> None:
    calls: "dict[str, dict[str, Any]]" = {
        "unknown": {"tag_name": "0:a/rank0/param_origin"},
        "forward": {"tag_name": "0:a/rank0/actv"},
        "forward, call 7": {"tag_name": "0:a/rank0/actv", "call_id": 7},
        "forward, stage 1": {"tag_name": "0:a/rank0/actv", "pp_stage": 1},
        "forward, chunk 1": {"tag_name": "1:a/rank0/actv", "vpp_stage": 1},
        "backward, stage 1": {"tag_name": "0:a/rank0/post_grad", "call_id": 9, "pp_stage": 1},
        "backward": {"tag_name": "0:a/rank0/pre_grad"},
        "optimizer": {"tag_name": "0:a/rank0/exp_avg"},
        "second micro step": {"tag_name": "0:a/rank0/actv", "micro_step": 1},
        "step 2": {"tag_name": "0:a/rank0/actv", "step": 2},
        "equal ones keep their order": {"tag_name": "0:a/rank0/actv", "step": 2},
    }
    entries = [(name, {"step": 1, "message": name, **fields}) for name, fields in calls.items()]
    random.Random(1).shuffle(entries)
    entries.sort(key=lambda entry: entry[0].startswith("equal"))
    write_dump(tmp_path, json.dumps(dict(entries)))
    assert messages_of(tmp_path, 100) == list(calls)


def test_the_example_of_msprobes_documentation_comes_out_byte_for_byte(tmp_path: Path) -> None:
    write_dump(tmp_path, DOCUMENTED)
    dumps = read_anomaly_dumps(tmp_path, 8, [])
    assert (dumps.left_out, analyse_json(dumps.first)) == ([], DOCUMENTED)
    odd = {"message": 'ä "\x7f\n', "group_mates": [{"b": [1, -2, 0.5], "a": {"x": None}}, [], {}, "t"]}
    made = json.loads(analyse_json([read_anomaly("k_norm", odd)]))["k_norm"]
    assert json.dumps(made["group_mates"]) == '[{"a": {"x": null}, "b": [1, -2, 0.5]}, [], {}, "t"]'
    assert '"message": "\\u00e4 \\"\\u007f\\n"' in analyse_json([read_anomaly("k_norm", odd)])


def test_the_dumps_of_all_ranks_are_merged_and_steps_are_chosen(tmp_path: Path) -> None:
    for rank in (2, 0, 10):
        entries = {f"k{rank}{s}": {"step": s, "message": f"rank {rank} step {s}"} for s in range(3)}
        write_dump(tmp_path, json.dumps(entries), rank)
    (tmp_path / "empty").mkdir()
    assert messages_of(tmp_path, 4) == ["rank 0 step 0", "rank 2 step 0", "rank 10 step 0", "rank 0 step 1"]
    assert messages_of(tmp_path, 8, [2, 7]) == [f"rank {rank} step 2" for rank in (0, 2, 10)]


@pytest.mark.parametrize(
    "text, left_out",
    [
        ('{"a": {"step": "1"}, "b": {"message": "b"}}', "a: expected a whole number for step"),
        ('{"a": {"step": 1e400}, "b": {"message": "b"}}', "a: expected a whole number for step"),
        ('{"a": {"tag_name": 1}, "b": {"message": "b"}}', "a: expected a text for tag_name"),
        ('{"a": [{"step": 1}], "b": {"message": "b"}}', "a: expected an object, such as"),
        ('{"b": {"message": "b"}, "c": {"st', "no whole JSON object; its first alerts are used"),
        (b'{"b": {"message": "b"}, "c": "\xff"}', "no whole JSON object; its first alerts are used"),
        ('{"b": {"message": "b"}, "c": NaN}', "no whole JSON object; its first alerts are used"),
        ("", "expected a JSON object with an object for each alert"),
        ('[{"step": 1}]', "expected a JSON object with an object for each alert"),
        ("7", "expected a JSON object with an object for each alert"),
        (b"\0" * 100, "expected a JSON object with an object for each alert"),
        ('{"a": ' + "[" * 200_000 + "]" * 200_000 + "}", "expected brackets nested at most 100 deep"),
    ],
)
def test_bad_entries_and_broken_dumps_are_left_out_by_name(
    tmp_path: Path, text: "str | bytes", left_out: str
) -> None:
    file = write_dump(tmp_path, text)
    dumps = read_anomaly_dumps(tmp_path, 8, [])
    assert messages_of(tmp_path) == (["b"] if b'"b"' in file.read_bytes() else [])
    (message,) = dumps.left_out
    assert message.startswith(f"{file}: {left_out}")


# A minute is many times what it takes.
def test_many_members_and_anomalies_are_read_in_time(tmp_path: Path) -> None:
    begun = time.monotonic()
    members = ",".join(f'"k{i}":1' for i in range(300_000))
    write_dump(tmp_path / "members", f'{{{members},"last": {{"message": "last"}}}}')
    dumps = read_anomaly_dumps(tmp_path / "members", 8, [])
    assert messages_of(tmp_path / "members") == ["last"]
    assert dumps.left_out[-1] == "and 299990 more alerts or files are left out"
    for rank in range(300):
        write_dump(tmp_path, json.dumps({f"k{i}": {"step": 7 * i % 200} for i in range(200)}), rank)
    dumps = read_anomaly_dumps(tmp_path, 1_000_000, [])
    assert dumps.anomalies == len(dumps.first) == 300 * 200
    assert [dumps.first[0].fields["step"], dumps.first[-1].fields["step"]] == [0, 199]
    assert time.monotonic() - begun < 60
