# SPDX-License-Identifier: Apache-2.0
"""Call sites of collectives and modules are lines of the Python program."""
import csv
import inspect
import threading
from pathlib import Path
from typing import Any, Callable

import jobs
import torch
import torch.distributed as dist

HERE = Path(__file__).name


def line_of(function: Any, text: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(i for i, line in enumerate(lines) if text in line)


def average(tensor: torch.Tensor) -> None:
    dist.all_reduce(tensor)


def rows_of(tmp_path: Path, calls: Callable[[Any], None], **cc: Any) -> "set[str]":
    """The names of a step's rows. Makes the calls, given the model, after its backward."""
    model, optimizer = jobs.make()
    with jobs.monitor(tmp_path, jobs.ALONE, cc_distribution={"enable": True, **cc}).watch(model, optimizer):
        jobs.train(model, optimizer, 1, reduced=lambda _: calls(model))
    return {name for name, _, _ in jobs.rows(tmp_path / "out", "other")}


def average_and_broadcast(model: Any) -> None:
    average(model.fc1.weight.grad)
    dist.broadcast(model.fc2.bias.grad, 0)


def test_a_call_is_named_by_the_line_that_makes_it(tmp_path: Path, group: None) -> None:
    reduce_line, broadcast_line = line_of(average, "all_reduce"), line_of(average_and_broadcast, "dist.")
    names = rows_of(tmp_path, average_and_broadcast)
    assert names == {f"all_reduce.post_0@{HERE}[{reduce_line}]", f"broadcast.post_0@{HERE}[{broadcast_line}]"}


def gather(model: Any) -> None:
    dist.all_gather_into_tensor(torch.empty_like(model.fc1.weight), model.fc1.weight.grad)


def test_a_call_is_not_named_by_a_decorator_that_torch_wraps_around_it(tmp_path: Path, group: None) -> None:
    (name,) = rows_of(tmp_path, gather)
    assert name.endswith(f"@{HERE}[{line_of(gather, 'all_gather')}]")


def reduce_together(model: Any) -> None:
    with dist.distributed_c10d._coalescing_manager():
        for layer in (model.fc1, model.fc2):
            dist.all_reduce(layer.weight.grad)


def test_a_call_at_the_end_of_a_with_is_named_by_its_line(tmp_path: Path, group: None) -> None:
    place = f"{HERE}[{line_of(reduce_together, '_coalescing_manager')}]"
    names = rows_of(tmp_path, reduce_together)
    assert names == {f"all_reduce_coalesced.post_{i}@{place}" for i in range(2)}


def test_code_lines_select_by_the_call_or_by_what_has_called_it(tmp_path: Path, group: None) -> None:
    line = line_of(average_and_broadcast, "average(")
    names = rows_of(tmp_path, average_and_broadcast, cc_codeline=[rf"{HERE}\[{line}\]"])
    assert {name.split(".")[0] for name in names} == {"all_reduce"}


def reduce_in_another_thread(model: Any) -> None:
    other = threading.Thread(target=average, args=(model.fc1.weight.grad,))
    other.start()
    other.join()


def test_calls_of_a_thread_that_python_has_started_are_named_too(tmp_path: Path, group: None) -> None:
    names = rows_of(tmp_path, reduce_in_another_thread)
    assert names == {f"all_reduce.post_0@{HERE}[{line_of(average, 'all_reduce')}]"}


def test_the_stack_of_a_module_leads_from_its_caller_to_the_program(tmp_path: Path) -> None:
    jobs.collect(tmp_path, 2, stack_info=True)
    [path] = (tmp_path / "out").glob("*-rank0-*/stack_info.csv")
    with path.open(newline="") as file:
        stacks = {row["module_name"]: row["stack_info"] for row in csv.DictReader(file)}
    assert list(stacks) == ["0:model", "0:fc1", "0:act", "0:fc2"]
    root, inner = stacks["0:model"], stacks["0:fc1"]
    line = line_of(jobs.train, ".backward()")
    assert root.startswith(f"File {inspect.getsourcefile(jobs)}, line {line}, in train, \n ")
    assert "model(batch(step, number)).pow(2).mean().backward() \n" in root
    assert f"in {test_the_stack_of_a_module_leads_from_its_caller_to_the_program.__name__}, \n" in root
    assert inner.startswith(f"File {inspect.getsourcefile(jobs)}")
    assert "return self.fc2(self.act(self.fc1(x)))" in inner and root.split(", in ")[0] in inner
    assert "gradmon/_module_hooks.py" not in inner.split("return self.fc2")[0]


def test_a_path_that_is_no_utf8_stops_nothing(tmp_path: Path) -> None:
    program: "dict[str, Any]" = {}
    exec(compile("def forward(m, x): return m(x)", "/home/j\udce9r/train.py", "exec"), program)
    model, optimizer = jobs.make()
    out = tmp_path / "out"
    with jobs.monitor(tmp_path, wg_distribution=True, stack_info=True).watch(model, optimizer):
        for step in range(2):
            optimizer.zero_grad()
            program["forward"](model, jobs.batch(step)).pow(2).mean().backward()
            optimizer.step()
    assert jobs.steps_of(jobs.rows(out, "grad_reduced"))["fc1.weight"] == [0, 1]
    [path] = out.glob("*-rank0-*/stack_info.csv")
    assert b"File /home/j\xe9r/train.py, line 1, in forward, \n  \n" in path.read_bytes()
