# SPDX-License-Identifier: Apache-2.0
"""gradmonctl analyse first: the first value that is not finite, and what was around it."""
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import pytest
from gradmon_read.csv_tables import Problems
from gradmon_read.first_not_finite import (
    INFINITE,
    NAN,
    NONE,
    OVERFLOW,
    Context,
    FirstNotFinite,
    context_of,
    find_first_not_finite,
    not_finite_in,
)
from gradmon_read.kind_rows import Batch, KindReader, ReadFile
from gradmon_read.runs import find_run
from gradmon_read.vocabulary import FIELDS
from job_rows import RankFiles, TestRow

INF = math.inf


def row_of(values: "dict[str, float]", dtype: bytes = b"torch.float32", shape: bytes = b"[4]") -> Batch:
    zero = numpy.zeros(1, "int64")
    columns = {field: numpy.array([value]) for field, value in values.items()}
    return Batch(
        *[zero] * 9, values=columns, absent={}, files=[ReadFile("f")], shapes=[shape], dtypes=[dtype]
    )


@pytest.mark.parametrize(
    "values, what, field",
    [
        # A NaN is found by its count or by any statistic.
        ({"nans": 2, "norm": math.nan}, NAN, "nans"),
        ({"norm": math.nan}, NAN, "norm"),
        ({"norm": 1, "nans": 0}, NONE, "min"),
        # Squares do not cancel, and an extreme is NaN for a NaN only, whatever the count says.
        *(({op: math.nan, "mean": INF, "nans": 0}, NAN, op) for op in ("norm", "min", "max", "absmax")),
        # A NaN of infinities that cancel is an infinity.
        ({"min": -INF, "max": INF, "mean": math.nan, "nans": 0}, INFINITE, "min"),
        ({"mean": math.nan, "nans": 0}, INFINITE, "mean"),
        ({"mean": math.nan, "norm": INF}, INFINITE, "norm"),
        ({"max": INF, "norm": INF}, INFINITE, "max"),
        ({"mean": math.nan}, NAN, "mean"),  # no other statistic tells
        # A sum of finite elements that is not finite is an overflow.
        ({"min": -1e200, "max": 1e200, "norm": INF}, OVERFLOW, "norm"),
        ({"absmax": 1e308, "mean": math.nan, "norm": INF}, OVERFLOW, "norm"),
        ({"absmax": INF, "norm": INF}, INFINITE, "absmax"),
        ({"max": 1e200, "norm": INF}, INFINITE, "norm"),  # the other end may be infinite
        # Other values than statistics of a tensor; NaN by definition.
        ({"entropy": math.nan}, NAN, "entropy"),
        ({"value": -INF}, INFINITE, "value"),
        ({"zeros": math.nan, "norm": 1}, NONE, "min"),
        ({}, NONE, "min"),
    ],
)
def test_what_a_row_shows_of_its_elements(values: "dict[str, float]", what: int, field: str) -> None:
    found, by = not_finite_in(row_of(values))
    assert (int(found[0]), FIELDS[by[0]]) == (what, field)


@pytest.mark.parametrize(
    "values, dtype, shape, what",
    [
        ({"min": math.nan, "norm": 1}, b"torch.complex64", b"[4]", NONE),
        ({"norm": math.nan}, b"torch.complex64", b"[4]", NAN),
        ({"mean": math.nan}, b"torch.bool", b"[4]", NONE),
        ({"mean": math.nan}, b"torch.float32", b"[4, 0]", NONE),
        ({"mean": math.nan}, b"torch.float32", b"[40]", NAN),
    ],
)
def test_a_nan_by_definition_is_none(
    values: "dict[str, float]", dtype: bytes, shape: bytes, what: int
) -> None:
    assert not_finite_in(row_of(values, dtype, shape))[0][0] == what


class Found(NamedTuple):
    first: FirstNotFinite
    around: Context

    @property
    def place(self) -> Any:
        return self.first.first


