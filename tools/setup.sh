# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by the commands in this folder: installs packages on a bare Debian, and builds.
# Sets gradmon_root and gradmon_venv. Functions report on stderr; if they fail, they print a message and
# return non-zero. GRADMON_ARCH is the architecture to build for, if tools/aarch64.sh has called the program.

gradmon_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
gradmon_venv=$gradmon_root/build/venv
# choose_torch changes these.
torch=pip
torch_packages=pip
gradmon_python=$gradmon_venv/bin/python3

say() { echo "gradmon: $*" >&2; }

# wanted_packages GROUP...: prints the packages of these groups of packages.txt, one per line; of
# alternatives it prints the first that apt knows.
wanted_packages() {
  local name group=''
  while read -r name; do
    case $name in
      '' | '#'*) continue ;;
      '['*)
        group=${name:1:-1}
        continue
        ;;
    esac
    [[ " $* " == *" $group "* ]] || continue
    while [[ $name == *'|'* ]]; do
      if apt-cache show "${name%%|*}" >/dev/null 2>&1; then name=${name%%|*}; else name=${name#*|}; fi
    done
    echo "$name"
  done <"$gradmon_root/tools/packages.txt"
}

# missing_packages GROUP...: prints the wanted packages that are not installed, one per line.
missing_packages() {
  comm -23 <(wanted_packages "$@" | LC_ALL=C sort -u) \
    <(dpkg-query -W -f '${db:Status-Status} ${Package}\n' | sed -n 's/^installed //p' | LC_ALL=C sort -u)
}

# ensure_packages GROUP...: installs the missing packages of the groups; returns at once if none is missing.
ensure_packages() {
  local missing
  missing=$(missing_packages "$@" | tr '\n' ' ')
  [ -n "$missing" ] || return 0
  if [ "$(id -u)" != 0 ]; then
    say "these packages are missing, and only root can install them: $missing"
    return 1
  fi
  say "installing packages: $missing"
  apt-get -qq update >&2 || say "apt-get update failed (no network?); trying the package lists of this machine"
  missing=$(missing_packages "$@" | tr '\n' ' ')
  # shellcheck disable=SC2086
  if ! DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install $missing >&2; then
    say "apt-get could not install (no network?): $missing"
    return 1
  fi
}

# torch_of_environment: prints the Python of the active environment if it has torch 2.6 or later from the
# Python index.
torch_of_environment() {
  local python
  python=$(command -v python3) || return 0
  "$python" - 2>/dev/null <<'END'
import importlib.metadata, re, sys
version = importlib.metadata.version("torch")
if tuple(map(int, re.findall(r"\d+", version)[:2])) >= (2, 6) and sys.executable != "/usr/bin/python3":
    print(sys.executable)
END
}

