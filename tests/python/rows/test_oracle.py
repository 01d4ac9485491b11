# SPDX-License-Identifier: Apache-2.0
"""Compares every row of every kind with a recorder in plain torch, over many models and loops."""
import csv
import math
import re
from collections import defaultdict
from pathlib import Path
from typing import Any, Callable, Iterator, Optional

import jobs
import oracle_loops
import oracle_models  # noqa: F401, fills LOOPS
import oracle_optimizers  # noqa: F401, likewise
import pytest
import torch
import twice

Key = "tuple[str, int, int]"  # name (after "1:" where it is the second chunk's), step, micro step


class _Tap(torch.autograd.Function):
    """Copies a tensor, so that the gradient of the copy is that of one use."""

    @staticmethod
    def forward(context: Any, tensor: torch.Tensor, note: Callable[[torch.Tensor], None]) -> torch.Tensor:
        context.note = note
        return tensor.clone()

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> Any:
        context.note(gradient)
        return gradient, None


def _unwrapped(model: torch.nn.Module) -> torch.nn.Module:
    return model.module if isinstance(model, torch.nn.parallel.DistributedDataParallel) else model


def _shown(chunk: int, module: str) -> str:
    return f"{chunk}:{module or 'model'}" if chunk else module or "model"


def _is_linear(module: torch.nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    matrix = torch.is_tensor(weight) and weight.dim() == 2 and not weight.is_complex()
    return matrix and not hasattr(module, "num_embeddings")


class Recorder:
    """Takes the place of a Monitor for one training. The program ends the iterations."""

    def __init__(self) -> None:
        self.tensors: "dict[str, dict[Key, torch.Tensor]]" = defaultdict(dict)  # by kind
        # By kind: values that are not statistics of a tensor, by column.
        self.features: "dict[str, dict[Key, dict[str, float]]]" = defaultdict(dict)
        self.in_backward = False
        self._step = 0
        self._models: "list[torch.nn.Module]" = []
        self._optimizers: "list[Any]" = []
        self._named: "list[tuple[str, torch.nn.Parameter]]" = []
        self._linear: "list[tuple[str, Any]]" = []
        self._modules: "set[int]" = set()  # that have hooks
        self._accumulators: "dict[int, Any]" = {}  # by the parameter's identity
        self._micro: "dict[int, int]" = defaultdict(int)  # by chunk: root forwards of this step
        self._calls: "dict[tuple[str, int], int]" = defaultdict(int)
        self._recomputed: "dict[tuple[str, int], int]" = defaultdict(int)
        self._depth = 0

    def watch(self, model: torch.nn.Module, optimizer: Any, **_: Any) -> "Recorder":
        if all(model is not known for known in self._models):
            self._models.append(model)
        if all(optimizer is not known for known in self._optimizers):
            self._optimizers.append(optimizer)
            self._around_step(optimizer)
        self._look()
        return self

    def end_iteration(self) -> None:
        self._step += 1
        for counts in (self._micro, self._calls, self._recomputed):
            counts.clear()
        self._look()

    def stop(self) -> None:
        pass

    def _note(self, kind: str, name: str, tensor: torch.Tensor, micro: int = 0) -> None:
        tensor = tensor.detach()
        if tensor.is_complex():
            tensor = torch.view_as_real(tensor)
        self.tensors[kind][name, self._step, micro] = (
            tensor.to_dense() if tensor.is_sparse else tensor
        ).clone()

    # Modules and parameters added within an iteration are seen from the next one on.
    def _look(self) -> None:
        self._named.clear()
        self._linear.clear()
        for chunk, model in enumerate(map(_unwrapped, self._models)):
            for name, module in model.named_modules():
                if _is_linear(module):
                    self._linear.append((_shown(chunk, name), module))
                if id(module) not in self._modules:
                    self._modules.add(id(module))
                    self._around(chunk, name, module)
            for name, parameter in model.named_parameters():
                if all(parameter is not known for _, known in self._named):
                    self._named.append((f"{chunk}:{name}" if chunk else name, parameter))
        for name, parameter in self._named:
            if not parameter.requires_grad or id(parameter) in self._accumulators:
                continue
            # Notes the accumulated gradient after each accumulation.
            accumulator = parameter.view_as(parameter).grad_fn.next_functions[0][0]
            accumulator.register_hook(self._accumulated(name, parameter))
            self._accumulators[id(parameter)] = accumulator

    def _accumulated(self, name: str, parameter: torch.nn.Parameter) -> Callable[..., None]:
        def accumulated(*_: Any) -> None:
            own = parameter.grad
            self._note("grad_unreduced", name, parameter.main_grad if own is None else own)

        return accumulated

    def _around_step(self, optimizer: Any) -> None:
        original = optimizer.step

        def step(closure: Optional[Callable[[], Any]] = None) -> Any:
            held = {id(p) for group in optimizer.param_groups for p in group["params"]}
            held |= {id(p) for p, _ in getattr(optimizer, "pairs", ())}  # with a master copy
            own = [(name, p) for name, p in self._named if id(p) in held]
            if closure is None:
                self._before(optimizer, own)
                result = original()
            else:

                def told() -> Any:
                    loss = closure()
                    self._before(optimizer, own)
                    return loss

                result = original(told)
            for name, parameter in own:
                self._note("param_updated", name, parameter)
            return result

        optimizer.step = step

    def _before(self, optimizer: Any, own: "list[tuple[str, torch.nn.Parameter]]") -> None:
        self._note_spectra()
        for name, parameter in own:
            if parameter.grad is not None:
                self._note("grad_reduced", name, parameter.grad)
            if (name, self._step, 0) not in self.tensors["param_origin"]:
                self._note("param_origin", name, parameter)
            masters = (master for p, master in getattr(optimizer, "pairs", ()) if p is parameter)
            state = optimizer.state.get(next(masters, parameter), {})
            for kind, keys in (
                ("exp_avg", ("exp_avg", "momentum_buffer")),
                ("exp_avg_sq", ("exp_avg_sq", "square_avg")),
            ):
                kept = next((state[key] for key in keys if state.get(key) is not None), None)
                took_part = parameter.grad is not None
                if took_part and kept is not None and (name, self._step, 0) not in self.tensors[kind]:
                    self._note(kind, name, kept)
                    if kind == "exp_avg":
                        self._note_direction(name, parameter.grad, kept)

    def _note_direction(self, name: str, gradient: torch.Tensor, momentum: torch.Tensor) -> None:
        if gradient.is_complex() or gradient.is_sparse:
            return
        agreed = (gradient.sign() * momentum.sign()).double().mean().item()
        self.features["other"][name, self._step, 0] = {"mg_direction": (agreed + 1) / 2}

    def _note_spectra(self) -> None:
        """Notes features of the weights before the first update of the iteration."""
        if any(step == self._step for _, step, _ in self.features["linear_hook"]):
            return
        for shown, module in self._linear:
            values = torch.linalg.svdvals(module.weight.detach().double())
            self.features["linear_hook"][f"{shown}.linear", self._step, 0] = {
                "sr": values.pow(2).sum().sqrt().item() / values[0].item(),
                "kernel_norm": values[0].item(),
            }

    # Notes the inputs and outputs of the module, and their gradients.
    def _around(self, chunk: int, name: str, module: torch.nn.Module) -> None:
        shown = _shown(chunk, name)
        visits: "list[Optional[tuple[str, int]]]" = []

        def entered(_: Any, inputs: Any) -> Any:
            if name == "" and not self.in_backward and module.training and torch.is_grad_enabled():
                self._micro[chunk] += 1
            seen = module.training and (torch.is_grad_enabled() or self._depth > 0) and self._micro[chunk] > 0
            self._depth += 1
            if not seen:
                visits.append(None)
                return None
            micro = self._micro[chunk] - 1
            counts = self._recomputed if self.in_backward else self._calls
            counts[shown, micro] += 1
            suffix = f"@{counts[shown, micro]}" if counts[shown, micro] > 1 else ""
            visits.append((suffix, micro))
            return self._tapped(inputs, f"{shown}.input", suffix, micro)

        def left(_: Any, __: Any, output: Any) -> Any:
            self._depth -= 1
            visit = visits.pop()
            if visit is None:
                return None
            return self._tapped(output, f"{shown}.output", *visit)

        module.register_forward_pre_hook(entered)
        module.register_forward_hook(left)

    def _tapped(self, value: Any, name: str, suffix: str, micro: int) -> Any:
        """The same value, with each tensor replaced by a copy that notes its gradient."""
        places = _places(value)

        def copy(tensor: torch.Tensor, key: str) -> torch.Tensor:
            alone = torch.is_tensor(value) or (places == 1 and key.isdigit())
            row = name + ("" if alone else f"_{key}") + suffix
            if not self.in_backward:
                self._note("actv", row, tensor, micro)
            if not tensor.requires_grad or not torch.is_grad_enabled():
                return tensor
            return _Tap.apply(tensor, lambda gradient: self._note("actv_grad", row, gradient, micro))

        return _copied(value, copy, [0], "")


def _places(value: Any) -> int:
    if isinstance(value, (tuple, list)):
        return sum(_places(element) for element in value)
    return sum(_places(element) for element in value.values()) if isinstance(value, dict) else 1


def _copied(
    value: Any, copy: Callable[[torch.Tensor, str], torch.Tensor], place: "list[int]", key: str
) -> Any:
    if torch.is_tensor(value):
        place[0] += 1
        return copy(value, key or str(place[0] - 1))
    if isinstance(value, (tuple, list)):
        return type(value)(_copied(element, copy, place, "") for element in value)
    if isinstance(value, dict):
        return {name: _copied(element, copy, place, str(name)) for name, element in value.items()}
    place[0] += 1
    return value


KINDS = "grad_unreduced grad_reduced param_origin param_updated exp_avg exp_avg_sq actv actv_grad".split()
FEATURES = {"other": ["mg_direction"], "linear_hook": ["sr", "kernel_norm"]}
CONFIG = {
    **twice.EVERYTHING,
    "squash_name": False,
    "recording_l2_features": True,
    "l2_targets": {"linear_hook": []},
}

# By loop: rows (kind, pattern of names) that are not compared, because gradmon has no such row or another
# value.
EXPLAINED: "dict[str, list[tuple[str, str]]]" = {
    # The part that main_grad lacks while a backward runs is unknown.
    "main_gradients": [("grad_unreduced", ".*")],
    # A dropout of 0 returns its input itself; attention gets one tensor three times. The gradient of the
    # keys' bias is 0 except for rounding, which the recorder's copies change.
    "post_norm_layer": [
        ("actv_grad", r"1\.dropout[12]?\.input|1\.self_attn\.input_[012]"),
        ("other", r"1\.self_attn\.in_proj_bias"),
    ],
}
_compared = 0


@pytest.fixture(scope="module", autouse=True)
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A process group of one rank, for DDP."""
    store = tmp_path_factory.mktemp("group") / "store"
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def train(name: str, watcher: Any, ends_iterations: bool) -> "list[torch.Tensor]":
    torch.manual_seed(7)
    run = oracle_loops.Run(watcher, ends_iterations)
    oracle_loops.LOOPS[name](run)
    watcher.stop()
    return [tensor.detach().clone() for model in run.models for tensor in model.state_dict().values()]


def unexplained(name: str, kind: str, rows: "dict[Key, Any]") -> "dict[Key, Any]":
    patterns = [pattern for of, pattern in EXPLAINED.get(name, []) if kind == of]
    return {key: row for key, row in rows.items() if not any(re.fullmatch(one, key[0]) for one in patterns)}


def near(found: "dict[str, Any]", tensor: torch.Tensor) -> bool:
    """True if the row has the tensor's values, up to rounding in another order of summation."""
    x = tensor.detach().double().flatten()
    scale = max(x.abs().max().item(), 1e-30)
    wanted = jobs.expected(tensor)
    close = {
        op: math.isclose(found[op], wanted[op], rel_tol=1e-4, abs_tol=1e-5 * scale)
        for op in ("min", "max", "mean", "absmax")
    }
    close["norm"] = math.isclose(found["norm"], wanted["norm"], rel_tol=1e-4, abs_tol=1e-12)
    # Rounding decides whether a value near 0 counts as 0.
    close["zeros"] = abs(found["zeros"] - wanted["zeros"]) <= 0.2
    return all(close.values()) and found["nans"] == wanted["nans"]


def read_columns(output: Path, kind: str, columns: "list[str]") -> "dict[Any, dict[str, float]]":
    found = {}
    for path in output.glob(f"*/{kind}_[0-9]*.csv"):
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                name = row["name"] if row["vpp_stage"] == "0" else f"{row['vpp_stage']}:{row['name']}"
                found[name, int(row["step"]), 0] = {column: float(row[column]) for column in columns}
    return found


@pytest.mark.parametrize("name", oracle_loops.LOOPS)
def test_rows_are_what_plain_torch_has(name: str, tmp_path: Path) -> None:
    global _compared
    recorder = Recorder()
    train(name, recorder, True)
    bare = train(name, twice.NoMonitor(), False)
    monitor = jobs.monitor(tmp_path, **CONFIG)
    watched = train(name, monitor, False)
    assert len(bare) == len(watched) and all(torch.equal(*pair) for pair in zip(bare, watched))
    differences = []
    for kind in KINDS:
        found = twice.read(tmp_path / "out", kind)
        tensors = unexplained(name, kind, recorder.tensors[kind])
        _compared += len(jobs.OPS) * len(tensors.keys() & found.keys())
        differences += [f"{kind} {key}: ought not to be there" for key in found.keys() - tensors.keys()]
        for key, tensor in tensors.items():
            if key not in found or not near(found[key], tensor):
                differences.append(f"{kind} {key}: {found.get(key)}, plain torch {jobs.expected(tensor)}")
    for kind, columns in FEATURES.items():
        found = read_columns(tmp_path / "out", kind, columns)
        _compared += len(columns) * len(found)
        found, wanted = (unexplained(name, kind, some) for some in (found, recorder.features[kind]))
        for key in found.keys() | wanted.keys():
            if found.get(key) != pytest.approx(wanted.get(key), rel=1e-5):
                differences.append(f"{kind} {key}: {found.get(key)}, plain torch {wanted.get(key)}")
    assert not differences, "\n".join(sorted(differences)[:40])


def test_as_many_values_were_compared_as_are_known() -> None:
    """A loop or a kind that is no longer compared must not go unnoticed."""
    assert len(oracle_loops.LOOPS) >= 40
    assert _compared >= 50_800
