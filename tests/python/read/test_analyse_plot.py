# SPDX-License-Identifier: Apache-2.0
"""gradmonctl analyse plot: the data of a heat map, and the file that shows it."""
import base64
import io
import json
import math
import os
import random
import re
import struct
from pathlib import Path
from typing import Any

import numpy
import pytest
from gradmon_read import heat_map
from gradmon_read.csv_tables import Problems
from gradmon_read.event_rows import EventFileError, masked_crc32c, records
from gradmon_read.heat_map import (
    MISSING,
    OWN_COLOURS,
    HeatMap,
    HeatMapBuilder,
    heat_map_of,
    HeatMapRequest,
    histograms_in,
    is_target,
    page,
)
from gradmon_read.runs import RankDirectory, find_run
from job_rows import RankFiles, TestRow
from reading import Commands, corrupted, event_of, record_of
from scale import FULL

BINS = 30
NAN_COLOUR, INFINITE_COLOUR, ZERO_COLOUR, MISSING_COLOUR = OWN_COLOURS.values()
CORRUPTIONS = 1000 if FULL else 250


def add(builder: HeatMapBuilder, *cells: "tuple[int, int, float]") -> None:
    row, step, value = zip(*cells)
    builder.add(numpy.array(row), numpy.array(step, "int64"), numpy.array(value, float))


def test_cells_show_the_largest_magnitude_and_steps_without_rows_are_left_out() -> None:
    builder = HeatMapBuilder(10, 10)
    add(builder, (0, 3, 1), (0, 3, -5), (1, 8, 2))
    found = builder.build("title", ["a", "b"])
    assert found[:4] == ("title", ["a", "b"], [3, 8], 8)
    assert found.cells.tolist() == [[5, MISSING], [MISSING, 2]]