# torch_option OTHERWISE ARGUMENT...: reads a leading --torch, which every program has, and chooses that torch;
# sets arguments to the rest.
torch_option() {
  local otherwise=$1 wanted=auto
  shift
  if [ "${1:-}" = --torch ]; then
    wanted=${2:-}
    shift $(($# < 2 ? $# : 2))
  fi
  arguments=("$@")
  choose_torch "$wanted" "$otherwise"
}

# choose_torch auto|pip|debian|PATH OTHERWISE: chooses the torch that programs are built for. Sets torch (pip,
# debian or a version), gradmon_python (its Python) and torch_packages. `auto` is the torch of the active
# environment, or OTHERWISE without one.
choose_torch() {
  local wanted=$1
  if [ "$wanted" = auto ]; then
    wanted=$(torch_of_environment)
    wanted=${wanted:-$2}
  fi
  case $wanted in
    pip) gradmon_python=$gradmon_venv/bin/python3 ;;
    debian) gradmon_python=/usr/bin/python3 ;;
    *)
      gradmon_python=$wanted
      [ ! -e "$wanted" ] || gradmon_python=$(realpath -s -- "$wanted") # cmake runs in another directory
      ;;
  esac
  [ ! -d "$gradmon_python" ] || gradmon_python=$gradmon_python/bin/python3
  case $gradmon_python in
    "$gradmon_venv"/*)
      torch=pip torch_packages=pip
      say "torch $(sed -n 's/^torch==//p' "$gradmon_root/tools/requirements-torch.txt") from the Python index, in $gradmon_venv"
      ;;
    /usr/bin/python3)
      torch=debian torch_packages="$(debian_release)-torch debian-torch"
      say "torch of $(debian_release) (libtorch-dev)"
      ;;
    *)
      torch_packages=''
      torch=$("$gradmon_python" -c 'import importlib.metadata as m; print(m.version("torch"))' 2>/dev/null) || {
        say "--torch: expected auto, pip, debian, or a virtual environment or Python that has torch; got $1"
        return 1
      }
      say "torch $torch of $gradmon_python"
      ;;
  esac
}

# debian_release: prints debian12 or debian13.
debian_release() { (. /etc/os-release && echo "$ID${VERSION_ID%%.*}"); }

# is_in_place VENV: true if its own Python runs its pip: the scripts of an environment hold its absolute path,
# and the tree may have been moved or copied. pip writes a long path into the second line.
is_in_place() {
  local programs
  programs=$(sed -nE -e '1s,^#!(.*)/python[^/]*$,\1,p' -e "2s,^'''exec' \"?(/[^\"]*)/python.*,\1,p" \
    "$1/bin/pip" 2>/dev/null)
  [ -n "$programs" ] && [ "$programs" -ef "$1/bin" ]
}

# ensure_venv DIRECTORY PURPOSE...: makes a virtual environment with tools/requirements-PURPOSE.txt of each
# purpose, in this order, unless it has them already, in this place. Its Python is $venv_python if that is set.
ensure_venv() {
  local venv=$1 purpose wanted
  shift
  wanted=$(for purpose; do cat "$gradmon_root/tools/requirements-$purpose.txt"; done)
  [ "$wanted" != "$(cat "$venv/installed.txt" 2>/dev/null)" ] || ! is_in_place "$venv" || return 0
  rm -rf "$venv" && "${venv_python:-/usr/bin/python3}" -m venv "$venv" || return 1
  for purpose; do
    say "installing tools/requirements-$purpose.txt in $venv"
    "$venv/bin/pip" install -q --disable-pip-version-check -r "$gradmon_root/tools/requirements-$purpose.txt" >&2 || {
      say "pip could not install tools/requirements-$purpose.txt (no network?)"
      return 1
    }
  done
  echo "$wanted" >"$venv/installed.txt"
}

# ensure_torch: installs torch from the Python index in build/venv if chosen; any other torch exists already.
ensure_torch() {
  [ "$torch" = pip ] || return 0
  # torch first and alone: a package that requires torch could install another one.
  ensure_venv "$gradmon_venv" torch tests || {
    say "--torch debian needs Debian's packages only"
    return 1
  }
}

# ensure_reading: installs what gradmon_read needs: in build/venv, or in an environment of its own beside another
# torch, whose Python then gets what gradmon.load() needs in build/read-packages.
ensure_reading() {
  local wanted=$gradmon_root/tools/requirements-read.txt
  [ -z "${GRADMON_ARCH:-}" ] || return 0
  if [ "$torch" != pip ]; then
    ensure_venv "$gradmon_root/build/read-venv" read || return 1
    [ ! -d "$gradmon_root/build/read-packages" ] || return 0
    grep -E '^(pyarrow|google-crc32c)==' "$wanted" >"$gradmon_root/build/read-packages.txt" &&
      "$gradmon_root/build/read-venv/bin/pip" --python "$gradmon_python" install -q --disable-pip-version-check \
        --no-deps --target "$gradmon_root/build/read-packages" -r "$gradmon_root/build/read-packages.txt" >&2
    return
  fi
  ! cmp -s "$wanted" "$gradmon_venv/installed-read.txt" || return 0
  say "installing tools/requirements-read.txt in $gradmon_venv"
  "$gradmon_venv/bin/pip" install -q --disable-pip-version-check -r "$wanted" >&2 &&
    cp "$wanted" "$gradmon_venv/installed-read.txt" || {
    say "pip could not install tools/requirements-read.txt (no network?)"
    return 1
  }
}

# reading_python: prints the Python that runs gradmon_read.
reading_python() {
  [ "$torch" = pip ] || [ -n "${GRADMON_ARCH:-}" ] && echo "$gradmon_python" ||
    echo "$gradmon_root/build/read-venv/bin/python3"
}

# ensure_torch_beside_build TARGET...: installs the packages of the chosen torch, and torch. While it
# installs them, builds TARGETs, which need no torch.
ensure_torch_beside_build() {
  local log=$gradmon_root/build/torch-packages.log built
  if [ -z "$(missing_packages "$torch_packages")" ] && { [ "$torch" != pip ] || [ -f "$gradmon_venv/installed.txt" ]; }; then
    ensure_torch
    return
  fi
  mkdir -p "$gradmon_root/build"
  say "installing torch, and building what does not need it"
  { ensure_packages "$torch_packages" && ensure_torch; } >"$log" 2>&1 &
  with_torch=OFF build_preset release "$@"
  built=$?
  say "waiting for the installation of torch"
  wait $! && return $built
  tail -n 20 "$log" >&2
  return 1
}

# ensure_frameworks: makes the environments of the other training frameworks, and of the readers of Parquet.
ensure_frameworks() {
  local venv
  ensure_venv "$gradmon_root/build/read-engines-venv" read-engines || return 1
  if [ "$torch" != pip ]; then
    say "--frameworks needs --torch pip"
    return 1
  fi
  for venv in frameworks-venv titan-venv mindspore-venv engines-venv; do
    case $venv in
      frameworks-venv) set -- "$gradmon_root"/tools/requirements-frameworks-{loops,jax}.txt ;;
      titan-venv) set -- "$gradmon_root"/tools/requirements-frameworks-{loops,titan}.txt ;;
      mindspore-venv) set -- "$gradmon_root/tools/requirements-mindspore.txt" ;;
      engines-venv) set -- "$gradmon_root/tools/requirements-frameworks-engines.txt" ;;
    esac
    make_venv_beside_torch "$venv" "$@" || return 1
  done
}

# make_venv_beside_torch NAME REQUIREMENTS...: makes the virtual environment build/NAME with these files of
# requirements, unless it has them already. It imports torch and the tests' packages from build/venv.
make_venv_beside_torch() {
  local venv=$gradmon_root/build/$1 wanted packages requirements
  shift
  wanted=$(cat "$gradmon_root"/tools/requirements-{torch,tests}.txt "$@" && readlink -f "$gradmon_venv")
  [ "$wanted" != "$(cat "$venv/installed.txt" 2>/dev/null)" ] || ! is_in_place "$venv" || return 0
  rm -rf "$venv" && /usr/bin/python3 -m venv "$venv" || return 1
  packages=$("$venv/bin/python3" -c 'import sysconfig; print(sysconfig.get_path("purelib"))') || return 1
  "$gradmon_venv/bin/python3" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
    >"$packages/torch_of_gradmon.pth" || return 1
  # Without dependencies: some require torch, and pip would install another one. deepspeed is built from source, in
  # this environment: its setup.py imports torch.
  for requirements in "$@"; do
    say "installing ${requirements#"$gradmon_root/"} in $venv"
    DS_BUILD_OPS=0 "$venv/bin/pip" install -q --disable-pip-version-check --no-deps --no-build-isolation \
      --ignore-requires-python -r "$requirements" >&2 || {
      say "pip could not install $requirements (no network?)"
      return 1
    }
  done
  echo "$wanted" >"$venv/installed.txt"
}

# build_tree PRESET: prints the name of its folder below build/; each torch has its own.
build_tree() {
  local of_torch=${GRADMON_ARCH:+$GRADMON_ARCH-}torch-$torch
  [ "$torch" != debian ] || of_torch=$(debian_release)
  case $torch/$1 in
    */release) [ "$torch" = pip ] && echo release || echo "$of_torch" ;;
    pip/* | */tsan | */clang | */fuzz) echo "$1" ;;
    *) echo "$of_torch-$1" ;;
  esac
}

