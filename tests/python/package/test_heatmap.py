# SPDX-License-Identifier: Apache-2.0
"""gradmon.heatmap()."""
import sys
from pathlib import Path
from typing import Any, Optional

import gradmon
import jobs
import pandas
import pytest
from gradmon_read.heatmapping import INFINITY_COLOR, NAN_COLOR, ZERO_COLOR

NAN, INF = float("nan"), float("inf")


@pytest.fixture
def pyplot(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("MPLBACKEND", "Agg")
    yield pytest.importorskip("matplotlib.pyplot")
    sys.modules["matplotlib.pyplot"].close("all")


def table(rows: "list[tuple[Any, ...]]", **columns: Any) -> pandas.DataFrame:
    """A table as load() returns it, from tuples (name, step, value)."""
    df = pandas.DataFrame(rows, columns=["name", "step", "value"])
    rest = {"rank": 0, "micro_step": pandas.NA, "kind": "grad_reduced", "op": "norm", "vpp_stage": 0}
    df = df.assign(**{**rest, **columns}).astype({"value": float, "micro_step": "Int64"})
    return df.sort_values("step", kind="stable", ignore_index=True)


def names_on(ax: Any) -> "list[str]":
    return [label.get_text() for label in ax.get_yticklabels()]


def cells(ax: Any, mesh: int = 0) -> "list[list[Optional[float]]]":
    array = ax.collections[mesh].get_array()
    return array.reshape(len(names_on(ax)), -1).tolist()


def colors_of(ax: Any, pyplot: Any) -> Any:
    """The drawn colour (red, green, blue) of each cell, by name and step."""
    import numpy

    ax.figure.canvas.draw()
    pixels = numpy.asarray(ax.figure.canvas.buffer_rgba())
    height, (rows, columns) = len(pixels), (len(cells(ax)), len(cells(ax)[0]))
    where = ax.transData.transform([(x, y) for y in range(rows) for x in range(columns)])
    return [tuple(pixels[height - 1 - int(y), int(x), :3] / 255) for x, y in where]


def test_a_training_is_drawn_layer_over_step(tmp_path: Path, pyplot: Any) -> None:
    model, optimizer = jobs.make()
    with jobs.monitor(tmp_path, wg_distribution=True, step_interval=5).watch(model, optimizer):
        jobs.train(model, optimizer, 11)
    ax = gradmon.heatmap(gradmon.load(tmp_path / "out"))
    assert gradmon.heatmap(tmp_path / "out").get_title() == ax.get_title()
    assert names_on(ax) == ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]
    rows = jobs.rows(tmp_path / "out", "grad_reduced")
    assert cells(ax) == [[rows[name, step, 0]["norm"] for step in (0, 5, 10)] for name in names_on(ax)]
    ax.figure.canvas.draw()
    marked = [label.get_text() for label in ax.get_xticklabels()]
    assert [text for text in marked if text] == ["0", "5", "10"]
    assert (ax.get_xlabel(), ax.get_title()) == ("step", "grad_reduced, rank 0")
    assert ax.get_ylim() == (3.5, -0.5)  # the first name is on top
    assert ax.collections[0].colorbar.ax.get_ylabel() == "norm"


def test_nan_infinity_and_what_has_no_row_can_be_told_apart(pyplot: Any) -> None:
    from matplotlib.colors import to_rgb

    df = table([("a", 0, 1), ("a", 1, NAN), ("b", 1, INF), ("b", 2, 0), ("a", 2, 100)])
    ax = gradmon.heatmap(df)
    assert cells(ax) == [[1, None, 100], [None, None, 0]]
    drawn = colors_of(ax, pyplot)
    low, high = ax.collections[0].cmap([0.0, 1.0])[:, :3]
    blank = (1.0, 1.0, 1.0)
    wanted = [low, to_rgb(NAN_COLOR), high, blank, to_rgb(INFINITY_COLOR), to_rgb(ZERO_COLOR)]
    assert [tuple(color) for color in drawn] == [pytest.approx(tuple(color), abs=0.01) for color in wanted]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["NaN", "infinite", "0"]
    assert gradmon.heatmap(table([("a", 0, 1)])).get_legend() is None
    only_nan = gradmon.heatmap(table([("a", 0, NAN)]))
    assert colors_of(only_nan, pyplot) == [pytest.approx(to_rgb(NAN_COLOR), abs=0.01)]


