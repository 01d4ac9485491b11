# SPDX-License-Identifier: Apache-2.0
"""msprobe's quick start in transformers/trainer.py: the real Trainer with its lines, alone and with
DeepSpeed's engine."""
import site
from pathlib import Path

import jobs
import pytest
import ranks
import twice

# Each runs in a process of its own: the lines stay in the Trainer.
ALONE = """
import os, sys, json
options = json.loads(sys.argv[1])
os.chdir(options["directory"])
os.environ["MONITOR_OUTPUT_DIR"] = "out"
import hf_loops, loops, quick_starts, torch, twice
quick_starts.stand_in()
quick_starts.edit_trainer("self.optimizer")
torch.manual_seed(7)
noted = twice.Noted()
model = hf_loops.Net()
hf_loops.make_trainer(model, loops.NotingAdamW(model, noted), [], max_steps=2).train()
quick_starts.stop()
for kind in ("grad_unreduced", "grad_reduced", "param_origin", "param_updated", "exp_avg"):
    twice.check_rows(twice.read(hf_loops.Path("out"), kind), noted.tensors[kind], kind)
"""
BY_ENGINE = """
import os, sys, json
options = json.loads(sys.argv[1])
os.chdir(options["directory"])
os.environ["MONITOR_OUTPUT_DIR"] = "out"
sys.path += options["packages"]  # after those of this environment
import deepspeed
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
os.environ["LOCAL_RANK"] = os.environ["RANK"]
import engine_oracle, hf_loops, loops, quick_starts, torch, twice
quick_starts.stand_in()
quick_starts.edit_trainer("self.optimizer.optimizer")
torch.manual_seed(7)
config = {
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "zero_optimization": {"stage": 2},
    "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "torch_adam": True}},
    "steps_per_print": 1000,
}
trainer = hf_loops.make_trainer(hf_loops.Net(), None, [], max_steps=2, deepspeed=config, learning_rate=0.01)
trainer.train()
quick_starts.stop()
noted = loops.plain_noted(lambda count: count)
for kind in engine_oracle.REDUCED[:4]:
    found = twice.read(hf_loops.Path("out"), kind)
    expected = {key: tensor for key, tensor in noted.tensors[kind].items() if key[1] < 2}
    assert found.keys() == expected.keys(), (kind, found.keys() ^ expected.keys())
    for key, tensor in expected.items():
        engine_oracle.check_close(found[key], tensor.flatten(), tensor, (kind, *key))
"""


def run(tmp_path: Path, script: str, **options: object) -> None:
    jobs.write_config(tmp_path, **twice.EVERYTHING).rename(tmp_path / "monitor_config.json")
    ranks.run(tmp_path, script, 1, directory=str(tmp_path), **options)
    assert twice.read(tmp_path / "out", "grad_reduced") and twice.read(tmp_path / "out", "actv")


def test_its_lines_in_the_trainer_give_plain_torchs_rows(tmp_path: Path) -> None:
    run(tmp_path, ALONE)


def test_with_deepspeed_its_lines_take_the_optimizer_behind_the_trainers(tmp_path: Path) -> None:
    own = next(path for path in site.getsitepackages() if path.endswith("site-packages"))
    engines = own.replace("frameworks-venv", "engines-venv")
    if not Path(engines, "deepspeed").is_dir():
        pytest.skip("DeepSpeed is in no environment")
    run(tmp_path, BY_ENGINE, packages=[engines])