# build_jobs: prints the number of parallel build processes; a file that includes torch takes over 1 GB.
build_jobs() {
  local by_memory cores
  by_memory=$(awk '/^MemAvailable/ { print int($2 / 1536 / 1024) }' /proc/meminfo)
  cores=$(nproc)
  echo $((by_memory < 1 ? 1 : by_memory < cores ? by_memory : cores))
}

# without_tests: new build trees get no tests and benchmarks from now on.
tests=ON
without_tests() { tests=OFF; }

with_torch=ON # whether the release tree is built with the folders that need torch

# has_cache TREE: true if it was configured in this place: the tree may have been moved or copied.
has_cache() {
  grep -qsxF "CMAKE_HOME_DIRECTORY:INTERNAL=$gradmon_root" "$1/CMakeCache.txt"
}

# configure_preset PRESET [CMAKE_ARGUMENT...]: configures its build tree, from scratch if it has no cache.
configure_preset() {
  local preset=$1 fresh='' tree
  shift
  tree=$gradmon_root/build/$(build_tree "$preset")
  has_cache "$tree" || fresh=--fresh
  (cd "$gradmon_root" && cmake --preset "$preset" -B "$tree" $fresh -DPython_EXECUTABLE="$gradmon_python" \
    -DGRADMON_READ_PYTHON="$(reading_python)" "$@") >&2
}

# build_preset PRESET [TARGET...]: configures if needed, and builds.
build_preset() {
  local preset=$1 tree tests=$tests torch_option=''
  tree=$gradmon_root/build/$(build_tree "$preset")
  local cache=$tree/CMakeCache.txt
  shift
  say "building build/${tree##*/}"
  if has_cache "$tree" && grep -qx 'GRADMON_TESTS:[A-Z]*=ON' "$cache"; then
    tests=ON # a demo must not remove the tests from a build tree
  fi
  if ! has_cache "$tree" || [ ! -f "$tree/build.ninja" ] ||
    [ "$gradmon_root/CMakePresets.json" -nt "$cache" ] ||
    ! grep -qx "GRADMON_TESTS:[A-Z]*=$tests" "$cache" ||
    { [ "$preset" = release ] && ! grep -qx "GRADMON_TORCH:[A-Z]*=$with_torch" "$cache"; } ||
    { [[ $preset == @(release|asan) ]] && ! grep -qx "Python_EXECUTABLE:[A-Z]*=$gradmon_python" "$cache"; }; then
    [ $with_torch = ON ] || torch_option=-DGRADMON_TORCH=OFF
    configure_preset "$preset" -DGRADMON_TESTS=$tests $torch_option || return 1
  fi
  NINJA_STATUS='gradmon: built %f of %t files in %e s: ' ninja -C "$tree" -j "$(build_jobs)" "$@" >&2
}
