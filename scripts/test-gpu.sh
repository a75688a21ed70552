#!/usr/bin/env bash
# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
set -uo pipefail

usage() {
  cat <<'HELP'
Builds and runs the tests that need a GPU.

  contract    the contract suite and the golden vectors, bit for bit against the scalar reference,
              for the reducer and for the pipeline of an aggregator
  sanitizer   part of that under compute-sanitizer (memcheck, racecheck, synccheck), if it is
              installed and allowed to run
  trainer     the copies of a trainer's tensors: their order with its streams, captured graphs, and
              the kernel that gathers small ones
  group       the communicator of a node's ranks with NCCL itself, on as many GPUs as there are;
              the system's NCCL, or the file that BASIN_NCCL_LIBRARY names; skipped without it
  aggregator  whole rounds through an engine that reduces on the GPU, with the bits of the CPU, and
              what reduce.device auto chooses here
  bench       bandwidth of the reduction, which must be 90 % of the device's own copy bandwidth
              (f32, 2 to 16 contributions), and of a trainer's copies, which must be 85 % of one
              copy from or to pinned memory, each way and both at once; that of an aggregator's
              pipeline
  train       PyTorch with CUDA tensors in two processes, through basind: results bit for bit, and
              losses, parameters and time of a step beside DistributedDataParallel with NCCL or
              Gloo; float16 with a gradient scaler, windows of two backwards, results in the GPU's
              memory, and a group with NCCL where that takes the ranks. tests/gpu/run.py --help
              has the details. Skipped where PYTHON (default: python3) has no torch or numpy

usage: scripts/test-gpu.sh [--build DIR] [--arch LIST] [--build-only] [OPTION...]
       scripts/test-gpu.sh --carry DIR
       DIR/test-gpu.sh --carried [OPTION...]

  --build DIR    where to build (default: build/gpu)
  --arch LIST    CUDA architectures, as CMake takes them (default: all shipped ones)
  --build-only   stop after the build; needs no GPU
  --carry DIR    put everything that a machine with a GPU needs into DIR, from build/release, and
                 stop; needs no GPU. DIR has at most 64 MiB, and needs a driver and libstdc++
  --carried      run what lies beside this script
  --no-sanitizer, --no-bench, --no-train
                 leave that part out

Without --carry, contract, sanitizer and the bandwidth of the reduction need only a GPU, nvcc, a C++
compiler and CMake, none of Basin's other dependencies, and no network. The other parts are those of
build/release; they are skipped where they were not built.

Without a GPU what was carried runs as well, to show that it would: the aggregator and the two
benchmarks on the emulated device, and the training on the CPU against Gloo.

All output goes to the terminal and to report.txt in DIR.
Exit status: 0 passed, 1 failed, 2 usage, 77 what needs no GPU passed, but there is no GPU.

examples:
  scripts/test-gpu.sh --arch native       # quick: only for this machine's GPU
  scripts/test-gpu.sh                     # all shipped architectures
  scripts/test-gpu.sh --carry /tmp/gpu    # here; then copy /tmp/gpu to the machine with a GPU, and
  /tmp/gpu/test-gpu.sh --carried          # there
HELP
}

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(dirname "$here")"
build="$root/build/gpu"
arch=""
carry=""
carried=false
build_only=false
with_sanitizer=true
with_bench=true
with_train=true
while (($#)); do
  case "$1" in
    --build | --arch | --carry)
      if [[ -z "${2-}" ]]; then
        echo "test-gpu: $1 needs a value" >&2
        exit 2
      fi
      case "$1" in
        --build) build="$2" ;;
        --arch) arch="$2" ;;
        --carry) carry="$2" ;;
      esac
      shift
      ;;
    --carried) carried=true ;;
    --build-only) build_only=true ;;
    --no-sanitizer) with_sanitizer=false ;;
    --no-bench) with_bench=false ;;
    --no-train) with_train=false ;;
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

readonly most_carried_kib=$((64 * 1024))
programs="$root/build/release"
device_test="$programs/tests/aggregator/basin_aggregator_device_test"
trainer_test="$programs/tests/kernels/cuda/kernels_cuda_trainer_test"
group_test="$programs/tests/client/group/nccl/basin_client_nccl_cuda_test"
copy_bench="$programs/tests/client/device/basin_client_copy_bench"
golden="$root/tests/golden"
train="$root/tests/gpu/run.py"
package="$root/client/python"
basind="$programs/aggregator/basind/basind"
python="${PYTHON:-python3}"
# Only our own programs find the libraries that were carried. Those of the package have theirs in
# it, and torch must not find either.
ours=(env)
if "$carried"; then
  ours=(env "LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}")
  build="$here"
  device_test="$here/basin_aggregator_device_test"
  trainer_test="$here/kernels_cuda_trainer_test"
  group_test="$here/basin_client_nccl_cuda_test"
  copy_bench="$here/copy_bench"
  golden="$here/golden"
  train="$here/gpu/run.py"
  package="$here/python"
  basind="$here/python/basin/bin/basind"
fi
mkdir -p "$build"
report="$build/report.txt"
: >"$report"
say() { echo "$@" | tee -a "$report"; }

# Runs a command, shows and keeps its output, and returns its exit status.
run() {
  "$@" 2>&1 | tee -a "$report"
  return "${PIPESTATUS[0]}"
}

build_all() {
  local configure=(cmake -S "$root/tests/kernels/cuda/standalone" -B "$build")
  [[ -n "$arch" ]] && configure+=("-DCMAKE_CUDA_ARCHITECTURES=$arch")
  say "== build"
  run "${configure[@]}" || return 1
  run cmake --build "$build" --parallel "$(nproc)"
}

