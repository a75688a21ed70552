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
  bench       bandwidth of the reduction, as a share of the device's own copy bandwidth, and of the
              pipeline, as a share of a copy to the device and of a copy within the host

usage: scripts/test-gpu.sh [--build DIR] [--arch LIST] [--build-only] [--no-sanitizer] [--no-bench]
       scripts/test-gpu.sh --carry DIR
       DIR/test-gpu.sh --carried [--no-sanitizer] [--no-bench]

  --build DIR    where to build (default: build/gpu)
  --arch LIST    CUDA architectures, as CMake takes them (default: all shipped ones)
  --build-only   stop after the build; needs no GPU
  --carry DIR    put everything that a machine with a GPU needs into DIR, from build/release, and
                 stop; needs no GPU. DIR has at most 64 MiB, and needs a driver and libstdc++
  --carried      run what lies beside this script

Without --carry, contract, sanitizer and bench need only a GPU, nvcc, a C++ compiler and CMake, none
of Basin's other dependencies, and no network. The tests of the trainer, of groups and of the
aggregator are those of build/release; they are skipped where they were not built.

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
device_test="$root/build/release/tests/aggregator/basin_aggregator_device_test"
trainer_test="$root/build/release/tests/kernels/cuda/kernels_cuda_trainer_test"
group_test="$root/build/release/tests/client/group/nccl/basin_client_nccl_cuda_test"
golden="$root/tests/golden"
if "$carried"; then
  export LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
  build="$here"
  device_test="$here/basin_aggregator_device_test"
  trainer_test="$here/kernels_cuda_trainer_test"
  group_test="$here/basin_client_nccl_cuda_test"
  golden="$here/golden"
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

# Puts the programs of the release build into $carry.
pack() {
  say "== carry"
  (cd "$root" && run cmake --preset release && run cmake --build build/release --target \
    basin_aggregator_device_test kernels_cuda_bench kernels_cuda_contract_test \
    kernels_cuda_trainer_test basin_client_nccl_cuda_test) || return 1
  mkdir -p "$carry/golden" || return 1
  cp "$golden"/*.txt "$carry/golden/" || return 1
  cp "$root/scripts/test-gpu.sh" "$carry/" || return 1
  local kernels="$root/build/release/tests/kernels/cuda"
  strip -o "$carry/cuda_contract" "$kernels/kernels_cuda_contract_test" || return 1
  strip -o "$carry/cuda_bench" "$kernels/kernels_cuda_bench" || return 1
  strip -o "$carry/basin_aggregator_device_test" "$device_test" || return 1
  strip -o "$carry/kernels_cuda_trainer_test" "$trainer_test" || return 1
  strip -o "$carry/basin_client_nccl_cuda_test" "$group_test" || return 1
  # The machine with a GPU has the libraries of C and C++, and no others.
  mkdir -p "$carry/lib" || return 1
  ldd "$carry"/{cuda_contract,cuda_bench} "$carry"/*_test |
    awk '/=> \// { print $3 }' | sort -u |
    grep -v -E '/(libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s)\.so' |
    xargs -r cp -L -t "$carry/lib" || return 1
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
run "$build/cuda_contract" "--golden=$golden"
case "$?" in
  0) ;;
  77) has_gpu=false ;;
  *) status=1 ;;
esac

# A tool that cannot run (a container may forbid it) is skipped, with its own message as the reason.
# A tool that reports an error is a failure.
sanitize() {
  local tool="$1" log="$build/sanitizer-$1.txt"
  compute-sanitizer --tool "$tool" --error-exitcode 9 "$build/cuda_contract" --quick \
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
  run "$trainer_test" || status=1
else
  say "skipped: $trainer_test was not built"
fi

say "== group"
if [[ -x "$group_test" ]]; then
  run "$group_test" || status=1
else
  say "skipped: $group_test was not built"
fi

# Without a GPU its cases on the emulated device run, and show that it can run here.
say "== aggregator"
if [[ -x "$device_test" ]]; then
  run "$device_test" || status=1
else
  say "skipped: $device_test was not built"
fi

if "$with_bench" && "$has_gpu"; then
  say "== bench"
  run "$build/cuda_bench" || status=1
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
