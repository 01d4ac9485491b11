# SPDX-License-Identifier: Apache-2.0
"""gradmon.jax.tap with the real JAX: rows are those of torch tensors with the same elements."""
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import gradmon
import jax
import jax.numpy as jnp
import jobs
import numpy as np
import pytest
import torch
import twice
from ranks import free_port


def parameters() -> "dict[str, Any]":
    key = jax.random.key(3)
    return {
        "layers": [
            {"w": jax.random.normal(jax.random.fold_in(key, i), (4, 4)), "b": jnp.zeros(4)} for i in range(2)
        ],
        "head": jnp.ones(4),
    }


@jax.jit
def step_of(weights: Any, moments: Any, x: Any) -> Any:
    """Momentum, by hand: (gradients, new moments, new weights)."""

    def loss(weights: Any) -> Any:
        y = x
        for layer in weights["layers"]:
            y = jnp.tanh(y @ layer["w"] + layer["b"])
        return ((y @ weights["head"]) ** 2).mean()

    gradients = jax.grad(loss)(weights)
    moments = jax.tree.map(lambda m, g: 0.9 * m + g, moments, gradients)
    return gradients, moments, jax.tree.map(lambda w, m: w - 0.1 * m, weights, moments)


def of_torch(array: Any) -> torch.Tensor:
    return torch.tensor(np.asarray(array).tolist(), dtype=torch.float32).reshape(array.shape)


NAMES = {"layers.0.w": ("layers", 0, "w"), "layers.0.b": ("layers", 0, "b"), "head": ("head",)}
NAMES.update({"layers.1.w": ("layers", 1, "w"), "layers.1.b": ("layers", 1, "b")})


def leaf(tree: Any, path: "tuple[Any, ...]") -> Any:
    for key in path:
        tree = tree[key]
    return tree


def train(monitor: Any, noted: twice.Noted, steps: int = 4) -> Any:
    weights = parameters()
    moments = jax.tree.map(jnp.zeros_like, weights)
    for step in range(steps):
        x = jnp.sin(jnp.arange(12.0) * 0.7 + step).reshape(3, 4)
        old = weights
        gradients, new_moments, weights = step_of(weights, moments, x)
        kinds = {"grad_reduced": gradients, "param_origin": old, "param_updated": weights, "exp_avg": moments}
        moments = new_moments
        for kind, tree in kinds.items():
            if monitor is not None:
                gradmon.jax.tap(monitor, kind, tree)
            for name, path in NAMES.items():
                noted.note(kind, name, step, of_torch(leaf(tree, path)))
        if monitor is not None:
            monitor.step()
    return weights


def test_a_training_has_the_rows_of_its_trees(tmp_path: Path) -> None:
    noted = twice.Noted()
    with twice.monitor_by_hand(tmp_path, step_interval=2).watch() as monitor:
        watched = train(monitor, noted)
    for kind, tensors in noted.tensors.items():
        collected = {key: tensor for key, tensor in tensors.items() if key[1] % 2 == 0}
        assert len(collected) == 10
        twice.check_rows(twice.read(tmp_path / "out", kind), collected, kind)
    plain = train(None, twice.Noted())
    assert all(
        np.array_equal(one, other) for one, other in zip(jax.tree.leaves(plain), jax.tree.leaves(watched))
    )


TYPES = ["float32", "float16", "bfloat16", "int32", "uint8", "bool", "complex64", "int8", "int16"]


@pytest.mark.parametrize("of_numpy", [False, True])
def test_every_type_has_the_row_of_a_torch_tensor(tmp_path: Path, of_numpy: bool) -> None:
    """Of JAX arrays, and of the NumPy arrays that they become: bfloat16 is then ml_dtypes'."""
    made = {name: (jnp.arange(-5, 7).reshape(3, 4) * 0.37).astype(name) for name in TYPES}
    given = {name: np.asarray(array)[::-1] if of_numpy else array for name, array in made.items()}
    with twice.monitor_by_hand(tmp_path).watch() as monitor:
        gradmon.jax.tap(monitor, "actv", given)
        monitor.step()
    found = twice.read(tmp_path / "out", "actv")
    assert {name for name, _, _ in found} == set(TYPES)
    for name, array in made.items():
        row = found[name, 0, 0]
        plain = np.asarray(array).astype("complex64" if name == "complex64" else "float64")
        tensor = torch.tensor(plain.tolist())
        x = (torch.view_as_real(tensor) if tensor.is_complex() else tensor).double()
        assert row["dtype"] == f"torch.{name}"
        assert (row["min"], row["max"]) == (x.min().item(), x.max().item()), name
        assert row["norm"] == pytest.approx(x.norm().item(), rel=1e-14), name


