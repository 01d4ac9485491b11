# SPDX-License-Identifier: Apache-2.0
"""The rows of one kind and rank, from all its CSV files, and names."""
import json
import math
import os
import random
from pathlib import Path
from typing import Any

import numpy
import pytest
from gradmon_read.csv_tables import Problems, kind_files_in
from gradmon_read.kind_rows import Batch, KindReader, Names, files_of_steps
from reading import Commands, RankWriter, change
from scale import FULL

CORRUPTIONS = 1000 if FULL else 250


class Read:
    """The rows of a kind in a directory: columns as lists."""

    def __init__(self, directory: Path, kind: str = "actv") -> None:
        self.problems = Problems()
        self.reader = KindReader(self.problems)
        files = kind_files_in(directory, self.problems).get(kind, [])
        self.batches: "list[Batch]" = list(self.reader.batches(kind, files))
        self.names = [self.reader.names.label(name) for name in self.column("name")]

    def column(self, name: str) -> "list[Any]":
        return [value.item() for batch in self.batches for value in getattr(batch, name)]

    def values(self, field: str) -> "list[Any]":
        """None: no value."""
        found = []
        for batch in self.batches:
            has = batch.has(field)
            found += [float(batch.values[field][i]) if has[i] else None for i in range(batch.rows)]
        return found


def test_rows_have_the_values_and_texts_of_their_cells(tmp_path: Path) -> None:
    (tmp_path / "actv_0-0.csv").write_text(
        "vpp_stage,name,step,micro_step,norm,nans,future,shape,dtype\n"
        '1,fc1,0,2,-1.5e-05,3,?,"[2, 2]",torch.float32\n'
        ",,0,0,nan,,?,[2],torch.bool\n"
        "0,fc1,0,0,-inf,0.0,?,[2],torch.bool\n"
    )
    (tmp_path / "actv_1-1.csv").write_text("param_name,step,max\nfc1,1,inf\n")
    read = Read(tmp_path)
    assert read.names == ["1:fc1", "", "fc1", "fc1"]
    assert (read.column("step"), read.column("micro_step")) == ([0, 0, 0, 1], [2, 0, 0, -1])
    assert repr(read.values("norm")) == "[-1.5e-05, nan, -inf, None]"
    assert read.values("nans") == [3, None, 0, None]
    assert read.values("max") == [None, None, None, float("inf")]
    assert (read.column("line"), read.column("place")) == ([2, 3, 4, 2], [0, 1, 2, 0])
    first = read.batches[0]
    assert [first.shapes[i] for i in first.shape] == [b"[2, 2]", b"[2]", b"[2]"]
    assert first.dtypes[first.dtype[0]] == b"torch.float32"


def write(directory: Path, revision: int, first: int, last: int, steps: "list[int]") -> None:
    rows = "".join(f"w,{step},{revision}\n" for step in steps)
    suffix = f".r{revision}" if revision else ""
    (directory / f"actv_{first}-{last}{suffix}.csv").write_text(f"name,step,norm\n{rows}")


def test_rows_of_all_files_come_by_step_also_where_revisions_have_files_of_their_own(tmp_path: Path) -> None:
    write(tmp_path, 0, 0, 9, [1, 2])
    write(tmp_path, 2, 0, 9, [3, 4])
    write(tmp_path, 0, 10, 19, [11])
    write(tmp_path, 3, 10, 19, [10, 12])
    write(tmp_path, 4, 0, 99, [13, 14])
    read = Read(tmp_path)
    assert read.column("step") == [1, 2, 3, 4, 10, 11, 12, 13, 14]
    assert read.values("norm") == [0, 0, 2, 2, 3, 0, 3, 4, 4]
    assert read.problems.count == 0
    files = kind_files_in(tmp_path, read.problems)["actv"]
    assert len(files_of_steps(files, 5, 9)) == 3


def test_many_files_of_the_same_steps_are_merged(tmp_path: Path) -> None:
    for revision in range(1, 201):
        write(tmp_path, revision, 0, 0, [0])
    read = Read(tmp_path)
    assert read.values("norm") == list(range(1, 201))
    assert len(os.listdir("/proc/self/fd")) < 100


def test_a_row_of_an_earlier_step_comes_right_after_the_row_before_it(tmp_path: Path) -> None:
    write(tmp_path, 1, 0, 9, [5, 3, 6])
    write(tmp_path, 2, 0, 9, [4, 5])
    read = Read(tmp_path)
    assert read.column("step") == [4, 5, 3, 5, 6]
    assert read.values("norm") == [2, 1, 1, 2, 1]


