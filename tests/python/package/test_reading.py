# SPDX-License-Identifier: Apache-2.0
"""gradmon.load(), also of CSV files that a spreadsheet has saved or an older msprobe has written."""
import importlib.util
import math
import os
import re
import sqlite3
import struct
from pathlib import Path
from typing import Union

import gradmon
import jobs
import numpy as np
import pytest
import torch
from training import gradmonctl
from gradmon_read import vocabulary
from gradmon_read.event_rows import masked_crc32c


def write_run(out: Path, name: str, **files: str) -> Path:
    directory = out / name
    directory.mkdir(parents=True)
    for file, text in files.items():
        (directory / f"{file}.csv").write_text(text)
    return directory


def test_a_training_is_read_back_whole(tmp_path: Path) -> None:
    model = jobs.make_net()
    optimizer = torch.optim.Adam(model.parameters())
    with jobs.monitor(
        tmp_path,
        wg_distribution=True,
        mg_direction=True,
        xy_distribution=True,
        all_xy=True,
        scalars={"loss": "records"},
    ).watch(model, optimizer) as monitor:
        jobs.train(model, optimizer, 3, lambda step: monitor.scalar("loss", step))
    table = gradmon.load(tmp_path / "out")
    assert list(table.columns) == ["rank", "step", "micro_step", "kind", "name", "op", "value", "vpp_stage"]
    assert set(table["kind"]) == {"grad_reduced", "grad_unreduced", "actv", "actv_grad", "other", "scalar"}
    for kind in ("grad_reduced", "actv", "other"):
        part = table[table["kind"] == kind]
        found = {(r.name, r.step, r.op): r.value for r in part.itertuples(index=False)}
        wanted = {
            (n, s, op): v
            for (n, s, _), row in jobs.rows(tmp_path / "out", kind).items()
            for op, v in row.items()
        }
        assert found == pytest.approx(wanted, nan_ok=True)
        assert part["micro_step"].isna().all() == (kind != "actv")
    assert table["step"].is_monotonic_increasing
    if importlib.util.find_spec("pyarrow"):  # not beside Debian's torch
        opened = gradmon.open(tmp_path / "out").pandas()[list(table.columns)]
        rows = [sorted(map(repr, one.itertuples(index=False))) for one in (opened, table)]
        assert rows[0] == rows[1]


def test_the_vocabulary_is_that_of_the_writers() -> None:
    header = (Path(__file__).resolve().parents[3] / "control" / "vocabulary.h").read_text()
    kinds = re.findall(r'"([a-z0-9_]+)"', header.split("kKindNames")[1].split("};")[0])
    assert kinds == vocabulary.KINDS
    folds = re.findall(r'{"([a-z]+)", \w+, Fold::(\w+),', header.split("kStatistics = ")[1].split("}};")[0])
    assert folds == list(vocabulary.FOLDS.items())


def test_the_package_shows_what_it_finds_when_it_is_named() -> None:
    assert {"load", "heatmap", "open", "hf", "Monitor"} <= set(dir(gradmon))


def test_ranks_and_odd_names_and_values(tmp_path: Path) -> None:
    head = "vpp_stage,name,step,norm,nans,shape,dtype\n"
    write_run(
        tmp_path,
        "Nov21_10-00-00-rank0-0123abcd",
        **{"grad_reduced_0-0": head + '0,"a,b""c",0,nan,2,[4],torch.float32\n'},
    )
    write_run(
        tmp_path,
        "Nov21_10-00-00-rank10-0123abcd",
        **{"grad_reduced_0-0.r2": head + "1,w,0,inf,,[4],torch.float32\n"},
    )
    table = gradmon.load(tmp_path)
    assert list(table["rank"]) == [0, 0, 10]
    assert list(table["name"]) == ['a,b"c', 'a,b"c', "w"]
    assert list(table["op"]) == ["norm", "nans", "norm"]
    assert math.isnan(table["value"][0]) and table["value"][1] == 2 and math.isinf(table["value"][2])
    assert list(table["vpp_stage"]) == [0, 0, 1]


def test_a_nan_is_a_value_and_an_empty_cell_is_none(tmp_path: Path) -> None:
    head = "vpp_stage,name,step,micro_step,entropy,softmax_max\n"
    bodies = {
        "both": ("0,a,0,0,nan,1.5\n0,b,0,0,2.5,\n", [("a", math.nan), ("a", 1.5), ("b", 2.5)]),
        "nan": (
            "0,a,0,0,nan,1.5\n0,b,0,0,-inf,2\n",
            [("a", math.nan), ("a", 1.5), ("b", -math.inf), ("b", 2)],
        ),
        "empty": ("0,a,0,0,,1.5\n0,b,0,0,2.5,\n", [("a", 1.5), ("b", 2.5)]),
        "name": ('0,"nan,,",0,0,1,nan\n', [("nan,,", 1), ("nan,,", math.nan)]),
    }
    for what, (body, wanted) in bodies.items():
        write_run(tmp_path / what, "Nov21_10-00-00-rank0-0123abcd", **{"attention_hook_0-0": head + body})
        table = gradmon.load(tmp_path / what)
        assert list(table["name"]) == [name for name, _ in wanted], what
        assert list(table["value"]) == pytest.approx([value for _, value in wanted], nan_ok=True), what
        assert list(table["micro_step"]) == [0] * len(wanted) and str(table["micro_step"].dtype) == "Int64"


