#!/usr/bin/env bash
# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
set -uo pipefail

usage() {
  cat <<'HELP'
Builds and runs the tests that need a GPU: the most valuable first, each under its own time limit,
and all of them within eight minutes.

  devices         nvidia-smi, and what basind finds (20 s)
  contract-short  two dtypes of the contract suite and the golden vectors, bit for bit against the
                  scalar reference (40 s)
  trainer         the copies of a trainer's tensors: their order with its streams, captured graphs,
                  and memory that processes share (20 s)
  training        PyTorch with CUDA tensors in two processes, through basind: results bit for bit,
                  gradients that basind reads in the GPU's memory, a group with NCCL where that
                  takes the ranks; losses, parameters and time of a step beside
                  DistributedDataParallel (150 s)
  nccl            the communicator of a node's ranks with NCCL itself, on as many GPUs as there are
                  (40 s). NCCL is the file that BASIN_NCCL_LIBRARY names, that of PYTHON's packages
                  or the system's
  reduction-speed bandwidth of the reduction beside that of a copy within the device, and of an
                  aggregator's pipeline (40 s; reported, not judged)
  copy-speed      bandwidth of a trainer's copies beside one copy from or to pinned memory, each way
                  and both at once (20 s; reported, not judged)
  aggregator      whole rounds through an engine that reduces on the GPU, with the bits of the CPU,
                  and what reduce.device auto chooses here (20 s)
  training-more   float16 with a gradient scaler, windows of two backwards, and the results with
                  PyTorch's allocators expandable_segments and cudaMallocAsync (120 s)
  contract        the whole contract suite (40 s)
  memcheck, racecheck, synccheck
                  the golden vectors under compute-sanitizer, if it is installed and may run here
                  (the rest of the time)

The trainings are skipped where PYTHON (default: python3) has no torch or NumPy; tests/gpu/run.py
--help says more about them.

usage: scripts/test-gpu.sh [--build DIR] [--arch LIST] [--build-only] [OPTION...]
       scripts/test-gpu.sh --carry DIR
       DIR/test-gpu.sh --carried [OPTION...]

  --build DIR    where to build (default: build/gpu)
  --arch LIST    CUDA architectures, as CMake takes them (default: all shipped ones)
  --build-only   stop after the build; needs no GPU
  --carry DIR    put everything that a machine with a GPU needs into DIR, and stop; needs no GPU.
                 DIR has at most 64 MiB, and needs a driver and libstdc++. Its wheel is that of a
                 release
  --carried      run what lies beside this script
  --only LIST    only these checks, by commas
  --within S     seconds for all checks (default: 480); with more, each check has more, too

Without --carry, contract, sanitizer and the speed of the reduction need only a GPU, nvcc, a C++
compiler and CMake, none of Basin's other dependencies, and no network. The other checks are those
of build/release; they are skipped where they were not built.

Without a GPU what was carried runs as well, to show that it would: the aggregator and the two
bandwidths on the emulated device, and the training on the CPU against Gloo.

Each check ends with a line: PASS, FAIL, TIME (it has not ended within its limit) or SKIP. All lines
are repeated at the end, and are in summary.txt. The output goes to the terminal and, as it comes,
to report.txt. Both files are in the folder that the variable OUT names, or else in the build's, or
in DIR.
Exit status: 0 passed, 1 failed, 2 usage, 77 what needs no GPU passed, but there is no GPU.

examples:
  scripts/test-gpu.sh --arch native             # quick: only for this machine's GPU
  scripts/test-gpu.sh                           # all shipped architectures
  scripts/test-gpu.sh --carry build/gpu-carry   # here; then copy it to the machine with a GPU, and
  build/gpu-carry/test-gpu.sh --carried         # there
HELP
}

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(dirname "$here")"
build="$root/build/gpu"
arch=""
carry=""
carried=false
build_only=false
only=""
within=480
while (($#)); do
  case "$1" in
    --build | --arch | --carry | --only | --within)
      if [[ -z "${2-}" ]]; then
        echo "test-gpu: $1 needs a value" >&2
        exit 2
      fi
      case "$1" in
        --build) build="$2" ;;
        --arch) arch="$2" ;;
        --carry) carry="$2" ;;
        --only) only="$2" ;;
        --within) within="$2" ;;
      esac
      shift
      ;;
    --carried) carried=true ;;
    --build-only) build_only=true ;;
    --help | -h)
      usage
      exit 0
      ;;
    *)
      echo "test-gpu: unknown argument: $1 (see --help)" >&2
      exit 2
      ;;
  esac
  shift
