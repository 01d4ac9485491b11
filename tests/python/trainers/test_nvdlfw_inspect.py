# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's dlfw-inspect beside gradmon in one process: both write what they write alone, and training is the
same."""
import logging
import re
import tempfile
from pathlib import Path
from typing import Any

import jobs
import nvdlfw_inspect.api as inspect_api
import torch
import twice

STEPS = 3
CONFIG = """
watched:
  enabled: True
  layers:
    layer_name_regex_pattern: .*
  LogTensorStats:
    enabled: True
    tensors: [activation, gradient]
    stats: [min, max, mean, l2_norm]
    freq: 1
"""


def log(layer: str, tensor: torch.Tensor, what: str) -> None:
    inspect_api.log_tensor_stats(layer, tensor=tensor.detach(), tensor_name=what, skip_reduction=True)


def train(noted: twice.Noted, monitor: Any) -> None:
    directory = Path(tempfile.mkdtemp())
    (directory / "inspect.yaml").write_text(CONFIG)
    config, logs = str(directory / "inspect.yaml"), str(directory)
    inspect_api.initialize(config, log_dir=logs, default_logging_enabled=True)
    model = jobs.Net()
    inspect_api.infer_and_assign_layer_names(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for module in (model.fc1, model.fc2):
        module.register_forward_hook(lambda own, _, output: log(own.name, output, "activation"))
        for parameter in module.parameters():
            parameter.register_post_accumulate_grad_hook(
                lambda own, layer=module.name: log(layer, own.grad, "gradient")
            )
    monitor.watch(model, optimizer)
    for step in range(STEPS):
        optimizer.zero_grad()
        model(jobs.batch(step)).pow(2).mean().backward()
        noted.gradients(model, step)
        noted.weights(model, step, "param_origin")
        optimizer.step()
        noted.weights(model, step, "param_updated")
        inspect_api.step()
    monitor.stop()
    inspect_api.end_debug()
    noted.fired += logged(directory)
    noted.end(model, optimizer)


def logged(directory: Path) -> "list[str]":
    """What dlfw-inspect has written, without the times."""
    for handler in [
        one for name in logging.root.manager.loggerDict for one in logging.getLogger(name).handlers
    ]:
        handler.flush()
    lines: "list[str]" = []
    for path in sorted(directory.rglob("*.log")):
        if "statistics" in str(path.relative_to(directory)):
            lines += [re.sub(r"^.*?(?=model)", "", line) for line in path.read_text().splitlines()]
    return lines


def test_both_write_what_they_write_alone(tmp_path: Path) -> None:
    noted = twice.compare(tmp_path, train, param_distribution=True, wg_distribution=True)
    both = [line for line in noted.fired if "activation" in line], [x for x in noted.fired if "gradient" in x]
    assert all(len(lines) >= 2 * STEPS for lines in both), noted.fired[:4]
