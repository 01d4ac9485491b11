# SPDX-License-Identifier: Apache-2.0
"""README's example runs as it is written, docstrings match their signatures, and pages name what exists."""
import ast
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any, Iterator, Union

import gradmon
import jobs
import pytest
import torch
from gradmon import _steps as training_steps


ROOT = Path(__file__).resolve().parents[3]
OTHER_PINS = ("frameworks-jax", "mindspore")
README = ROOT / "README.md"


def test_the_quick_start_collects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = README.read_text().split("```python\n")[1].split("```")[0]
    assert len(code.splitlines()) <= 10
    config = jobs.write_config(tmp_path, wg_distribution=True, dynamic_on=True)
    config.rename(tmp_path / "monitor_config.json")
    monkeypatch.chdir(tmp_path)
    model, optimizer = jobs.make()

    def loader() -> "Iterator[torch.Tensor]":
        (steps,) = training_steps._alive
        jobs.reach_the_hub(steps.core)
        yield from (jobs.batch(step) for step in range(3))

    names = {
        "model": model,
        "optimizer": optimizer,
        "loader": loader(),
        "loss_of": lambda output: output.pow(2).mean(),
    }
    exec(compile(code, "README.md", "exec"), names)
    steps = jobs.steps_of(jobs.rows(tmp_path / "monitor_output", "grad_reduced"))
    assert steps["fc1.weight"] == [1, 2]


def test_the_page_of_frameworks_names_the_versions_that_are_tested() -> None:
    pins = "".join(path.read_text() for path in (ROOT / "tools").glob("requirements-frameworks-*.txt"))
    page = (ROOT / "runtime" / "python" / "FRAMEWORKS.md").read_text()
    named = set(
        re.findall(r"(transformers|Accelerate|Lightning|DeepSpeed|Megatron core) (\d+\.\d+\.\d+)", page)
    )
    assert {name for name, _ in named} == {
        "transformers",
        "Accelerate",
        "Lightning",
        "DeepSpeed",
        "Megatron core",
    }
    assert [name for name, v in named if f"\n{name.lower().replace(' ', '-')}=={v}\n" not in pins] == []
    pins = "".join((ROOT / "tools" / f"requirements-{name}.txt").read_text() for name in OTHER_PINS)
    named = set(re.findall(r"(JAX|MindSpore) (\d+\.\d+\.\d+)", page))
    assert {name for name, _ in named} == {"JAX", "MindSpore"}
    assert [name for name, version in named if f"\n{name.lower()}=={version}\n" not in pins] == []


# --- docstrings are NumPy's, and match their signatures ---


PACKAGE = Path(__file__).resolve().parents[3] / "runtime" / "python" / "gradmon"
PUBLIC = """
    monitor.py ../gradmon_read/loading.py converting.py ../gradmon_read/heatmapping.py trainer_mon.py
    colossalai_monitor.py observing.py accelerate.py hf.py jax.py lightning.py mindspore.py colossalai.py
    deepspeed.py megatron.py torchtitan.py
""".split()

# Classes whose constructor is that of gradmon._framework_monitor.FrameworkCallback.
INHERITED = {"Callback": ["config", "options"]}
# Classes that a module's __getattr__() returns under another name.
RENAMED = {"_TrainerCallback": "Callback"}
Node = Union[ast.ClassDef, ast.FunctionDef]


def is_setter(node: ast.FunctionDef) -> bool:
    return any(isinstance(d, ast.Attribute) and d.attr == "setter" for d in node.decorator_list)


def public(tree: ast.Module) -> Iterator["tuple[str, Node]"]:
    named = [ast.literal_eval(n.value) for n in tree.body if "__all__ = " in ast.unparse(n)[:10]]
    for node in tree.body:
        if not isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            continue
        outer = RENAMED.get(node.name, node.name)
        if outer.startswith("_") or (named and outer not in named[0]):
            continue
        yield outer, node
        for inner in node.body if isinstance(node, ast.ClassDef) else []:
            if isinstance(inner, ast.FunctionDef) and not inner.name.startswith("_") and not is_setter(inner):
                yield f"{outer}.{inner.name}", inner


def fields_of(node: ast.ClassDef) -> "list[str]":
    """Of a dataclass."""
    fields = [f.target for f in node.body if isinstance(f, ast.AnnAssign)] if node.decorator_list else []
    return [field.id for field in fields if isinstance(field, ast.Name)]


