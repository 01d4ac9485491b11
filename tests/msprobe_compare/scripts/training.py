# SPDX-License-Identifier: Apache-2.0
"""What the compared scripts share: a repeatable start, and the digest of the trained parameters."""
import argparse
import hashlib
import json
import os
import sys
from typing import Any, Iterable

import torch


def begin() -> argparse.Namespace:
    """Reads the arguments and seeds torch; one thread, so that sums have one order."""
    parser = argparse.ArgumentParser()
    parser.add_argument("config", help="monitor_config.json")
    parser.add_argument("--record", required=True, help="file for the digest and the metrics of the api")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--option", default="", help="variation of the script")
    options = parser.parse_args()
    torch.manual_seed(7)
    torch.set_num_threads(1)
    return options


def end(options: argparse.Namespace, *models: torch.nn.Module, **more: Any) -> None:
    """Writes a record of the finished training: with or without a monitor it must be the same."""
    digest = hashlib.sha256()
    for model in models:
        for name, value in model.state_dict().items():
            digest.update(name.encode() + value.detach().contiguous().numpy().tobytes())
    random = hashlib.sha256(torch.get_rng_state().numpy().tobytes()).hexdigest()
    write(options, {"parameters": digest.hexdigest(), "random": random, **more})


def write(options: argparse.Namespace, record: "dict[str, Any]") -> None:
    path = f"{options.record}-rank{os.environ.get('RANK', '0')}"
    with open(path, "w") as file:
        json.dump(record, file, sort_keys=True)


def numbers(metrics: "Iterable[dict[str, dict[str, Any]]]") -> "list[dict[str, dict[str, float]]]":
    """Metrics of the api as JSON can hold them; shapes and types are left out."""
    left_out = ("shape", "dtype")
    return [
        {tag: {op: float(x) for op, x in ops.items() if op not in left_out} for tag, ops in kind.items()}
        for kind in metrics
    ]


def collection_ended(config: str) -> bool:
    """Whether the monitor has written `dynamic_on: false` back; a half-written file is not an answer."""
    try:
        with open(config) as file:
            return not json.load(file)["dynamic_on"]
    except (OSError, ValueError, KeyError):
        return False


def fail(reason: str) -> None:
    sys.exit(f"training: {reason}")
