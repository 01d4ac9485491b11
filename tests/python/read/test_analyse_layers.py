# SPDX-License-Identifier: Apache-2.0
"""gradmonctl analyse top and diff: layers over the steps of one run, and of two."""
import math
from pathlib import Path
from typing import Any, Callable

import numpy
import pytest
from gradmon_read.csv_tables import Problems
from gradmon_read.divergence import Divergence, Tolerance, find_divergence, relative_difference
from gradmon_read.kind_rows import KindReader
from gradmon_read.layer_changes import Series, find_layer_changes, growth_of
from gradmon_read.runs import find_run
from job_rows import RankFiles, TestRow
from reading import Commands


def state_of(rows: "list[tuple[int, float]]", parts: int = 1) -> Any:
    """The state after rows of steps and sizes, given in so many parts."""
    series = Series()
    for part in numpy.array_split(numpy.arange(len(rows)), parts):
        step, size = numpy.array([rows[i] for i in part]).reshape(-1, 2).T
        series.add(numpy.zeros(len(part), "int64"), step.astype("int64"), size)
    return series.end()[0]


def change(state: Any) -> "tuple[float, ...]":
    return tuple(state[field] for field in ("factor", "from_step", "step", "before", "after"))


@pytest.mark.parametrize("parts", [1, 2, 4])
@pytest.mark.parametrize(
    "sizes, expected",
    [
        ([1, 2, 100, 90], (50, 1, 2, 2, 100)),
        ([100, 1, 2], (100, 0, 1, 100, 1)),
        ([2, 0, 0], (1e6, 0, 1, 2, 0)),  # 0 counts as a millionth of the largest one before
        ([0, 0, 1], (1, -1, -1, 0, 0)),
    ],
)
def test_the_largest_change_is_up_or_down_from_one_step_to_the_next(
    sizes: "list[float]", expected: "tuple[float, ...]", parts: int
) -> None:
    found = state_of(list(enumerate(sizes)), parts)
    assert change(found) == pytest.approx(expected)


@pytest.mark.parametrize("parts", [1, 3, 7])
def test_several_rows_of_a_step_count_as_the_largest_and_earlier_steps_are_left_out(parts: int) -> None:
    rows = [(5, 1), (5, 8), (5, 2), (4, 99), (6, 8), (3, 77), (7, math.inf)]
    found = state_of(rows, parts)
    assert (found["steps"], found["step"], found["last_step"]) == (2, -1, 6)


