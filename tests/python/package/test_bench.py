# SPDX-License-Identifier: Apache-2.0
"""tools/bench --python measures every figure. (The values are meaningful on an idle machine only.)"""
import json
import math
import subprocess
import sys
from pathlib import Path

import torch

BENCH = Path(__file__).resolve().parents[3] / "tests" / "benchmarks" / "python_bench.py"
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


def bench(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-B", str(BENCH), *arguments], capture_output=True, text=True)


def test_a_quick_run_gives_every_figure_as_a_finite_number(tmp_path: Path) -> None:
    result = bench("--quick", "--json", str(tmp_path / "figures.json"))
    assert result.returncode == 0, result.stderr
    figures = json.loads((tmp_path / "figures.json").read_text())["figures"]
    assert [figure["name"] for figure in figures] == PROMISED
    for figure in figures:
        assert list(figure) == ["name", "value", "unit", "goal", "met", "how"]
        assert math.isfinite(figure["value"]) and figure["unit"] and figure["how"]
        assert f"{figure['name']}  " in result.stdout and figure["how"] in result.stdout


def test_figures_are_listed_and_others_are_wrong_usage() -> None:
    assert bench("--list").stdout.split() == PROMISED
    assert bench("no_such_figure").returncode == 2


def test_gradmon_is_measured_beside_torch_and_numpy_and_computes_the_same(tmp_path: Path) -> None:
    script = BENCH.with_name("against_pytorch.py")
    names = ["stats_vs_torch_bfloat16", "stats_vs_numpy_float64"]  # torch.compile takes 10 s
    command = [sys.executable, "-B", str(script), "--quick", "--json", str(tmp_path / "figures.json"), *names]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    figures = json.loads((tmp_path / "figures.json").read_text())["figures"]
    assert [figure["name"] for figure in figures] == names
    assert all(figure["value"] > 0 and figure["how"] for figure in figures)