@pytest.mark.parametrize("revisions", [1, 2])
def test_a_large_file_is_read_in_batches_and_has_the_same_rows(tmp_path: Path, revisions: int) -> None:
    """A step goes on in the next batch; one name has a line end."""
    count = 30_000
    names = ['"na""me\n2"' if i == count // 2 else f"layers.{i}.weight" for i in range(count)]
    for revision in range(1, revisions + 1):
        rows = "".join(f"{name},{step},{i}.5\n" for step in range(2) for i, name in enumerate(names))
        (tmp_path / f"actv_0-9.r{revision}.csv").write_text(f"name,step,norm\n{rows}")
    read = Read(tmp_path)
    assert read.problems.messages() == []
    assert len(read.batches) > 1
    values = [i + 0.5 for i in range(count)] * revisions
    assert read.values("norm") == values * 2
    assert read.column("step") == [0] * len(values) + [1] * len(values)
    assert read.column("place") == list(range(count)) * 2 * revisions
    assert read.names[count // 2] == 'na"me\n2'
    assert read.column("line")[count // 2 :][:2] == [count // 2 + 2, count // 2 + 4]


def test_small_files_are_read_together_and_a_bad_one_costs_only_its_own_rows(tmp_path: Path) -> None:
    for step in range(50):
        write(tmp_path, 0, step, step, [step])
    assert len(Read(tmp_path).batches) == 1
    bad = tmp_path / "actv_7-7.csv"
    bad.write_text('name,step,norm\nw,7,0\n"w"x,7,1\nw,7,x\nw,7\n\nw,7,2\ntorn,7,')
    read = Read(tmp_path)
    assert read.column("step") == sorted([*range(50), 7])
    assert read.problems.messages() == [
        f"{bad}:3: text after a quoted cell; expected a comma or a line end; the row is left out",
        f'{bad}:4: found "x" in the column norm; expected a number; the row is left out',
        f"{bad}:5: found 2 cells; expected 3 as in the header; the row is left out",
    ]
    batch = next(batch for batch in read.batches if batch.step[-1] == 7)
    assert ([file.path for file in batch.files], batch.line.tolist(), batch.place.tolist()) == (
        [str(bad)],
        [2, 7],
        [0, 1],
    )


def test_a_name_has_the_same_number_again_whatever_the_order() -> None:
    names = Names()
    assert [names.number(*each) for each in ((0, b"a"), (0, b"b"), (1, b"a"), (0, b"b"))] == [0, 1, 2, 1]
    assert names.label(2) == "1:a"
    stage, index = numpy.array([1, 0, 1, 2]), numpy.array([0, 0, 1, 0])
    assert names.numbers(stage, index, [b"a", b"b"]).tolist() == [2, 0, 3, 4]
    assert names.number(0, b"x" * (Names.MOST_BYTES + 1)) == -1


def test_rows_of_too_many_names_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Names, "MOST", 2)
    (tmp_path / "actv_0-0.csv").write_text("name,step\na,0\nb,0\nc,0\na,0\n")
    read = Read(tmp_path)
    assert read.names == ["a", "b", "a"]
    assert read.problems.messages() == [
        f"{tmp_path}/actv_0-0.csv:4: more than a million names; the row is left out"
    ]


def corrupted(text: bytes, chosen: random.Random) -> bytes:
    for _ in range(chosen.choice([1, 1, 2, 20])):
        at = chosen.randrange(len(text) + 1)
        more = chosen.choice([b'"', b",", b"\n", b"\r\n", b"\0", b"nan", b"1e999", chosen.randbytes(3)])
        text = text[:at] + more + text[at + chosen.randrange(4) :]
    return text[: chosen.randrange(len(text) + 1)] if chosen.random() < 0.2 else text


def test_any_bytes_are_rows_and_problems_and_a_good_row_after_them_is_read(tmp_path: Path) -> None:
    chosen = random.Random(5)
    titles = b"vpp_stage,name,step,micro_step,norm,nans,shape,dtype\n"
    good = b"".join(b'%d,"fc%d,x",%d,0,1.5,0,"[2, 2]",torch.float32\n' % (i % 2, i, i // 3) for i in range(9))
    for _ in range(CORRUPTIONS):
        bad = corrupted(titles + good, chosen)
        (tmp_path / "actv_0-9.csv").write_bytes(b"name,step\n" + bad + b"\nname,step\ngood,1\n")
        read = Read(tmp_path)
        assert read.names and read.names[-1] == "good"
        lines, steps = read.column("line"), read.column("step")
        assert lines == sorted(lines) and min(steps) >= 0
        place = -1
        for i, step in enumerate(steps):  # counted within a step
            place = place + 1 if i and step == steps[i - 1] else 0
            assert read.column("place")[i] == place


def test_without_csv_files_the_database_of_a_rank_is_read(run: Commands, tmp_path: Path) -> None:
    writer = RankWriter(tmp_path, 0, "1a2b3c4d")
    for step in (498, 499, 500, 501):
        writer.write(step, ["a", "b"], {"a": [2.0**step, 1.0], "b": [math.nan if step > 499 else 1.0, 1.0]})
    writer.close()
    found = json.loads(run("analyse", "first", tmp_path, "--json").out)
    assert found["read"] == {"rows": 8, "first_step": 498, "last_step": 501}
    place = {"step": 500, "kind": "grad_reduced", "name": "b", "what": "nan", "micro_step": None}
    assert found["first"].items() >= place.items()
    assert (found["first"]["file"], found["first"]["line"]) == (str(writer.file), 0)
    assert [sample["norm"] for sample in found["history"]] == [1, 1, "nan", "nan"]
    assert json.loads(run("analyse", "top", tmp_path, "--json").out)["layers"] == 2
    change(writer.file, "UPDATE metric_4_step_0_499 SET norm = 'text' WHERE target_id = 1")
    writer.file.write_bytes(writer.file.read_bytes()[:5000])
    answer = run("analyse", "top", tmp_path)
    assert answer.code == 1
    assert answer.err.startswith(f"gradmonctl: {writer.file}: database disk image is malformed")
