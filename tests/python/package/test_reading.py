# SPDX-License-Identifier: Apache-2.0
"""gradmon.load()."""
import math
import os
import re
from pathlib import Path

import gradmon
import jobs
import pytest
import torch


def write_run(out: Path, name: str, **files: str) -> Path:
    directory = out / name
    directory.mkdir(parents=True)
    for file, text in files.items():
        (directory / f"{file}.csv").write_text(text)
    return directory


def test_a_training_is_read_back_whole(tmp_path: Path) -> None:
    model = jobs.make_net()
    optimizer = torch.optim.Adam(model.parameters())
    config = jobs.write_config(
        tmp_path,
        wg_distribution=True,
        mg_direction=True,
        xy_distribution=True,
        all_xy=True,
        scalars={"loss": "records"},
    )
    with gradmon.Monitor(config, output_dir=tmp_path / "out", dynamic=False).watch(
        model, optimizer
    ) as monitor:
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


def test_of_several_runs_one_is_taken(tmp_path: Path) -> None:
    row = "vpp_stage,name,step,norm,shape,dtype\n0,w,{},1.0,[4],torch.float32\n"
    old = write_run(tmp_path, "Nov21_10-00-00-rank0-0123abcd", **{"grad_reduced_0-0": row.format(3)})
    new = write_run(tmp_path, "Jan02_10-00-00-rank0-89abcdef", **{"grad_reduced_0-0": row.format(4)})
    os.utime(old, (1, 1))
    assert list(gradmon.load(tmp_path)["step"]) == [4]
    assert list(gradmon.load(tmp_path, run="0123abcd")["step"]) == [3]
    assert list(gradmon.load(old)["step"]) == [3]
    assert new.exists()


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no run of gradmon's"):
        gradmon.load(tmp_path)
    write_run(
        tmp_path, "Nov21_10-00-00-rank0-0123abcd", **{"actv_0-0": "vpp_stage,name,step,norm\n0,w,0,much\n"}
    )
    with pytest.raises(ValueError, match="actv_0-0.csv: .*much"):
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