def test_the_rows_of_a_step_are_in_the_order_of_ranks_and_kinds_whatever_the_files(tmp_path: Path) -> None:
    head = "vpp_stage,name,step,norm,shape,dtype\n"
    for rank in (0, 1):
        files = {
            f"{kind}_{step}-{step}": head + f"0,w,{step},1.0,[4],torch.float32\n" * 2
            for kind in ("actv", "grad_reduced")
            for step in (2, 10)
        }
        write_run(tmp_path, f"Nov21_10-00-00-rank{rank}-0123abcd", **files)
    table = gradmon.load(tmp_path)
    wanted = [
        (step, rank, kind)
        for step in (2, 10)
        for rank in (0, 1)
        for kind in ("actv", "grad_reduced")
        for _ in range(2)
    ]
    assert list(zip(table["step"], table["rank"], table["kind"])) == wanted
    assert list(table.index) == list(range(len(wanted)))
    alone = gradmon.load(tmp_path, kind="actv", ranks=0)  # in order as read
    assert list(alone["step"]) == [2, 2, 10, 10] and list(alone.index) == [0, 1, 2, 3]


def test_of_several_runs_one_is_taken(tmp_path: Path) -> None:
    row = "vpp_stage,name,step,norm,shape,dtype\n0,w,{},1.0,[4],torch.float32\n"
    old = write_run(tmp_path, "Nov21_10-00-00-rank0-0123abcd", **{"grad_reduced_0-0": row.format(3)})
    new = write_run(tmp_path, "Jan02_10-00-00-rank0-89abcdef", **{"grad_reduced_0-0": row.format(4)})
    for file in old.iterdir():
        os.utime(file, (1, 1))
    (old / "monitor_metrics.db-journal").touch()  # as a killed rank leaves it
    assert list(gradmon.load(tmp_path)["step"]) == [4]
    assert list(gradmon.load(tmp_path, run="0123abcd")["step"]) == [3]
    assert list(gradmon.load(old)["step"]) == [3]
    assert new.exists()


def test_the_working_directory_can_be_a_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = write_run(tmp_path, "Nov21_10-00-00-rank3-0123abcd", grad_reduced_0="name,step,norm\nw,0,2\n")
    (directory / "grad_reduced_0.csv").rename(directory / "grad_reduced_0-0.csv")
    monkeypatch.chdir(directory)
    assert list(gradmon.load(".")["rank"]) == [3]


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no directory of a rank and no CSV file of gradmon in it"):
        gradmon.load(tmp_path)
    write_run(
        tmp_path, "Nov21_10-00-00-rank0-0123abcd", **{"actv_0-0": "vpp_stage,name,step,norm\n0,w,0,much\n"}
    )
    with pytest.raises(ValueError, match=r"actv_0-0.csv:2: .*much.* expected a number$"):
        gradmon.load(tmp_path)
    with pytest.raises(FileNotFoundError, match="no run ffffffff"):
        gradmon.load(tmp_path, run="ffffffff")


def test_kinds_steps_ranks_and_names_are_chosen_and_other_files_not_read(tmp_path: Path) -> None:
    head = "vpp_stage,name,step,norm,shape,dtype\n"
    row = "0,{},{},{}.5,[4],torch.float32\n"
    for rank in (0, 1):
        files = {
            f"{kind}_{first}-{first + 1}": head
            + "".join(row.format(name, step, step) for step in (first, first + 1) for name in ("a.w", "b.w"))
            for kind in ("grad_reduced", "actv")
            for first in (0, 2, 4)
        }
        write_run(tmp_path, f"Nov21_10-00-00-rank{rank}-0123abcd", **files)
    everything = gradmon.load(tmp_path)
    assert len(everything) == 2 * 2 * 6 * 2
    (tmp_path / "Nov21_10-00-00-rank0-0123abcd" / "actv_0-1.csv").write_text("no file of ours\n")
    chosen = gradmon.load(tmp_path, kind="grad_reduced", steps=range(3, 5), ranks=1, names="a.w")
    assert list(chosen["step"]) == [3, 4] and list(chosen["value"]) == [3.5, 4.5]
    assert set(chosen["rank"]) == {1} and set(chosen["name"]) == {"a.w"}
    arrays = {"steps": np.array([3, 4]), "ranks": torch.tensor([1])}
    assert gradmon.load(tmp_path, kind="grad_reduced", names="a.w", **arrays).equals(chosen)
    assert len(gradmon.load(tmp_path, kind="grad_reduced", names="a.w", steps=np.array(3))) == 2
    chosen = gradmon.load(tmp_path, kind=["actv"], steps=[5], names=re.compile(r"^b\."))
    assert list(chosen["rank"]) == [0, 1] and set(chosen["name"]) == {"b.w"}
    assert gradmon.load(tmp_path, steps=99).empty


