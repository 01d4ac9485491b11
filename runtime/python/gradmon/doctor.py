# SPDX-License-Identifier: Apache-2.0
"""Prints what gradmon finds on this machine, and which kinds of rows work:

    python3 -m gradmon.doctor
    python3 -m gradmon.doctor --framework deepspeed

--framework (colossalai, deepspeed, megatron, torchft or torchtitan): prints the kinds of rows that each mode
of the framework has, and, line by line, whether the installed framework has the names that gradmon relies on.
Exit code 0: all kinds work, or all names are there. If the extension was built against another torch, the
import fails with that message.
"""
import argparse
import contextlib
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Iterator

import torch

import gradmon
from gradmon import _relied_on
from gradmon._built_against import TORCH

_KINDS: "dict[str, tuple[dict[str, Any], list[str]]]" = {
    "gradients": ({"wg_distribution": True}, ["grad_unreduced", "grad_reduced"]),
    "gradients of micro batches": ({"wg_distribution": True, "monitor_mbs_grad": True}, ["grad_unreduced"]),
    "gradient against momentum": ({"mg_direction": True}, ["other"]),
    "weights": ({"param_distribution": True}, ["param_origin", "param_updated"]),
    "moments": ({"mv_distribution": True}, ["exp_avg", "exp_avg_sq"]),
    "activations": ({"xy_distribution": True, "all_xy": True}, ["actv", "actv_grad"]),
    "L2 features": (
        {"recording_l2_features": True, "l2_targets": {"linear_hook": [], "attention_hook": ["attention"]}},
        ["linear_hook", "attention_hook"],
    ),
    "communication": ({"cc_distribution": {"enable": True}}, ["other"]),
}


@contextlib.contextmanager
def _group_of_one(scratch: Path, wanted: bool) -> "Iterator[Callable[[torch.Tensor], Any]]":
    """An allreduce in a group of this process only; a no-op if not wanted or missing in this torch."""
    if not wanted or not torch.distributed.is_available():
        yield lambda _: None
        return
    init_method = (scratch / "group").as_uri()
    torch.distributed.init_process_group("gloo", init_method=init_method, rank=0, world_size=1)
    try:
        yield torch.distributed.all_reduce
    finally:
        torch.distributed.destroy_process_group()


@contextlib.contextmanager
def _scratch() -> "Iterator[Path]":
    """A temporary directory. Removal is retried for 5 s, because the hub may still write into it."""
    path = Path(tempfile.mkdtemp(prefix="gradmon-doctor-"))
    try:
        yield path
    finally:
        end = time.monotonic() + 5
        while path.exists() and time.monotonic() < end:
            shutil.rmtree(path, ignore_errors=True)
            time.sleep(0.02)


class _Adam:
    """Has Adam's moments. Torch's own imports torch's compiler, which takes longer than all else here."""

    def __init__(self, parameters: "Iterator[torch.Tensor]") -> None:
        group = {"params": list(parameters), "lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8}
        self.param_groups: "list[dict[str, Any]]" = [group]
        self.state: "dict[torch.Tensor, dict[str, torch.Tensor]]" = {}

    def step(self) -> None:
        with torch.no_grad():
            for weight in self.param_groups[0]["params"]:
                known = self.state.setdefault(weight, {"exp_avg": weight * 0, "exp_avg_sq": weight * 0})
                known["exp_avg"].lerp_(weight.grad, 0.1)
                known["exp_avg_sq"].lerp_(weight.grad**2, 0.001)
                weight -= 1e-3 * known["exp_avg"]


def _try(keys: "dict[str, Any]", files: "list[str]") -> str:
    """Trains two steps of a small model in a scratch directory. Returns why a kind has no rows, or ""."""
    with _scratch() as scratch:
        config = scratch / "config.json"
        config.write_text(json.dumps({**keys, "step_count_per_record": 10}))
        model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
        optimizer = _Adam(model.parameters())
        monitor = gradmon.Monitor(config, output_dir=scratch, dynamic=False, rank=0, world_size=1)
        communicates = "cc_distribution" in keys
        with _group_of_one(scratch, communicates) as reduce, monitor.watch(model, optimizer):
            for _ in range(2):
                model.zero_grad()
                loss = model(torch.ones(1, 2)).sum()
                monitor.attention("attention", torch.ones(1, 2, 1, 2), torch.ones(1, 2, 1, 2))
                loss.backward()
                reduce(loss.detach())
                optimizer.step()
        missing = [name for name in files if not list(scratch.rglob(f"{name}_*.csv"))]
        status = monitor.status()
        error = status.ranks[0].error if status is not None and status.ranks else ""
    return f"no {', '.join(missing)} ({error or 'no reason is known'})" if missing else ""


def examine(say: "Callable[[str], None]" = print) -> bool:
    """Prints the report line by line. Returns True if all kinds work."""
    say(f"python {sys.version.split()[0]} ({sys.executable})")
    say(f"torch {torch.__version__} ({torch.__file__})")
    say(f"gradmon {gradmon.__version__}, built against torch {TORCH}: they match")
    say("optimizer step: hooked on the instance; modules: forward hooks, keyword inputs are visible")
    say(f"torch.distributed: {'there' if torch.distributed.is_available() else 'not in this torch'}")
    well = True
    for kind, (keys, files) in _KINDS.items():
        try:
            why = _try(keys, files)
        except (OSError, RuntimeError, ValueError) as error:  # no disk, no network
            why = " ".join(str(error).split())
        well = well and not why
        say(f"{kind}: {why or 'works'}")
    devices = f"{torch.cuda.device_count()} CUDA" if torch.cuda.is_available() else "CPU only"
    say(f"devices: {devices}")
    return well


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python3 -m gradmon.doctor", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--framework", choices=sorted(_relied_on.FRAMEWORKS), help="examine this one instead")
    framework = parser.parse_args().framework
    os.environ.setdefault("GRADMON_LOG", "error")  # The lines of the small trainings are no findings.
    return 0 if (examine() if framework is None else _relied_on.examine(framework)) else 1


if __name__ == "__main__":
    sys.exit(main())