# Puts what the release build has into $carry.
pack() {
  say "== carry"
  (cd "$root" && run cmake --preset release && run cmake --build build/release --target \
    basin_aggregator_device_test basin_c basin_client_copy_bench basin_client_nccl_cuda_test \
    basinctl basind kernels_cuda_bench kernels_cuda_contract_test kernels_cuda_trainer_test) ||
    return 1
  mkdir -p "$carry/golden" "$carry/gpu" "$carry/lib" || return 1
  cp "$golden"/*.txt "$carry/golden/" || return 1
  cp "$root"/tests/gpu/*.py "$carry/gpu/" || return 1
  cp "$root/scripts/test-gpu.sh" "$carry/" || return 1
  local kernels="$programs/tests/kernels/cuda"
  strip -o "$carry/cuda_contract" "$kernels/kernels_cuda_contract_test" || return 1
  strip -o "$carry/cuda_bench" "$kernels/kernels_cuda_bench" || return 1
  strip -o "$carry/copy_bench" "$copy_bench" || return 1
  strip -o "$carry/basin_aggregator_device_test" "$device_test" || return 1
  strip -o "$carry/kernels_cuda_trainer_test" "$trainer_test" || return 1
  strip -o "$carry/basin_client_nccl_cuda_test" "$group_test" || return 1
  # The machine with a GPU has the libraries of C and C++, and no others.
  ldd "$carry"/{cuda_contract,cuda_bench,copy_bench} "$carry"/*_test |
    awk '/=> \// { print $3 }' | sort -u |
    grep -v -E '/(libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s)\.so' |
    xargs -r cp -L -t "$carry/lib" || return 1
  # The wheel has the package with its client library and programs, and the libraries that they
  # need.
  local wheels
  wheels="$(mktemp -d)" || return 1
  run "$root/scripts/build-wheel.sh" --build "$programs" "$wheels" &&
    cp "$wheels"/*.whl "$carry/basin.whl"
  local built=$?
  rm -rf "$wheels"
  ((built == 0)) || return 1
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

status=0
has_gpu=true

say "== contract"
if command -v nvidia-smi >/dev/null; then
  run nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
fi
run "${ours[@]}" "$build/cuda_contract" "--golden=$golden"
case "$?" in
  0) ;;
  77) has_gpu=false ;;
  *) status=1 ;;
esac

# A tool that cannot run (a container may forbid it) is skipped, with its own message as the reason.
# A tool that reports an error is a failure.
sanitize() {
  local tool="$1" log="$build/sanitizer-$1.txt"
  "${ours[@]}" compute-sanitizer --tool "$tool" --error-exitcode 9 "$build/cuda_contract" --quick \
    "--golden=$golden" >"$log" 2>&1
  local code=$?
  if grep -q "ERROR SUMMARY: 0 errors\|RACECHECK SUMMARY: 0 hazards" "$log" && ((code == 0)); then
    say "$tool: no errors ($(grep -c ' ok$' "$log") checks)"
  elif grep -q "ERROR SUMMARY\|RACECHECK SUMMARY" "$log"; then
    run tail -n 40 "$log"
    say "$tool: failed"
    status=1
  else
    say "$tool: skipped: $(grep -v '^$' "$log" | tail -n 1)"
  fi
}

if "$with_sanitizer" && "$has_gpu"; then
  say "== sanitizer"
  if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck synccheck; do sanitize "$tool"; done
  else
    say "skipped: compute-sanitizer is not installed"
  fi
fi

# Without a GPU only the failure that says so is tested.
say "== trainer"
if [[ -x "$trainer_test" ]]; then
  run "${ours[@]}" "$trainer_test" || status=1
else
  say "skipped: $trainer_test was not built"
fi

say "== group"
if [[ -x "$group_test" ]]; then
  run "${ours[@]}" "$group_test" || status=1
else
  say "skipped: $group_test was not built"
fi

# Without a GPU its cases on the emulated device run, and show that it can run here.
say "== aggregator"
if [[ -x "$device_test" ]]; then
  run "${ours[@]}" "$device_test" || status=1
else
  say "skipped: $device_test was not built"
fi

if "$with_bench" && { "$has_gpu" || "$carried"; }; then
  say "== bench"
  how=()
  # On the emulated device any speed is enough.
  "$has_gpu" || how=(--emulated --least=0)
  run "${ours[@]}" "$build/cuda_bench" "${how[@]}" || status=1
  if [[ -x "$copy_bench" ]]; then
    run "${ours[@]}" "$copy_bench" "${how[@]}" || status=1
  else
    say "skipped: $copy_bench was not built"
  fi
fi

# Unpacked, the wheel works without being installed.
unpack() {
  run "$python" -m zipfile -e "$here/basin.whl" "$package" && run chmod +x "$basind"
}

if "$with_train"; then
  say "== train"
  device=cpu
  "$has_gpu" && device=cuda
  if ! command -v "$python" >/dev/null; then
    say "skipped: there is no $python; PYTHON names another one"
  elif ! why="$("$python" -c 'import numpy, torch' 2>&1)"; then
    say "skipped: $python ($(tail -n 1 <<<"$why")); PYTHON names another one"
  elif ! "$carried" && [[ ! -x "$basind" ]]; then
    say "skipped: $basind was not built"
  elif "$carried" && ! unpack; then
    status=1
  else
    run env "PYTHONPATH=$package" PYTHONDONTWRITEBYTECODE=1 "$python" "$train" \
      "--basind=$basind" "--device=$device" || status=1
  fi
fi

if ((status != 0)); then
  say "== failed"
elif ! "$has_gpu"; then
  say "== passed without a GPU: nothing of CUDA has run"
  exit 77
else
  say "== passed"
fi
exit "$((status != 0))"