def test_a_line_that_is_still_being_written_is_left_out(tmp_path: Path) -> None:
    head = "vpp_stage,name,step,norm,shape,dtype\n"
    for rank, end in ((0, "0,w,1,2."), (1, "")):
        text = head + '0,"w\n2",0,1.0,[4],torch.float32\n' + end
        write_run(tmp_path, f"Nov21_10-00-00-rank{rank}-0123abcd", **{"grad_reduced_0-0": text})
    table = gradmon.load(tmp_path)
    assert list(table["rank"]) == [0, 1]
    assert list(table["name"]) == ["w\n2", "w\n2"]


def as_record(event: bytes) -> bytes:
    length = struct.pack("<Q", len(event))
    checksums = [struct.pack("<I", masked_crc32c(part)) for part in (length, event)]
    return length + checksums[0] + event + checksums[1]


def written_by(program: bytes) -> bytes:
    """The first record of an event file, which names the program."""
    source = bytes([1 << 3 | 2, len(program)]) + program
    return as_record(bytes([10 << 3 | 2, len(source)]) + source)


def event_file(*events: "tuple[int, str, float]") -> bytes:
    """The bytes of an event file, by the encoding that TensorBoard's documents give."""

    def field(number: int, data: bytes) -> bytes:
        return bytes([number << 3 | 2, len(data)]) + data

    data = b""
    for step, tag, number in events:
        value = field(1, tag.encode()) + b"\x15" + struct.pack("<f", number)
        event = b"\x09" + struct.pack("<d", 1.5) + b"\x10" + bytes([step]) + field(5, field(1, value))
        data += as_record(event)
    return data


def test_an_event_that_is_still_being_written_is_left_out_and_a_damaged_file_is_named(tmp_path: Path) -> None:
    events = [(step, f"0:w/rank0/post_grad_{op}", step + 0.5) for step in range(3) for op in ("norm", "max")]
    directory = write_run(tmp_path, "Nov21_10-00-00-rank0-0123abcd") / "tensorboard"
    directory.mkdir()
    file = directory / "events.out.tfevents.1.host.2"
    whole = event_file(*events)
    for cut in (1, 3, 20, 50):
        file.write_bytes(whole[:-cut])
        table = gradmon.load(tmp_path)
        assert list(table["step"]) == [0, 0, 1, 1, 2], cut
        assert list(table["value"]) == [0.5, 0.5, 1.5, 1.5, 2.5]
        assert set(table["kind"]) == {"grad_reduced"} and set(table["name"]) == {"w"}
    file.write_bytes(whole[:-1] + b"?")
    assert len(gradmon.load(tmp_path)) == 5
    file.write_bytes(b"?" + whole)
    with pytest.raises(ValueError, match="events.out.tfevents.1.host.2: byte 0: not the header of a record"):
        gradmon.load(tmp_path)


def test_what_csv2tb_has_made_is_read(tmp_path: Path) -> None:
    for rank, kind, tag in (
        (2, "actv", "vp1:fc.input:micro3/norm"),
        (3, "actv_grad", "actv_grad_norm/1:fc.input:micro3"),
        (10, "other", "vp0:w:1/mg_direction"),
        (11, "other", "other_mg_direction/w:1"),
    ):
        directory = tmp_path / f"rank{rank}" / kind
        directory.mkdir(parents=True)
        (directory / "events.out.tfevents.1.host.2").write_bytes(event_file((7, tag, 0.25)))
    table = gradmon.load(tmp_path)
    assert table.astype(object).where(table.notna(), None).values.tolist() == [
        [2, 7, 3, "actv", "fc.input", "norm", 0.25, 1],
        [3, 7, 3, "actv_grad", "fc.input", "norm", 0.25, 1],
        [10, 7, None, "other", "w:1", "mg_direction", 0.25, 0],
        [11, 7, None, "other", "w:1", "mg_direction", 0.25, 0],
    ]


def test_a_file_that_is_no_database_of_gradmon_is_named(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "other.db") as database:
        database.execute("CREATE TABLE t (n)")
    database.close()
    with pytest.raises(ValueError, match="other.db: found another database; expected one of gradmon"):
        gradmon.load(tmp_path / "other.db")
    (tmp_path / "text.db").write_text("no database" * 100)
    with pytest.raises(ValueError, match="text.db: file is not a database"):
        gradmon.load(tmp_path / "text.db")


