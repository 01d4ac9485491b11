# SPDX-License-Identifier: Apache-2.0
"""A config that `gradmonctl init` makes, and what a job of two ranks writes by it."""
import contextlib
import csv
import json
import os
import pty
import subprocess
from pathlib import Path
from typing import Any

import gradmon
import jobs
import pytest
import ranks
import torch
from training import GRADMONCTL, gradmonctl

REPLICATED = ["exp_avg", "exp_avg_sq", "grad_reduced", "param_origin", "param_updated"]

TWO_RANKS = """
import json, os, sys
import torch, torch.distributed as dist
import gradmon, jobs, ranks

options = json.loads(sys.argv[1])
store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), 2,
                      os.environ["RANK"] == "0", **ranks.STORE_OPTIONS)
dist.init_process_group("gloo", store=store, rank=int(os.environ["RANK"]), world_size=2)
model = jobs.make_net()
del model.spare
model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
alone = torch.nn.Linear(4, 1)
own = torch.optim.SGD(alone.parameters(), lr=0.1)
with gradmon.Monitor(options["config"], output_dir=options["out"], dynamic=False) as monitor:
    monitor.watch(model, optimizer)
    if options["second"]:
        monitor.watch(alone, own)
    for step in range(options["steps"]):
        own.zero_grad(); optimizer.zero_grad()
        x = jobs.batch(step) + dist.get_rank()
        (model(x).pow(2).mean() + alone(x).pow(2).mean()).backward()
        own.step(); optimizer.step()
        monitor.scalar("loss", 1.0)
dist.destroy_process_group()
"""


