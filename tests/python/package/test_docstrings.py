# SPDX-License-Identifier: Apache-2.0
"""Public functions have NumPy-style docstrings that match their signatures."""
import ast
from pathlib import Path
from typing import Iterator, Union

import pytest

PACKAGE = Path(__file__).resolve().parents[3] / "runtime" / "python" / "gradmon"
PUBLIC = [
    "monitor.py",
    "reading.py",
    "converting.py",
    "heatmapping.py",
    "trainer_mon.py",
    "colossalai_monitor.py",
    "accelerate/watching.py",
    "hf/callback.py",
    "jax/trees.py",
    "lightning/callback.py",
    "lightning/fabric_callback.py",
    "mindspore/trainer_mon.py",
    "taps/observing.py",
    "taps/tapping.py",
]

Node = Union[ast.ClassDef, ast.FunctionDef]


def is_setter(node: ast.FunctionDef) -> bool:
    return any(isinstance(d, ast.Attribute) and d.attr == "setter" for d in node.decorator_list)


def public(tree: ast.Module) -> Iterator["tuple[str, Node]"]:
    for node in tree.body:
        if not isinstance(node, (ast.ClassDef, ast.FunctionDef)) or node.name.startswith("_"):
            continue
        yield node.name, node
        for inner in node.body if isinstance(node, ast.ClassDef) else []:
            if isinstance(inner, ast.FunctionDef) and not inner.name.startswith("_") and not is_setter(inner):
                yield f"{node.name}.{inner.name}", inner


def fields_of(node: ast.ClassDef) -> "list[str]":
    """Of a dataclass."""
    fields = [f.target for f in node.body if isinstance(f, ast.AnnAssign)] if node.decorator_list else []
    return [field.id for field in fields if isinstance(field, ast.Name)]


def arguments_of(node: Node) -> "list[str]":
    if isinstance(node, ast.ClassDef):
        made = [f for f in node.body if isinstance(f, ast.FunctionDef) and f.name == "__init__"]
        return arguments_of(made[0]) if made else fields_of(node)
    names = [a.arg for a in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]]
    names += [a.arg for a in (node.args.vararg, node.args.kwarg) if a is not None]
    return [name for name in names if name != "self" and not name.startswith("_")]


def returns_something(node: Node) -> bool:
    if isinstance(node, ast.ClassDef) or node.returns is None:
        return False
    return not (isinstance(node.returns, ast.Constant) and node.returns.value is None)


def sections_of(text: str) -> "dict[str, str]":
    lines = text.splitlines()
    starts = [i for i in range(len(lines) - 1) if lines[i + 1] and set(lines[i + 1]) == {"-"}]
    found = {}
    for start, end in zip(starts, [*starts[1:], len(lines)]):
        assert len(lines[start]) == len(lines[start + 1]), lines[start]
        found[lines[start]] = "\n".join(lines[start + 2 : end])
    return found


def described(parameters: str) -> "list[str]":
    heads = [line.split(" : ")[0] for line in parameters.splitlines() if line and not line.startswith(" ")]
    return [name.strip().lstrip("*") for head in heads for name in head.split(",")]


FOUND = [
    pytest.param(node, id=name)
    for file in PUBLIC
    for name, node in public(ast.parse((PACKAGE / file).read_text()))
]


@pytest.mark.parametrize("node", FOUND)
def test_a_docstring_has_its_sections(node: Node) -> None:
    text = ast.get_docstring(node)
    assert text, "no docstring"
    summary = text.split("\n\n")[0]
    assert summary.endswith(".") and "\n" not in summary, "one line, one sentence first"
    sections = sections_of(text)
    assert set(sections) <= {"Parameters", "Returns", "Raises", "Notes", "Examples"}
    assert all(body.strip() for body in sections.values())
    assert described(sections.get("Parameters", "")) == arguments_of(node)
    assert ("Returns" in sections) == returns_something(node)
    if isinstance(node, ast.ClassDef):
        assert "Examples" in sections


def test_nothing_that_users_call_is_left_out() -> None:
    names = {param.id for param in FOUND}
    assert {"Monitor", "Monitor.watch", "load", "heatmap", "TrainerMon", "ColossalAIMonitor"} <= names
    assert len(names) >= 28