# --- files that another program has saved ---


BIN = Path(os.environ["GRADMON_BIN"])
ROWS = (
    'vpp_stage,name,step,norm,shape,dtype\n0,w,0,0.5,"[2, 2]",torch.float32\n1,b,0,0.25,[2],torch.float32\n'
)
FOUND = {("grad_reduced", 0, "w", 0, "norm", 0.5), ("grad_reduced", 1, "b", 0, "norm", 0.25)}
OF_MODULES = {
    ("actv", 0, "fc.input", 0, "norm", 1.5),
    ("actv", 0, "fc.output", 0, "norm", 2.5),
    ("actv", 0, "relu.input", 0, "norm", 2.5),
}

FORMS = {
    "byte order mark": ("grad_reduced_0-0", b"\xef\xbb\xbf" + ROWS.encode(), FOUND),
    "carriage returns": ("grad_reduced_0-0", ROWS.replace("\n", "\r\n"), FOUND),
    "no line end": ("grad_reduced_0-0", ROWS.replace("\n", "\r\n")[:-2], FOUND),
    "both": ("grad_reduced_0-0", b"\xef\xbb\xbf" + ROWS.replace("\n", "\r\n").encode()[:-2], FOUND),
    "quoted titles": ("grad_reduced_0-0", ROWS.replace("vpp_stage,name", '"vpp_stage","name"'), FOUND),
    "param_name": ("grad_reduced_0-0", ROWS.replace("name", "param_name"), FOUND),
    "module_name": (
        "actv_0-0",
        "vpp_stage,module_name,step,input.norm,output.norm\n0,fc,0,1.5,2.5\n0,relu,0,2.5,\n",
        OF_MODULES,
    ),
    "gradients": (
        "actv_grad_0-0",
        "module_name,step,input_grad.norm,output_grad.norm\nfc,0,1.5,2.5\nrelu,0,2.5,\n",
        {("actv_grad", *row[1:]) for row in OF_MODULES},
    ),
}


def write(place: Path, name: str, text: Union[str, bytes]) -> Path:
    directory = place / "Dec03_21-34-40-rank0-1a2b3c4d"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{name}.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    return place


def load(place: Path) -> "set[tuple[object, ...]]":
    table = gradmon.load(place)
    return set(zip(*(table[column] for column in ("kind", "vpp_stage", "name", "step", "op", "value"))))


@pytest.mark.parametrize("form", FORMS)
def test_a_file_that_another_program_has_saved_is_read(form: str, tmp_path: Path) -> None:
    name, text, found = FORMS[form]
    assert load(write(tmp_path / "out", name, text)) == found


@pytest.mark.parametrize(
    "text",
    [
        "name;step;norm\nw;0;0,5\n",
        "name,step,norm\r" + "w,0,0.5\r",
        "param_name,name,step,norm\nw,w,0,0.5\n",
        "name,step,norm\nw,0,0.5,0.7\n",
        "name,step,norm\nw,0,0.5\nb,1,0.5,0.7\n",
        'name,step,norm\nw,0,"0,5"\n',
    ],
)
def test_a_file_that_cannot_be_read_is_named(text: str, tmp_path: Path) -> None:
    place = write(write(tmp_path / "out", "grad_unreduced_0-0", ROWS), "grad_reduced_0-0", text)
    with pytest.raises(ValueError, match="grad_reduced_0-0.csv"):
        gradmon.load(place)


def test_an_event_file_of_another_program_has_no_rows_of_the_rank(tmp_path: Path) -> None:
    """It is in tensorboard/ of the rank's directory. The first event of the file names its writer."""
    place = tmp_path / "Dec03_21-34-40-rank0-1a2b3c4d"
    write(tmp_path, "grad_reduced_0-0", ROWS)
    done = gradmonctl("convert", "csv2tb", "--monitor-path", place, "--output-dirpath", tmp_path / "made")
    assert (done.returncode, done.stderr) == (0, "")
    (file,) = (tmp_path / "made").glob("rank0/grad_reduced/events.*")
    assert b"gradmon" in file.read_bytes()
    (place / "tensorboard").mkdir()
    mine, other = (
        place / "tensorboard" / file.name,
        place / "tensorboard" / "events.out.tfevents.9999999999.h.1",
    )
    mine.write_bytes(file.read_bytes())
    assert len(gradmon.load(place, form="tensorboard")) == 2
    other.write_bytes(written_by(b"another") + event_file((0, "grad_reduced_norm/w", 0.5)))
    assert len(gradmon.load(place, form="tensorboard")) == 2
    mine.unlink()
    assert len(gradmon.load(place, form="tensorboard")) == 0
