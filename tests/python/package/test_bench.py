# SPDX-License-Identifier: Apache-2.0
"""tools/bench --python and --offline measure their figures. (The values mean something on an idle machine
only.)"""
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
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


def bench(script: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-B", str(BENCHES / script), *arguments]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize("script, names", [("python_bench.py", []), ("offline_bench.py", OFFLINE)])
def test_a_quick_run_gives_every_figure_as_a_finite_number(
    tmp_path: Path, script: str, names: "list[str]"
) -> None:
    result = bench(script, "--quick", "--json", str(tmp_path / "figures.json"), *names)
    assert result.returncode == 0, result.stderr
    figures = json.loads((tmp_path / "figures.json").read_text())["figures"]
    assert [figure["name"] for figure in figures] == (names or PROMISED)
    for figure in figures:
        assert list(figure) == ["name", "value", "unit", "goal", "met", "how"]
        assert math.isfinite(figure["value"]) and figure["unit"] and figure["how"]
        assert f"{figure['name']}  " in result.stdout and figure["how"] in result.stdout


def test_figures_are_listed_and_others_are_wrong_usage() -> None:
    assert bench("python_bench.py", "--list").stdout.split() == PROMISED
    assert bench("python_bench.py", "no_such_figure").returncode == 2


def test_gradmon_is_measured_beside_torch_and_numpy_and_computes_the_same(tmp_path: Path) -> None:
    names = ["stats_vs_torch_bfloat16", "stats_vs_numpy_float64"]  # torch.compile takes 10 s
    result = bench("against_pytorch.py", "--quick", "--json", str(tmp_path / "figures.json"), *names)
    assert result.returncode == 0, result.stderr
    figures = json.loads((tmp_path / "figures.json").read_text())["figures"]
    assert [figure["name"] for figure in figures] == names
    assert all(figure["value"] > 0 and figure["how"] for figure in figures)
