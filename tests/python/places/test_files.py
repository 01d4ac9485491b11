# SPDX-License-Identifier: Apache-2.0
"""The config is a file that cannot be replaced: mounted, another owner's, read-only, held by an editor."""
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Iterator

import gradmon
import jobs
import pytest
import torch

GRADMONCTL = os.environ["GRADMON_BIN"] + "/gradmonctl"
OTHER_USER, OTHER_GROUP = 5678, 4321


class Training:
    def __init__(self, config: Path, output: Path) -> None:
        self.config = config
        self.output = output
        self.model = jobs.make_net()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.monitor = gradmon.Monitor(config, output_dir=output, dynamic=True)
        self.monitor.watch(self.model, self.optimizer)

    def until(self, condition: Callable[[], Any]) -> Any:
        end = time.monotonic() + 60
        while not (found := condition()):
            assert time.monotonic() < end, self.monitor.status()
            jobs.train(self.model, self.optimizer, 1)
        return found

    def is_on_in_file(self) -> bool:
        return json.loads(self.config.read_text())["dynamic_on"] is True

    def state(self) -> str:
        status = self.monitor.status()
        return status.state if status is not None else ""

    def ctl(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """gradmonctl, while the training goes on."""
        command = [GRADMONCTL, *arguments, "--output-dir", str(self.output)]
        running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.until(lambda: running.poll() is not None)
        out, err = running.communicate()
        return subprocess.CompletedProcess(command, running.returncode, out, err)


def write_config(path: Path, **keys: Any) -> None:
    path.write_text(json.dumps({"wg_distribution": True, **keys}, indent=2) + "\n")


@contextlib.contextmanager
def mounted(source: Path, target: Path, *options: str) -> Iterator[None]:
    """Mounts one file on another. The test is skipped where that is not allowed."""
    bind = subprocess.run(["mount", "--bind", str(source), str(target)], capture_output=True, text=True)
    if bind.returncode != 0:
        pytest.skip("this process may not mount: " + bind.stderr.strip())
    try:
        for option in options:
            subprocess.run(["mount", "-o", f"remount,bind,{option}", str(target)], check=True)
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(target)], check=True)


def test_a_mounted_config_is_written_back_and_set(tmp_path: Path) -> None:
    config, source = tmp_path / "config.json", tmp_path / "source.json"
    write_config(source, dynamic_on=True, collect_times=2)
    config.touch()
    with mounted(source, config):
        before = config.stat()
        training = Training(config, tmp_path / "out")
        training.until(lambda: not training.is_on_in_file())
        done = training.ctl("set", "collect_times=7")
        training.monitor.stop()
        after = config.stat()
        again = Training(config, tmp_path / "again")
        again.until(lambda: again.state() == "off")
        again.monitor.stop()
        assert jobs.eventually(
            lambda: not list(tmp_path.glob(".*"))
        )  # the hubs have ended and left nothing beside the file
    assert (done.returncode, done.stderr) == (0, "gradmonctl: saved; collecting stays off\n")
    expected = '{\n  "wg_distribution": true,\n  "dynamic_on": false,\n  "collect_times": 7\n}\n'
    assert source.read_text() == expected
    assert (after.st_ino, after.st_mode, after.st_uid) == (before.st_ino, before.st_mode, before.st_uid)
    assert not list((tmp_path / "again").rglob("*.csv"))


def test_a_read_only_config_stays_as_it_is_and_says_so(tmp_path: Path) -> None:
    config, source = tmp_path / "config.json", tmp_path / "source.json"
    write_config(source, dynamic_on=True, collect_times=1)
    text = source.read_text()
    config.touch()
    with mounted(source, config, "ro"):
        training = Training(config, tmp_path / "out")
        status = training.until(
            lambda: json.loads(training.ctl("status", "--json").stdout or "{}").get("last_error")
        )
        done = training.ctl("set", "collect_times=7")
        training.monitor.stop()
    assert status["text"] == "dynamic_on could not be written back: it is read-only"
    assert (done.returncode, done.stderr) == (
        1,
        "gradmonctl: the config file was not changed: it is read-only\n",
    )
    assert source.read_text() == text


OTHER_USERS_JOB = """
import sys
from pathlib import Path
from test_files import Training
training = Training(Path(sys.argv[1]), Path(sys.argv[2]))
training.until(lambda: not training.is_on_in_file())
print(training.ctl("set", "collect_times=7"))
training.monitor.stop()
"""


def test_a_config_of_another_owner_is_written_back_and_set(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can be another user")
    directory = Path("/tmp") / f"gradmon-places-{os.getpid()}"
    directory.mkdir()
    try:
        config = directory / "config.json"
        write_config(config, dynamic_on=True, collect_times=2)
        for path, mode in ((directory, 0o2775), (config, 0o664)):
            os.chown(path, 1234, OTHER_GROUP)
            path.chmod(mode)
        before = config.stat()
        environment = {**os.environ, "XDG_RUNTIME_DIR": "", "HOME": str(directory)}
        identity = [f"--reuid={OTHER_USER}", f"--regid={OTHER_GROUP}", "--clear-groups"]
        job = subprocess.run(
            [
                "setpriv",
                *identity,
                sys.executable,
                "-B",
                "-c",
                OTHER_USERS_JOB,
                str(config),
                str(directory / "out"),
            ],
            env=environment,
            capture_output=True,
            text=True,
        )
        assert job.returncode == 0 and "returncode=0" in job.stdout, job
        after = config.stat()
        assert json.loads(config.read_text()) == {
            "wg_distribution": True,
            "dynamic_on": False,
            "collect_times": 7,
        }
        assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)
        assert (after.st_uid, after.st_gid) == (1234, OTHER_GROUP)
    finally:
        shutil.rmtree(directory)


def test_a_save_of_an_editor_that_held_the_file_across_a_restart_is_an_edit(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    write_config(config, dynamic_on=True)
    first = Training(config, tmp_path / "first")
    first.until(lambda: first.state() == "on")
    with open(config, "r+", encoding="utf-8") as editor:
        first.monitor.off()
        first.until(lambda: not first.is_on_in_file())
        first.monitor.stop()
        assert jobs.eventually(
            lambda: not (tmp_path / ".config.json.gradmon-jobs").exists()
        )  # the first hub has ended
        second = Training(config, tmp_path / "second")
        second.until(lambda: second.state() == "off")
        editor.write(json.dumps({"wg_distribution": True, "dynamic_on": True, "ndigits": 9}))
        editor.truncate()
    assert second.ctl("set", "ndigits=3").returncode == 0  # an edit of what the first job wrote
    second.until(lambda: list((tmp_path / "second").rglob("*.csv")))
    assert json.loads(config.read_text())["ndigits"] == 9
    second.monitor.off()
    second.until(lambda: second.state() == "off" and not second.is_on_in_file())
    second.monitor.stop()
    assert jobs.eventually(
        lambda: sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "first", "second"]
    )
