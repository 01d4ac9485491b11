# SPDX-License-Identifier: Apache-2.0
"""tools/demo --frameworks fails where rows, names, steps or values are not plain torch's. (The demo itself
trains under every framework.)"""
import json
import math
import sys
from pathlib import Path
from typing import Any, Callable

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tests" / "demo" / "frameworks"))

import compare  # noqa: E402
import torch  # noqa: E402

STEPS = [7, 8, 9, 10, 11, 12]  # after the first edit
LATER = [20, 22, 24]  # after the second one, which asks for gradients only
DDP = compare.Framework("DDP", "ddp")
GRADIENTS = ("grad_unreduced", "grad_reduced")
Rows = dict[str, dict[tuple[str, int, int], dict[str, float]]]


def expected_rows() -> Rows:
    rows: Rows = {}
    for kind in compare.KINDS:
        name = "w.output" if kind.startswith("actv") else "w"
        places = [0, 1] if kind == "grad_unreduced" or kind.startswith("actv") else [compare.ALL]
        for step in STEPS + (LATER if kind in GRADIENTS else []):
            for place in places:
                tensor = torch.sin(torch.arange(6.0) + step + place + len(kind))
                rows.setdefault(kind, {})[name, step, place] = compare.statistics_of(tensor)
    return rows


def write(directory: Path, rows: Rows) -> None:
    """As two ranks under DDP write them, of which the first writes what both hold."""
    for rank in range(2):
        out = directory / "out" / f"Nov21_10-00-00-rank{rank}-0123abcd"
        out.mkdir(parents=True)
        (out / "scopes.json").write_text('{"format": 1, "targets": {}}')
        for kind, of_kind in rows.items():
            lines = ["vpp_stage,name,step,norm,min,max,mean,nans,zeros,shape,dtype"]
            for (name, step, place), values in of_kind.items():
                if place == rank or (place == compare.ALL and rank == 0):
                    numbers = ",".join(
                        repr(values[op]) for op in ("norm", "min", "max", "mean", "nans", "zeros")
                    )
                    lines.append(f'0,{name},{step},{numbers},"[6]",torch.float32')
            if len(lines) > 1:
                (out / f"{kind}_0-1999.csv").write_text("\n".join(lines) + "\n")
        seconds = {"bare": [0.5] * 30, "watched": [1.0] * 30}
        said = {"equal": True, "collectives": [60, 60], "seconds": seconds}
        (directory / f"rank{rank}.json").write_text(json.dumps(said))


def compared(directory: Path, rows: Rows) -> compare.Result:
    write(directory, rows)
    return compare.compare(compare.Outcome(DDP, directory), expected_rows())


def test_equal_rows_pass(tmp_path: Path) -> None:
    result = compared(tmp_path, expected_rows())
    assert result.problems == []
    assert result.agreed == [[7, 20], [7, 20]]
    assert result.counts["grad_unreduced"] == 2 * 9 and result.counts["param_origin"] == 6
    assert result.largest == 0.0 and result.compared == 6 * sum(result.counts.values())
    assert result.ratio == 2.0 and result.collectives_added == 0


def test_a_difference_beyond_the_tolerance_fails(tmp_path: Path) -> None:
    rows = expected_rows()
    rows["exp_avg"]["w", 9, compare.ALL]["mean"] += 2e-6 * rows["exp_avg"]["w", 9, compare.ALL]["absmax"]
    result = compared(tmp_path, rows)
    assert math.isclose(result.largest, 2e-6, rel_tol=1e-6)
    assert "exp_avg ('w', 9, 0) mean" in result.problems[0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda rows: rows["grad_reduced"].pop(("w", 9, -1)),
            "grad_reduced: missing (name, step): [('w', 9)]",
        ),
        (lambda rows: rows.pop("exp_avg_sq"), "exp_avg_sq: missing"),
        (
            lambda rows: rows["param_origin"].update({("v", 9, -1): rows["param_origin"].pop(("w", 9, -1))}),
            "not plain torch's: [('v', 9)]",
        ),
        (lambda rows: rows["grad_unreduced"].pop(("w", 9, 1)), "ranks 0 and 1 have rows of different steps"),
        (
            lambda rows: [of.pop(key) for of in rows.values() for key in list(of) if key[1] == 24],
            "steps after",
        ),
    ],
    ids=["a row", "a kind", "a name", "a rank", "a step"],
)
def test_what_is_missing_or_renamed_fails(tmp_path: Path, change: "Callable[[Rows], Any]", said: str) -> None:
    rows = expected_rows()
    change(rows)
    problems = "\n".join(compared(tmp_path, rows).problems)
    assert said in problems, problems


def test_other_weights_and_other_collectives_fail(tmp_path: Path) -> None:
    write(tmp_path, expected_rows())
    for rank in range(2):
        file = tmp_path / f"rank{rank}.json"
        outcome = json.loads(file.read_text())
        outcome.update(equal=rank == 0, collectives=[60, 61])
        file.write_text(json.dumps(outcome))
    result = compare.compare(compare.Outcome(DDP, tmp_path), expected_rows())
    assert result.collectives_added == 2
    assert len(result.problems) == 2 and "other weights" in result.problems[0]
