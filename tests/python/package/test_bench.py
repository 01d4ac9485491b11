# SPDX-License-Identifier: Apache-2.0
"""tools/bench --python, --offline and --baseline measure their figures. (The values mean something on an idle
machine only.)"""
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from scale import if_full
import torch

BENCHES = Path(__file__).resolve().parents[3] / "tests" / "benchmarks"
HAS_FSDP2 = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 13)  # on a CPU
PROMISED = [
    "python_idle_step",
    *(["python_idle_step_fsdp2"] if HAS_FSDP2 else []),
    "python_idle_step_megatron",
    "python_grads_vs_read",
    "python_activations",
    "python_observe_off",
    "python_observe_on",
    "load_rows_per_s",
    *(["python_fsdp2_grads_vs_read", "python_fsdp2_hook"] if HAS_FSDP2 else []),
    *(["compiled_off_vs_plain", "compiled_on_vs_off", "first_switch_s"] if HAS_FSDP2 else []),
]


OFFLINE = ["rows_per_s_csv2tb", "rows_per_s_csv2db", "csv2tb_peak_mib", "csv2db_peak_mib"]


BIN = Path(os.environ["GRADMON_BIN"])
ITSELF = ["--python", "--baseline", str(BIN.parent)]
BESIDE = [
    *(f"python_record_{clock}_{size}" for clock in ("us", "cpu_us") for size in (100, 1000, 5000, 10000)),
    *(
        f"python_{what}_{size}"
        for what in ("switch_ms", "switch_cpu_ms", "resident_mb")
        for size in (5000, 10000)
    ),
]


def bench(script: str, *arguments: str, bin_: Path = BIN) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-B", str(BENCHES / script), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "GRADMON_BIN": str(bin_)}
    )


@pytest.mark.parametrize(
    "script, arguments, promised",
    [
        ("python_bench.py", [], PROMISED),
        if_full("offline_bench.py", OFFLINE, OFFLINE),
        if_full("baseline_bench.py", ITSELF, BESIDE),  # a minute and a half
    ],
)
def test_a_quick_run_gives_every_figure_as_a_finite_number(
    tmp_path: Path, script: str, arguments: "list[str]", promised: "list[str]"
) -> None:
    result = bench(script, "--quick", "--json", str(tmp_path / "figures.json"), *arguments)
    assert result.returncode == 0, result.stderr
    figures = json.loads((tmp_path / "figures.json").read_text())["figures"]
    assert [figure["name"] for figure in figures] == promised
    for figure in figures:
        assert list(figure) == ["name", "value", "unit", "goal", "met", "how"]
        assert math.isfinite(figure["value"]) and figure["unit"] and figure["how"]
        assert f"{figure['name']}  " in result.stdout and figure["how"] in result.stdout


def test_figures_are_listed_and_others_are_wrong_usage() -> None:
    assert bench("python_bench.py", "--list").stdout.split() == PROMISED
    assert bench("baseline_bench.py", "--baseline", "no_such_commit").returncode == 2
    assert bench("offline_bench.py", "no_such_figure").returncode == 2


def test_gradmon_is_measured_beside_torch_and_numpy_and_computes_the_same(tmp_path: Path) -> None:
    names = ["stats_vs_torch_bfloat16", "stats_vs_numpy_float64"]  # torch.compile takes 10 s
    result = bench("against_pytorch.py", "--quick", "--json", str(tmp_path / "figures.json"), *names)
    assert result.returncode == 0, result.stderr
    figures = json.loads((tmp_path / "figures.json").read_text())["figures"]
    assert [figure["name"] for figure in figures] == names
    assert all(figure["value"] > 0 and figure["how"] for figure in figures)


def build_tree(folder: Path, names: str, reading: int, rate: int, switch: float) -> Path:
    """With a gradmon-bench of these figures, and a training with a switch of this time."""
    figures = [
        {"name": "reading_ns", "value": reading, "unit": "ns", "goal": 300, "met": False},
        {"name": "rows_per_s", "value": rate, "unit": "rows/s", "goal": 1, "met": True},
    ]
    steps = [
        [0.01, 0.01, 50],
        [0.01, 0.01, 50],
        [0.01 + switch, 0.01, 50],
        [0.03, 0.02, 60],
        [0.03, 0.02, 70],
    ]
    run = {"begin": 0, "asked": 2, "on": 3, "steps": steps}
    programs = {
        "gradmon-bench": f"""[ "$1" != --list ] || exec echo {names}
            echo {folder.name} >>{folder.parent}/log; echo '{json.dumps({"figures": figures})}' >"$2" """,
        "gradmon-bench-steps": f"seq 40001 >${{1%/*}}/rows.csv; echo '{json.dumps(run)}'",
    }
    (folder / "bin").mkdir(parents=True)
    for name, text in programs.items():
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{text}")
        (folder / "bin" / name).chmod(0o755)
    return folder


def test_an_older_commit_is_measured_in_turns_and_its_ratios_are_held_to_the_goals(tmp_path: Path) -> None:
    ours = build_tree(tmp_path / "new", "reading_ns rows_per_s later", 400, 90, 0.004)
    older = build_tree(tmp_path / "old", "reading_ns earlier rows_per_s", 1000, 100, 0.008)
    names = ["switch_ms_10000", "record_us_10000", "resident_mb_10000", "reading_ns", "rows_per_s"]
    options = ["--pairs", "3", "--baseline", str(older), "--json", str(tmp_path / "json"), *names]
    result = bench("baseline_bench.py", *options, bin_=ours / "bin")
    assert result.returncode == 0, result.stderr
    figures = json.loads((tmp_path / "json").read_text())["figures"]
    assert [(one["name"], round(one["value"], 6), one["unit"], one["met"]) for one in figures] == [
        ("switch_ms_10000", 4, "ms", True),
        ("record_us_10000", 1, "of baseline's", True),
        ("resident_mb_10000", 1, "of baseline's", True),
        ("reading_ns", 0.4, "of baseline's", False),
        ("rows_per_s", 0.9, "of baseline's", False),
    ]
    assert [one["goal"] for one in figures] == [5, 1 / 0.95, 1 / 0.95, 0.3, 0.95]
    each = "ratio of each pair: minimum, median and maximum of 3"
    assert f"ours 4.000 ms, baseline 8.000; {each}: 0.500 0.500 0.500" in figures[0]["how"]
    assert "ours 1.000 µs" in figures[1]["how"] and "ours 20.00 MB" in figures[2]["how"]
    assert (tmp_path / "log").read_text().split() == ["new", "old", "old", "new", "new", "old"]
