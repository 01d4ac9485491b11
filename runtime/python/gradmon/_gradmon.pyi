# SPDX-License-Identifier: Apache-2.0
from typing import Any, Callable, Optional, Sequence, Union

import torch

version: str
COLLECTS: int
WATCHES_FORWARDS: int
MAY_END: int
TAKES_SCALARS: int
CHECK_MODELS: int
STOP_WANTED: int
READS_WEIGHTS: int
READS_GRADIENTS: int
READS_ALL_LEFT_OUT: int

def parameters_of(optimizer: Any) -> list[torch.Tensor]: ...
def versions_of(optimizer: Any) -> int: ...
def part_identities(holders: list[Any], further: list[Any]) -> bytes: ...
def warn_once(text: str) -> None: ...
def environment_names_launch(rank: Optional[int], world_size: Optional[int]) -> bool: ...
def entered(module: torch.nn.Module, training: bool, inputs: Any, keywords: dict[str, Any]) -> None: ...
def left(module: torch.nn.Module, output: Any) -> None: ...
def graph_module_number(module: torch.nn.Module) -> int: ...
def take_entered_modules() -> list[int]: ...
def accumulated(parameters: list[torch.Tensor]) -> None: ...
def begin_weight_pass() -> None: ...
def end_weight_pass() -> None: ...
def observation_number(name: str, gradients: bool) -> int: ...
def observe(x: torch.Tensor, name: str) -> None: ...
def collectives_are_observed() -> bool: ...

# Call them after ProcessGroup._start_coalescing(), and before _end_coalescing(). Both return the number of
# the calls that this thread sends together; 0: none.
def begin_coalescing() -> int: ...
def end_coalescing() -> int: ...
def coalesced_calls_are_over(number: int) -> None: ...  # they have no work: the current stream runs them
def coalesced_calls_are_waited_for(number: int) -> None: ...  # the current stream follows them
def coalesced_calls_are_dropped(number: int) -> None: ...  # they cannot be waited for

# Asynchronous calls on a device. Their outputs are read once one of these functions reports a wait.
def calls_are_unwaited() -> bool: ...
def call_is_waited_for(future: torch._C.Future) -> None: ...  # the current stream follows it
def future_is_taken(future: torch._C.Future) -> None: ...  # the program may wait for it, and add callbacks
def communication_is_unread(sentence: str) -> None: ...  # its calls have no rows in this step

class Metric:
    """One row, with the values that the files have."""

    kind: str  # the file's prefix: "grad_reduced"
    vpp_stage: int
    name: str
    step: int
    micro_step: Optional[int]  # None if the file has no such column
    values: dict[str, float]  # by column: "norm", "mg_direction"

class Alert:
    """A rule of the config's `alert` has fired for a value of this rank."""

    rank: int
    rule: str  # "AnomalyNan"
    step: int
    micro_step: int
    pp_stage: int
    vpp_stage: int
    call_id: int  # number of the row among all rows of the step, from 0
    tag_name: str  # "0:fc1.input:0/rank0/actv"
    op: str  # "norm"
    value: float
    history_mean: float  # of abs(value), before it
    message: str
    left_out: int  # alerts of the rule and step that are not listed; set in the first one
    number: int  # 0 here; the lead hub sets it
    at: int  # 0 here; the lead hub sets it

class RankStatus:
    rank: int
    revision: int  # the newest that it has applied; 0: none
    host: str
    pid: int
    step: int  # the step it is in, or about to begin
    applied_step: int  # the step at which it applied that revision; -1: none
    state: str  # "absent", "idle", "collecting", "waiting", "left" or "dropped"
    step_ms: float  # mean time of the last steps, in ms
    overhead: Optional[float]  # share of the time of collected steps; None before the first
    waited_ms: int  # current wait of training for a decision; 0: it does not wait
    records: int  # written so far
    dropped: int  # lost so far
    targets: dict[str, int]  # "watched", "silent" and "without_match"
    alerts_raised: int
    flight_written: int  # rows of the flight recorder
    flight_lost: int
    error: str  # the current problem; "" if there is none

class Status:
    revision: int  # the newest that any rank has applied; 0: none so far
    epoch: str
    mode: str  # "static" or "dynamic"
    state: str  # "off" or "on"
    reason: str  # the reason why it is off, or for which it waits
    effective_step: int  # first step of the revision; -1: none
    collected: int  # steps collected under the revision so far
    warnings: list[str]
    hooks: list[str]  # the kinds of record that the rank can collect
    ranks: list[RankStatus]  # rank 0: all ranks; other ranks: this one

