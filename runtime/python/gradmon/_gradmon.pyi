# SPDX-License-Identifier: Apache-2.0
from typing import Any, Optional, Sequence, Union

import torch

torch_version: str
version: str
COLLECTS: int
WATCHES_FORWARDS: int
MAY_END: int
LOOK: int

def warn_once(text: str) -> None: ...
def entered(module: torch.nn.Module, training: bool, inputs: Any, keywords: dict[str, Any]) -> None: ...
def left(module: torch.nn.Module, output: Any) -> None: ...

class Metric:
    kind: str
    vpp_stage: int
    name: str
    step: int
    micro_step: Optional[int]
    values: dict[str, float]

class RankStatus:
    rank: int
    revision: int
    host: str
    pid: int
    step: int
    applied_step: int
    state: str
    step_ms: float
    records: int
    dropped: int
    overhead: Optional[float]
    error: str

class Status:
    revision: int
    epoch: str
    mode: str
    state: str
    reason: str
    effective_step: int
    collected: int
    warnings: list[str]
    hooks: list[str]
    ranks: list[RankStatus]

class Core:
    def __init__(
        self,
        config: Union[str, bytes],
        *,
        rank: Optional[int] = ...,
        world_size: Optional[int] = ...,
        endpoint: Optional[str] = ...,
        output_dir: Optional[Union[str, bytes]] = ...,
        dynamic: Optional[bool] = ...,
        start_iteration: int = ...,
        grad_acc_steps: int = ...,
        data_ranks: Sequence[int] = ...,
        tensor_ranks: Sequence[int] = ...,
        whole: set[str] = ...,
    ) -> None: ...
    @property
    def rank(self) -> int: ...
    def watch(self, model: torch.nn.Module) -> None: ...
    def watch_again(self, chunk: int, model: torch.nn.Module) -> None: ...
    def step(self) -> int: ...
    def begun(self) -> int: ...
    def gradient_scale(self, scale: float) -> None: ...
    def skipped(self) -> None: ...
    def before_update(self, optimizer: Any, gradient_scale: float = ...) -> None: ...
    def after_update(self, optimizer: Any) -> None: ...
    def scalar(self, name: str, value: float) -> None: ...
    def samples(self, count: int) -> None: ...
    def attention(self, name: str, q: torch.Tensor, k: torch.Tensor, causal: bool) -> None: ...
    def on(self, collect_times: Optional[int], step_interval: Optional[int]) -> None: ...
    def off(self) -> None: ...
    def set(self, key: str, json: str) -> None: ...
    def metrics(self) -> list[Metric]: ...
    def stop(self) -> None: ...
    def status(self) -> Status: ...