@pytest.mark.parametrize("direction", [1, -1])
@pytest.mark.parametrize("part", [1, 100])
def test_a_spike_and_a_nan_survive_any_folding_in_any_order_of_steps(direction: int, part: int) -> None:
    builder = HeatMapBuilder(4, 8)
    steps = numpy.arange(0, 5000, 7 if part == 1 else 1)[::direction]
    spike = int(steps[len(steps) // 4])
    for few in numpy.array_split(steps, len(steps) // part):
        add(
            builder,
            *((row, step, 1e6 if (row, step) == (7, spike) else 1) for step in few for row in range(10)),
        )
    add(builder, (2, 4321, math.nan), (2, 4321, 9))
    found = builder.build("", ["x"] * 10)
    assert found.cells.shape[0] == 4
    assert 4 <= found.cells.shape[1] <= 8
    assert (found.cells == 1e6).sum() == numpy.isnan(found.cells).sum() == 1
    width = found.first_steps[1] - found.first_steps[0]
    assert width & (width - 1) == 0 and not any(step % width for step in found.first_steps)


def test_steps_may_be_as_large_as_a_step_can_be_and_values_as_large_as_a_double() -> None:
    builder = HeatMapBuilder(4, 8)
    add(builder, (0, 2**63 - 1, 1e300), (0, 0, 1))
    found = builder.build("", ["a"])
    assert len(found.first_steps) == 2
    assert found.cells.max() == numpy.finfo("float32").max  # not infinite


def test_more_layers_get_fewer_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradmon_read.heat_map._MOST_CELLS", 1000)
    builder = HeatMapBuilder()
    for row in range(60):
        add(builder, *((row, step, row + step) for step in range(0, 500, 10)))
        assert builder._cells.size <= 1000
    found = builder.build("", [str(row) for row in range(60)])
    assert found.cells.shape[0] == 60 and 2 <= found.cells.shape[1] <= 16
    assert found.cells[:, -1].tolist() == [row + 490 for row in range(60)]


def rgb(colour: str) -> "list[int]":
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]


def test_the_scale_is_logarithmic_for_a_wide_range_and_odd_values_have_their_own_colours() -> None:
    cells = numpy.array([[1e-3, 1, 1e3, math.inf, math.nan, 0, MISSING]], "float32")
    scale = heat_map.scale_of(cells)
    assert float(scale(1)) == pytest.approx(0.5, abs=1e-6)
    colours = heat_map.colours_of(cells, scale)[0, :, :3].tolist()
    assert colours[3:] == [rgb(c) for c in (INFINITE_COLOUR, NAN_COLOUR, ZERO_COLOUR, MISSING_COLOUR)]
    assert colours[0] == [68, 1, 84] and colours[2] == [253, 231, 36]  # the ends of viridis
    linear = heat_map.scale_of(numpy.array([[1, 2, 3]], "float32"))
    assert float(linear(2)) == 0.5
    nothing = numpy.array([[math.nan, MISSING]], "float32")
    assert heat_map.colours_of(nothing, heat_map.scale_of(nothing)).shape == (1, 2, 4)


def map_of(output: Path, request: HeatMapRequest = HeatMapRequest(None, None, "", None)) -> HeatMap:
    problems = Problems()
    found = heat_map_of(find_run(output, "", problems), request, problems)
    assert problems.count == 0
    return found


def test_a_heat_map_has_a_row_for_each_layer_and_the_largest_value_of_all_ranks(tmp_path: Path) -> None:
    for rank in range(2):
        files = RankFiles(tmp_path, rank)
        for step in range(10, 13):
            nan = math.nan if rank == 1 and step == 11 else 5
            files.write(step, [TestRow("grad_reduced", "a", 1.0 + rank), TestRow("grad_reduced", "b", nan)])
            files.write(step, [TestRow("actv", "c", 7)])
    found = map_of(tmp_path)
    assert found[:4] == (
        "norm of grad_reduced, largest of 2 ranks, run 1a2b3c4d",
        ["a", "b"],
        [10, 11, 12],
        12,
    )
    assert found.cells[0].tolist() == [2, 2, 2] and math.isnan(found.cells[1, 1])
    one = map_of(tmp_path, HeatMapRequest("grad_reduced", None, "b", 0))
    assert (one.title, one.cells.tolist()) == ("norm of grad_reduced, rank 0, run 1a2b3c4d", [[5, 5, 5]])
    nans = map_of(tmp_path, HeatMapRequest("grad_reduced", "nans", "", None))
    assert nans.cells.tolist() == [[0, 0, 0], [0, 1, 0]]


@pytest.mark.parametrize(
    "target, name, fits",
    [
        ("layers.1", "layers.1", True),
        ("layers.1", "layers.1.weight", True),
        ("layers.1", "layers.10.weight", False),
        ("*.weight", "layers.10.weight", True),
        ("layers.?.w*t", "layers.1.weight", True),
        ("layers.?.weight", "layers.10.weight", False),
        ("*a*b*", "xaxxb", True),
        ("*a*b", "xaxxbc", False),
        ("*", "", True),
        ("?", "", False),
    ],
)
def test_a_target_is_a_name_or_a_module_above_it_or_a_pattern(target: str, name: str, fits: bool) -> None:
    assert is_target(target, name) == fits


def small_job(output: Path) -> None:
    files = RankFiles(output, 0)
    for step in range(5):
        first = TestRow("grad_reduced", "layers.0.weight", 1000 if step == 3 else 1)
        files.write(
            step, [first, TestRow("grad_reduced", "layers.1.<weight>$", math.nan if step >= 3 else 0)]
        )
    files.write(1, [TestRow("grad_reduced", "a & b", math.inf)])


def pixels_of(file: Path) -> "set[tuple[int, ...]]":
    from matplotlib import image

    found = image.imread(io.BytesIO(file.read_bytes()), format="png")
    return {tuple(pixel) for pixel in (found[:, :, :3].reshape(-1, 3) * 255).round().astype(int).tolist()}


def test_the_file_shows_the_data(run: Commands, tmp_path: Path) -> None:
    small_job(tmp_path / "job")
    for form in ("svg", "png"):
        answer = run("analyse", "plot", tmp_path / "job", "-o", tmp_path / f"map.{form}", "--json")
        assert (answer.code, answer.err) == (0, "")
        assert json.loads(answer.out) == {
            "schema_version": 2,
            "file": f"{tmp_path}/map.{form}",
            "title": "norm of grad_reduced, rank 0, run 1a2b3c4d",
            "rows": 3,
            "columns": 5,
            "first_step": 0,
            "last_step": 4,
            "left_out": {"count": 0, "messages": []},
        }
        assert (tmp_path / f"map.{form}").stat().st_mode & 0o777 == 0o640
    text = (tmp_path / "map.svg").read_text()
    for label in ("layers.0.weight", "layers.1.&lt;weight&gt;$", "a &amp; b", "NaN", "no row", NAN_COLOUR):
        assert label in text
    assert run("analyse", "plot", tmp_path / "job", "-o", tmp_path / "again.svg").out == ""
    assert (tmp_path / "again.svg").read_text() == text
    pixels = pixels_of(tmp_path / "map.png")
    own = {tuple(rgb(colour)) for colour in (NAN_COLOUR, INFINITE_COLOUR, ZERO_COLOUR, MISSING_COLOUR)}
    assert own | {(68, 1, 84), (253, 231, 36)} <= pixels


def test_a_heat_map_of_the_largest_size_stays_below_four_megabytes() -> None:
    builder = HeatMapBuilder()
    row, step = numpy.mgrid[:256, :512].reshape(2, -1)
    builder.add(row, step, 1.0 + (row * 31 + step * 17) % 64)
    found = builder.build("largest", ["layer" * 30] * 256)
    assert found.cells.shape == (256, 512)
    assert max(len(heat_map.picture(found, form)) for form in ("svg", "png")) < 4_000_000


def write_histograms(output: Path, ranks: int = 2) -> None:
    for rank in range(ranks):
        directory = RankFiles(output, rank).directory / "tensorboard"
        directory.mkdir()
        events = []
        for step in range(5, 8):
            for tag, place, count in (
                ("update/fc1.weight", 29, step + rank),
                (f"0:fc1.bias/rank{rank}/update", 3, 1000),
                ("ratio/fc1.weight", 0, 50),
            ):
                counts = [float(count) if i == place else 0.0 for i in range(BINS)]
                events.append(record_of(event_of(tag, counts, step)))
        (directory / "events.out.tfevents.1").write_bytes(b"".join(events))


def test_a_histograms_heat_map_has_the_bin_of_1_at_the_top_and_the_largest_count_of_all_ranks(
    run: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_histograms(tmp_path)
    shown: "list[HeatMap]" = []
    monkeypatch.setattr(heat_map, "picture", lambda map, form: shown.append(map) or b"")
    words = ["analyse", "plot", str(tmp_path), "-o", str(tmp_path / "x.png"), "--metric"]
    assert run(*words, "update", "--target", "fc1.weight").code == 0
    found = shown[0]
    assert found.title == "values of update of fc1.weight, largest of 2 ranks, run 1a2b3c4d"
    assert (len(found.rows), found.first_steps) == (BINS, [5, 6, 7])
    assert [found.rows[i] for i in (0, 14, 29)] == ["0.93 to 1.00", "0.00 to 0.07", "-1.00 to -0.93"]
    assert found.cells[:2].tolist() == [[6, 7, 8], [0, 0, 0]]
    assert run(*words, "ratio", "--target", "*.weight", "--rank", "1").code == 0
    assert shown[1].title == "values of ratio of fc1.weight, rank 1, run 1a2b3c4d"
    assert shown[1].cells[29].tolist() == [50, 50, 50]


@pytest.mark.parametrize(
    "options, code, error",
    [
        ("--metric exp_avg", 1, "there are no files of exp_avg; there are: actv, grad_reduced\n"),
        ("--op max", 1, "grad_reduced has no values of --op max; it has norm, nans\n"),
        ("--target x", 1, "no layer matches --target x, of 1 rows\n"),
        ("--rank 9", 1, "there is no rank 9 in the run\n"),
        ("-o map.pdf", 2, "-o map.pdf: expected a file name that ends with .svg, .png or .html\n"),
        ("--metric nothing", 2, "invalid choice: 'nothing'"),
        ("-o /no/such/map.svg", 1, "/no/such/map.svg: No such file or directory\n"),
        ("--metric ratio --op norm", 2, "--op norm: ratio is a histogram and has no statistics\n"),
        ("--metric update", 1, "gradmonctl: the histograms of update are of 2 parameters (fc1.bias, "
         "fc1.weight): name one with --target\n"),
        ("--metric update --target fc2", 1, "no parameter matches --target fc2, of 12 histograms\n"),
        ("--metric ratio --rank 7", 1, 'gradmonctl: there are no histograms of ratio; "ur_distribution": '
         'true with "format": "tensorboard" makes them\n'),
    ],
)  # fmt: skip
def test_without_values_the_error_says_what_there_is(
    run: Commands, tmp_path: Path, options: str, code: int, error: str
) -> None:
    write_histograms(tmp_path)
    RankFiles(tmp_path, 0).write(0, [TestRow("actv", "a"), TestRow("grad_reduced", "w")])
    answer = run("analyse", "plot", tmp_path, "-o", tmp_path / "map.svg", *options.split())
    assert answer.code == code
    assert error in answer.err
    assert not (tmp_path / "map.svg").exists()


def histograms_of(place: Path, event: bytes, rank: int) -> "list[Any]":
    """An event file with this event alone has them."""
    file = place / "tensorboard" / "events.out.tfevents.1"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(record_of(event))
    return list(histograms_in(RankDirectory(rank, place), Problems()))


def test_a_histogram_is_read_by_its_tag(tmp_path: Path) -> None:
    counts = [3.0, *[0.0] * 28, 2.0**40]
    for tag, expected in (
        ("3:layers/rank1/a.weight/rank12/ratio", (7, 3, "layers/rank1/a.weight", 12, "ratio")),
        ("update/layers/rank1/a.weight", (7, 0, "layers/rank1/a.weight", 5, "update")),
        ("ratio/3:a:b", (7, 3, "a:b", 5, "ratio")),
    ):
        ((step, found, bins),) = histograms_of(tmp_path, event_of(tag, counts), 5)
        assert (step, found.vpp_stage, found.name, found.rank, found.kind, bins) == (*expected, counts)


@pytest.mark.parametrize(
    "event",
    [
        *(
            event_of(tag, [0.0] * BINS)
            for tag in (
                *("", "w", "0:w", "0:w/rank2", "0:w/rank2/", "0:w/rank2/norm", "0:w/rank/update"),
                *(
                    "x:w/rank2/update",
                    "0:w/rank-2/update",
                    "0:w/rank99999999999/update",
                    "update",
                    "update2/w",
                ),
                *("/rank2/update:0", "0:w/rank2/update2"),
            )
        ),
        event_of("update/w", [0.0] * BINS, -1),
        event_of("update/w", [0.0] * (BINS + 1)),
        event_of("update/w", [-1.0] * BINS),
        event_of("update/w", [math.nan] * BINS),
        b"not an event",
        b"",
    ],
)
def test_events_that_are_none_of_gradmons_histograms_are_no_rows(event: bytes, tmp_path: Path) -> None:
    assert histograms_of(tmp_path, event, 0) == []


def read_records(file: Path, content: bytes) -> "tuple[list[bytes], str]":
    """The records, and why there are no more."""
    file.write_bytes(content)
    found = []
    try:
        for record in records(file):
            found.append(record)
    except EventFileError as error:
        return found, str(error)
    return found, ""


def test_records_are_read_up_to_a_torn_or_a_broken_one(tmp_path: Path) -> None:
    first, second = record_of(b"one") + record_of(b""), record_of(b"three")
    assert read_records(tmp_path / "f", first + second) == ([b"one", b"", b"three"], "")
    for cut in range(1, len(second)):
        assert read_records(tmp_path / "f", first + second[:-cut]) == ([b"one", b""], "")
    for at, why in ((0, "not the header of a record"), (9, "not the header of a record")):
        broken = bytearray(first + second + record_of(b"four"))
        broken[len(first) + at] ^= 4
        assert read_records(tmp_path / "f", bytes(broken)) == ([b"one", b""], f"byte {len(first)}: {why}")
    for at in (13, len(second) - 1):
        broken = bytearray(first + second + record_of(b"four"))
        broken[len(first) + at] ^= 4
        found = read_records(tmp_path / "f", bytes(broken))
        assert found == ([b"one", b""], f"byte {len(first)}: the checksum of a record is wrong")
    header = struct.pack("<Q", 0x7F << 56)
    huge = header + struct.pack("<I", masked_crc32c(header)) + b"rest"
    assert (
        "a record of 9151314442816847872 bytes; expected at most 67108864"
        in read_records(tmp_path / "f", huge)[1]
    )


def test_event_files_with_any_bytes_give_histograms_and_at_most_one_problem_each(
    run: Commands, tmp_path: Path
) -> None:
    chosen = random.Random(9)
    write_histograms(tmp_path, 1)
    (file,) = tmp_path.rglob("*tfevents*")
    good = record_of(event_of("update/w", [1.0] * BINS))
    os.mkfifo(file.with_name("events.out.tfevents.0"))
    for _ in range(CORRUPTIONS // 5):
        content = bytearray(good + file.read_bytes()[: chosen.randrange(3000)])
        for _ in range(chosen.choice([0, 1, 1, 50])):
            content[chosen.randrange(len(good), len(content))] = chosen.randrange(256)
        file.with_name("events.out.tfevents.2").write_bytes(content)
        answer = run(
            "analyse", "plot", tmp_path, "-o", tmp_path / "x.png", "--metric", "update", "--target", "none"
        )
        assert answer.code == 1
        lines = answer.err.splitlines()
        assert "tfevents.0: not a regular file; the rest of the file is left out" in lines[0]
        assert "no parameter matches --target none" in lines[-1]
        assert len(lines) <= 3
    event = event_of("update/w", [1.0] * BINS)
    for _ in range(CORRUPTIONS):
        content = corrupted(event, 2, chosen)
        for step, _, counts in histograms_of(tmp_path, bytes(content), 0):
            assert step >= 0 and all(0 <= count < math.inf for count in counts)


def test_an_interactive_page_has_every_cell_and_needs_no_network(tmp_path: Path) -> None:
    cells = numpy.array([[1, 1000, math.nan], [0, math.inf, MISSING]], "float32")
    text = page(HeatMap("norm </script>", ["<b>", "<b>"], [3, 4, 8], 9, cells)).decode()
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", text)
    assert "norm </script>" not in text
    call = text[text.rindex("Plotly.newPlot(") :]
    begin = call.index("[")
    traces, _ = json.JSONDecoder().raw_decode(call[begin:])
    maps = [trace for trace in traces if trace["type"] == "heatmap"]
    assert [trace["hovertemplate"].split("<br>")[-1].split("<")[0] for trace in maps] == [
        *("%{customdata:.6g}", "NaN", "infinite", "0"),
    ]
    assert all(
        (trace["x"], trace["y"]) == (["3", "4", "8"], ["&lt;b&gt;", "&lt;b&gt; (2)"]) for trace in maps
    )
    assert values_of(maps[0]["customdata"]) == [[1, 1000, None], [None, None, None]]
    assert values_of(maps[0]["z"]) == [[0, 3, None], [None, None, None]]
    assert [values_of(trace["z"]) for trace in maps[1:]] == [
        [[None, None, 1], [None, None, None]],
        [[None, None, None], [None, 1, None]],
        [[None, None, None], [1, None, None]],
    ]
    assert [trace["colorscale"][0][1] for trace in maps[1:]] == list(OWN_COLOURS.values())[:3]


def values_of(data: "dict[str, str]") -> "list[list[float | None]]":
    """An array as plotly stores it: base64 of numbers."""
    rows, columns = map(int, data["shape"].split(","))
    array = numpy.frombuffer(base64.b64decode(data["bdata"]), data["dtype"]).reshape(rows, columns)
    return [[None if math.isnan(cell) else round(float(cell), 6) for cell in row] for row in array]