def arguments_of(node: Node) -> "list[str]":
    if isinstance(node, ast.ClassDef):
        made = [f for f in node.body if isinstance(f, ast.FunctionDef) and f.name == "__init__"]
        return arguments_of(made[0]) if made else fields_of(node) or INHERITED.get(node.name, [])
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
    if node.name.startswith("on_"):  # a framework calls it
        return
    # The adapters of frameworks describe their own arguments first, and those of Monitor in one line.
    assert sorted(described(sections.get("Parameters", ""))) == sorted(arguments_of(node))
    assert ("Returns" in sections) == returns_something(node)
    if isinstance(node, ast.ClassDef):
        assert "Examples" in sections


def test_nothing_that_users_call_is_left_out() -> None:
    names = {param.id for param in FOUND}
    assert {"Monitor", "Monitor.watch", "load", "heatmap", "TrainerMon", "ColossalAIMonitor"} <= names
    assert {"Callback", "Callback.on_train_start", "FabricCallback"} <= names
    assert len(names) >= 28


# --- coming-from-msprobe.md ---


TEXT = (Path(__file__).resolve().parents[3] / "runtime" / "python" / "coming-from-msprobe.md").read_text()
CODE = re.compile(r"`([^`]+)`")


def section(title: str) -> str:
    return TEXT.split(f"\n## {title}\n")[1].split("\n## ")[0]


def rows(title: str) -> "list[tuple[str, str]]":
    """The rows of a section's table, without the header: (left, right)."""
    lines = [line for line in section(title).splitlines() if line.startswith("| ")]
    return [(left, right) for left, right in (line.strip("| ").split(" | ", 1) for line in lines[2:])]


@pytest.fixture(scope="module")
def schema() -> Any:
    command = [os.path.join(os.environ["GRADMON_BIN"], "gradmonctl"), "schema"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def keys_of(schema: Any) -> Iterator[str]:
    """The keys of the config, and of the objects in it."""
    for key, value in schema.get("properties", {}).items():
        yield key
        yield from keys_of(value)
        if isinstance(value.get("additionalProperties"), dict):
            yield from keys_of(value["additionalProperties"])


def test_every_key_of_the_config_is_on_the_page(schema: Any) -> None:
    keys = set(keys_of(schema))
    assert {"ops", "cc_codeline", "output_grad"} <= keys
    assert sorted(keys - set(CODE.findall(section("The config")))) == []


def test_the_table_of_keys_has_those_that_there_are(schema: Any) -> None:
    named = [key for left, _ in rows("The config") for key in CODE.findall(left)]
    assert len(named) > 25 and len(named) == len(set(named))
    assert [key for key in named if key not in schema["properties"]] == []


def test_not_yet_is_said_of_the_keys_that_have_no_effect(schema: Any) -> None:
    missing = {key for key, value in schema["properties"].items() if "not available" in value["description"]}
    table = {
        key for left, right in rows("The config") if right[:7] == "not yet" for key in CODE.findall(left)
    }
    own = section("The config").split("\n\ngradmon's own keys")[1]
    said = table | set(CODE.findall(own.partition("not yet:")[2]))
    assert said == missing


def test_every_call_is_on_the_page() -> None:
    public = [name for name in vars(gradmon.TrainerMon) if not name.startswith("_")]
    assert "set_monitor" in public
    code = " ".join(CODE.findall(section("The script")))
    assert [name for name in public if not re.search(rf"\b{name}\b", code)] == []


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", TEXT):
        assert (Path(__file__).resolve().parents[3] / "runtime" / "python" / target).exists(), target


def test_the_page_of_kinds_has_each_kind_and_what_it_means_in_both() -> None:
    page = (Path(__file__).resolve().parents[3] / "hooks" / "KINDS.md").read_text()
    lines = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| `")]
    assert all(len(cells) == 4 and all(cells) for cells in lines)
    names = {name for cells in lines for name in CODE.findall(cells[0])} - {"mg_direction"}
    header = (Path(__file__).resolve().parents[3] / "control" / "vocabulary.h").read_text()
    kinds = re.findall(r'"([a-z0-9_]+)"', header.split("kKindNames")[1].split("};")[0])
    assert names == set(kinds) and len(kinds) == 16