def find_in(output: Path) -> Found:
    problems = Problems()
    run = find_run(output, "", problems)
    reader = KindReader(problems)
    first = find_first_not_finite(run, reader)
    around = context_of(run, first, reader) if first.first else Context()
    assert problems.count == 0
    return Found(first, around)


def step_rows(actv: float, gradient: float) -> "list[TestRow]":
    """All rows of a step of a model with two layers; `actv`: the norm of the second layer's output."""
    return [
        TestRow("actv", "l0.output"),
        TestRow("actv", "l1.output", actv),
        TestRow("actv", "l2.output", actv),
        TestRow("actv_grad", "l1.output", gradient),
        TestRow("actv_grad", "l0.output", gradient),
        TestRow("grad_reduced", "l0.weight", gradient),
        TestRow("grad_reduced", "l1.weight", gradient),
    ]


def test_a_planted_nan_is_found_with_what_was_around_it(tmp_path: Path) -> None:
    for rank in range(3):
        files = RankFiles(tmp_path, rank)
        for step in range(10):
            bad = step >= 7 and rank == 1
            gradient = math.nan if bad or step >= 8 else 1.0
            files.write(step, step_rows(math.nan if bad else 1.0 + step, gradient))
    found = find_in(tmp_path)
    place, around = found.place, found.around
    assert (place.step, place.rank, place.kind, place.name) == (7, 1, "actv", "l1.output")
    assert (place.micro_step, place.phase, place.what, place.line) == (0, "in the forward pass", NAN, 3)
    assert Path(place.file).name == "actv_7-7.csv"
    other = found.first.by_rank[0]
    assert (other.step, other.kind) == (8, "actv_grad")
    assert [sample["step"] for sample in around.history] == list(range(2, 10))
    assert around.history[4].items() >= {"norm": 7, "nans": 0}.items()
    assert [sample["name"] for sample in around.neighbours] == ["l0.output", "l1.output", "l2.output"]
    assert (around.place, around.ranks) == (1, {0: False, 2: False})
    assert around.spread == {7: (21, 6), 8: (21, 2 * 4 + 6), 9: (21, 2 * 4 + 6)}


def test_all_values_finite_is_no_find(tmp_path: Path) -> None:
    RankFiles(tmp_path, 0).write(0, step_rows(1, 1))
    found = find_in(tmp_path)
    assert (found.place, found.first.extent.rows) == (None, 7)


@pytest.mark.parametrize("steps_a_file", [1, 100])
def test_rows_of_ranks_are_in_the_order_of_their_step(tmp_path: Path, steps_a_file: int) -> None:
    for rank, count, bad in ((0, 6, 1), (1, 4, 3)):
        files = RankFiles(tmp_path, rank, steps_a_file)
        for step in range(4):
            norms = [math.nan if step == 3 and i == bad else 1.0 for i in range(count)]
            files.write(step, [TestRow("actv", f"l{i}", norm) for i, norm in enumerate(norms)])
    found = find_in(tmp_path)
    assert (found.place.rank, found.place.name) == (0, "l1")


@pytest.mark.parametrize(
    "rows, first",
    [
        # A backward pass comes after the forward pass of its micro step and before that of the next one.
        (
            [
                TestRow("actv", "a", 1, 0),
                TestRow("actv", "a", math.nan, 1),
                TestRow("actv_grad", "b", 1, 1),
                TestRow("actv_grad", "b", math.nan, 0),
            ],
            "actv_grad b",
        ),
        # The weights that a step begins with come before its forward pass.
        (
            [TestRow(kind, "w", math.nan) for kind in ("actv", "grad_reduced", "param_origin")],
            "param_origin w",
        ),
        # Model chunks rise in the forward pass and fall in the backward pass.
        ([TestRow("actv", "a", math.nan), TestRow("actv", "b", math.nan, 0, 1)], "actv a"),
        ([TestRow("actv_grad", "a", math.nan), TestRow("actv_grad", "b", math.nan, 0, 1)], "actv_grad b"),
    ],
)
def test_within_a_step_the_order_is_that_of_the_computation(
    tmp_path: Path, rows: "list[TestRow]", first: str
) -> None:
    RankFiles(tmp_path, 0).write(4, rows)
    place = find_in(tmp_path).place
    assert f"{place.kind} {place.name}" == first


