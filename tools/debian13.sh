#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tools/debian13.sh COMMAND...: runs COMMAND in this tree on Debian 13, in a chroot below
# build/: for example tools/debian13.sh tools/test -L layers
# In the chroot, /gradmon is this tree, read-only, with its own build/. Its mounts and
# processes end with the script, because they have their own namespaces.
set -u -o pipefail
# shellcheck source=tools/setup.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/setup.sh"

root=$gradmon_root/build/debian13-root
mirror=http://deb.debian.org/debian

fail() {
  say "$*"
  exit 1
}

# make_root: creates the root with debootstrap, and moves it into place when it is complete.
make_root() {
  [ ! -d "$root" ] || return 0
  say "making a Debian 13 root in $root"
  rm -rf "$root.new"
  mkdir -p "$root.new" || return 1
  debootstrap --variant=minbase trixie "$root.new" "$mirror" >"$root.log" 2>&1 || {
    tail -n 5 "$root.log" >&2
    say "debootstrap failed; is $mirror reachable? Its output: $root.log"
    return 1
  }
  mkdir -p "$root.new/gradmon" "$root.new/gradmon-build" && mv "$root.new" "$root"
}

mount_all() {
  cp -L /etc/resolv.conf "$root/etc/resolv.conf" &&
    printf '127.0.0.1 localhost\n127.0.1.1 %s\n' "$(hostname)" >"$root/etc/hosts" && # torchrun looks it up
    mount --bind "$root" "$root" && # / must be a mount point, because tests call unshare
    mount -t proc proc "$root/proc" &&
    mount --rbind /sys "$root/sys" &&
    mount --rbind /dev "$root/dev" &&
    mount -t tmpfs tmpfs "$root/dev/shm" &&
    mount -t tmpfs tmpfs "$root/run" &&
    mount -t devpts -o newinstance,ptmxmode=0666,mode=0620,gid=5 devpts "$root/dev/pts" &&
    mount --bind "$gradmon_root" "$root/gradmon" &&
    mount -o remount,bind,ro "$root/gradmon" &&
    mount --bind "$root/gradmon-build" "$root/gradmon/build"
}

if [ $$ != 1 ]; then
  [ $# != 0 ] || fail "missing COMMAND; for example: tools/debian13.sh tools/test"
  [ "$(id -u)" = 0 ] || fail "only root can make a Debian 13 root and mount there"
  [ -n "$(command -v debootstrap)" ] || fail "debootstrap is missing: apt-get install debootstrap"
  mkdir -p "$gradmon_root/build"
  exec unshare --mount --mount-proc --pid --fork --kill-child "${BASH_SOURCE[0]}" "$@"
fi

trap 'exit 130' INT TERM
make_root || exit 1
mount_all || fail "could not mount the file systems of $root"
chroot "$root" /usr/bin/env -i HOME=/root TERM="${TERM:-dumb}" LANG=C.UTF-8 \
  PATH=/usr/sbin:/usr/bin:/sbin:/bin ${GRADMON_TEST_SCALE:+GRADMON_TEST_SCALE="$GRADMON_TEST_SCALE"} \
  ${http_proxy:+http_proxy="$http_proxy"} /bin/sh -c 'cd /gradmon && exec "$@"' sh "$@"