def test_within_a_traced_function_a_warning_says_that_nothing_is_handed_in(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with twice.monitor_by_hand(tmp_path).watch() as monitor:

        @jax.jit
        def traced(x: Any) -> Any:
            gradmon.jax.tap(monitor, "actv", {"x": x})
            return x * 2

        assert traced(jnp.ones(2)).sum() == 4
        monitor.step()
    assert twice.read(tmp_path / "out", "actv") == {}
    assert "within a function that JAX traces" in capfd.readouterr().err


def test_deleted_arrays_and_numbers_end_nothing(tmp_path: Path) -> None:
    gone = jnp.ones(3)
    gone.delete()
    with twice.monitor_by_hand(tmp_path).watch() as monitor:
        gradmon.jax.tap(monitor, "actv", {"gone": gone, "number": 2.5, "none": None, "x": jnp.ones(2)})
        monitor.step()
    assert {name for name, _, _ in twice.read(tmp_path / "out", "actv")} == {"x"}


SHARDED = """
    import sys
    from pathlib import Path
    import gradmon, jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

    directory = Path(sys.argv[1])
    assert jax.device_count() == 4
    mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("x", "y"))
    whole = np.arange(64.0, dtype="float32").reshape(8, 8)
    tree = {
        "split": jax.device_put(whole, NamedSharding(mesh, P("x", "y"))),
        "replicated": jax.device_put(whole, NamedSharding(mesh, P())),
        "plain": jax.numpy.asarray(whole),
    }
    with gradmon.Monitor(directory / "config.json", output_dir=directory / "out", dynamic=False) as monitor:
        monitor.watch()
        gradmon.jax.tap(monitor, "param_origin", tree)
        monitor.step()
"""


def test_an_array_on_several_devices_of_a_process_is_whole(tmp_path: Path) -> None:
    jobs.write_config(tmp_path, **twice.HANDED_IN)
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SHARDED), str(tmp_path)],
        env={**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=4"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    found = jobs.rows(tmp_path / "out", "param_origin")
    assert {name for name, _, _ in found} == {"split", "replicated", "plain"}
    for row in found.values():
        jobs.check(row, torch.arange(64.0))


DISTRIBUTED = """
    import sys
    from pathlib import Path
    import gradmon, jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

    directory, rank, port = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", 2, rank)
    mesh = Mesh(np.array(jax.devices()), ("x",))
    whole = np.arange(64.0, dtype="float32").reshape(8, 8)
    split = jax.make_array_from_callback((8, 8), NamedSharding(mesh, P("x")), lambda index: whole[index])
    same = jax.make_array_from_callback((8, 8), NamedSharding(mesh, P()), lambda index: whole[index])
    assert not split.is_fully_addressable
    options = {"output_dir": directory / "out", "dynamic": False, "rank": rank, "world_size": 2}
    with gradmon.Monitor(directory / "config.json", **options) as monitor:
        monitor.watch()
        gradmon.jax.tap(monitor, "param_origin", {"split": split, "same": same})
        monitor.step()
"""


def test_of_an_array_on_two_processes_each_writes_its_part(tmp_path: Path) -> None:
    jobs.write_config(tmp_path, **twice.HANDED_IN)
    port = free_port()
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(DISTRIBUTED), str(tmp_path), str(rank), str(port)],
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    said = [process.communicate(timeout=200)[1] for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0], said
    whole = torch.arange(64.0).reshape(8, 8)
    for rank in range(2):
        found = jobs.rows(tmp_path / "out", "param_origin", rank)
        box = f"split[{4 * rank}:{4 * rank + 4}, 0:8]"
        assert {name for name, _, _ in found} == {box, "same"}
        jobs.check(found[box, 0, 0], whole[4 * rank : 4 * rank + 4])
        jobs.check(found["same", 0, 0], whole)