def init(place: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return gradmonctl("init", *words, cwd=place, stdin=subprocess.DEVNULL)


def train(place: Path, steps: int = 4, second: bool = False, **keys: Any) -> Path:
    """Trains two ranks with the config that init makes for all kinds of parameters, and these keys."""
    made = init(place, "--collect", "gradients,weights,moments")
    assert made.returncode == 0, made.stderr
    config = place / "monitor_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), **keys}))
    out = place / "out"
    ranks.run(place, TWO_RANKS, config=str(config), out=str(out), steps=steps, second=second)
    return out


def kinds_of(out: Path, rank: int) -> "list[str]":
    (directory,) = out.glob(f"*-rank{rank}-*")
    return sorted(path.name.rpartition("_")[0] for path in directory.glob("*.csv"))


def cells(out: Path, kind: str, rank: int = 0) -> "list[dict[str, str]]":
    (path,) = out.glob(f"*-rank{rank}-*/{kind}_0-999.csv")
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_config_is_valid_without_a_warning_and_is_never_overwritten(tmp_path: Path) -> None:
    assert init(tmp_path).returncode == 0
    config = tmp_path / "monitor_config.json"
    text = config.read_text()
    keys = json.loads(text)
    assert (keys["step_count_per_record"], keys["digits"], keys["replicas"]) == (1000, 7, "first")
    assert keys["wg_distribution"] and not keys["xy_distribution"] and not keys["dynamic_on"]
    checked = gradmonctl("validate", config)
    assert (checked.returncode, checked.stderr) == (0, "")
    config.write_text("mine")
    again = init(tmp_path, "--yes")
    assert (again.returncode, config.read_text()) == (1, "mine")
    assert again.stderr == "gradmonctl: monitor_config.json: exists already; --force replaces it\n"
    assert init(tmp_path, "--force").returncode == 0
    assert config.read_text() == text


def test_options_choose_what_is_collected(tmp_path: Path) -> None:
    done = init(
        tmp_path, "c.json", "--collect", "weights,activations", "--step-interval", "10", "--alerts", "no"
    )
    assert done.returncode == 0, done.stderr
    keys = json.loads((tmp_path / "c.json").read_text())
    assert (keys["param_distribution"], keys["xy_distribution"], keys["wg_distribution"]) == (
        True,
        True,
        False,
    )
    assert (keys["step_interval"], keys["alert"]) == (10, {"rules": []})
    wrong = init(tmp_path, "d.json", "--collect", "weight")
    assert wrong.returncode == 2 and 'found "weight"; expected a list of gradients, weights' in wrong.stderr
    assert not (tmp_path / "d.json").exists()


def test_a_terminal_is_asked(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [GRADMONCTL, "init", "--format", "sqlite"], cwd=tmp_path, stdin=theirs, stderr=theirs, text=True
    )
    os.write(ours, b"nothing\nmoments, gradients\n\n")
    assert process.wait(timeout=60) == 0
    os.close(theirs)
    asked = ""
    with contextlib.suppress(OSError):  # a pseudo-terminal ends so once nobody has the other side
        while part := os.read(ours, 65536):
            asked += part.decode()
    os.close(ours)
    assert asked.count("what to collect") == 2 and 'found "nothing"' in asked and "format:" not in asked
    keys = json.loads((tmp_path / "monitor_config.json").read_text())
    assert (keys["mv_distribution"], keys["wg_distribution"], keys["format"]) == (True, True, "sqlite")
    assert len(keys["alert"]["rules"]) == 2


def test_replicas_have_rows_of_one_rank_with_all_their_digits(tmp_path: Path) -> None:
    out = train(tmp_path, scalars={}, alert={})
    assert kinds_of(out, 0) == sorted([*REPLICATED, "grad_unreduced"])
    assert kinds_of(out, 1) == ["grad_unreduced"]
    assert len(cells(out, "grad_unreduced", 1)) == len(cells(out, "grad_unreduced")) == 16
    small = [float(row["norm"]) for row in cells(out, "exp_avg_sq")]
    assert len(small) == 12 and all(0 < value < 1 for value in small)
    digits = [row["norm"].partition("e")[0].replace(".", "").lstrip("0") for row in cells(out, "exp_avg_sq")]
    assert max(map(len, digits)) == 7


def test_the_first_rank_that_collects_writes_replicas_and_other_models_keep_their_rows(
    tmp_path: Path,
) -> None:
    out = train(tmp_path, scalars={}, alert={}, module_ranks=[1])
    assert kinds_of(out, 1) == sorted([*REPLICATED, "grad_unreduced"])
    assert not list(out.glob("*-rank0-*"))
    (tmp_path / "second").mkdir()
    out = train(tmp_path / "second", second=True, scalars={}, alert={})
    names = {row["name"] for row in cells(out, "param_origin", 1)}
    assert names == {"weight", "bias"}  # of the model that each rank trains alone


@pytest.mark.parametrize("world_size", [1, 2])
def test_replicas_that_watch_does_not_know_are_said(
    tmp_path: Path, capfd: "pytest.CaptureFixture[str]", world_size: int
) -> None:
    net = torch.nn.Linear(2, 2)
    place = {"rank": 0, "world_size": world_size}
    monitor = jobs.monitor(tmp_path, place, wg_distribution=True, replicas="first")
    with monitor.watch(net, torch.optim.SGD(net.parameters(), lr=0.1)):
        pass
    said = '"replicas": "first" has no effect: the monitor knows no other rank with the same parameters'
    assert (said in capfd.readouterr().err) == (world_size == 2)


def test_without_the_keys_every_rank_writes_all(tmp_path: Path) -> None:
    out = train(tmp_path, scalars={}, alert={}, replicas="all")
    assert kinds_of(out, 1) == kinds_of(out, 0)


def test_ranks_share_the_cards_of_tensorboard(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    out = train(tmp_path, steps=2, format="tensorboard", replicas="all")
    tags = []
    for rank in range(2):
        (directory,) = out.glob(f"*-rank{rank}-*/tensorboard")
        tags.append(set(accumulator.EventAccumulator(str(directory)).Reload().Tags()["scalars"]))
    assert tags[0] == tags[1]
    assert any(tag.startswith("grad_reduced_norm/") and tag.endswith("fc1.weight") for tag in tags[0])
    assert {"loss", "grad-norm"} <= tags[0]


def test_on_says_how_long_it_goes_on_and_what_it_writes(tmp_path: Path) -> None:
    config = jobs.write_config(tmp_path, wg_distribution=True, dynamic_on=False)
    model, optimizer = jobs.make()
    out = tmp_path / "out"
    with gradmon.Monitor(config, output_dir=out, dynamic=True) as monitor:
        monitor.watch(model, optimizer)
        on = None
        for step in range(1_000_000):
            optimizer.zero_grad()
            model(jobs.batch(step)).pow(2).mean().backward()
            optimizer.step()
            if step == 200:
                words = [GRADMONCTL, "on", "--output-dir", str(out)]
                on = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
            if on is not None and on.poll() is not None:
                break
        assert on is not None and on.stderr is not None and on.wait() == 0
        said = on.stderr.read()
    assert "gradmonctl: collects every step until gradmonctl off; about " in said
    assert "rows a minute (" in said and "up to 12 in a collected step, on all ranks" in said