@pytest.mark.parametrize("parts", [1, 2, 3])
@pytest.mark.parametrize(
    "sizes, since",
    [
        ([1, 1, 0, 0], 2),
        ([1, 1, 1e-7, 1e-8], 2),
        ([0, 0, 0], 0),
        ([1, 0, 0, 1], None),
        ([1, 1, 0], None),
        ([0], None),
    ],
)
def test_a_series_is_dead_if_it_ends_with_two_steps_of_next_to_nothing(
    sizes: "list[float]", since: "int | None", parts: int
) -> None:
    found = state_of(list(enumerate(sizes)), parts)
    assert (int(found["dead_since"]) if found["dead_steps"] >= 2 else None) == since


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize(
    "sizes, growth",
    [
        ([1, 1, 1, 1, 1, 50, 50, 50], 50),
        ([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 3),
        ([1, 1, 1, 1000], 1),
        ([1, 20, 20, 20], 20),
        ([1, 20, 20], 1),
        ([0, 20, 20, 20], 1),
    ],
)
def test_growth_compares_the_last_three_sizes_with_the_first_five(
    sizes: "list[float]", growth: float, parts: int
) -> None:
    assert growth_of(numpy.array([state_of(list(enumerate(sizes)), parts)]))[0] == pytest.approx(growth)


def test_a_planted_spike_and_a_dead_and_an_exploding_layer_are_found_on_their_rank(tmp_path: Path) -> None:
    for rank in range(2):
        files = RankFiles(tmp_path, rank)
        for step in range(12):
            sizes = {
                "calm": 1 + 0.1 * step,
                "spike": 4096 if rank and step == 6 else 1,
                "dead": 0 if step >= 8 else 1,
                "exploding": 1.5**step if rank else 1,
            }
            rows = [TestRow("grad_reduced", name, size) for name, size in sizes.items()]
            files.write(step, [TestRow("grad_unreduced", "calm", 1 + 0.1 * step), *rows])
        scalar = "name,step,samples,value\n" + "".join(f"loss,{step},,{2**step}\n" for step in range(12))
        (files.directory / "scalar_0-11.csv").write_text(scalar)  # no layer
    changes = find_layer_changes(find_run(tmp_path, "", Problems()), KindReader(Problems()))
    assert (changes.not_finite.extent.rows, changes.layers) == (2 * 12 * 6, 4)
    assert [each.layer for each in changes.largest] == ["dead", "spike", "exploding", "calm"]
    assert changes.largest[1][1:5] == ("grad_reduced", 1, 4096, 5)
    assert [tuple(each) for each in changes.dead] == [("dead", "grad_reduced", 8, 2, 0)]
    assert [(each.layer, each.rank) for each in changes.exploding] == [("exploding", 1)]


@pytest.mark.parametrize(
    "titles, rows, factor",
    [
        ("norm,max", ["-1,5", "4,5"], 4),
        ("min,max", ["-8,2", "-1,2"], 4),
        ("min,max", ["nan,1", "1,1"], None),
        ("kernel_norm,mean", ["2,9", "6,9"], 3),
        ("mean", ["-2", "4"], 2),
        ("norm,max", [",3", ",9"], 3),
    ],
)
def test_a_size_is_the_norm_or_else_the_largest_extreme_or_the_mean(
    tmp_path: Path, titles: str, rows: "list[str]", factor: "float | None"
) -> None:
    lines = "".join(f"w,{step},{row}\n" for step, row in enumerate(rows))
    (RankFiles(tmp_path, 0).directory / "actv_0-9.csv").write_text(f"name,step,{titles}\n{lines}")
    changes = find_layer_changes(find_run(tmp_path, "", Problems()), KindReader(Problems()))
    assert [each.factor for each in changes.largest] == ([] if factor is None else [factor])


Runs = Callable[..., Divergence]


@pytest.fixture
def compared(tmp_path: Path) -> Runs:
    def compare(tolerance: Tolerance = Tolerance()) -> Divergence:
        problems = Problems()
        runs = (find_run(tmp_path / name, "", problems) for name in "ab")
        found = find_divergence(*runs, tolerance, problems)
        assert problems.count == 0
        return found

    return compare


def write_run(output: Path, steps: int, second: Callable[[int, int], float] = lambda rank, step: 1.0) -> None:
    for rank in range(3):
        files = RankFiles(output, rank)
        for step in range(steps):
            kinds = ("grad_unreduced", "grad_reduced")
            sizes = {"w0": 1.0, "w1": second(rank, step)}
            files.write(step, [TestRow(kind, name, sizes[name]) for kind in kinds for name in sizes])


def test_the_first_difference_is_found_and_how_it_spreads(tmp_path: Path, compared: Runs) -> None:
    write_run(tmp_path / "a", 10)
    spread = lambda rank, step: 1.0 + (step if (rank == 2 and step >= 5) or step >= 6 else 0)  # noqa: E731
    write_run(tmp_path / "b", 10, spread)
    found = compared()
    first = found.first
    assert first and (first.step, first.rank, first.kind, first.layer) == (5, 2, "grad_unreduced", "w1")
    assert (first.field, first.a, first.b, first.line) == ("norm", 1, 6, 3)
    assert Path(first.file).name == "grad_unreduced_5-5.csv"
    assert found.by_rank[0].step == 6
    assert found.compared == 3 * 10 * 4
    assert [found.steps[step].parted for step in (4, 5, 6)] == [0, 2, 6]
    worst = found.steps[9].worst
    assert worst and worst.difference == pytest.approx(0.9)
    assert found.only[0].rows == 0


def test_rows_that_only_one_run_has_are_counted_with_the_first_of_them(
    tmp_path: Path, compared: Runs
) -> None:
    write_run(tmp_path / "a", 5)
    write_run(tmp_path / "b", 3)
    RankFiles(tmp_path / "b", 7).write(1, [TestRow("actv", "extra")])
    found = compared()
    assert found.first is None
    assert found.only[0][:2] == (2 * 3 * 4, 3)
    assert found.only[1] == (1, 1, 'actv of "extra" on rank 7')


def write_files(tmp_path: Path, name: str, a: str, b: str) -> None:
    for run, text in (("a", a), ("b", b)):
        (RankFiles(tmp_path / run, 0).directory / name).write_text(text)


def test_scalars_of_the_clock_are_not_compared_and_others_are(tmp_path: Path, compared: Runs) -> None:
    text = "name,step,samples,value\niteration-time,0,,{}\nloss,0,,{}\n"
    write_files(tmp_path, "scalar_0-0.csv", text.format(1, 2), text.format(3, 4))
    found = compared()
    assert found.first and (found.first.layer, found.compared) == ("loss", 1)


def test_rows_with_no_statistic_in_common_are_counted_and_not_called_equal(
    run: Commands, tmp_path: Path, compared: Runs
) -> None:
    write_files(tmp_path, "grad_reduced_0-0.csv", "name,step,norm\nw,0,1\n", "name,step,max\nw,0,1\n")
    found = compared()
    assert (found.compared, found.without_common) == (0, 1)
    answer = run("analyse", "diff", tmp_path / "a", tmp_path / "b")
    assert (answer.code, answer.err) == (1, "gradmonctl: no row has a statistic that is in both runs\n")


def test_rows_are_matched_by_name_whatever_their_order(tmp_path: Path, compared: Runs) -> None:
    rows = [TestRow("actv", "a", 1), TestRow("actv", "b", 2), TestRow("actv", "b", 3)]
    RankFiles(tmp_path / "a", 0).write(0, rows)
    RankFiles(tmp_path / "b", 0).write(0, [rows[1], rows[2], rows[0]])
    found = compared()
    assert (found.first, found.compared) == (None, 3)


def test_equal_runs_end_with_0_and_a_wrong_tolerance_is_a_usage_error(run: Commands, tmp_path: Path) -> None:
    write_run(tmp_path / "a", 2)
    place = tmp_path / "a"
    assert run("analyse", "diff", place, place).code == 0
    for option, value in (("--tolerance", "-1"), ("--absolute", "x"), ("--tolerance", "inf")):
        assert run("analyse", "diff", place, place, option, value).code == 2
    assert run("analyse", "diff", place).code == 2


def test_long_lists_are_shortened_unless_all_is_asked_for(run: Commands, tmp_path: Path) -> None:
    for name, norm in (("a", 1.0), ("b", 2.0)):
        for rank in range(14):
            files = RankFiles(tmp_path / name, rank)
            for step in range(20):
                files.write(step, [TestRow("actv", "w", norm)])
    few = run("analyse", "diff", tmp_path / "a", tmp_path / "b").out
    assert "… and 10 more steps in between (--all shows all)\n" in few
    assert "… and 4 more ranks (--all shows all)\n" in few
    assert "\n  19 " in few
    assert "…" not in run("analyse", "diff", tmp_path / "a", tmp_path / "b", "--all").out


@pytest.mark.parametrize(
    "a, b, difference",
    [
        (1, 2, 0.5),
        (-1, 1, 2),
        (0, 0, 0),
        (math.nan, math.nan, 0),
        (math.inf, math.inf, 0),
        (math.nan, 1, math.inf),
        (math.inf, -math.inf, math.inf),
        (-1.7976931348623157e308, 1.7976931348623157e308, 2),
    ],
)
def test_differences_are_relative_to_the_larger_value(a: float, b: float, difference: float) -> None:
    assert relative_difference(numpy.array([float(a)]), numpy.array([float(b)])) == difference


@pytest.mark.parametrize(
    "a, b, tolerance, parts",
    [
        # Rounding, and small values, within the absolute tolerance.
        (1, 1.000001, Tolerance(), False),
        (1, 1.000001, Tolerance(0, 0), True),
        (1e-9, 2e-9, Tolerance(1e-5, 1e-6), False),
        (1e-9, 2e-9, Tolerance(1e-5, 0), True),
    ],
)
def test_values_part_by_more_than_both_tolerances(
    tmp_path: Path, compared: Runs, a: float, b: float, tolerance: Tolerance, parts: bool
) -> None:
    text = "name,step,norm\nw,0,{}\n"
    write_files(tmp_path, "actv_0-0.csv", text.format(a), text.format(b))
    assert (compared(tolerance).first is not None) == parts