done
readonly names="devices contract-short trainer training nccl reduction-speed copy-speed aggregator \
training-more contract memcheck racecheck synccheck"
for name in ${only//,/ }; do
  if [[ " $names " != *" $name "* ]]; then
    echo "test-gpu: --only: there is no check $name (see --help)" >&2
    exit 2
  fi
done
if [[ ! "$within" =~ ^[1-9][0-9]*$ ]]; then
  echo "test-gpu: --within: $within is not a number of seconds" >&2
  exit 2
fi

readonly most_carried_kib=$((64 * 1024))
programs="$root/build/release"
device_test="$programs/tests/aggregator/basin_aggregator_device_test"
trainer_test="$programs/tests/accelerator/device/device_cuda_test"
group_test="$programs/tests/accelerator/node/nccl/basin_node_nccl_cuda_test"
copy_bench="$programs/tests/accelerator/transfer/transfer_copy_bench"
golden="$root/tests/golden"
train="$root/tests/gpu/run.py"
package="$root/client/python"
basind="$programs/aggregator/basind/basind"
python="${PYTHON:-python3}"
scratch="$(mktemp -d)"
readonly scratch
trap 'rm -rf "$scratch"' EXIT
# Only our own programs find the libraries that were carried. Those of the package have theirs in
# it, and torch must not find either.
ours=(env)
if "$carried"; then
  ours=(env "LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}")
  build="$here"
  device_test="$here/basin_aggregator_device_test"
  trainer_test="$here/device_cuda_test"
  group_test="$here/basin_node_nccl_cuda_test"
  copy_bench="$here/copy_bench"
  golden="$here/golden"
  train="$here/gpu/run.py"
  package="$scratch/python"
  basind="$package/basin/bin/basind"
fi
readonly results="${OUT:-$build}"
readonly report="$results/report.txt" summary="$results/summary.txt"
mkdir -p "$build" "$results"
: >"$report"
: >"$summary"
say() { echo "$@" | tee -a "$report"; }

# Runs a command, shows and keeps its output, and returns its exit status.
run() {
  "$@" 2>&1 | tee -a "$report"
  return "${PIPESTATUS[0]}"
}

# ---- building and packing

build_all() {
  local configure=(cmake -S "$root/tests/kernels/cuda/standalone" -B "$build")
  [[ -n "$arch" ]] && configure+=("-DCMAKE_CUDA_ARCHITECTURES=$arch")
  say "== build"
  run "${configure[@]}" || return 1
  run cmake --build "$build" --parallel "$(nproc)"
}

# Builds the tests, which call more of CUDA's runtime than a release has and so have all of it, and
# the programs and the library of a release, in the folder that scripts/release.sh uses.
build_carried() {
  cmake --preset release && cmake --build build/release --target basin_aggregator_device_test \
    basin_node_nccl_cuda_test device_cuda_test kernels_cuda_bench kernels_cuda_contract_test \
    transfer_copy_bench || return 1
  cmake --preset release -B build/distribution -DBASIN_BUILD_TESTS=OFF \
    -DBASIN_CUDA_RUNTIME=LOADED &&
    cmake --build build/distribution --target basind basinctl basin_c
}

pack() {
  say "== carry"
  (cd "$root" && run build_carried) || return 1
  mkdir -p "$carry/golden" "$carry/gpu" "$carry/lib" || return 1
  cp "$golden"/*.txt "$carry/golden/" || return 1
  cp "$root"/tests/gpu/*.py "$carry/gpu/" || return 1
  cp "$root/scripts/test-gpu.sh" "$carry/" || return 1
  local kernels="$programs/tests/kernels/cuda"
  strip -o "$carry/cuda_contract" "$kernels/kernels_cuda_contract_test" || return 1
  strip -o "$carry/cuda_bench" "$kernels/kernels_cuda_bench" || return 1
  strip -o "$carry/copy_bench" "$copy_bench" || return 1
  strip -o "$carry/basin_aggregator_device_test" "$device_test" || return 1
  strip -o "$carry/device_cuda_test" "$trainer_test" || return 1
  strip -o "$carry/basin_node_nccl_cuda_test" "$group_test" || return 1
  # The machine with a GPU has the libraries of C and C++, and no others.
  ldd "$carry"/{cuda_contract,cuda_bench,copy_bench} "$carry"/*_test |
    awk '/=> \// { print $3 }' | sort -u |
    grep -v -E '/(libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s)\.so' |
    xargs -r cp -L -t "$carry/lib" || return 1
  # The wheel has the package with its client library and programs, and the libraries that they
  # need.
  run "$root/scripts/build-wheel.sh" --build "$root/build/distribution" "$scratch/wheels" &&
    cp "$scratch"/wheels/*.whl "$carry/basin.whl" || return 1
  local size
  size="$(du -sk "$carry" | cut -f1)"
  say "$carry: $size KiB"
  if ((size > most_carried_kib)); then
    say "failed: that is more than $most_carried_kib KiB"
    return 1
  fi
}

if [[ -n "$carry" ]]; then
  pack || exit 1
  exit 0
fi
if ! "$carried"; then build_all || exit 1; fi
"$build_only" && exit 0

# ---- how a check runs

# The limits are for a machine that does nothing else.
readonly scale=$((within > 480 ? (within + 479) / 480 : 1))
status=0
skipped=0
name=""   # The check that runs, and its limit in seconds.
limit=0
code=0    # How it has ended, and after how many milliseconds.
took=0
readonly output="$scratch/output"  # What it has written.

milliseconds() { echo "$((${EPOCHREALTIME/[.,]/} / 1000))"; }
began="$(milliseconds)"
readonly began

# verdict WORD [TEXT]
verdict() {
  local line
  printf -v line '%-4s %-15s %3d.%d s  %s' "$1" "$name" "$((took / 1000))" "$((took / 100 % 10))" \
    "${2-}"
  line="${line%"${line##*[! ]}"}"
  say "$line"
  echo "$line" >>"$summary"
  case "$1" in
    FAIL | TIME) status=1 ;;
    SKIP) ((++skipped)) ;;
  esac
}

# begin NAME SECONDS: whether the check is to run.
begin() {
  name="$1"
  limit=$(($2 * scale))
  took=0
  [[ -z "$only" || ",$only," == *",$name,"* ]] || return 1
  local left=$((within - ($(milliseconds) - began) / 1000))
  say "== $name"
  if ((left < 5)); then
    verdict TIME "not started: all checks together may take $within s"
    return 1
  fi
  ((limit <= left)) || limit="$left"
}

# Runs a command, which is ended at the limit together with the processes that it has started.
attempt() {
  local at
  at="$(milliseconds)"
  timeout --kill-after=5 "$limit" "$@" </dev/null 2>&1 | tee "$output" | tee -a "$report"
  code="${PIPESTATUS[0]}"
  took=$(($(milliseconds) - at))
}

judge() {
  if ((code == 124 || (code == 137 && took >= 1000 * limit))); then
    verdict TIME "no end within $limit s"
  elif ((code == 77)) && "$has_gpu"; then
    verdict FAIL "it has found no GPU, and a driver is there"
  elif ((code == 77)); then
    verdict SKIP "no GPU"
  elif ((code != 0)); then
    verdict FAIL "exit status $code"
  else
    verdict PASS
  fi
}

# check NAME SECONDS PROGRAM [ARGUMENT...]: one of our own programs.
check() {
  begin "$1" "$2" || return 0
  shift 2
  if "$carried" || [[ -x "$1" ]]; then
    attempt "${ours[@]}" "$@"
    judge
  else
    verdict SKIP "$1 was not built"
  fi
}

# Where there is a driver, a check that finds no GPU has failed.
has_gpu=false
if [[ -e /dev/nvidiactl && "${CUDA_VISIBLE_DEVICES-all}" != @(|-1) ]] ||
  timeout 20 nvidia-smi -L >/dev/null 2>&1; then
  has_gpu=true
fi

# ---- what PYTHON has

# package_file FILE: the path of a file of NVIDIA's Python packages; nothing if they lack it.
package_file() {
  "$python" - "$1" 2>/dev/null <<'PYTHON'
import importlib.util, pathlib, sys

spec = importlib.util.find_spec("nvidia")
files = [pathlib.Path(folder, sys.argv[1]) for folder in spec.submodule_search_locations]
print(next(file for file in files if file.exists()))
PYTHON
}

# Unpacked beside NVIDIA's packages, the wheel works as if it had been installed with them: basind
# finds the CUDA runtime there.
unpack() {
  run "$python" -m zipfile -e "$here/basin.whl" "$package" && run chmod +x "$basind" || return 1
  local runtime
  runtime="$(package_file cu13/lib/libcudart.so.13)"
  [[ -z "$runtime" ]] || ln -s "${runtime%/cu13/*}" "$package/nvidia"
}

why_no_python=""
if ! command -v "$python" >/dev/null; then
  why_no_python="there is no $python; PYTHON names another one"
elif "$carried" && ! unpack; then
  why_no_python="the wheel could not be unpacked"
fi
# Our own programs do not lie beside these packages.
ours+=("BASIN_NCCL_LIBRARY=${BASIN_NCCL_LIBRARY:-$(package_file nccl/lib/libnccl.so.2)}")
why_no_torch="$why_no_python"
if [[ -z "$why_no_torch" ]] && ! why="$("$python" -c 'import numpy, torch' 2>&1)"; then
  why_no_torch="$python ($(tail -n 1 <<<"$why")); PYTHON names another one"
fi

# ---- the checks

# The machine, and basind with the CUDA runtime that it finds.
describe_devices() {
  begin devices 20 || return 0
  # shellcheck disable=SC2016  # The other shell expands its arguments.
  attempt bash -c '
    grep -m 1 "model name" /proc/cpuinfo
    echo "$(nproc) processors, Linux $(uname -r)"
    if command -v nvidia-smi; then nvidia-smi; fi
    if [[ -x "$0" ]]; then "$0" version; fi' "$basind"
  if [[ ! -x "$basind" ]]; then
    verdict SKIP "there is no basind: ${why_no_python:-it was not built}"
  elif "$has_gpu" && ! grep -q 'with a driver for CUDA' "$output"; then
    verdict FAIL "basind finds no GPU"
  else
    judge
  fi
}

# train NAME SECONDS PARTS
train() {
  begin "$1" "$2" || return 0
  local device=cpu
  "$has_gpu" && device=cuda
  if [[ -n "$why_no_torch" ]]; then
    verdict SKIP "$why_no_torch"
  elif [[ ! -x "$basind" ]]; then
    verdict SKIP "$basind was not built"
  else
    attempt env "PYTHONPATH=$package" PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 "$python" \
      "$train" "--basind=$basind" "--device=$device" "--parts=$3" "--patience=$((60 * scale))"
    judge
  fi
}

# A tool that cannot run (a container may forbid it) is skipped, with its own message as the reason.
# Errors that calls of CUDA return are not counted: some are tested, and others are asked for.
sanitize() {
  begin "$1" 90 || return 0
  if ! "$has_gpu"; then
    verdict SKIP "no GPU"
  elif ! command -v compute-sanitizer >/dev/null; then
    verdict SKIP "compute-sanitizer is not installed"
  else
    local options=(--tool "$name" --error-exitcode 9)
    [[ "$name" == memcheck ]] && options+=(--report-api-errors no)
    attempt "${ours[@]}" compute-sanitizer "${options[@]}" "$build/cuda_contract" --part=vectors \
      "--golden=$golden"
    if ((code != 0 && took < 1000 * limit)) && ! grep -q 'SUMMARY' "$output"; then
      verdict SKIP "it cannot run here: $(grep -v '^$' "$output" | tail -n 1)"
    elif ((code == 0)) && ! grep -q 'SUMMARY: 0 ' "$output"; then
      verdict FAIL "it has reported nothing"
    else
      judge
    fi
  fi
}

# On the emulated device few bytes are moved. Nothing is judged.
speed=(--least=0)
"$has_gpu" || speed+=(--emulated)

describe_devices
check contract-short 40 "$build/cuda_contract" "--golden=$golden" --part=short
# Without a GPU only the failure that says so is tested.
check trainer 20 "$trainer_test"
train training 150 results,device,plain,group
check nccl 40 "$group_test"
if "$has_gpu" || "$carried"; then
  check reduction-speed 40 "$build/cuda_bench" "${speed[@]}"
  check copy-speed 20 "$copy_bench" "${speed[@]}"
fi
# Without a GPU its cases on the emulated device run, and show that it can run here.
check aggregator 20 "$device_test"
train training-more 120 amp,accumulate,expandable_segments,cudaMallocAsync
check contract 75 "$build/cuda_contract" "--golden=$golden"
for tool in memcheck racecheck synccheck; do sanitize "$tool"; done

say "== summary"
run cat "$summary"
seconds=$((($(milliseconds) - began) / 1000))
if ((status != 0)); then
  say "== failed, in $seconds s"
elif ! "$has_gpu"; then
  say "== passed in $seconds s without a GPU: nothing of CUDA has run"
  exit 77
else
  say "== passed in $seconds s; $skipped checks were skipped"
fi
exit "$status"
