#!/usr/bin/env bash
# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
set -euo pipefail

usage() {
  cat <<'HELP'
Installs what Basin is built and tested with. Safe to run again: what is there is not touched.

usage: scripts/setup.sh [--check] [--no-python] [--help]

  --check      install nothing; list what is missing and exit with 1 if anything is
  --no-python  only the system packages, no virtual environment

System packages come from apt (Debian 12 or newer; as root, or through sudo). Python packages go to
.venv in the source tree, at the versions that scripts/requirements.txt names.

examples:
  scripts/setup.sh            # everything, then: cmake --preset release
  scripts/setup.sh --check    # is this machine ready?
HELP
}

# What it is for stands beside each group; a package that nothing uses does not belong here.
readonly PACKAGES=(
  # build
  g++ cmake ninja-build ccache git pkg-config
  # libraries that Basin links
  libabsl-dev libprotobuf-dev protobuf-compiler libgrpc++-dev protobuf-compiler-grpc libhwy-dev
  libxxhash-dev libyaml-dev nlohmann-json3-dev prometheus-cpp-dev libcivetweb-dev
  # tests and benchmarks
  libgtest-dev libgmock-dev libbenchmark-dev
  # sanitizers, fuzzing, coverage, style
  clang-14 libclang-rt-14-dev llvm-14 clang-tidy-14 clang-format-14
  # Python
  python3 python3-venv
)

check_only=false
with_python=true
for argument in "$@"; do
  case "$argument" in
    --check) check_only=true ;;
    --no-python) with_python=false ;;
    --help | -h)
      usage
      exit 0
      ;;
    *)
      echo "setup: unknown argument: $argument (see --help)" >&2
      exit 2
      ;;
  esac
done

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
readonly root
readonly requirements="$root/scripts/requirements.txt"
readonly venv="$root/.venv"

missing_packages() {
  local package
  for package in "${PACKAGES[@]}"; do
    dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed ||
      echo "$package"
  done
}

# The environment holds a copy of the list that it was made from; another list, or a Python that
# has gone since, means that it is made again.
venv_is_current() {
  cmp -s "$requirements" "$venv/requirements.txt" && "$venv/bin/python3" -c '' 2>/dev/null
}

install_packages() {
  local as_root=()
  if [[ "$(id -u)" != 0 ]]; then
    if ! command -v sudo >/dev/null; then
      echo "setup: run as root, or install sudo; missing: $*" >&2
      exit 1
    fi
    as_root=(sudo)
  fi
  echo "setup: installing $*"
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

make_venv() {
  echo "setup: making .venv with $(grep -v '^#' "$requirements" | tr '\n' ' ')"
  # A Python of one's own (pyenv, say) is fine as long as it can make environments.
  python3 -m venv --clear "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$requirements"
  cp "$requirements" "$venv/requirements.txt"
}

if ! command -v dpkg-query >/dev/null; then
  echo "setup: this script knows Debian's packages only; on another system install the" >&2
  echo "       equivalents of: ${PACKAGES[*]}" >&2
  exit 1
fi

mapfile -t missing < <(missing_packages)
if "$check_only"; then
  status=0
  if ((${#missing[@]})); then
    echo "setup: missing packages: ${missing[*]}"
    status=1
  fi
  if "$with_python" && ! venv_is_current; then
    echo "setup: .venv is missing or out of date"
    status=1
  fi
  ((status)) || echo "setup: everything is installed"
  exit "$status"
fi

if ((${#missing[@]})); then
  install_packages "${missing[@]}"
fi
if "$with_python" && ! venv_is_current; then
  make_venv
fi
echo "setup: ready"
