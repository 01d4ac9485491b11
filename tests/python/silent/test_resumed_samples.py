# SPDX-License-Identifier: Apache-2.0
"""append_output: the number of samples goes on from that of the earlier job."""
from pathlib import Path
from typing import Any

import gradmon
import jobs
import pytest
import torch

ALL = ["Jan01_00-00-00", "Dec31_23-59-59"]
FORMS = ["csv", "sqlite", "tensorboard"]
BATCH = 32


def train(
    place: Path, first: int, last: int, batch: int = BATCH, before: int = 0, each: int = 1, **keys: Any
) -> Path:
    """Trains the steps from `first` up to, not including, `last`; reports `before` samples at first, and
    `batch` in each step."""
    scalars = {"loss": ["records", "log"], "throughput_linearity": "records"}
    config = jobs.write_config(
        place, format=FORMS, scalars=scalars, throughput_baseline=1.0, step_interval=each, **keys
    )
    model = jobs.make_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    monitor = gradmon.Monitor(config, output_dir=place / "out", dynamic=False)
    with monitor.watch(model, optimizer, start_iteration=first):
        if before:
            monitor.samples(before)
        for step in range(first, last):
            loss = model(jobs.batch(step)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            monitor.scalar("loss", loss)
            if batch:
                monitor.samples(batch)
            optimizer.step()
        monitor.stop()
        assert (monitor.status().ranks[0].dropped, monitor.status().ranks[0].error) == (0, "")
    return place / "out"


def resume(place: Path, first: int, last: int, batch: int = BATCH, **keys: Any) -> Path:
    return train(place, first, last, batch, append_output=ALL, **keys)


def samples(out: Path, form: str) -> "dict[int, float]":
    table = gradmon.load(out, form=form, kind="scalar", names="loss", ranks=0)
    table = table[table["op"] == "samples"]
    return dict(zip(table["step"], table["value"]))


def check(out: Path, expected: "dict[int, int]") -> None:
    for form in FORMS:
        assert samples(out, form) == expected, form
    assert len(list(out.glob("*-rank0-*"))) == 1


@pytest.mark.parametrize("first", [3, 6])
def test_a_resumed_job_counts_on_in_every_format(
    first: int, tmp_path: Path, capfd: "pytest.CaptureFixture[str]"
) -> None:
    """From a checkpoint at step `first`; the earlier job ended after step 5."""
    train(tmp_path, 0, 6)
    check(resume(tmp_path, first, 9), {step: BATCH * (step + 1) for step in range(9)})
    assert f"step 8, {9 * BATCH} samples: loss" in capfd.readouterr().err


def test_it_goes_on_from_the_last_number_with_another_batch_size(tmp_path: Path) -> None:
    train(tmp_path, 0, 6)
    out = resume(tmp_path, 3, 9, 16)
    numbers = [32, 64, 96, 128, 160, 192, 208, 224, 240]
    check(out, dict(enumerate(numbers)))
    check(resume(tmp_path, 9, 10), dict(enumerate([*numbers, 272])))


def test_a_program_that_counts_the_samples_of_the_earlier_job_itself_is_left_alone(tmp_path: Path) -> None:
    train(tmp_path, 0, 6)
    check(resume(tmp_path, 6, 9, before=6 * BATCH), {step: BATCH * (step + 1) for step in range(9)})


def test_samples_that_only_one_of_the_jobs_reports(tmp_path: Path) -> None:
    train(tmp_path, 0, 2, batch=0)
    check(resume(tmp_path, 2, 4), {2: BATCH, 3: 2 * BATCH})
    check(resume(tmp_path, 4, 5, batch=0), {2: BATCH, 3: 2 * BATCH})
    check(resume(tmp_path, 5, 6), {2: BATCH, 3: 2 * BATCH, 5: 3 * BATCH})


def test_a_row_that_a_killed_job_has_written_in_part(tmp_path: Path) -> None:
    out = train(tmp_path, 0, 6)
    files = [*out.glob("*/scalar_*.csv"), *out.glob("*/tensorboard/events*")]
    assert len(files) == 2
    for file in files:
        file.write_bytes(file.read_bytes()[:-5])
    check(resume(tmp_path, 4, 9), {step: BATCH * (step + 1) for step in range(9)})


def test_a_rank_without_a_directory_goes_on_from_the_number_of_another_rank(tmp_path: Path) -> None:
    out = train(tmp_path, 0, 6)
    (directory,) = out.glob("*-rank0-*")
    directory.rename(str(directory).replace("-rank0-", "-rank3-"))
    check(resume(tmp_path, 6, 9), {step: BATCH * (step + 1) for step in range(6, 9)})


def test_rows_have_no_number_while_the_earlier_one_cannot_be_read(tmp_path: Path) -> None:
    out = train(tmp_path, 0, 6)
    (file,) = out.glob("*-rank0-*/scalar_*.csv")
    keys = {"append_output": ALL, "format": ["csv"]}
    config = jobs.write_config(tmp_path, scalars={"loss": "records"}, **keys)
    file.with_name("scalar_5000-5000.csv").mkdir()
    model = jobs.make_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    monitor = gradmon.Monitor(config, output_dir=out, dynamic=False)
    with monitor.watch(model, optimizer, start_iteration=6):
        monitor.scalar("loss", 1.0)
        monitor.samples(BATCH)
        jobs.train(model, optimizer, 1)
        assert jobs.eventually(lambda: "samples" in "".join(monitor.status().warnings))
        warnings = monitor.status().warnings
        monitor.stop()
    assert any("scalar_5000-5000.csv is not a regular file" in warning for warning in warnings)
    file.with_name("scalar_5000-5000.csv").rmdir()
    assert samples(out, "csv") == {step: BATCH * (step + 1) for step in range(6)}
    assert list(gradmon.load(out, form="csv", kind="scalar", steps=6)["op"]) == ["value"]


def test_tensorboards_data_server_shows_all_points(tmp_path: Path) -> None:
    """A point whose step is not above the last one of its tag makes it remove later points of the tag."""
    ingester = pytest.importorskip("tensorboard.data.server_ingester")
    from tensorboard import context
    from tensorboard.util import grpc_util

    train(tmp_path, 0, 6)
    out = resume(tmp_path, 6, 9)
    server = ingester.SubprocessServerDataIngester(
        ingester.get_server_binary(),
        str(out),
        reload_interval=0,
        channel_creds_type=grpc_util.ChannelCredsType.LOCAL,
    )
    server.start()

    def steps() -> "dict[str, list[int]]":
        found = server.data_provider.read_scalars(
            context.RequestContext(), experiment_id="", plugin_name="scalars", downsample=1000
        )
        return {
            tag: [point.step for point in points] for tags in found.values() for tag, points in tags.items()
        }

    try:
        assert jobs.eventually(lambda: steps().get("loss") == list(range(9)))
        assert steps()["loss-vs-samples"] == [BATCH * (step + 1) for step in range(9)]
    finally:
        server._stdin_handle.close()  # ends the server