def test_an_infinity_before_the_first_nan_is_first_and_the_nan_is_found_too(tmp_path: Path) -> None:
    files = RankFiles(tmp_path, 0)
    for step in range(20):
        nan = math.nan if step == 15 else 1.0
        files.write(step, [TestRow("actv", "b", INF if step > 3 else 1.0), TestRow("actv", "a", nan)])
    found = find_in(tmp_path).first
    assert found.first and found.first_nan
    assert (found.first.what, found.first.step) == (INFINITE, 4)
    assert (found.first_nan.name, found.first_nan.step) == ("a", 15)


@pytest.mark.parametrize("steps_a_file", [1, 100])
def test_what_is_infinite_from_the_first_step_on_is_left_out_as_long_as_it_is(
    tmp_path: Path, steps_a_file: int
) -> None:
    for rank in range(2):
        files = RankFiles(tmp_path, rank, steps_a_file)
        for step in range(4, 20):
            rows = [
                TestRow("actv", "mask", INF, 0),
                TestRow("actv", "mask", INF, 1),
                TestRow("actv", "ends", INF if step < 9 else 1.0),
                TestRow("actv", "nan", INF if step < 15 else math.nan),
                TestRow("actv", "begins", INF if step > 12 else 1.0),
            ]
            files.write(step, rows)
    found = find_in(tmp_path)
    assert (found.place.name, found.place.step) == ("ends", 4)
    assert found.first.first_nan and found.first.first_nan.name == "nan"
    left_out = [(place.rank, place.name) for place in found.first.left_out()]
    assert left_out == [(0, "mask"), (0, "nan"), (1, "mask"), (1, "nan")]
    assert found.around.spread[4] == (10, 2)


def test_rows_long_after_the_first_nan_are_not_read(tmp_path: Path) -> None:
    files = RankFiles(tmp_path, 0)
    for step in range(100):
        files.write(step, [TestRow("actv", "a", math.nan if step == 3 else 1.0)])
    assert find_in(tmp_path).first.extent.rows == 3 + 4 + 2


def test_the_last_step_that_there_can_be_is_a_step_like_any_other(tmp_path: Path) -> None:
    directory = RankFiles(tmp_path, 0).directory
    last = 2**63 - 1
    (directory / f"actv_0-{last}.csv").write_text(f"name,step,norm\na,{last},nan\n")
    found = find_in(tmp_path)
    assert found.place.step == last
    assert (len(found.around.history), list(found.around.spread)) == (1, [last])


def test_rows_of_absent_tensors_as_msprobe_writes_them_are_no_nan(tmp_path: Path) -> None:
    directory = RankFiles(tmp_path, 0).directory
    titles = "vpp_stage,name,step,micro_step,norm,min,max,mean,nans,zeros,shape,dtype\n"
    absent = "0,fc1.input,{},0,nan,nan,nan,nan,nan,nan,nan,nan\n"
    good = '0,fc2.input,1,0,6.653186,-2.491939,1.724086,0.034626,0.0,nan,"[5, 8]",torch.float32\n'
    (directory / "actv_grad_1-1.csv").write_text(titles + absent.format(1) + good)
    assert find_in(tmp_path).place is None
    bad = '0,fc2.input,2,0,nan,nan,nan,nan,3,0.0,"[5, 8]",torch.float32\n'
    (directory / "actv_grad_2-2.csv").write_text(titles + absent.format(2) + bad)
    assert find_in(tmp_path).place.name == "fc2.input"
