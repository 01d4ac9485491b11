# SPDX-License-Identifier: Apache-2.0
"""gradmonctl import: a config of a MindSpore Transformers YAML file's monitoring keys."""
import json
import resource
from pathlib import Path
from typing import Any

import pytest
from gradmon_read import mindformers
from reading import GOLDEN, Commands, golden_difference, without

# The example in the documentation of MindSpore Transformers, with the keys that it omits.
EXAMPLE = """seed: 0
output_dir: './output'

monitor_config:
    monitor_on: True
    dump_path: './dump'
    target: ['layers.0', 'layers.1'] # the first two layers
    invert: False
    step_interval: 1
    local_loss_format: ['log', 'tensorboard']
    device_local_loss_format: ['log', 'tensorboard']
    local_norm_format: ['log', 'tensorboard']
    device_local_norm_format: 'tensorboard'
    optimizer_state_format: log
    weight_state_format: null
    throughput_baseline: 12.5
    print_struct: False
    check_for_nan_in_loss_and_grad: True

tensorboard:
    tensorboard_dir: 'worker/tensorboard'
    tensorboard_queue_size: 10
    log_loss_scale_to_tensorboard: True
    log_timers_to_tensorboard: True
    log_expert_load_to_tensorboard: True

callbacks:
    - type: MFLossMonitor
      per_print_times: 1
    - type: TopkBiasBalanceCallback
    - type: CheckpointMonitor
      prefix: "llm"
"""


class Imports:
    def __init__(self, run: Commands, directory: Path) -> None:
        self._run = run
        self.file = directory / "train.yaml"

    def __call__(self, yaml: "str | bytes", *options: str) -> Any:
        self.file.write_bytes(yaml if isinstance(yaml, bytes) else yaml.encode())
        answer = self._run("import", self.file, *options)
        return answer._replace(err=without(answer.err, self.file, "train.yaml"))

    def config(self, yaml: str) -> "dict[str, Any]":
        answer = self(yaml)
        assert answer.code == 0, answer.err
        found: "dict[str, Any]" = json.loads(answer.out)
        return found

    def error(self, yaml: "str | bytes") -> str:
        answer = self(yaml)
        assert (answer.code, answer.out) == (6, "")
        return str(answer.err)


@pytest.fixture
def imported(run: Commands, tmp_path: Path) -> Imports:
    return Imports(run, tmp_path)


def test_the_documented_example_becomes_a_config_and_a_table_of_every_key(imported: Imports) -> None:
    answer = imported(EXAMPLE)
    assert answer.code == 0
    assert golden_difference("import_config.json", answer.out) == ""
    assert golden_difference("import_table.txt", answer.err) == ""


def test_without_a_tensorboard_section_all_scalars_go_to_the_log(imported: Imports) -> None:
    yaml = "monitor_config: {monitor_on: yes, local_norm_format: tensorboard, throughput_baseline: 3}"
    assert imported.config(yaml) == {
        "dynamic_on": True,
        "throughput_baseline": 3,
        "scalars": {"local_norm": "log", "throughput_linearity": "log"},
    }


def test_with_the_monitor_off_only_the_scalars_of_callbacks_are_imported(imported: Imports) -> None:
    config = imported.config(
        "monitor_config: {monitor_on: False, local_norm_format: log, step_interval: 5}\n"
        "callbacks: [{type: MFLossMonitor, per_print_times: 10}]"
    )
    assert config["dynamic_on"] and config["step_interval"] == 10
    assert len(config["scalars"]) == 5 and config["scalars"]["learning-rate"] == "log"
    assert imported.config("monitor_config:\n") == {"dynamic_on": False}