def test_the_scale_is_logarithmic_where_it_can_be(pyplot: Any) -> None:
    def scale(*values: float, **options: Any) -> "tuple[str, float, float]":
        rows = [("a", step, value) for step, value in enumerate(values)]
        norm = gradmon.heatmap(table(rows), **options).collections[0].norm
        return type(norm).__name__, norm.vmin, norm.vmax

    assert scale(1e-3, 0, 10, NAN, INF) == ("LogNorm", 1e-3, 10)
    assert scale(1, 10, log=False) == ("Normalize", 1, 10)
    assert scale(-1, 10) == ("Normalize", -1, 10)
    assert scale(0, 0)[0] == "Normalize"
    assert scale(-1, 1, 10, log=True) == ("LogNorm", 1, 10)


def test_numbers_that_are_as_far_apart_as_numbers_can_be_are_drawn(pyplot: Any) -> None:
    ax = gradmon.heatmap(table([("a", 0, 5e-324), ("a", 1, 0.0), ("a", 2, 1.0), ("a", 3, 1e300)]))
    ax.figure.canvas.draw()
    assert cells(ax) == [[5e-324, 0.0, 1.0, 1e300]]


def test_kind_op_and_rank_are_chosen(pyplot: Any) -> None:
    means = table([("a", 0, 5)], kind="actv", op="mean", rank=3)
    df = pandas.concat([table([("a", 0, 7)], rank=2), table([("a", 0, 8)], rank=1), means])
    assert cells(gradmon.heatmap(df)) == [[8]]
    assert cells(gradmon.heatmap(df, rank=2)) == [[7]]
    assert cells(gradmon.heatmap(df, "actv", "mean")) == [[5]]
    assert cells(gradmon.heatmap(means, op="mean")) == [[5]]
    with pytest.raises(ValueError, match="no rows of kind 'exp_avg'; available: actv, grad_reduced"):
        gradmon.heatmap(df, "exp_avg")
    with pytest.raises(ValueError, match="no 'norm' in actv; available: mean"):
        gradmon.heatmap(df, "actv")
    with pytest.raises(ValueError, match="of rank 0; available: 1, 2"):
        gradmon.heatmap(df, rank=0)
    with pytest.raises(ValueError, match="which kind"):
        gradmon.heatmap(table([]))


def test_the_last_micro_step_of_each_chunk_is_drawn(pyplot: Any) -> None:
    df = pandas.concat(
        [
            table([("b", 0, 2), ("a", 0, 4)], kind="actv", micro_step=1),
            table([("b", 0, 1), ("a", 0, 3)], kind="actv", micro_step=0),
            table([("b", 0, 9)], kind="actv", micro_step=0, vpp_stage=1),
        ]
    )
    ax = gradmon.heatmap(df)
    assert names_on(ax) == ["b", "a", "1:b"]
    assert cells(ax) == [[2], [4], [9]]


def test_it_draws_on_axes_that_are_given(pyplot: Any) -> None:
    ax = pyplot.subplots()[1]
    assert gradmon.heatmap(table([("a", 0, 1)]), ax=ax) is ax
    many = gradmon.heatmap(table([(f"n{i}", 0, 1) for i in range(1000)]))
    assert names_on(many)[:2] == ["n0", "n4"]  # as many names as are readable


def test_without_matplotlib_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match="^gradmon.heatmap.. needs matplotlib: pip install matplotlib "):
        gradmon.heatmap(table([("a", 0, 1)]))
