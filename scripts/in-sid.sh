#!/usr/bin/env bash
# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
set -euo pipefail

usage() {
  cat <<'HELP'
Runs a command in a minimal root of Debian sid, with the gRPC and the protobuf of Debian's
experimental suite and what building Basin and its C++ tests requires. The tree has the same path
there, and commands start in it. Compilations share ccache with those outside.

usage: scripts/in-sid.sh [--fresh] COMMAND [ARGUMENT...]

  --fresh  make the root again first

The root is made by mmdebstrap when it is first used, when the packages that Basin requires have
changed, and when it is a week old: about 1 GB in .cache/sid, or in the folder that BASIN_SID names.
An old root is used where a new one cannot be made. Needs root.

The exit status is that of the command, or 75 if there is no root and none can be made.

examples:
  scripts/in-sid.sh cmake --preset release -B build/sid -DBASIN_CUDA=OFF
  scripts/in-sid.sh ninja -C build/sid basind
  scripts/in-sid.sh dpkg-query --show 'libgrpc*'
HELP
}

fresh=false
case "${1-}" in
  --help | -h)
    usage
    exit 0
    ;;
  --fresh)
    fresh=true
    shift
    ;;
esac
if (($# == 0)); then
  usage >&2
  exit 2
fi

tree="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
readonly tree
readonly folder="${BASIN_SID:-$tree/.cache/sid}" no_root=75

fail() {
  echo "in-sid: $*" >&2
  exit "$no_root"
}

# From experimental. Abseil is sid's, because experimental's packages of gRPC are linked with that,
# and a program must not have two of them.
export PINS='Package: src:grpc src:protobuf
Pin: release a=experimental
Pin-Priority: 990'
readonly PINS

# The archive of Debian that this machine uses.
mirror() {
  apt-get indextargets --format '$(LABEL) $(REPO_URI)' 'Created-By: Packages' |
    awk '$1 == "Debian" && !found { found = 1; print $2 }'
}

make_root() { # packages
  local mirror
  mirror="$(mirror)"
  mkdir -p "$folder"
  rm -rf "$folder/new"
  # A mirror that is some weeks behind is good enough; signatures are checked all the same.
  # shellcheck disable=SC2016  # expanded by mmdebstrap's shell
  mmdebstrap --quiet --aptopt='Acquire::Check-Valid-Until "false"' \
    --mode=root --variant=apt --include="$1" \
    --setup-hook='mkdir -p "$1/etc/apt/preferences.d"
                  echo "$PINS" >"$1/etc/apt/preferences.d/basin"' \
    sid "$folder/new" "deb $mirror sid main" "deb $mirror experimental main" || return 1
  rm -rf "$folder/root"
  mv "$folder/new" "$folder/root"
  echo "$1 $PINS" >"$folder/made-from"
}

((EUID == 0)) || fail "only root can make and enter a root of another Debian"
for tool in mmdebstrap unshare flock; do
  command -v "$tool" >/dev/null || fail "$tool is not installed; scripts/setup.sh does that"
done

packages="$("$tree/scripts/setup.sh" --list --build-only | paste -s -d,)"
packages+=,libgtest-dev,libgmock-dev,libbenchmark-dev
mkdir -p "$folder"
exec 9>"$folder/lock"
flock 9
if "$fresh" || [[ "$(cat "$folder/made-from" 2>/dev/null)" != "$packages $PINS" ]] ||
  [[ -n "$(find "$folder/made-from" -mtime +7)" ]]; then
  echo "in-sid: making a root of Debian sid in $folder" >&2
  make_root "$packages" >&2 || {
    rm -rf "$folder/new"
    [[ -e "$folder/made-from" ]] || fail "mmdebstrap cannot make a root of Debian sid"
    echo "in-sid: using the root of $(date -r "$folder/made-from" +%F)" >&2
  }
fi
flock --unlock 9
exec 9>&-

cache=
if command -v ccache >/dev/null; then
  cache="$(ccache --get-config cache_dir)"
  mkdir -p "$cache"
fi
# The mounts end with the command.
# shellcheck disable=SC2016  # expanded by the inner shell
exec unshare --mount --propagation private bash -euc '
  root="$1" tree="$2" cache="$3"
  mkdir -p "$root$tree" "$root/ccache"
  mount --bind "$tree" "$root$tree"
  [[ -z "$cache" ]] || mount --bind "$cache" "$root/ccache"
  mount -t proc proc "$root/proc"
  mount --rbind /dev "$root/dev"
  exec chroot "$root" env --chdir="$tree" PATH=/usr/sbin:/usr/bin HOME=/root LC_ALL=C.UTF-8 \
    CCACHE_DIR=/ccache CCACHE_BASEDIR="$tree" CCACHE_NOHASHDIR=1 "${@:4}"
' _ "$folder/root" "$tree" "$cache" "$@"
