# SPDX-License-Identifier: Apache-2.0
"""CSV files as spreadsheets save them again, and as older releases of msprobe wrote them: read, or named."""
import os
import subprocess
from pathlib import Path
from typing import Union

import gradmon
import pytest

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


def run(*arguments: object) -> "subprocess.CompletedProcess[str]":
    command = [str(argument) for argument in (BIN / "gradmonctl", *arguments)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize("form", FORMS)
def test_every_reader_reads_the_file(form: str, tmp_path: Path) -> None:
    name, text, found = FORMS[form]
    place = write(tmp_path / "out", name, text)
    assert load(place) == found
    for converter in ("csv2db", "csv2tb"):
        done = run("convert", converter, "--monitor-path", place, "--output-dirpath", tmp_path / converter)
        assert (done.returncode, done.stderr) == (0, "")
        assert load(tmp_path / converter) == found
    done = run("analyse", "first", place)
    assert (done.returncode, done.stderr) == (0, "")


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
    done = run("convert", "csv2db", "--monitor-path", place, "--output-dirpath", tmp_path / "db")
    assert "grad_reduced_0-0.csv" in done.stderr
    done = run("analyse", "first", place)
    assert "grad_reduced_0-0.csv" in done.stderr


def test_an_event_file_of_another_program_has_no_rows_of_the_rank(tmp_path: Path) -> None:
    """It is in tensorboard/ of the rank's directory. The first event of the file names its writer."""
    place = tmp_path / "Dec03_21-34-40-rank0-1a2b3c4d"
    write(tmp_path, "grad_reduced_0-0", ROWS)
    done = run("convert", "csv2tb", "--monitor-path", place, "--output-dirpath", tmp_path / "made")
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
    other.write_bytes(file.read_bytes().replace(b"gradmon", b"another"))
    assert len(gradmon.load(place, form="tensorboard")) == 2
    mine.unlink()
    assert len(gradmon.load(place, form="tensorboard")) == 0
