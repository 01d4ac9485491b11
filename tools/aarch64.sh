#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tools/aarch64.sh COMMAND...: on Debian 12 for x86-64, runs COMMAND in this tree with a cross compiler for aarch64,
# Debian's packages for it, and its Python with torch: for example tools/aarch64.sh tools/test -L config
# Programs for aarch64 run by qemu-user. The kernel knows of it in the command's own namespaces only, which needs
# Linux 6.7 and root.
set -u -o pipefail
# shellcheck source=tools/setup.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/setup.sh"

here=$gradmon_root/build/aarch64
root=$here/root
triplet=aarch64-linux-gnu
site=$root/usr/lib/python3/dist-packages

fail() {
  say "$*"
  exit 1
}

# wanted_in_root: prints the packages of the root: the libraries that builds and tests need, and Python.
wanted_in_root() {
  wanted_packages build tests | grep -E '(-dev|^catch2)$' | grep -v clang
  printf '%s\n' libc6-dev libstdc++-12-dev libgomp1 zlib1g-dev python3-dev python3-venv
}

# apt_of_root ARGUMENT...: apt-get with a state of its own, in which no package is installed.
apt_of_root() {
  APT_CONFIG=$here/apt.conf apt-get -qq -y "$@"
}

# unpack_root: fetches the packages for arm64, with all that they need, and unpacks them; none of their scripts runs.
unpack_root() {
  local deb link target
  mkdir -p "$here"/apt/{lists,cache/archives}/partial "$root.new" && : >"$here/apt/status" || return 1
  cat >"$here/apt.conf" <<END
APT::Architecture "arm64"; APT::Architectures { "arm64"; }; APT::Install-Recommends "false"; APT::Sandbox::User "root";
Dir::State "$here/apt"; Dir::State::Lists "$here/apt/lists"; Dir::State::status "$here/apt/status";
Dir::Cache "$here/apt/cache"; Dir::Etc::sourceparts "$here/apt/sources";
END
  mkdir -p "$here/apt/sources"
  cp /etc/apt/sources.list.d/debian*.sources "$here/apt/sources" 2>/dev/null # only Debian's: others may lack arm64
  # shellcheck disable=SC2046
  apt_of_root update && apt_of_root --download-only install $(wanted_in_root) || return 1
  for deb in "$here"/apt/cache/archives/*.deb; do dpkg -x "$deb" "$root.new" || return 1; done
  while read -r link; do # absolute links would lead out of the root
    target=$root.new$(readlink "$link")
    [ ! -e "$target" ] || ln -sfnr "$target" "$link"
  done < <(find "$root.new" -type l -lname '/*')
  for link in bin sbin lib; do # as in an installed Debian, /lib is /usr/lib
    cp -a "$root.new/$link/." "$root.new/usr/$link" && rm -r "${root:?}.new/$link" &&
      ln -s "usr/$link" "$root.new/$link" || return 1
  done
  rm -rf "$here/apt"
}

# install_torch: puts torch 2.9.1 into the root, the newest whose wheel for aarch64 needs no CUDA, and what the
# Python tests need.
install_torch() {
  local wanted=$root/wanted.txt
  {
    echo torch==2.9.1
    grep -hv '^#\|^torch==' "$gradmon_root"/tools/requirements-{torch,tests}.txt
    grep -E '^(pyarrow|google-crc32c|pyyaml)==' "$gradmon_root/tools/requirements-read.txt"
  } >"$wanted"
  ! cmp -s "$wanted" "$root/installed.txt" || return 0
  say "installing torch for aarch64 in $root"
  mkdir -p "$site" && /usr/bin/python3 -m pip install -q --disable-pip-version-check --no-deps --upgrade \
    --target "$site" --only-binary=:all: --python-version 3.11 --implementation cp $(printf -- '--platform manylinux_2_%s_aarch64 ' 28 27 26 24 17) \
    --platform manylinux2014_aarch64 -r "$wanted" >&2 && cp "$wanted" "$root/installed.txt"
}

# make_tools: the programs by the names that builds and scripts use, first on PATH.
make_tools() {
  local name
  mkdir -p "$here/bin" || return 1
  for name in cc:gcc gcc:gcc c++:g++ g++:g++; do
    printf '#!/bin/sh\nexec /usr/bin/%s-%s --sysroot=%s "$@"\n' "$triplet" "${name#*:}" "$root" >"$here/bin/${name%:*}"
    chmod +x "$here/bin/${name%:*}"
  done
  for name in ar as ld nm objcopy ranlib readelf strip; do ln -sf "/usr/bin/$triplet-$name" "$here/bin/$name"; done
  cat >"$here/toolchain.cmake" <<END
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER $here/bin/cc)
set(CMAKE_CXX_COMPILER $here/bin/c++)
set(CMAKE_LIBRARY_ARCHITECTURE $triplet)
set(CMAKE_SYSROOT $root)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_CROSSCOMPILING_EMULATOR env) # the kernel finds qemu
foreach(kind EXE SHARED MODULE)
  set(CMAKE_\${kind}_LINKER_FLAGS_INIT -Wl,-rpath-link,$site/torch.libs:$site/torch/lib)
endforeach()
# FindPython asks no interpreter when it cross-compiles.
set(Python_INCLUDE_DIR $root/usr/include/python3.11 CACHE PATH "")
set(Python_SOABI cpython-311-$triplet CACHE STRING "")
END
  # qemu shows the machine's /proc/cpuinfo, in which torch looks for the features of an Arm processor.
  for name in 0 1; do
    printf '%s\t: %s\n' processor $name \
      Features 'fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp asimdrdm lrcpc dcpop asimddp' \
      'CPU implementer' 0x41 'CPU architecture' 8 'CPU variant' 0x3 'CPU part' 0xd0c 'CPU revision' 1
    echo
  done >"$here/cpuinfo"
}

# Runs in the namespaces, once all users are mapped. POF: tests start programs by descriptors that close on exec.
if [ "${1:-}" = --inside ]; then
  read -r _ <"$2" && shift 2
  zeros=$(printf '\\x00%.0s' {1..9}) ones=$(printf '\\xff%.0s' {1..7})
  magic="\\x7fELF\\x02\\x01\\x01$zeros\\x02\\x00\\xb7\\x00" mask="$ones\\x00$ones\\xff\\xfe\\xff\\xff\\xff"
  mount -t binfmt_misc none /proc/sys/fs/binfmt_misc && mount --bind "$here/cpuinfo" /proc/cpuinfo &&
    printf '%s' ":qemu-aarch64:M::$magic:$mask:/usr/bin/qemu-aarch64-static:POF" >/proc/sys/fs/binfmt_misc/register ||
    fail "the kernel takes no qemu-user in a namespace of its own (Linux 6.7 does)"
  unset PYTHONPATH PIP_CONSTRAINT
  export GRADMON_ARCH=aarch64 QEMU_LD_PREFIX=$root PATH=$here/bin:$PATH CMAKE_TOOLCHAIN_FILE=$here/toolchain.cmake
  export PKG_CONFIG_SYSROOT_DIR=$root PKG_CONFIG_LIBDIR=$root/usr/lib/$triplet/pkgconfig:$root/usr/share/pkgconfig
  cd "$gradmon_root" && exec "$@"
fi

[ $# != 0 ] || fail "missing COMMAND; for example: tools/aarch64.sh tools/test"
[ "$(id -u)/$(debian_release)/$(uname -m)" = 0/debian12/x86_64 ] || fail "this needs root on Debian 12 for x86-64"
ensure_packages build tests wheel aarch64 || exit 1
if [ ! -d "$root" ]; then
  say "unpacking Debian's packages for arm64 in $root"
  rm -rf "$root.new" && unpack_root >&2 && mv "$root.new" "$root" ||
    fail "Debian's packages for arm64 could not be unpacked"
fi
install_torch && make_tools || exit 1

# A namespace of users of its own owns binfmt_misc. All users are mapped: tests change owners.
turnstile=$(mktemp -u) && mkfifo "$turnstile" || exit 1
unshare --user --mount "${BASH_SOURCE[0]}" --inside "$turnstile" "$@" &
inside=$!
trap 'kill $inside 2>/dev/null; exit 130' INT TERM
until [ "$(readlink "/proc/$inside/ns/user")" != "$(readlink /proc/self/ns/user)" ]; do
  kill -0 $inside 2>/dev/null || fail "unshare --user failed"
  sleep 0.02
done
echo 0 0 4294967295 | tee "/proc/$inside/uid_map" >"/proc/$inside/gid_map" && echo >"$turnstile"
rm -f "$turnstile"
wait $inside