@pytest.mark.parametrize(
    "yaml, error",
    [
        (
            "monitor_config:\n  monitor_on: True\n  step_interval: 0\n",
            "3:3: monitor_config.step_interval: found 0, expected an integer >= 1\n",
        ),
        (
            "monitor_config:\n  monitor_on: True\n  invert: 'no'\n  local_norm_format: [log, file]\n"
            "  throughput_baseline: -1\n",
            '3:3: monitor_config.invert: found "no", expected true or false\n'
            'train.yaml:4:3: monitor_config.local_norm_format: found ["log","file"], expected \'log\', '
            "'tensorboard', a list of these, or null\n"
            "train.yaml:5:3: monitor_config.throughput_baseline: found -1, expected a number > 0\n",
        ),
        (
            "monitor_config: {monitor_on: True, throughput_baseline: .inf}",
            "1:36: monitor_config.throughput_baseline: found null, expected a number > 0\n",
        ),
        (
            "tensorboard:\n  log_timers_to_tensorboard: 1\n",
            "2:3: tensorboard.log_timers_to_tensorboard: found 1, expected true or false\n",
        ),
        ("a: 1\n---\nb: 2\n", "3:1: more than one YAML document\n"),
        ("- 1\n", "1:1: expected a mapping of keys to values\n"),
        ("", "1:1: expected a mapping of keys to values\n"),
        ("callbacks:\n  - 3\n", "2:5: callbacks[0]: expected a mapping\n"),
        ("tensorboard:\n  x: 1\n  x: 2\n", "3:3: tensorboard.x: duplicate key\n"),
        ("tensorboard: 3\n", "1:14: tensorboard: expected a mapping, or a list of mappings\n"),
        (
            "base: &base {monitor_on: True}\nmonitor_config:\n  <<: *base\n",
            "3:3: monitor_config.<<: merge keys are not supported; write the merged keys out\n",
        ),
        (
            "base: &base {monitor_config: {monitor_on: True}}\n<<: *base\n",
            "2:1: <<: merge keys are not supported; write the merged keys out\n",
        ),
        (b'monitor_config:\n  monitor_on: true\n  target: ["\xff\xfe"]\n', "3:13: not valid UTF-8\n"),
        (b"a: \xe5\xb1\x82 # \xff\n", "1:8: not valid UTF-8\n"),
        (b"\xff\xfea\0:\0", "1:1: not valid UTF-8\n"),
    ],
)
def test_an_invalid_file_is_an_error_with_its_place(imported: Imports, yaml: Any, error: str) -> None:
    assert imported.error(yaml) == f"train.yaml:{error}"


def test_yaml_that_cannot_be_read_is_an_error(imported: Imports) -> None:
    assert imported.error("monitor_config: " + "[" * 100_000).endswith("nested too deeply\n")
    assert imported.error("monitor_config:\n  a: [1\n").startswith("train.yaml:3:1: not YAML: ")
    assert imported.error("monitor_config:\n  a: \x07\n").startswith("train.yaml:1:1: not YAML: ")


def test_numbers_are_those_of_yaml_1_2(imported: Imports) -> None:
    for text, value in (("1e-5", 1e-05), ("0.5", 0.5), ("0x10", 16), ("7", 7)):
        yaml = f"monitor_config: {{monitor_on: True, throughput_baseline: {text}}}"
        assert imported.config(yaml)["throughput_baseline"] == value
    assert "found " in imported.error("monitor_config: {monitor_on: True, throughput_baseline: 1:30}")


@pytest.mark.parametrize("target", ["[[a]]", "{a: b}", "[a, {b: c}]", "&self [*self]", "['(?=x)']"])
def test_a_target_that_is_no_list_of_patterns_is_an_error(imported: Imports, target: str) -> None:
    error = imported.error("monitor_config: {monitor_on: True, target: " + target + "}")
    assert error.startswith("train.yaml:1:36: monitor_config.target: found ")
    assert not error.endswith(", expected \n")


def test_nested_aliases_are_not_expanded(imported: Imports) -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
    for i in range(1, 30):
        bomb += f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n"
    assert "tensorboard.x  [{},{}]  nothing" in imported(bomb + "tensorboard: {x: *a29}\n").err


def test_too_many_keys_are_an_error(imported: Imports) -> None:
    keys = "".join(f"  k{i}: 1\n" for i in range(4097))
    assert imported.error("tensorboard:\n" + keys).endswith("more than 4096 keys and elements\n")


def test_import_creates_a_new_file_and_does_not_overwrite_one(imported: Imports, tmp_path: Path) -> None:
    made = tmp_path / "config.json"
    answer = imported(EXAMPLE, "--output", str(made))
    assert (answer.code, answer.out) == (0, "")
    assert made.read_text() == (GOLDEN / "import_config.json").read_text()
    assert made.stat().st_mode & 0o777 == 0o640
    answer = imported(EXAMPLE, "--output", str(imported.file))
    assert answer.code == 1
    assert answer.err.endswith("gradmonctl: train.yaml: File exists\n")
    assert imported.file.read_text() == EXAMPLE


def test_import_leaves_no_part_of_a_config_that_it_could_not_write(imported: Imports, tmp_path: Path) -> None:
    made = tmp_path / "config.json"
    imported.file.write_text(EXAMPLE)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        with pytest.raises(mindformers.CommandError, match="config.json: File too large"):
            mindformers._make(str(made), "x" * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not made.exists()


def test_a_missing_or_large_file_is_an_error(imported: Imports, run: Commands, tmp_path: Path) -> None:
    assert run("import", "/no/such.yaml").err == "gradmonctl: /no/such.yaml: No such file or directory\n"
    assert run("import").code == 2
    assert imported("#" * (1 << 20) + "\n").err == "gradmonctl: train.yaml: more than 1 MiB\n"
