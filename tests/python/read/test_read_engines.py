# SPDX-License-Identifier: Apache-2.0
"""Engines that people use read a Parquet dataset as it lies. They are in build/read-engines-venv, which
tools/test --frameworks makes."""
import json
import math
import os
import subprocess
from pathlib import Path

import duckdb
import pytest
from reading import Commands
from test_parquet import converted, exact, job, write  # noqa: F401

PYTHON = os.environ["GRADMON_READ_ENGINES_PYTHON"]
SCRIPT = str(Path(__file__).with_name("engines_script.py"))


def test_the_engines_that_people_use_read_the_same_numbers(run: Commands, job: Path) -> None:  # noqa: F811
    target = converted(run, job)
    names = ["duckdb", "polars", "pandas", "ray"]
    done = subprocess.run([PYTHON, SCRIPT, str(target), *names], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    columns = "kind, rank, name, step, micro_step, norm, max"
    mine = duckdb.sql(f"SELECT {columns} FROM read_parquet('{target}/*/*/*.parquet')").fetchall()
    assert len(mine) == 40
    for name in names:
        assert found[name] == exact(mine), name


def test_engines_find_over_the_dataset_what_analyse_finds_in_the_files(run: Commands, tmp_path: Path) -> None:
    for rank in (0, 1):
        norms = {(i, step): 1 + i / 10 + step / 100 + rank / 7 for step in range(30) for i in range(20)}
        norms[7, 12] *= 40 if rank else 1
        norms.update({(i, step): math.nan for step in range(25, 30) for i in range(step - 22)})
        rows = [f'0,layers.{i}.w,{step},{norm!r},1,"[4]",torch.float32' for (i, step), norm in norms.items()]
        write(tmp_path / "job", rank, "grad_reduced_0-99.csv", rows)
    dataset = converted(run, tmp_path / "job")
    top = json.loads(run("analyse", "top", tmp_path / "job", "--json").out)["largest_change"][0]
    first = json.loads(run("analyse", "first", tmp_path / "job", "--json").out)
    words = [PYTHON, SCRIPT, str(dataset), "analyse:duckdb", "analyse:ray"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for engine, ((name, step, factor), broken) in json.loads(done.stdout).items():
        assert (name, step) == (top["layer"], top["step"]) == ("layers.7.w", 12), engine
        assert factor == pytest.approx(top["factor"], rel=1e-5)
        assert broken == ["layers.0.w", 25] and first["first"]["step"] == 25, engine
