#!/usr/bin/env bash
# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
set -euo pipefail

usage() {
  cat <<'HELP'
Collects the files that the container image adds to its base: programs, without their symbols, and
the shared libraries that they need. glibc comes from the base, and must be at least as new as the
one that the programs were linked with.

It must run on the Debian that they were linked on; for the image of a release, in a root of Debian
sid (scripts/in-sid.sh).

usage: scripts/image-root.sh FOLDER PROGRAM...

FOLDER is created, with the layout of the image's root: usr/bin, usr/lib.

example:
  scripts/image-root.sh /image build/release/aggregator/basind/basind
  scripts/in-sid.sh scripts/image-root.sh build/image/root build/image/aggregator/basind/basind
HELP
}

case "${1-}" in
  --help | -h)
    usage
    exit 0
    ;;
esac
if (($# < 2)); then
  usage >&2
  exit 2
fi
readonly folder="$1"
shift

# The parts of glibc must match each other, and the loader and the name service of the base.
readonly GLIBC='/(ld-linux[^/]*|lib(c|m|dl|pthread|rt|resolv|util))\.so[^/]*$'

libraries_of() { # program
  local found
  found="$(ldd "$1")"
  if grep -q 'not found' <<<"$found"; then
    grep 'not found' <<<"$found" | sed "s|^\s*|image-root: $1 needs |" >&2
    return 1
  fi
  # A program that was linked with a library without a soname looks for the library's path.
  local path
  for path in $(awk '$1 ~ "^/" { print $1 }' <<<"$found" | grep -Ev "$GLIBC"); do
    echo "image-root: $1 looks for $path, a path that the image does not have." \
      "Link $(basename "$1") with a library that has a soname." >&2
    return 1
  done
  awk '$2 == "=>" { print $3 }' <<<"$found" | grep -Ev "$GLIBC"
}

# Where a library belongs in the image: where the loader finds it. /lib is a link to usr/lib, here
# and in the base. A library from elsewhere, such as /opt, is found in usr/lib too.
place_of() { # library
  case "$1" in
    /lib/*) echo "usr$1" ;;
    /usr/lib/*) echo "${1#/}" ;;
    *) echo "usr/lib/${1##*/}" ;;
  esac
}

mkdir -p "$folder/usr/bin"
for program in "$@"; do
  install -m 755 --strip "$program" "$folder/usr/bin/"
  libraries="$(libraries_of "$program")"
  while read -r library; do
    install -D -m 644 "$library" "$folder/$(place_of "$library")"
  done <<<"$libraries"
done
