# SPDX-License-Identifier: Apache-2.0
"""One run in all formats: each holds the same numbers, to the last digit that it carries."""
import math
import struct
from pathlib import Path

import gradmon
import jobs
import pytest
import torch

DIGITS = 17


def as_float32(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])


def same(left: float, right: float) -> bool:
    """Alike but for what rounding to DIGITS decimals takes."""
    both_nan = math.isnan(left) and math.isnan(right)
    return both_nan or math.isclose(left, right, rel_tol=1e-15, abs_tol=10.0**-DIGITS)


def train(config: Path, out: Path, scale: float = 1.0) -> None:
    """Four steps with two micro batches each; in the last one the gradients are NaN."""
    model = jobs.make_net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    with gradmon.Monitor(config, output_dir=out, dynamic=False) as monitor:
        monitor.watch(model, optimizer)
        for step in range(4):
            optimizer.zero_grad()
            for micro in range(2):
                loss = model(jobs.batch(step, micro)).pow(2).mean() * (math.nan if step == 3 else scale)
                loss.backward()
            monitor.scalar("loss", step + 0.1)
            monitor.scalar("a/rank0/odd:name", -math.inf)
            monitor.samples(16)
            optimizer.step()


EVERYTHING = {
    **jobs.EVERYTHING,
    "monitor_mbs_grad": True,
    "recording_l2_features": True,
    "l2_targets": {"linear_hook": []},
    "ndigits": 100,
    "scalars": {"loss": "records", "a/rank0/odd:name": "records", "grad-norm": "records"},
    "format": ["csv", "tensorboard", "sqlite"],
}


@pytest.mark.parametrize("tags", ["gradmon", "msprobe"])
def test_load_reads_each_form_alike(tmp_path: Path, tags: str) -> None:
    out = tmp_path / "out"
    train(jobs.write_config(tmp_path, tags=tags, **EVERYTHING), out)
    columns = ["rank", "step", "micro_step", "kind", "name", "op", "vpp_stage"]
    csv, sqlite, events = (
        gradmon.load(out, form=form).sort_values(columns, ignore_index=True)
        for form in ("csv", "sqlite", "tensorboard")
    )
    assert set(csv["kind"]) >= {"actv", "grad_unreduced", "exp_avg_sq", "linear_hook", "other", "scalar"}
    assert csv["value"].isna().any() and len(csv) > 1000
    for other in (sqlite, events):
        assert other[columns].values.tolist() == csv[columns].values.tolist()
        assert list(other.columns) == list(csv.columns)
        assert [str(kind) for kind in other.dtypes] == [str(kind) for kind in csv.dtypes]
    assert all(same(left, right) for left, right in zip(csv["value"], sqlite["value"]))
    rounded = [value if op == "samples" else as_float32(value) for value, op in zip(csv["value"], csv["op"])]
    assert all(same(left, right) for left, right in zip(rounded, events["value"]))
    assert gradmon.load(out).equals(gradmon.load(out, form="csv"))


def test_load_chooses_rows_of_each_form_alike(tmp_path: Path) -> None:
    out = tmp_path / "out"
    train(jobs.write_config(tmp_path, **EVERYTHING), out)
    chosen = {
        form: gradmon.load(out, kind=["actv", "scalar"], steps=range(1, 3), ranks=0, names="loss", form=form)
        for form in ("csv", "sqlite", "tensorboard")
    }
    for table in chosen.values():
        table = table.sort_values(["step", "op"])
        assert list(table["step"]) == [1, 1, 2, 2] and list(table["op"]) == ["samples", "value"] * 2
        assert list(table["value"]) == pytest.approx([32, 1.1, 48, 2.1])
    for form in chosen:
        assert gradmon.load(out, ranks=1, form=form).empty
        assert gradmon.load(out, steps=[], form=form).empty


def test_load_takes_the_form_that_a_run_has(tmp_path: Path) -> None:
    for form in ("sqlite", "tensorboard"):
        out = tmp_path / form
        train(jobs.write_config(tmp_path, wg_distribution=True, format=[form]), out)
        table = gradmon.load(out, kind="grad_unreduced")
        assert set(table["step"]) == {0, 1, 2, 3} and table["micro_step"].isna().all()
        with pytest.raises(FileNotFoundError, match="no files of the form csv"):
            gradmon.load(out, form="csv")
    with pytest.raises(ValueError, match='form: found "parquet"; expected one of csv, sqlite, tensorboard'):
        gradmon.load(out, form="parquet")


def test_load_refuses_the_database_that_this_process_writes(tmp_path: Path) -> None:
    out = tmp_path / "out"
    model, optimizer = jobs.make()
    monitor = jobs.monitor(tmp_path, wg_distribution=True, collect_times=1000, format=["sqlite"])
    with monitor.watch(model, optimizer):
        jobs.train(model, optimizer, 3)
        assert jobs.eventually(lambda: bool(list(out.glob("*/monitor_metrics.db-journal"))))
        (path,) = out.glob("*/monitor_metrics.db")
        for where in (out, path):
            with pytest.raises(ValueError, match="monitor_metrics.db: this process has it open"):
                gradmon.load(where)
        other = jobs.python("-c", f"import gradmon; gradmon.load({str(out)!r})")
        assert other.returncode == 0, other.stderr
        jobs.train(model, optimizer, 3)
    assert set(gradmon.load(path)["step"]) == set(range(6))
    assert sorted(file.name for file in path.parent.glob("monitor_metrics.db*")) == ["monitor_metrics.db"]


def test_compressed_files_have_the_same_rows_and_go_on_after_a_restart(tmp_path: Path) -> None:
    plain, compressed = tmp_path / "plain", tmp_path / "compressed"
    train(jobs.write_config(tmp_path, **{**EVERYTHING, "format": "csv"}), plain)
    for keys in ({}, {"append_output": ["Jan01_00-00-00", "Dec31_23-59-59"]}):
        config = {**EVERYTHING, "format": "csv", "compress": "zstd", **keys}
        train(jobs.write_config(tmp_path, **config), compressed)
    (directory,) = compressed.glob("*-rank0-*")
    assert list(directory.glob("*.csv.zst")) and not list(directory.glob("*_*-*.csv"))
    tables = [gradmon.load(place).drop(columns="vpp_stage") for place in (plain, compressed)]
    assert len(tables[0]) > 1000 and tables[0].equals(tables[1])  # the restart has trained the same steps
    sizes = [sum(file.stat().st_size for file in place.rglob("*.csv*")) for place in (plain, compressed)]
    assert sizes[1] < sizes[0]
