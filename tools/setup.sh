# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by the commands in this folder: installs packages on a bare Debian, and builds.
# Sets gradmon_root. Functions report on stderr; if they fail, they print a message and
# return non-zero.

gradmon_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

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
  comm -23 <(wanted_packages "$@" | LC_ALL=C sort) \
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

# has_cache PRESET: whether build/PRESET was configured in this place: the tree may have been moved or copied.
has_cache() {
  grep -qsxF "CMAKE_HOME_DIRECTORY:INTERNAL=$gradmon_root" "$gradmon_root/build/$1/CMakeCache.txt"
}

# configure_preset PRESET [CMAKE_ARGUMENT...]: configures build/PRESET, from scratch if it has no cache.
configure_preset() {
  local preset=$1 fresh=''
  shift
  has_cache "$preset" || fresh=--fresh
  (cd "$gradmon_root" && cmake --preset "$preset" $fresh "$@") >&2
}

# build_preset PRESET [TARGET...]: configures if needed, and builds build/PRESET.
build_preset() {
  local preset=$1 directory=$gradmon_root/build/$1 tests=$tests
  local cache=$directory/CMakeCache.txt
  shift
  say "building build/$preset"
  if has_cache "$preset" && grep -qx 'GRADMON_TESTS:[A-Z]*=ON' "$cache"; then
    tests=ON # a demo must not remove the tests from a build tree
  fi
  if ! has_cache "$preset" || [ ! -f "$directory/build.ninja" ] ||
    [ "$gradmon_root/CMakePresets.json" -nt "$cache" ] ||
    ! grep -qx "GRADMON_TESTS:[A-Z]*=$tests" "$cache"; then
    configure_preset "$preset" -DGRADMON_TESTS=$tests || return 1
  fi
  NINJA_STATUS='gradmon: built %f of %t files in %e s: ' ninja -C "$directory" -j "$(build_jobs)" "$@" >&2
}
