# SPDX-License-Identifier: Apache-2.0
"""tools/wheel makes a wheel that works where Python and torch are, and none of the packages that it was
built with; beside other releases of the libraries in it."""
import ast
import os
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import jobs
import pytest
from scale import if_full
import torch

ROOT = Path(__file__).resolve().parents[3]
BUILD = Path(os.environ["GRADMON_BUILD_DIR"])
SUPPORT = ROOT / "tests" / "python" / "support"
RELEASE = ".".join(torch.__version__.split(".")[:2])
LIBRARIES = ["fmt", "hwy", "isal", "protobuf-lite", "re2", "simdjson", "sodium", "spdlog", "zmq"]
SHARED = ["libhwy", "libisal", "libsimdjson"]  # in the wheel; the others are in its binaries

if sys.prefix == sys.base_prefix:
    pytest.skip("the wheel is for torch from the Python index", allow_module_level=True)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("dist")
    command = [str(ROOT / "tools" / "wheel"), "--torch", sys.executable, str(directory)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    (made,) = directory.glob("gradmon-*.whl")
    read = directory / f"gradmon_read-{made.name.split('-')[1].split('+')[0]}-py3-none-any.whl"
    assert result.stdout == f"{made}\n{read}\n"
    with zipfile.ZipFile(read) as archive:
        assert {"gradmon_read/__main__.py", "gradmon_read/query.py"} <= set(archive.namelist())
    return made


def test_a_list_of_wheels_names_a_python_that_is_not_here(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels.txt"
    wheels.write_text("# none\n\n3.999 2.13.0\n")
    command = [str(ROOT / "tools" / "wheel"), "--matrix", str(wheels), str(tmp_path / "dist")]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode != 0
    assert (
        f"{wheels}: no CPython 3.999 here: install it with its headers, or remove the line" in result.stderr
    )


class BareRoot:
    """A root directory with Debian's python3 and the wheel, and this virtual environment mounted in it."""

    def __init__(self, path: Path, wheel: Path) -> None:
        self._make(path, [sys.prefix, str(SUPPORT), "/dev"])
        shutil.copy(wheel, path / "tmp")
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
        self.run(*install, "--target", "/site", f"/tmp/{wheel.name}")

    def _make(self, path: Path, mounted: "list[str]") -> None:
        self.path, self.mounted = path, mounted
        for folder in ("bin", "lib", "lib64", "sbin"):
            (path / "usr" / folder).mkdir(parents=True)
            (path / folder).symlink_to(f"usr/{folder}")
        for place in [*mounted, "/proc", "/tmp", "/etc"]:
            (path / place.lstrip("/")).mkdir(parents=True, exist_ok=True)
        self._copy_packages("python3", "libstdc++6", "bash", "coreutils")

    def _copy_packages(self, *names: str) -> None:
        """Copies what these installed packages consist of, and all that they depend on."""
        only = [f"--no-{kind}" for kind in "recommends suggests conflicts breaks replaces enhances".split()]
        command = ["apt-cache", "depends", "--recurse", "--installed", *only, *names]
        named = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
        packages = [name for name in named if not name.startswith((" ", "<"))]
        files = subprocess.run(["dpkg", "-L", *packages], capture_output=True, text=True).stdout
        paths = sorted({line for line in files.splitlines() if os.path.lexists(line)} - {"/."})
        pack = ["tar", "-c", "--no-recursion", "--absolute-names", "-T", "-"]
        unpack = ["tar", "-x", "--keep-directory-symlink", "-C", str(self.path)]
        packed = subprocess.run(pack, input="\n".join(paths).encode(), check=True, capture_output=True).stdout
        subprocess.run(unpack, input=packed, check=True, stderr=subprocess.DEVNULL)

    def run(self, *command: str) -> str:
        """Runs a command in the root, in namespaces of its own, and returns what it prints."""
        mounts = [f"mount --rbind {place} {self.path}{place}" for place in self.mounted]
        mounts.append(f"mount -t proc proc {self.path}/proc")
        mounts.append(f"mount -t tmpfs tmpfs {self.path}/dev/shm")
        inside = ["env", "-i", "HOME=/tmp", "PATH=/site/bin:/usr/bin", "PYTHONPATH=/site", *command]
        script = " && ".join([*mounts, f'exec chroot {self.path} "$@"'])
        namespaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script, "sh"]
        result = subprocess.run([*namespaces, *inside], capture_output=True, text=True, timeout=120)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> BareRoot:
    if os.geteuid() != 0:
        pytest.skip("skipped: only root can change the root directory")
    return BareRoot(tmp_path_factory.mktemp("root"), wheel)


def test_it_is_small_and_named_after_its_torch_and_its_oldest_glibc(wheel: Path) -> None:
    python = f"cp3{sys.version_info.minor}"
    assert wheel.name.endswith(f"+torch{RELEASE}-{python}-{python}-manylinux_2_28_x86_64.whl")
    assert wheel.stat().st_size <= 12_000_000


EXTENSION = rf"torch{RELEASE}/_gradmon\..*\.so"


def symbols(wheel: Path, directory: Path, name: str, *options: str) -> "list[str]":
    """Names of the dynamic symbols of the wheel's only file of this name, with their versions."""
    with zipfile.ZipFile(wheel) as archive:
        (found,) = [each for each in archive.namelist() if re.fullmatch(rf"gradmon/{name}", each)]
        binary = archive.extract(found, directory)
    command = ["nm", "--dynamic", *options, binary]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [line.split()[-1] for line in listed.splitlines()]


def test_its_binaries_show_no_symbols(wheel: Path, tmp_path: Path) -> None:
    defined = ["--defined-only", "--extern-only"]
    assert symbols(wheel, tmp_path, EXTENSION, *defined) == ["PyInit__gradmon"]
    for program in ("gradmonctl", "gradmon-hub"):
        shown = symbols(wheel, tmp_path, program, *defined)
        assert [name for name in shown if "@GLIBC_" not in name] == []


def test_its_binaries_take_nothing_from_another_libstdcxx_but_the_exceptions_in_flight(
    wheel: Path, tmp_path: Path
) -> None:
    for name in (EXTENSION, "gradmonctl", "gradmon-hub"):
        wanted = symbols(wheel, tmp_path, name, "--undefined-only")
        assert len(wanted) > 100
        taken = [
            symbol for symbol in wanted if re.match("_ZN?K?S[a-z]|_ZT[ISV]N?S[a-z]|__cxa_|__gxx_", symbol)
        ]
        ours = ["__cxa_get_globals@CXXABI_1.3", "__cxa_get_globals_fast@CXXABI_1.3"]
        assert [each for each in taken if "@GLIBC_" not in each] == (ours if name == EXTENSION else [])


def test_the_bare_root_has_none_of_our_libraries(bare: BareRoot) -> None:
    for name in LIBRARIES:
        found = [path for path in (bare.path / "usr").rglob(f"lib{name}*.so*")]
        assert not found
    ours = [path.name for path in (bare.path / "site" / "gradmon.libs").iterdir()]
    assert sorted(name.split("-")[0] for name in ours) == SHARED


COLLECT = """
import sys
sys.path.append(sys.argv[1])  # jobs alone
from pathlib import Path
import gradmon, jobs, torch
assert gradmon.__file__ == "/site/gradmon/__init__.py"
model, optimizer = jobs.make()
directory = Path("/tmp/job")
directory.mkdir()
config = jobs.write_config(directory, wg_distribution=True, dynamic_on=True, collect_times=2)
with gradmon.Monitor(config, output_dir=directory, dynamic=True).watch(model, optimizer) as monitor:
    jobs.reach_the_hub(monitor)
    jobs.train(model, optimizer, 5)
print(jobs.steps_of(jobs.rows(directory, "grad_reduced"))["fc1.weight"])
"""


def test_it_collects_in_the_bare_root_with_its_own_hub(bare: BareRoot) -> None:
    assert bare.run(sys.executable, "-c", COLLECT, str(SUPPORT)) == "[1, 2]\n"


# As glibc before 2.34, which calls the constructors that the program passes.
OLD_START = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
typedef void (*Function)(void);
int __libc_start_main(int (*main)(int, char**, char**), int argc, char** argv, Function init, Function fini,
                      Function rtld_fini, void* stack) {
  if (init == NULL) abort();
  int (*libc)(int (*)(int, char**, char**), int, char**, Function, Function, Function, void*) =
      dlsym(RTLD_NEXT, "__libc_start_main");
  return libc(main, argc, argv, init, fini, rtld_fini, stack);
}
"""


def test_its_programs_pass_their_constructors_to_libc(bare: BareRoot) -> None:
    preloaded = bare.path / "tmp" / "old_start.so"
    command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(preloaded)]
    subprocess.run(command, input=OLD_START, text=True, check=True)
    bare.run("env", "LD_PRELOAD=/tmp/old_start.so", "/site/gradmon/gradmonctl", "--version")


RANK = """
import os, sys
sys.path.append(sys.argv[1])  # jobs alone
from pathlib import Path
import gradmon, jobs, torch
import torch.distributed as dist
dist.init_process_group("gloo")
model, optimizer = jobs.make()
model = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
directory = Path("/tmp/ranks")
config = directory / "config.json"
with gradmon.Monitor(config, output_dir=directory, dynamic=False).watch(model, optimizer):
    jobs.train(model, optimizer, 5)
dist.destroy_process_group()
print(os.environ["RANK"], jobs.steps_of(jobs.rows(directory, "grad_reduced", rank=int(os.environ["RANK"]))))
"""


def test_it_collects_under_torchrun(bare: BareRoot) -> None:
    (bare.path / "tmp" / "ranks").mkdir()
    jobs.write_config(bare.path / "tmp" / "ranks", wg_distribution=True)
    (bare.path / "tmp" / "rank.py").write_text(RANK)
    (bare.path / "etc" / "hosts").write_text(f"127.0.0.1 localhost {socket.gethostname()}\n")
    (bare.path / "etc" / "nsswitch.conf").write_text("hosts: files\n")
    launch = ["-m", "torch.distributed.run", "--nproc_per_node=2", "--standalone"]
    printed = bare.run(sys.executable, *launch, "/tmp/rank.py", str(SUPPORT)).splitlines()
    assert [line.split(" ", 1)[0] for line in sorted(printed)] == ["0", "1"]
    for line in printed:
        assert ast.literal_eval(line.split(" ", 1)[1])["fc1.weight"] == [0, 1, 2, 3, 4]


EXCEPTIONS = """
import ctypes, sys
sys.path.append(sys.argv[1])  # jobs alone
from pathlib import Path
import gradmon, jobs, torch
in_flight = ctypes.CDLL("libstdc++.so.6")._ZSt19uncaught_exceptionsv  # for torch
def refuse(gradient):
    raise KeyError("the program's")
model, optimizer = jobs.make()
directory = Path("/tmp/exceptions")
directory.mkdir()
config = jobs.write_config(directory, wg_distribution=True)
with gradmon.Monitor(config, output_dir=directory, dynamic=False).watch(model, optimizer) as monitor:
    for step in range(3):
        monitor.tap("grad_reduced", "unreadable", torch.zeros(4, dtype=torch.uint8).view(torch.bits8))
        assert in_flight() == 0
        hook = model.fc1.weight.register_hook(refuse)
        try:
            jobs.train(model, optimizer, 1)
        except KeyError as error:
            print(error)
        assert in_flight() == 0
        hook.remove()
        jobs.train(model, optimizer, 1)
print(len(jobs.steps_of(jobs.rows(directory, "grad_reduced"))["fc1.weight"]))
"""


def test_exceptions_of_torch_and_of_the_program_pass(bare: BareRoot) -> None:
    printed = bare.run(sys.executable, "-c", EXCEPTIONS, str(SUPPORT))
    assert printed == '"the program\'s"\n' * 3 + "3\n"


def test_its_doctor_finds_nothing_missing(bare: BareRoot) -> None:
    assert "communication: works\n" in bare.run(sys.executable, "-m", "gradmon.doctor")


def test_gradmonctl_of_the_wheel_runs_without_torch(bare: BareRoot) -> None:
    version = bare.run("/usr/bin/python3", "/site/bin/gradmonctl", "--version")
    built = subprocess.run([str(BUILD / "bin" / "gradmonctl"), "--version"], capture_output=True, text=True)
    assert version == built.stdout and version


def test_gradmonctl_of_the_wheel_names_the_package_of_a_missing_command(bare: BareRoot) -> None:
    ask = '/usr/bin/python3 /site/bin/gradmonctl query "SELECT 1" 2>&1; [ $? = 1 ]'
    answer = bare.run("bash", "-c", ask)
    assert answer.startswith(
        "gradmonctl: query needs the Python package gradmon-read: /usr/bin/python3 -m pip "
    )


BESIDE = """
import ctypes, sys
def use_others():
    import google.protobuf.struct_pb2 as pb, zmq
    from tensorboard.compat.proto.event_pb2 import Event
    message = pb.Struct()
    message["loss"] = 0.5
    assert pb.Struct.FromString(message.SerializeToString())["loss"] == 0.5
    assert Event.FromString(Event(step=7).SerializeToString()).step == 7
    context = zmq.Context()
    left, right = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
    left.bind("inproc://both"), right.connect("inproc://both"), left.send(b"x")
    assert right.recv() == b"x"
    context.destroy()
def use_gradmon():
    import gradmon
    from gradmon import doctor
    assert doctor.examine(lambda line: None)
for use in [use_others, use_gradmon][:: int(sys.argv[1])] * 2:
    use()
shown = ctypes.CDLL(None)
for name in ("zmq_version", "sodium_init", "_ZN6google8protobuf11MessageLiteD2Ev"):
    assert not hasattr(shown, name), name
loaded = {line.split("/")[-1].strip() for line in open("/proc/self/maps") if "/" in line}
print(*sorted(name for name in loaded if "zmq" in name or "protobuf" in name))
"""


@pytest.mark.parametrize("order", [if_full("1"), "-1"], ids=["after the others", "before the others"])
def test_it_lives_beside_other_releases_of_its_libraries(bare: BareRoot, order: str) -> None:
    loaded = bare.run(sys.executable, "-c", BESIDE, order).split()
    assert [name.split("-")[0] for name in loaded if name.startswith("lib")] == ["libzmq"]  # pyzmq's


# gradmon-read[analysis], and what it depends on.
ANALYSIS = (
    "_duckdb* contourpy* cycler* dateutil duckdb* fontTools google_crc32c* kiwisolver* matplotlib* "
    "mpl_toolkits narwhals numpy* packaging PIL pillow.libs plotly* pyarrow* pyparsing six.py _plotly_utils"
).split()


class Laptop(BareRoot):
    """A root directory with Debian's python3, both wheels and gradmon-read's packages; without torch."""

    def __init__(self, path: Path, wheel: Path) -> None:
        self._make(path, ["/dev"])
        (read,) = wheel.parent.glob("gradmon_read-*.whl")
        for made in (wheel, read):
            with zipfile.ZipFile(made) as archive:
                archive.extractall(path / "site")
        (path / "site" / "gradmon" / "gradmonctl").chmod(0o755)
        packages = Path(sysconfig.get_path("purelib"))
        for package in (found for pattern in ANALYSIS for found in packages.glob(pattern)):
            target = path / "site" / package.name
            if package.is_dir():
                shutil.copytree(package, target, ignore=shutil.ignore_patterns("tests", "__pycache__"))
            else:
                shutil.copy(package, target)


def test_a_laptop_without_torch_analyses_a_run(tmp_path: Path, wheel: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("skipped: only root can change the root directory")
    laptop = Laptop(tmp_path / "root", wheel)
    job = laptop.path / "tmp" / "job" / "Nov24_08-30-12-rank0-8c0ffee0"
    job.mkdir(parents=True)
    head = "vpp_stage,name,step,norm,shape,dtype\n"
    for step in range(20):
        norms = [50 if (layer, step) == (3, 15) else 1 for layer in range(5)]
        rows = [f'0,layers.{i}.w,{step},{norm},"[4]",torch.float32\n' for i, norm in enumerate(norms)]
        (job / f"grad_reduced_{step}-{step}.csv").write_text(head + "".join(rows))
    python = ["/usr/bin/python3", "-c"]
    without = "import importlib.util; assert importlib.util.find_spec('torch') is None"
    laptop.run(*python, without)

    def gradmonctl(*words: str) -> str:
        return laptop.run(*python, "import _gradmonctl; _gradmonctl.main()", *words)

    assert "layers.3.w" in gradmonctl("analyse", "top", "/tmp/job", "--count", "1")
    sql = "SELECT step, value FROM rows WHERE value > 2"
    assert gradmonctl("query", sql, "/tmp/job", "--format", "csv") == "step,value\n15,50.0\n"
    gradmonctl("analyse", "plot", "/tmp/job", "-o", "/tmp/map.html")
    assert b"Plotly.newPlot" in (laptop.path / "tmp" / "map.html").read_bytes()
    assert gradmonctl("convert", "parquet", "/tmp/job", "-o", "/tmp/dataset").startswith("100 rows of rank 0")
