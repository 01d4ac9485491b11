# SPDX-License-Identifier: Apache-2.0
"""The frameworks of tools/demo --frameworks, the values that their rows must have, and the comparison."""
import csv
import json
import math
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Collection

import gpt
import jobs  # of tests/python/support
import pandas
import torch
from train import EDITS

import gradmon

KINDS = "grad_unreduced grad_reduced param_origin param_updated exp_avg exp_avg_sq actv actv_grad".split()


@dataclass
class Framework:
    title: str
    job: str  # of train.py
    venv: str = "venv"  # below build/
    ranks: int = gpt.PLACES
    package: str = "torch"  # its version is printed
    # Kinds whose rows cannot be joined, with a part of the error that gradmon.load(whole=True) must give, and
    # why.
    not_joined: "dict[str, tuple[str, str]]" = field(default_factory=dict)

    @property
    def groups(self) -> int:
        """Groups of data-parallel ranks, one for each tensor-parallel rank. What tensor parallelism does not
        split has a joined row of each group."""
        return max(1, self.ranks // gpt.PLACES)

    def place_of(self, rank: int) -> int:
        """The data-parallel rank."""
        return rank * gpt.PLACES // self.ranks


_LOCAL = (
    "the whole of rank",
    "a plain tensor within a tensor-parallel model does not tell which features it has",
)

FRAMEWORKS = (
    Framework("plain torch", "plain", ranks=1),
    Framework("DDP", "ddp"),
    Framework("FSDP2", "fsdp2"),
    Framework(
        "FSDP2 + TP", "fsdp2_tp", ranks=2 * gpt.PLACES, not_joined={"actv": _LOCAL, "actv_grad": _LOCAL}
    ),
    Framework("HF Trainer", "hugging_face", "frameworks-venv", package="transformers"),
    Framework("Accelerate", "accelerate", "frameworks-venv", package="accelerate"),
    Framework("Lightning", "lightning", "frameworks-venv", package="lightning"),
    Framework("DeepSpeed ZeRO 2", "deepspeed2", "engines-venv", package="deepspeed"),
    Framework("DeepSpeed ZeRO 3", "deepspeed3", "engines-venv", package="deepspeed"),
    Framework("Megatron core", "megatron", "engines-venv", package="megatron-core"),
)

# tools/demo --frameworks does not show these, for the reason given.
LEFT_OUT = (
    "the whole model's own input and output: Trainer and Lightning call the model in another way",
    "Megatron's GPTModel, tensor, pipeline and expert parallelism: here its DistributedDataParallel and its "
    "distributed optimizer train the same small GPT; tests/python/frameworks/test_megatron.py has GPTModel",
    "FSDP1, HSDP, accumulation, clipping, bfloat16, overflows: tests/python/sharded, tests/python/frameworks",
    "torchtitan, ColossalAI, JAX, MindSpore: they train with models or arrays of their own",
    "any GPU: everything here runs on a CPU, with gloo",
)


# --- The expected values.

ALL = -1  # the place of a value that all data-parallel ranks share
Key = tuple[str, int, int]  # name, step, place
Values = dict[str, float]
Rows = dict[str, dict[Key, Values]]  # by kind


def statistics_of(tensor: torch.Tensor) -> Values:
    """By torch in double precision; also `zeros` of the tensor divided by the number of places."""
    zeros = (tensor.detach().double().abs() / gpt.PLACES < 1e-8).double().mean().item()
    return {**jobs.expected(tensor), "zeros of mean": zeros}


class Reference:
    """Trains in one process with plain torch, with each data-parallel rank's batch by itself, and notes the
    wanted steps."""

    def __init__(self, wanted: "Collection[int]") -> None:
        self.rows: Rows = {}
        self._wanted = wanted
        self._step = 0
        self._place = ALL
        self._model = gpt.seeded()
        self._optimizer = gpt.adam(self._model)
        for name, module in self._model.named_modules():
            if name:  # its own input and output depend on who calls the model
                module.register_forward_hook(self._forward(name))
                module.register_full_backward_hook(self._backward(name))

    def train(self) -> Rows:
        for self._step in range(max(self._wanted) + 1):
            total = [torch.zeros_like(parameter) for parameter in self._model.parameters()]
            for self._place in range(gpt.PLACES):
                self._optimizer.zero_grad()
                self._model(gpt.batch(self._step, self._place)).backward()
                for (name, parameter), of_all in zip(self._model.named_parameters(), total):
                    assert parameter.grad is not None
                    self._note("grad_unreduced", name, parameter.grad)
                    of_all += parameter.grad / gpt.PLACES
            self._place = ALL
            for parameter, of_all in zip(self._model.parameters(), total):
                parameter.grad = of_all
            self._update()
        return self.rows

    def _update(self) -> None:
        for name, parameter in self._model.named_parameters():
            self._note("grad_reduced", name, parameter.grad)
            self._note("param_origin", name, parameter)
            for key in ("exp_avg", "exp_avg_sq"):
                if parameter in self._optimizer.state:
                    self._note(key, name, self._optimizer.state[parameter][key])
        self._optimizer.step()
        for name, parameter in self._model.named_parameters():
            self._note("param_updated", name, parameter)

    def _note(self, kind: str, name: str, tensor: Any) -> None:
        if self._step in self._wanted and tensor is not None:
            self.rows.setdefault(kind, {})[name, self._step, self._place] = statistics_of(tensor)

    def _forward(self, name: str) -> "Callable[..., None]":
        def hook(_: Any, inputs: Any, output: torch.Tensor) -> None:
            self._note("actv", f"{name}.input", inputs[0])
            self._note("actv", f"{name}.output", output)

        return hook

    def _backward(self, name: str) -> "Callable[..., None]":
        def hook(_: Any, inputs: Any, outputs: Any) -> None:
            self._note("actv_grad", f"{name}.output", outputs[0])
            self._note("actv_grad", f"{name}.input", inputs[0])  # through this module; None of tokens

        return hook


def of_plain_run(rows: Rows) -> Rows:
    """The same values of one process, whose step has a micro batch for each place: it reduces nothing, so
    both kinds of gradients are the mean, and losses are divided by the number of places."""
    found = {**rows, "grad_unreduced": dict(rows["grad_reduced"])}
    found["actv_grad"] = {key: _divided(values) for key, values in rows["actv_grad"].items()}
    return found


def _divided(values: Values) -> Values:
    divided = {op: values[op] / gpt.PLACES for op in ("norm", "min", "max", "mean", "absmax")}
    return {**divided, "nans": values["nans"], "zeros": values["zeros of mean"]}


# --- The comparison.

TOLERANCE = 1e-6
OF_EACH_RANK = ("grad_unreduced", "actv", "actv_grad")  # rows of the other kinds are shared, or joined


@dataclass
class Result:
    framework: Framework
    agreed: "list[list[int]]" = field(default_factory=list)  # of each rank: the first step after each edit
    counts: "dict[str, int]" = field(default_factory=dict)  # rows of all ranks, by kind
    largest: float = 0.0  # relative difference
    compared: int = 0  # values
    collectives_added: int = 0
    ratio: float = math.nan  # of the time of a collected step to that of one without gradmon
    problems: "list[str]" = field(default_factory=list)
    cannot_be_had: "list[str]" = field(default_factory=list)


class Outcome:
    """The files that the ranks of one framework have left."""

    def __init__(self, framework: Framework, directory: Path) -> None:
        self.framework = framework
        self.out = directory / "out"
        self.ranks: "list[dict[str, Any]]" = [
            json.loads((directory / f"rank{rank}.json").read_text()) for rank in range(framework.ranks)
        ]
        self.steps = [self._steps_of(rank) for rank in range(framework.ranks)]

    def collected(self) -> "set[int]":
        return {step for of_rank in self.steps for steps in of_rank.values() for step in steps}

    def _steps_of(self, rank: int) -> "dict[str, list[int]]":
        """Steps with rows, by kind."""
        found: "dict[str, list[int]]" = {}
        for kind in KINDS:
            steps = set()
            for path in self.out.glob(f"*-rank{rank}-*/{kind}_[0-9]*.csv"):
                with path.open(newline="") as file:
                    steps |= {int(row["step"]) for row in csv.DictReader(file)}
            found[kind] = sorted(steps)
        return found


def compare(outcome: Outcome, expected: Rows) -> Result:
    """Compares the rows with the expected values, and notes every problem."""
    result = Result(outcome.framework)
    _check_switches(outcome, result)
    _check_training(outcome, result)
    for kind in KINDS:
        _check_rows(outcome, kind, expected.get(kind, {}), result)
    if not result.largest <= TOLERANCE:
        result.problems.append(f"largest relative difference {result.largest:.2g}, more than {TOLERANCE}")
    return result


def _check_switches(outcome: Outcome, result: Result) -> None:
    everything, gradients = EDITS
    for rank, steps in enumerate(outcome.steps):
        first = steps["actv"]  # of the first edit, which asks for everything
        second = [step for step in steps["grad_unreduced"] if step not in first]
        counts = [len(first), len(second)]
        if counts != [everything["collect_times"], gradients["collect_times"]]:
            result.problems.append(f"rank {rank} has rows of {counts} steps after the two edits")
        for kind, of_kind in steps.items():  # with dp_group, one rank writes what all hold
            if of_kind not in ([], outcome.steps[0][kind]):
                result.problems.append(f"{kind}: ranks 0 and {rank} have rows of different steps")
        result.agreed.append([of_edit[0] for of_edit in (first, second) if of_edit])


def _check_training(outcome: Outcome, result: Result) -> None:
    if not all(of_rank["equal"] for of_rank in outcome.ranks):
        result.problems.append("training with gradmon has other weights at its end than without")
    without, watched = (sum(of_rank["collectives"][i] for of_rank in outcome.ranks) for i in range(2))
    result.collectives_added = watched - without
    if watched != without or (without == 0) != (outcome.framework.ranks == 1):
        result.problems.append(f"collectives: {watched}, and {without} without gradmon")
    seconds = outcome.ranks[0]["seconds"]
    collected = [seconds["watched"][step] for step in outcome.steps[0]["actv"]]
    if collected:
        result.ratio = statistics.median(collected) / statistics.median(seconds["bare"])


def _check_rows(outcome: Outcome, kind: str, expected: "dict[Key, Values]", result: Result) -> None:
    each = gradmon.load(outcome.out, kind=kind)
    result.counts[kind] = int((each["op"] == "norm").sum())
    # Every kind that an edit asks for has rows in the same steps.
    steps = set(outcome.steps[0]["grad_unreduced" if kind.startswith("grad") else "actv"])
    wanted = {key: values for key, values in expected.items() if key[1] in steps}
    _check_names({(name, step) for name, step, _ in wanted}, each, kind, result)
    try:
        table = gradmon.load(outcome.out, kind=kind, whole=True)
    except ValueError as error:
        part, why = outcome.framework.not_joined.get(kind, ("\0", ""))
        if part in str(error):
            result.cannot_be_had.append(
                f"{kind}, whole: {why}. Rows and names are checked. The error: {error}"
            )
        else:
            result.problems.append(f"{kind} cannot be joined: {error}")
        return
    if kind in outcome.framework.not_joined:
        result.problems.append(f"{kind} can be joined, but the table says that it cannot")
    _check_values(wanted, _by_place(outcome, kind, table), kind, result)


def _check_names(wanted: "set[tuple[str, int]]", each: Any, kind: str, result: Result) -> None:
    found = {(name, int(step)) for name, step in zip(each["name"], each["step"]) if not _of_whole_model(name)}
    if found != wanted or not found:
        missing, other = sorted(wanted - found)[:3], sorted(found - wanted)[:3]
        result.problems.append(f"{kind}: missing (name, step): {missing}; not plain torch's: {other}")


def _of_whole_model(name: str) -> bool:
    return name.startswith(("model.input", "model.output"))


def _by_place(outcome: Outcome, kind: str, table: Any) -> "dict[Key, dict[str, list[float]]]":
    """Values by name, step and place: 0 of what all ranks share. One process has the places as its micro
    steps."""
    found: "dict[Key, dict[str, list[float]]]" = {}
    alone = outcome.framework.ranks == 1
    for row in table.itertuples(index=False):
        if _of_whole_model(row.name):
            continue
        place = 0
        if alone:
            place = 0 if pandas.isna(row.micro_step) else int(row.micro_step)
        elif kind in OF_EACH_RANK:
            place = outcome.framework.place_of(row.rank)
        found.setdefault((row.name, int(row.step), place), {}).setdefault(row.op, []).append(row.value)
    return found


def _check_values(
    wanted: "dict[Key, Values]",
    found: "dict[Key, dict[str, list[float]]]",
    kind: str,
    result: Result,
) -> None:
    shared = {(name, step, max(place, 0)): values for (name, step, place), values in wanted.items()}
    if shared.keys() != found.keys():
        differ = sorted(shared.keys() ^ found.keys())[:3]
        result.problems.append(f"{kind}: not the expected (name, step, place), for example {differ}")
    most = max((len(values) for ops in found.values() for values in ops.values()), default=0)
    if kind not in OF_EACH_RANK and most > result.framework.groups:
        result.problems.append(f"{kind}: {most} rows of one tensor, which were not joined")
    for key in sorted(shared.keys() & found.keys()):
        for op, value in ((op, value) for op, values in found[key].items() for value in values):
            difference = _difference(op, value, shared[key])
            result.compared += 1
            if not difference <= TOLERANCE and not result.largest > TOLERANCE:
                result.problems.append(f"{kind} {key} {op}: {value!r}, plain torch {shared[key][op]!r}")
            result.largest = max(result.largest, difference)


def _difference(op: str, found: float, wanted: Values) -> float:
    """Relative to the value; of min, max and mean, which may be near zero by chance, to the largest
    magnitude; of counts and shares the difference itself."""
    scale = {"norm": wanted["norm"], "nans": 1.0, "zeros": 1.0}.get(op, wanted["absmax"])
    difference = abs(found - wanted[op])
    return 0.0 if difference == 0.0 else difference / scale if scale > 0.0 else math.inf
