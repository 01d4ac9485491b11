# SPDX-License-Identifier: Apache-2.0
"""What the commands in tools/ share: the choice of a torch, and the environments that they make."""
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
TOOLS = ROOT / "tools"


def shell(script: str, directory: Path) -> "subprocess.CompletedProcess[str]":
    """Runs a script with tools/setup.sh in the directory, which stands for the root of the tree."""
    lines = f"source {TOOLS}/setup.sh\ngradmon_root=$PWD\n{script}"
    return subprocess.run(["bash", "-c", lines], cwd=directory, capture_output=True, text=True)


def make_program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_a_relative_path_of_a_torch_holds_in_every_directory(tmp_path: Path) -> None:
    python = make_program(tmp_path / "env" / "bin" / "python3", "#!/bin/sh\necho 9.9.9\n")
    for wanted in ("env", "./env", "env/bin/python3", "../" + tmp_path.name + "/env", str(python)):
        chosen = shell(f"choose_torch {wanted} pip && cd / && echo $torch $gradmon_python", tmp_path)
        assert chosen.stdout == f"9.9.9 {python}\n", wanted


def test_an_environment_is_made_again_where_the_tree_was_moved_and_only_there(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "tools").mkdir(parents=True)
    (tree / "tools" / "requirements-nothing.txt").write_text("# nothing\n")
    script = "ensure_venv $PWD/venv nothing && venv/bin/pip --version"
    first = shell(script, tree)
    assert first.returncode == 0, first.stderr
    mark = Path("venv") / "mark"
    (tree / mark).touch()
    assert shell(script, tree).returncode == 0
    assert (tree / mark).exists()
    moved = tree.rename(tmp_path / "moved")
    again = shell(script, moved)
    assert again.returncode == 0, again.stderr
    assert str(moved) in again.stdout
    assert not (moved / mark).exists()


def test_an_environment_is_in_place_where_its_pip_is_run_by_its_own_python(tmp_path: Path) -> None:
    long = "#!/bin/sh\n'''exec' {} \"$0\" \"$@\"\n' '''\n"
    for lines in ("#!{}\n", long, long.replace("{}", '"{}"')):
        for name, there in (("here", 0), ("elsewhere", 1)):
            (tmp_path / "elsewhere" / "bin").mkdir(parents=True, exist_ok=True)
            make_program(tmp_path / "here" / "bin" / "pip", lines.format(tmp_path / name / "bin" / "python3"))
            assert shell("is_in_place $PWD/here", tmp_path).returncode == there, lines
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "here" / "bin" / "pip").rename(tmp_path / "elsewhere" / "bin" / "pip")
    assert shell("is_in_place $PWD/here", tmp_path).returncode == 1
    assert shell("is_in_place $PWD/link", tmp_path).returncode == 0


def test_no_wheel_is_made_for_debians_torch(tmp_path: Path) -> None:
    command = [str(TOOLS / "wheel"), "--torch", "debian", str(tmp_path / "dist")]
    refused = subprocess.run(command, capture_output=True, text=True)
    assert refused.returncode == 1
    assert refused.stdout == ""
    assert "no wheel is made for Debian's torch" in refused.stderr
    assert "pip install --no-build-isolation ." in refused.stderr
    assert not (tmp_path / "dist").exists()