class FirstHook:
    """Calls `hook(parameter)` after each accumulation of its gradient, before earlier and later
    post-accumulate hooks: hooks of engines reduce the gradient, or take it away."""

    def __init__(self, parameter: torch.Tensor, hook: Callable[[torch.Tensor], None]) -> None: ...
    def remove(self) -> None: ...

# Parameter, the optimizer's tensor that carries it, start and number of its elements there; a negative number:
# all of the tensor, in its own shape.
_Pieces = Sequence[tuple[torch.Tensor, torch.Tensor, int, int]]

_Listed = Optional[Sequence[Any]]  # of _sharded.Listed; None: the model's own named_parameters()

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
        pipeline_ranks: Sequence[int] = ...,
        replica_ranks: Sequence[int] = ...,
        launch_nonce: Optional[str] = ...,
        short_steps: bool = ...,  # some steps have fewer micro batches than grad_acc_steps
        moments_differ: bool = ...,  # between replica_ranks
        replica_group: str = ...,  # of torchft; REPLICA_GROUP_ID takes precedence
    ) -> None: ...
    @property
    def rank(self) -> int: ...
    def watch(
        self, model: torch.nn.Module, listed: _Listed = ..., plain_scope: Optional[str] = ...
    ) -> None: ...
    def watch_again(
        self, chunk: int, model: torch.nn.Module, listed: _Listed = ..., plain_scope: Optional[str] = ...
    ) -> None: ...
    def gathered(self, unit: int) -> None: ...  # an FSDP unit has gathered its parameters for a forward
    def step(self) -> int: ...
    def step_flags(self) -> int: ...
    def set_launch_nonce(self, nonce: str) -> None: ...
    def gradient_scale(self, scale: float, chunk: Optional[int] = ...) -> None: ...  # None: all chunks
    def skipped(self) -> None: ...
    def note_warnings(self, warnings: list[str]) -> None: ...
    def note_attached(self, lines: list[str]) -> None: ...
    # reads: 0 (all), READS_WEIGHTS, READS_GRADIENTS or READS_ALL_LEFT_OUT.
    def before_update(self, optimizer: Any, gradient_scale: float = ..., reads: int = ...) -> None: ...
    def after_update(self, optimizer: Any) -> None: ...
    # Before the first watch(). "delivered": deliver_gradient() passes each gradient before its reduction.
    # "delivered accumulated": it passes only the gradient accumulated in the step.
    def gradient_source(self, source: str) -> None: ...
    def before_update_of_pieces(self, optimizer: Any, pieces: _Pieces) -> None: ...
    # For pieces whose gradients and moments before_replacement() has passed.
    def before_update_of_values(self, optimizer: Any, pieces: _Pieces) -> None: ...
    # Call it before an engine overwrites reduced gradients with its update. passed: parameter, gradient,
    # first moment (None: it will still come).
    def before_replacement(
        self,
        passed: Sequence[tuple[torch.Tensor, torch.Tensor, Optional[torch.Tensor]]],
        gradient_scale: float,
    ) -> None: ...
    def after_update_of_pieces(self, optimizer: Any, pieces: _Pieces) -> None: ...
    # gradient: empty if the parameter has a gradient that was not seen.
    def deliver_gradient(self, parameter: torch.Tensor, gradient: Optional[torch.Tensor]) -> None: ...
    # The gradient that deliver_gradient() passed last also holds the micro batches before it.
    def note_accumulated(self, parameter: torch.Tensor) -> None: ...
    def scalar(self, name: str, value: float) -> None: ...
    def samples(self, count: int) -> None: ...
    def expert_load(self, layer: str, tokens: Sequence[int]) -> None: ...
    def attention(self, name: str, q: torch.Tensor, k: torch.Tensor, causal: bool) -> None: ...
    def tap(self, kind: str, name: str, array: Any, micro_step: int, scope: Optional[str]) -> None: ...
    def on(self, collect_times: Optional[int], step_interval: Optional[int]) -> None: ...
    def off(self) -> None: ...
    def set(self, key: str, json: str) -> None: ...
    def metrics(self) -> list[Metric]: ...
    def alerts(self) -> list[Alert]: ...
    # A signal handler has called stop() within the hooks: the flags of the next step have STOP_WANTED.
    def must_stop_later(self) -> bool: ...
    def stop(self, timeout: Optional[float] = ...) -> None: ...
    def status(self) -> Status: ...
