# SPDX-License-Identifier: Apache-2.0
"""Values that the program reports: scalars, samples, expert load, attention; and invalid ones."""
import csv
import math
from pathlib import Path

import gradmon
import jobs
import pytest
import torch


def test_the_formats_page_example_of_scalars_does_what_it_says(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).resolve().parents[3] / "writers" / "FORMAT.md").read_text()
    section = page.split("\n## Training scalars\n")[1]
    config, program = (
        section.split(f"```{language}\n")[1].split("```")[0] for language in ("json", "python")
    )
    (tmp_path / "config.json").write_text(config)
    model, optimizer = jobs.make()
    with gradmon.Monitor(tmp_path / "config.json", output_dir=tmp_path / "out", dynamic=False).watch(
        model, optimizer
    ) as monitor:
        for _ in range(2):
            exec(program, {"monitor": monitor, "loss": torch.tensor(0.25)})
            jobs.train(model, optimizer, 1)
    files = sorted((tmp_path / "out").rglob("scalar_*.csv"))
    lines = [line.split(",") for file in files for line in file.read_text().splitlines()[1:]]
    assert {name for name, *_ in lines} == {"loss", "grad-norm", "throughput"}
    assert "0.25" in capfd.readouterr().err  # the log


def test_a_scalar_is_not_read_while_nothing_is_collected(tmp_path: Path) -> None:
    class Loss:
        def __float__(self) -> float:
            raise AssertionError("would wait for the device")

    model, optimizer = jobs.make()
    with jobs.monitor(tmp_path, scalars={"loss": "records"}, start_step=1).watch(model, optimizer) as monitor:
        monitor.scalar("loss", Loss())
        jobs.train(model, optimizer, 2)
        monitor.scalar("loss", torch.tensor([1.5]))
    (file,) = (tmp_path / "out").rglob("scalar_*.csv")
    assert file.read_text().splitlines()[1:] == ["loss,1,,1.5"]


def test_invalid_values_do_not_end_training(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model, optimizer = jobs.make()
    monitor = jobs.monitor(tmp_path, scalars={"loss": "records"}, **jobs.EVERYTHING)
    with monitor.watch(model, optimizer):
        monitor.scalar("loss", None)
        monitor.scalar("loss", torch.zeros(2))
        monitor.scalar("large", 10**400)
        monitor.samples(256.0)
        monitor.expert_load("moe", torch.zeros(2))
        monitor.expert_load("moe.1", 3)
        monitor.expert_load(4, [1])
        monitor.attention("fc1", None, None)
        monitor.on(collect_times="3")
        monitor.set("ops", {"norm"})
        jobs.train(model, optimizer, 1)
    said = capfd.readouterr().err
    for what in ("scalar 'loss'", "scalar 'large'", "samples", "attention 'fc1'", "on()", "set('ops')"):
        assert f"gradmon: {what}" in said
    for layer in ("'moe'", "'moe.1'", "4"):
        assert f"gradmon: expert_load {layer}" in said


@pytest.mark.parametrize("causal", [False, True])
def test_reported_attention_is_measured(tmp_path: Path, causal: bool) -> None:
    model, optimizer = jobs.make()
    torch.manual_seed(5)
    q, k = torch.randn(2, 7, 3, 4), torch.randn(2, 7, 3, 4)
    keys = {"recording_l2_features": True, "l2_targets": {"attention_hook": ["fc1.attention"]}}
    monitor = jobs.monitor(tmp_path, sa_order="b,s,h,d", sa_causal=causal, **keys)
    with monitor.watch(model, optimizer):
        monitor.attention("fc1.attention", q, k, causal=causal)
        jobs.train(model, optimizer, 1)
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k).double() / 2
    if causal:
        scores = scores.masked_fill(torch.ones(7, 7, dtype=torch.bool).triu(1), -math.inf)
    p = scores.softmax(-1)
    entropy = -torch.special.xlogy(p, p).sum(-1).mean().item()
    (file,) = (tmp_path / "out").rglob("attention_hook_*.csv")
    with file.open(newline="") as rows:
        (row,) = csv.DictReader(rows)
    assert float(row["entropy"]) == pytest.approx(entropy, rel=1e-5)
    assert float(row["softmax_max"]) == pytest.approx(p.amax(-1).mean().item(), rel=1e-5)
